"""The GPU's kernels, compiled for the CPU and run there: the reference's ids, with no card in the machine.

Threads take turns here, so that races do not show, nor how fast it is: test_on_a_card.py is for those.
"""

import json
from functools import cache
from itertools import cycle, pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill.core.errors import InputError, TokenizerError
from gristmill.tokenizers.cuda import structs
from gristmill.tokenizers.cuda.character_classes import character_classes, stable_code_points
from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer
from gristmill.tokenizers.cuda.engine import Engine
from gristmill.tokenizers.cuda.merge_tables import MergeTables, hash_of
from gristmill.tokenizers.cuda.patterns import Pattern, compile_options
from gristmill.tokenizers.tokenizer import tokenizer_for
from support import card_texts
from support import tokenizers_made_here as made
from support.card_texts import (
    REVEALING,
    TRAINED,
    assert_same,
    code_like,
    definition_named,
    definition_of,
    ids_by_cpu,
    ids_by_reference,
    joined,
    random_letters,
    reference_for,
)
from support.word_pieces import PIECES

CHUNK_BYTES = 1 << 17
"""16 tiles. Three kernels have a block for each tile that a chunk may have, whatever is in it."""
LARGE_CHUNK_BYTES = 1 << 20
BY_TURNS = [b"x = 1\n" * 50, b"", b"def f(): return 'it''s'", b"x = 1\n" * 50]

SETTLED = [piece for piece in PIECES if piece not in {"\U00011de0", "\U00016ff4"}]
"""gigatoken's GPT-2 has a newer Unicode than the reference: these two are numbers there, and other 4,655 are letters or
numbers. The card goes by the reference."""

every_tokenizer = pytest.mark.parametrize("name", TRAINED)
every_vocabulary = pytest.mark.parametrize("name", [*TRAINED, *REVEALING])
every_pattern = pytest.mark.parametrize("name", REVEALING)
no_deadline = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def loaded(make_card):
    """By name, once: what was seen in one test is in the word table in the next."""

    @cache
    def tokenizer(name):
        return CudaTokenizer.over(definition_named(name), make_card, chunk_bytes=CHUNK_BYTES)

    return tokenizer


@pytest.fixture
def fresh(make_card):
    """With a word table of its own, and less room than usual where it says so."""

    def tokenizer(name, chunk_bytes=CHUNK_BYTES, **less_room):
        definition = definition_named(name)
        pattern, tables = Pattern.of(definition), MergeTables.of(definition)
        card = make_card(compile_options(pattern, tables.id_bits))
        sizes = structs.Sizes.of(chunk_bytes, tables.id_bits)._replace(**less_room)
        return CudaTokenizer(tokenizer_for(definition), card, Engine(card, tables, character_classes(pattern), sizes))

    return tokenizer


def assert_reference(tokenizer, documents):
    """-> Documents that the CPU did."""
    batch = tokenizer.encode_batch(documents)
    assert_same(batch, documents, ids_by_reference(tokenizer.definition, documents))
    return batch.num_on_cpu


def assert_on_card(tokenizer, documents):
    assert assert_reference(tokenizer, documents) == 0


def test_structures_have_the_size_that_the_kernels_know(loaded):
    assert loaded("gpt2")._card.structure_sizes() == {
        "Engine": structs.ENGINE.itemsize,
        "Chunk": structs.CHUNK.itemsize,
        "Result": structs.RESULT.itemsize,
        "Counters": structs.COUNTERS_BYTES,
        "TableState": structs.STATE_BYTES,
        "Entry": structs.ENTRY_BYTES,
    }


@every_vocabulary
@no_deadline
@given(texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=25).map("".join), min_size=1, max_size=8))
def test_random_documents_end_to_end(loaded, name, texts):
    assert_on_card(loaded(name), [text.encode() for text in texts])


@every_tokenizer
@no_deadline
@given(texts=st.lists(st.lists(st.sampled_from(SETTLED), max_size=25).map("".join), min_size=1, max_size=8))
def test_the_card_and_the_cpu_agree(loaded, name, texts):
    documents = [text.encode() for text in texts]
    batch = loaded(name).encode_batch(documents)
    assert_same(batch, documents, ids_by_cpu(definition_named(name), documents))


@every_vocabulary
@no_deadline
@given(texts=st.lists(st.text(max_size=60), max_size=6))
def test_random_characters(loaded, name, texts):
    assert_on_card(loaded(name), [text.encode() for text in texts])


@every_pattern
def test_characters_in_context(fresh, name):
    """All 128 tiles of a large chunk are full of them."""
    assert_on_card(fresh(name, chunk_bytes=LARGE_CHUNK_BYTES), card_texts.scalars_in_context(step=97, all_below=0x3000))


@every_vocabulary
def test_apostrophes_and_contractions(loaded, name):
    assert_on_card(loaded(name), card_texts.apostrophes())


@every_vocabulary
def test_contractions_at_edges_of_groups_and_documents(loaded, name):
    assert_on_card(loaded(name), card_texts.contractions_at_edges())


@every_vocabulary
def test_runs_across_groups(loaded, name):
    assert_on_card(loaded(name), card_texts.runs_of(range(30, 35)))


@every_pattern
def test_runs_that_end_with_their_document(loaded, name):
    assert_on_card(loaded(name), card_texts.runs_end_to_end(75))


@every_pattern
def test_runs_across_tiles(loaded, name):
    runs = [
        (one * length)[:length].encode()
        for one in (" ", "\n", "7", "'", " \n", "\u0663")
        for length in range(8190, 8195)
    ]
    num_on_cpu = assert_reference(loaded(name), [b"x" + run + b"y" for run in runs])
    assert num_on_cpu == 0 or name.endswith(("cl100k", "qwen2"))


@pytest.mark.parametrize("name", ["revealing cl100k", "revealing qwen2"])
def test_runs_longer_than_the_card_looks_back_are_done_by_the_cpu(loaded, name):
    runs = [
        b"x\n" + run * length + b"\ny" for run in (b"\n", b" ", b"7", b"\n ") for length in (4060, 4090, 4200, 5000)
    ]
    assert 0 < assert_reference(loaded(name), [b"before", *runs, b"after"]) <= len(runs)


@pytest.mark.parametrize("edge", [32, 8192])
@every_vocabulary
def test_documents_end_around_edges(loaded, name, edge):
    assert_on_card(loaded(name), card_texts.documents_around(edge))


@every_tokenizer
def test_empty_documents(loaded, name):
    for documents in ([], [b""], [b""] * 1000, [b"", b"x", b"", b"", b"it's", b""]):
        assert_on_card(loaded(name), documents)


def test_words_of_every_length(loaded):
    letters = random_letters(1200)
    assert_on_card(loaded("codebert"), [letters[length : 2 * length] for length in range(1, 601)])


@every_tokenizer
def test_words_of_many_lengths(loaded, name):
    """Around 15, 64 and 512 bytes other kernels take over; from 64 on every 32 bytes there is one window more."""
    letters, lengths = (
        random_letters(2100, 1),
        [*range(1, 20), *range(60, 70), 95, 96, 97, 128, 129, *range(508, 518), 1025],
    )
    assert_on_card(loaded(name), [letters[length : 2 * length] for length in lengths])


@pytest.mark.parametrize("num_bytes", [700, 5000, 100_000])
def test_words_that_are_runs_of_one_character(loaded, num_bytes):
    assert_on_card(loaded("codebert"), card_texts.runs_that_are_one_word(num_bytes))


@pytest.mark.parametrize("num_bytes", [700, 5000])
def test_long_words_of_random_letters(loaded, num_bytes):
    assert_on_card(loaded("codebert"), [random_letters(num_bytes), b" " + random_letters(num_bytes, 1) + b" x"])


def test_a_word_that_is_longer_than_ten_tiles(loaded):
    assert_on_card(loaded("codebert"), [b"x ", random_letters(100_000), b" y"])


@every_tokenizer
def test_long_words_that_repeat_or_use_two_letters(loaded, name):
    words = [*card_texts.periodic(700), *card_texts.periodic(3000), *card_texts.runs_that_are_one_word(1200)]
    words += [random_letters(3000, alphabet=b"ab"), card_texts.english_without_spaces(3000)]
    assert_reference(loaded(name), words)


@every_tokenizer
@pytest.mark.parametrize("kind", card_texts.NOT_UTF8)
def test_what_is_not_utf8_is_refused_by_its_number(loaded, kind, name):
    for documents in card_texts.around_not_utf8(kind):
        with pytest.raises(TokenizerError, match=r"^document 2: the tokenizer .* takes valid Unicode only: byte"):
            loaded(name).encode_batch(documents)


@pytest.mark.parametrize(("kind", "name"), [*zip(card_texts.NOT_UTF8, cycle(TRAINED), strict=False)])
def test_what_is_not_utf8_is_refused_however_it_is_given(loaded, kind, name):
    for documents in card_texts.around_not_utf8(kind):
        with pytest.raises(TokenizerError, match=r"^document 2: "):
            loaded(name).encode_joined(*joined(documents))
        with pytest.raises(TokenizerError, match=r"^document 2: "):
            loaded(name).encode_many(documents)


@every_tokenizer
@no_deadline
@given(documents=st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=10).map(str.encode)), max_size=8))
def test_random_bytes(loaded, name, documents):
    bad = [number for number, document in enumerate(documents) if not card_texts.is_utf8(document)]
    if bad:
        with pytest.raises(TokenizerError, match=rf"^document {bad[0]}: "):
            loaded(name).encode_batch(documents)
    else:
        assert_on_card(loaded(name), documents)


def test_characters_cut_by_the_edge_of_two_documents(loaded):
    """Joined they would be UTF-8, and so would what lies on either side."""
    whole = "é€🙂".encode()
    for at in {*range(1, len(whole))} - {2, 5}:
        with pytest.raises(TokenizerError, match=r"^document 1: "):
            loaded("codebert").encode_batch([b"ok", whole[:at], whole[at:], b"ok"])


def test_what_is_not_utf8_is_found_in_a_piece_of_a_large_document(fresh):
    large = b"x = 1\n" * 300
    with pytest.raises(TokenizerError, match=r"^document 1, from byte 996 on: .*: byte 806 \(0xff\)"):
        fresh("codebert", chunk_bytes=1000).encode_batch([large, large + b"ok\xff", b"y"])


def test_strings_are_encoded_as_their_utf8(loaded):
    tokenizer, texts = loaded("codebert"), ["größe = '😀'", "", "x"]
    expected = ids_by_reference(tokenizer.definition, [text.encode() for text in texts])
    assert_same(tokenizer.encode_batch(texts), texts, expected)
    assert_same(tokenizer.encode_batch([texts[0].encode(), *texts[1:]]), texts, expected)
    assert [one.ids.tolist() for one in tokenizer.encode_many(texts)] == [ids.tolist() for ids in expected]
    with pytest.raises(TokenizerError, match=r"^document 1: .* character 1 \(0xd800\)"):
        tokenizer.encode_batch(["x", "y\ud800"])


def test_task_tokens_that_are_not_marked_as_special_stay_text(make_card):
    """As Qwen has them; a plain token, which text may become, is refused."""
    tree = json.loads(definition_named("qwen2").json)
    names = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<tool_call>"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    tree["added_tokens"] += [{"id": 600 + at, "content": name, **flags} for at, name in enumerate(names)]
    definition = definition_of(json.dumps(tree))
    tokenizer = CudaTokenizer.over(definition, make_card, chunk_bytes=CHUNK_BYTES)
    documents = [f'PRE = "{name}"\n{name}{name} x{name}'.encode() for name in names]
    batch = tokenizer.encode_batch(documents)
    assert_same(batch, documents, ids_by_reference(definition_named("qwen2"), documents))
    assert_on_card(tokenizer, documents)
    assert not definition.control_ids.intersection(batch.ids.tolist())


@pytest.mark.parametrize("name", ["gpt2", "cl100k"])
def test_ids_above_65_535_take_32_bits(make_card, name):
    definition = card_texts.with_ids_above(definition_named(name), 1 << 16)
    tokenizer = CudaTokenizer.over(definition, make_card, chunk_bytes=CHUNK_BYTES)
    documents = [*card_texts.apostrophes(), code_like(5000), *(random_letters(size) for size in (5, 14, 40, 80, 700))]
    assert tokenizer.encode_batch(documents).ids.dtype == np.uint32
    assert_on_card(tokenizer, documents)


def test_ids_that_fit_take_16_bits(loaded):
    assert loaded("codebert").encode_batch([b"x"]).ids.dtype == np.uint16


@pytest.mark.parametrize("name", ["gpt2", "qwen2"])
def test_merges_out_of_order(make_card, name):
    definition = card_texts.with_merges_out_of_order(definition_named(name))
    assert not MergeTables.of(definition).is_in_order
    tokenizer = CudaTokenizer.over(definition, make_card, chunk_bytes=CHUNK_BYTES)
    documents = [random_letters(size) for size in (*range(1, 40), 100, 700)]
    assert_reference(tokenizer, [*documents, code_like(5000), card_texts.english_without_spaces(2000)])


@pytest.mark.parametrize("is_shuffled", [False, True], ids=["in order", "shuffled"])
def test_long_words_under_random_merges(make_card, is_shuffled):
    for seed in range(4):
        definition = card_texts.with_random_merges(seed, is_shuffled=is_shuffled)
        assert_reference(
            CudaTokenizer.over(definition, make_card, chunk_bytes=1 << 17), card_texts.of_two_letters(seed)
        )


@pytest.fixture
def under_merges(make_card):
    """-> Ids equal to the reference's, and how many words the CPU did."""

    def assert_same_under(merges, words):
        definition = definition_of(made.byte_level_of(merges))
        return assert_reference(CudaTokenizer.over(definition, make_card, chunk_bytes=1 << 17), words)

    return assert_same_under


def test_windows_that_only_begin_a_token_at_the_same_byte_are_not_joined(under_merges):
    """Byte 63 begins a token in both windows: `x` in the first, which ends there, and `xy` in the second.

    In the first `aa` comes before it, in the second `a`; only together do they show that `aaxy` is one token.
    """
    word = b"b" + b"a" * 62 + b"xy"
    assert under_merges([("a", "a"), ("x", "y"), ("aa", "xy")], [word, word * 9, word + b"c" * 500]) == 0


def test_a_word_whose_end_decides_about_its_begin_is_done_by_the_cpu(under_merges):
    """Units pair up from the last to the first: with an odd number of them, the first stays alone."""
    units = [left + right for left in "abcdefghijklmnop" for right in "qrstuvwxyz"] + ["AB"]
    pairs = [(left, right) for left, right in pairwise(units)]
    words = ["".join(units[:num_units]).encode() for num_units in (3, 20, 41, 160, 161)]
    assert under_merges([*map(tuple, units), *pairs[::-1]], words) == 1


def test_a_token_longer_than_half_a_step_is_done_by_the_cpu(under_merges):
    doubled = [("a" * length, "a" * length) for length in (1, 2, 4, 8, 16, 32, 64, 128)]
    assert under_merges(doubled[:6], [b"a" * 5003]) == 0
    assert under_merges(doubled, [b"a" * 40, b"a" * 5003, b"b" + b"a" * 700]) > 0


def test_a_token_that_only_a_later_merge_makes(under_merges):
    """To merge all of `a a` at once would be wrong: the first `aa` takes its third `a` before the next `aa` is made."""
    assert under_merges([("aa", "a"), ("a", "a")], [b"a" * length for length in range(2, 200)]) == 0
    words = [b"abcbc", b"bcbc", b"bcbcbcabc", b"abcbc" * 10, b"abcbcbc" * 100, b"bc" * 300]
    assert under_merges([("a", "bc"), ("b", "c"), ("bc", "bc"), ("abc", "bc")], words) == 0


# Both widths of ids with both families of patterns: more the kernels do not tell apart here.
@pytest.mark.parametrize(("name", "first_id"), [*zip(TRAINED, cycle([0, 1 << 16]), strict=False)])
def test_words_that_are_one_token_though_no_merge_makes_it(make_card, name, first_id):
    definition = card_texts.with_exceptions(definition_named(name), card_texts.exceptional_words())
    definition = card_texts.with_ids_above(definition, first_id) if first_id else definition
    tokenizer = CudaTokenizer.over(definition, make_card, chunk_bytes=CHUNK_BYTES)
    for word in card_texts.exceptional_words():
        assert_on_card(tokenizer, [word, b"x" + word])
    tokenizer.forget()
    for _ in range(2):  # new words, then known ones
        assert_on_card(tokenizer, card_texts.around_exceptions())


def test_a_word_with_the_hash_of_an_exception_is_none(make_card):
    """Found by inverting the hash: the same number of letters, and all 64 bits the same."""
    same, other = b"wordsofsamehashx", b"AOfzMayhMzUtNLlX"
    assert hash_of(same) == hash_of(other)
    definition = card_texts.with_exceptions(definition_named("cl100k"), [same])
    assert_on_card(
        CudaTokenizer.over(definition, make_card, chunk_bytes=CHUNK_BYTES), [same, other, other + b" " + same]
    )


def test_exceptions_of_two_bytes_alone_need_no_kernel_more(make_card):
    definition = definition_of(made.byte_level_of([("a", "b")], ["qz"], ignore_merges=True))
    tokenizer = CudaTokenizer.over(definition, make_card, chunk_bytes=CHUNK_BYTES)
    assert_on_card(tokenizer, [b"qz", b"qzq qz", b" qz", b"abqz"])
    assert "apply_exceptions" not in str(tokenizer._engine._stages)


def test_exceptions_whose_merges_find_no_room_are_themselves(make_card):
    definition = card_texts.with_exceptions(definition_named("gpt2"), [random_letters(60)])
    tables, pattern = MergeTables.of(definition), Pattern.of(definition)
    card, sizes = make_card(compile_options(pattern, tables.id_bits)), structs.Sizes.of(CHUNK_BYTES, tables.id_bits)
    engine = Engine(card, tables, character_classes(pattern), sizes._replace(pool_ids=20, arena_bytes=64))
    tokenizer = CudaTokenizer(tokenizer_for(definition), card, engine)
    documents = [random_letters(60), random_letters(61, 1), b"x"]
    assert assert_reference(tokenizer, documents) == 1
    assert_on_card(tokenizer, [random_letters(60), b"x"])


def test_ignored_merges_that_change_nothing_are_taken(make_card):
    definition = definition_of(made.byte_level_of([("a", "b"), ("ab", "c")], ignore_merges=True))
    assert_on_card(CudaTokenizer.over(definition, make_card, chunk_bytes=CHUNK_BYTES), [b"abc", b"abcabc", b"cab"])


@pytest.fixture(scope="module")
def normalizing(make_card):
    """By name, once: with NFC before all."""

    @cache
    def tokenizer(name):
        return CudaTokenizer.over(card_texts.with_nfc(definition_named(name)), make_card, chunk_bytes=CHUNK_BYTES)

    return tokenizer


@cache
def stable_characters():
    return frozenset(map(chr, stable_code_points().tolist()))


def num_left_to_cpu(texts):
    return sum(not stable_characters().issuperset(text) for text in texts)


@every_tokenizer
def test_documents_that_nfc_may_change_are_done_by_the_cpu(normalizing, name):
    documents, num_changed = card_texts.changed_by_nfc()
    assert assert_reference(normalizing(name), documents) == num_changed


@every_tokenizer
def test_text_in_nfc_is_done_by_the_card(normalizing, name):
    pieces = [piece for piece in SETTLED if not num_left_to_cpu([piece])]
    texts = ["".join(pieces), *pieces, "각 가 힣 が ガ ñ Å ≠", "\u1100\u1100 \u3131"]
    assert_on_card(normalizing(name), [*(text.encode() for text in texts), *card_texts.documents_around(32)])


def test_a_mark_at_the_start_of_a_document_is_its_own(normalizing):
    assert (
        assert_reference(normalizing("qwen2"), [b"e", "\u0301x".encode(), b"e", "\u1100".encode(), "\u1161".encode()])
        == 2
    )


@no_deadline
@given(texts=st.lists(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES)).map("".join)), max_size=6))
def test_random_characters_with_nfc(normalizing, texts):
    assert assert_reference(normalizing("qwen2"), [text.encode() for text in texts]) == num_left_to_cpu(texts)


def test_characters_in_context_with_nfc(make_card):
    tokenizer = CudaTokenizer.over(
        card_texts.with_nfc(definition_named("revealing qwen2")), make_card, chunk_bytes=LARGE_CHUNK_BYTES
    )
    documents = card_texts.scalars_in_context(step=197, all_below=0x3000)
    num_unstable = num_left_to_cpu(document.decode() for document in documents)
    assert 0 < assert_reference(tokenizer, documents) == num_unstable < len(documents) / 2


def test_a_large_document_is_cut_where_nfc_does_not_join(make_card):
    definition = card_texts.with_nfc(definition_named("qwen2"))
    tokenizer = CudaTokenizer.over(definition, make_card, chunk_bytes=3000)
    lines = b"".join(b"x = 1;\n" + line for line in ("e\u0301\n".encode(), "=\u0338y\n".encode(), b"a\n") * 300)
    assert assert_reference(tokenizer, [b"before", lines, code_like(8000)]) > 1


def test_encode_many_with_nfc_is_the_references(normalizing):
    texts = [b"def f(): pass\n", "e\u0301 = 1\n".encode(), b""]
    for found, text in zip(normalizing("qwen2").encode_many(texts, with_starts=True), texts, strict=True):
        one = reference_for(normalizing("qwen2").definition).encode(text, with_starts=True)
        assert all(np.array_equal(*columns) for columns in zip(found[:3], one[:3], strict=True))


def new_words(num_words, seed, num_bytes=9):
    letters = random_letters(num_words * num_bytes, seed)
    return b" ".join(letters[at : at + num_bytes] for at in range(0, len(letters), num_bytes))


@pytest.mark.parametrize("name", ["codebert", "cl100k"])
def test_a_full_word_table_is_emptied_and_the_cpu_helps(make_card, name):
    tokenizer = CudaTokenizer.over(definition_named(name), make_card, chunk_bytes=CHUNK_BYTES, num_slots=1024)
    documents = [new_words(400, seed) for seed in range(8)]
    assert 0 < assert_reference(tokenizer, documents) <= len(documents)
    assert tokenizer._engine.num_clears == 0
    assert_on_card(tokenizer, [new_words(400, 1)])
    assert tokenizer._engine.num_clears == 1


def test_an_emptied_table_has_no_ids_of_the_words_that_were_there(make_card):
    """A word that comes again in the chunk in which it is new finds its entry before its ids are known."""
    definition = definition_named("codebert")
    tokenizer = CudaTokenizer.over(definition, make_card, chunk_bytes=CHUNK_BYTES, num_slots=1024)
    for turn in range(12):
        assert_on_card(tokenizer, [card_texts.words_of_one_id(definition, 150, 150 * turn)])
    assert tokenizer._engine.num_clears > 0


def test_a_table_that_fills_up_slowly_is_emptied_in_time(make_card):
    tokenizer = CudaTokenizer.over(definition_named("codebert"), make_card, chunk_bytes=CHUNK_BYTES, num_slots=1024)
    for seed in range(12):
        assert_on_card(tokenizer, [new_words(100, seed), new_words(50, seed, num_bytes=20)])
    assert tokenizer._engine.num_clears >= 2


def test_ids_that_find_no_room_in_the_pool_are_done_by_the_cpu(fresh):
    tokenizer = fresh("codebert", pool_ids=100)
    documents = [b"a short one", random_letters(60), random_letters(90, 1), random_letters(600, 2), b"x"]
    assert 0 < assert_reference(tokenizer, documents) < len(documents)
    assert_on_card(tokenizer, [b"a short one", random_letters(60)])
    assert tokenizer._engine.num_clears == 1


def test_long_new_words_without_end_always_find_room(fresh):
    tokenizer = fresh("codebert", chunk_bytes=3000)
    assert_on_card(tokenizer, [random_letters(2900, seed) for seed in range(20)])
    assert_on_card(tokenizer, [new_words(90, seed, num_bytes=30) for seed in range(20)])
    assert tokenizer._engine.num_clears > 0


def test_words_that_find_no_room_in_the_arena_are_forgotten(fresh):
    tokenizer = fresh("codebert", arena_bytes=64)
    documents = [new_words(5, seed, num_bytes=30) for seed in range(6)]
    for _ in range(2):
        assert_on_card(tokenizer, [*documents, *documents])
    assert tokenizer._engine.num_clears == 1


@every_tokenizer
def test_large_documents_are_cut_and_done_by_the_card(fresh, name):
    tokenizer = fresh(name, chunk_bytes=3000)
    assert_on_card(tokenizer, [code_like(20_000), b"", b"small", code_like(9000, 1), code_like(100, 2)])


def test_a_large_document_with_no_place_to_cut_is_done_by_the_cpu(fresh):
    tokenizer = fresh("codebert", chunk_bytes=3000)
    documents = [b"before", b"x " * 2000, b"between", code_like(5000) + b" y" * 3000, b"after"]
    assert assert_reference(tokenizer, documents) == 2


@every_vocabulary
def test_chunks_and_what_lies_at_their_edges(fresh, name):
    assert_on_card(
        fresh(name, chunk_bytes=2000),
        [document for edge in (32, 500) for document in card_texts.documents_around(edge)],
    )


def test_more_documents_than_a_chunk_takes(fresh):
    assert_on_card(fresh("codebert", max_documents=10), [b"ab"[: number % 3] for number in range(95)])


@every_tokenizer
def test_known_words_and_forgotten_ones_give_the_same(fresh, name):
    tokenizer, documents = fresh(name), [code_like(3000), new_words(50, 1), random_letters(700)]
    assert_on_card(tokenizer, documents)
    assert_on_card(tokenizer, documents)
    tokenizer.forget()
    assert_on_card(tokenizer, documents)


def test_a_word_is_merged_once_and_again_only_when_forgotten(fresh):
    tokenizer, num_new = fresh("codebert"), []
    take = tokenizer._engine._take
    tokenizer._engine._take = lambda slot, receive: take(
        slot, lambda done: (num_new.append(done.num_new_words), receive(done))
    )
    for _ in range(2):
        tokenizer.encode_batch([b"three new words three new words"])
    tokenizer.forget()
    tokenizer.encode_batch([b"three new words"])
    assert num_new == [4, 0, 3]


def test_two_tokenizers_by_turns(fresh):
    tokenizers = [fresh("codebert"), fresh("codebert"), fresh("cl100k")]
    for documents in (BY_TURNS, BY_TURNS[::-1], [code_like(2000)]):
        for tokenizer in tokenizers:
            assert_on_card(tokenizer, documents)


@every_tokenizer
def test_encode_many_is_encode_for_each(loaded, name):
    documents = [code_like(size, size) for size in range(0, 400, 37)]
    for found, document in zip(loaded(name).encode_many(documents, with_starts=True), documents, strict=True):
        one = loaded(name).encode(document, with_starts=True)
        assert all(np.array_equal(*columns) for columns in zip(found[:3], one[:3], strict=True))
        assert found.control_id is one.control_id is None


@pytest.mark.parametrize("chunk_bytes", [500, CHUNK_BYTES])
def test_ids_on_the_card(fresh, chunk_bytes):
    documents = [b"x = 1\n" * 500, b"", code_like(900), random_letters(10_000, alphabet=b"0123456789!?")]
    batch = fresh("codebert", chunk_bytes=chunk_bytes).encode_batch(documents, to="card")
    assert_same(batch, documents, ids_by_cpu(definition_named("codebert"), documents))


@pytest.mark.parametrize("to", ["machine", "card"])
def test_more_ids_than_expected(fresh, to):
    """A number of one digit is an id a byte: over the 0.6 there is room for at first."""
    documents = [random_letters(60_000, seed, b"0123456789") for seed in range(3)]
    batch = fresh("qwen2", chunk_bytes=70_000).encode_batch(documents, to=to)
    assert_same(batch, documents, ids_by_reference(definition_named("qwen2"), documents))


def test_text_in_pinned_memory_and_not(fresh):
    tokenizer, documents = fresh("codebert", chunk_bytes=2000), [code_like(size, size) for size in range(0, 3000, 123)]
    (text, offsets), expected = joined(documents), ids_by_reference(definition_named("codebert"), documents)
    pinned, there_already = tokenizer.pinned(len(text)), text.copy()
    pinned[:] = text
    tokenizer.pin(there_already)
    for memory in (text, pinned, there_already):
        assert_same(tokenizer.encode_joined(memory, offsets), documents, expected)
    tokenizer.unpin(there_already)
    assert not tokenizer._card.is_pinned(there_already)


def test_after_a_batch_that_found_no_memory_the_next_is_right(fresh):
    tokenizer, documents = fresh("codebert", chunk_bytes=1000), [code_like(900, seed) for seed in range(12)]
    takes, take = [], tokenizer._engine._take

    def without_memory(slot, receive):
        takes.append(slot)
        if len(takes) == 3:
            raise MemoryError
        take(slot, receive)

    tokenizer._engine._take = without_memory
    with pytest.raises(MemoryError):
        tokenizer.encode_batch(documents)
    assert_on_card(tokenizer, documents)


def test_ids_of_one_batch_outlive_the_next(loaded):
    first = loaded("codebert").encode_batch([b"the first of two"])
    kept = first.ids.copy()
    loaded("codebert").encode_batch([b"something else"] * 100)
    assert np.array_equal(first.ids, kept)


@pytest.mark.parametrize(
    "offsets", [[0, 9], [0, 5, 3], [-1, 3], [4, 2], []], ids=["beyond", "back and forth", "before", "back", "none"]
)
def test_offsets_that_are_not_within_the_text_are_refused(loaded, offsets):
    with pytest.raises(InputError, match="encode_joined takes"):
        loaded("codebert").encode_joined(np.frombuffer(b"x = 1", np.uint8), np.array(offsets, np.int64))


def test_text_that_does_not_lie_in_one_piece_is_the_same(loaded):
    spread = np.repeat(np.frombuffer(b"def f(): pass", np.uint8), 2)[::2]
    batch = loaded("codebert").encode_joined(spread, np.array([0, 13]))
    assert np.array_equal(batch.ids, loaded("codebert").encode(b"def f(): pass").ids)
