"""Test the GPU kernels without a GPU: compile them for the CPU and compare their ids with the reference.

Threads run one at a time here, so these tests cannot find races. test_on_gpu.py can, because it uses a real GPU.
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
from gristmill.tokenizers.cuda.merge_tables import MergeTables, hash_word
from gristmill.tokenizers.cuda.patterns import Pattern, compile_options
from gristmill.tokenizers.tokenizer import tokenizer_for
from support import gpu_texts
from support import trained_tokenizers as made
from support.gpu_texts import (
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
"""Size of 16 tiles. It is small because three kernels run a block for every tile, even if the tile is empty."""
LARGE_CHUNK_BYTES = 1 << 20
DOCUMENTS = [b"x = 1\n" * 50, b"", b"def f(): return 'it''s'", b"x = 1\n" * 50]

SETTLED = [piece for piece in PIECES if piece not in {"\U00011de0", "\U00016ff4"}]
"""PIECES without the two characters that only gigatoken treats as numbers, because its Unicode version is newer.

gigatoken treats 4,655 more characters as letters or numbers than the reference. The kernels follow the reference.
"""

every_tokenizer = pytest.mark.parametrize("name", TRAINED)
every_vocabulary = pytest.mark.parametrize("name", [*TRAINED, *REVEALING])
every_pattern = pytest.mark.parametrize("name", REVEALING)
no_deadline = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def loaded(make_gpu):
    """Return a function that loads each tokenizer once. Its word table keeps the words of earlier tests."""

    @cache
    def tokenizer(name):
        return CudaTokenizer.with_gpu(definition_named(name), make_gpu, chunk_bytes=CHUNK_BYTES)

    return tokenizer


@pytest.fixture
def fresh(make_gpu):
    """Return a function that loads a tokenizer with an empty word table, and with less memory if requested."""

    def tokenizer(name, chunk_bytes=CHUNK_BYTES, **smaller_sizes):
        definition = definition_named(name)
        pattern, tables = Pattern.of(definition), MergeTables.of(definition)
        gpu = make_gpu(compile_options(pattern, tables.id_bits))
        sizes = structs.Sizes.of(chunk_bytes, tables.id_bits)._replace(**smaller_sizes)
        return CudaTokenizer(tokenizer_for(definition), gpu, Engine(gpu, tables, character_classes(pattern), sizes))

    return tokenizer


def assert_reference(tokenizer, documents):
    """Compare ids with the reference, and return the number of documents that the CPU encoded."""
    batch = tokenizer.encode_batch(documents)
    assert_same(batch, documents, ids_by_reference(tokenizer.definition, documents))
    return batch.num_on_cpu


def assert_on_card(tokenizer, documents):
    assert assert_reference(tokenizer, documents) == 0


def test_structure_sizes_match_the_kernels(loaded):
    assert loaded("gpt2")._gpu.structure_sizes() == {
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
def test_the_gpu_and_the_cpu_agree(loaded, name, texts):
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
    """Fill all 128 tiles of a large chunk."""
    assert_on_card(fresh(name, chunk_bytes=LARGE_CHUNK_BYTES), gpu_texts.scalars_in_context(step=97, all_below=0x3000))


@every_vocabulary
def test_apostrophes_and_contractions(loaded, name):
    assert_on_card(loaded(name), gpu_texts.apostrophes())


@every_vocabulary
def test_contractions_at_edges_of_groups_and_documents(loaded, name):
    assert_on_card(loaded(name), gpu_texts.contractions_at_edges())


@every_vocabulary
def test_runs_across_groups(loaded, name):
    assert_on_card(loaded(name), gpu_texts.runs_of(range(30, 35)))


@every_pattern
def test_runs_that_end_with_their_document(loaded, name):
    assert_on_card(loaded(name), gpu_texts.runs_end_to_end(75))


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
def test_runs_beyond_the_search_limit_are_left_to_the_cpu(loaded, name):
    runs = [
        b"x\n" + run * length + b"\ny" for run in (b"\n", b" ", b"7", b"\n ") for length in (4060, 4090, 4200, 5000)
    ]
    assert 0 < assert_reference(loaded(name), [b"before", *runs, b"after"]) <= len(runs)


@pytest.mark.parametrize("edge", [32, 8192])
@every_vocabulary
def test_documents_that_end_near_edges(loaded, name, edge):
    assert_on_card(loaded(name), gpu_texts.documents_around(edge))


@every_tokenizer
def test_empty_documents(loaded, name):
    for documents in ([], [b""], [b""] * 1000, [b"", b"x", b"", b"", b"it's", b""]):
        assert_on_card(loaded(name), documents)


def test_words_of_every_length(loaded):
    letters = random_letters(1200)
    assert_on_card(loaded("codebert"), [letters[length : 2 * length] for length in range(1, 601)])


@every_tokenizer
def test_words_of_many_lengths(loaded, name):
    """Test lengths around the limits of the kernels: 15, 64 and 512 bytes. Above 64, every 32 bytes add a window."""
    letters, lengths = (
        random_letters(2100, 1),
        [*range(1, 20), *range(60, 70), 95, 96, 97, 128, 129, *range(508, 518), 1025],
    )
    assert_on_card(loaded(name), [letters[length : 2 * length] for length in lengths])


@pytest.mark.parametrize("num_bytes", [700, 5000, 100_000])
def test_words_that_are_runs_of_one_character(loaded, num_bytes):
    assert_on_card(loaded("codebert"), gpu_texts.runs_that_are_one_word(num_bytes))


@pytest.mark.parametrize("num_bytes", [700, 5000])
def test_long_words_of_random_letters(loaded, num_bytes):
    assert_on_card(loaded("codebert"), [random_letters(num_bytes), b" " + random_letters(num_bytes, 1) + b" x"])


def test_a_word_longer_than_ten_tiles(loaded):
    assert_on_card(loaded("codebert"), [b"x ", random_letters(100_000), b" y"])


@every_tokenizer
def test_long_words_that_repeat_or_use_two_letters(loaded, name):
    words = [*gpu_texts.periodic(700), *gpu_texts.periodic(3000), *gpu_texts.runs_that_are_one_word(1200)]
    words += [random_letters(3000, alphabet=b"ab"), gpu_texts.english_without_spaces(3000)]
    assert_reference(loaded(name), words)


@every_tokenizer
@pytest.mark.parametrize("kind", gpu_texts.NOT_UTF8)
def test_invalid_utf8_is_an_error_with_the_document_number(loaded, kind, name):
    for documents in gpu_texts.around_not_utf8(kind):
        with pytest.raises(TokenizerError, match=r"^document 2: the tokenizer .* accepts only valid Unicode: byte"):
            loaded(name).encode_batch(documents)


@pytest.mark.parametrize(("kind", "name"), [*zip(gpu_texts.NOT_UTF8, cycle(TRAINED), strict=False)])
def test_invalid_utf8_is_an_error_in_every_method(loaded, kind, name):
    for documents in gpu_texts.around_not_utf8(kind):
        with pytest.raises(TokenizerError, match=r"^document 2: "):
            loaded(name).encode_joined(*joined(documents))
        with pytest.raises(TokenizerError, match=r"^document 2: "):
            loaded(name).encode_many(documents)


@every_tokenizer
@no_deadline
@given(documents=st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=10).map(str.encode)), max_size=8))
def test_random_bytes(loaded, name, documents):
    bad = [number for number, document in enumerate(documents) if not gpu_texts.is_utf8(document)]
    if bad:
        with pytest.raises(TokenizerError, match=rf"^document {bad[0]}: "):
            loaded(name).encode_batch(documents)
    else:
        assert_on_card(loaded(name), documents)


def test_a_character_split_between_two_documents_is_an_error(loaded):
    """Cut valid UTF-8 inside a character, so that only the concatenated documents are valid."""
    text = "é€🙂".encode()
    for at in {*range(1, len(text))} - {2, 5}:
        with pytest.raises(TokenizerError, match=r"^document 1: "):
            loaded("codebert").encode_batch([b"ok", text[:at], text[at:], b"ok"])


def test_invalid_utf8_is_found_in_a_piece_of_a_large_document(fresh):
    large = b"x = 1\n" * 300
    with pytest.raises(TokenizerError, match=r"^document 1, in the part from byte 996 on: .*: byte 806 \(0xff\)"):
        fresh("codebert", chunk_bytes=1000).encode_batch([large, large + b"ok\xff", b"y"])


def test_strings_are_encoded_as_their_utf8(loaded):
    tokenizer, texts = loaded("codebert"), ["größe = '😀'", "", "x"]
    expected = ids_by_reference(tokenizer.definition, [text.encode() for text in texts])
    assert_same(tokenizer.encode_batch(texts), texts, expected)
    assert_same(tokenizer.encode_batch([texts[0].encode(), *texts[1:]]), texts, expected)
    assert [one.ids.tolist() for one in tokenizer.encode_many(texts)] == [ids.tolist() for ids in expected]
    with pytest.raises(TokenizerError, match=r"^document 1: .* character 1 \(U\+D800\)"):
        tokenizer.encode_batch(["x", "y\ud800"])


def test_unmarked_control_tokens_are_encoded_as_text(make_gpu):
    """Add control tokens that are not marked as special, as in Qwen's tokenizer."""
    tree = json.loads(definition_named("qwen2").json)
    names = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<tool_call>"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    tree["added_tokens"] += [{"id": 600 + at, "content": name, **flags} for at, name in enumerate(names)]
    definition = definition_of(json.dumps(tree))
    tokenizer = CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=CHUNK_BYTES)
    documents = [f'PRE = "{name}"\n{name}{name} x{name}'.encode() for name in names]
    batch = tokenizer.encode_batch(documents)
    assert_same(batch, documents, ids_by_reference(definition_named("qwen2"), documents))
    assert_on_card(tokenizer, documents)
    assert not definition.control_ids.intersection(batch.ids.tolist())


@pytest.mark.parametrize("name", ["gpt2", "cl100k"])
def test_ids_above_65_535_take_32_bits(make_gpu, name):
    definition = gpu_texts.with_ids_above(definition_named(name), 1 << 16)
    tokenizer = CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=CHUNK_BYTES)
    documents = [*gpu_texts.apostrophes(), code_like(5000), *(random_letters(size) for size in (5, 14, 40, 80, 700))]
    assert tokenizer.encode_batch(documents).ids.dtype == np.uint32
    assert_on_card(tokenizer, documents)


def test_ids_that_fit_take_16_bits(loaded):
    assert loaded("codebert").encode_batch([b"x"]).ids.dtype == np.uint16


@pytest.mark.parametrize("name", ["gpt2", "qwen2"])
def test_merges_out_of_order(make_gpu, name):
    definition = gpu_texts.with_merges_out_of_order(definition_named(name))
    assert not MergeTables.of(definition).is_in_order
    tokenizer = CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=CHUNK_BYTES)
    documents = [random_letters(size) for size in (*range(1, 40), 100, 700)]
    assert_reference(tokenizer, [*documents, code_like(5000), gpu_texts.english_without_spaces(2000)])


@pytest.mark.parametrize("is_shuffled", [False, True], ids=["in order", "shuffled"])
def test_long_words_under_random_merges(make_gpu, is_shuffled):
    for seed in range(4):
        definition = gpu_texts.with_random_merges(seed, is_shuffled=is_shuffled)
        assert_reference(
            CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=1 << 17), gpu_texts.words_of_two_letters(seed)
        )


@pytest.fixture
def under_merges(make_gpu):
    """Return a function that checks the ids for given merges and returns the number of words that the CPU encoded."""

    def assert_same_under(merges, words):
        definition = definition_of(made.byte_level_with(merges))
        return assert_reference(CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=1 << 17), words)

    return assert_same_under


def test_windows_are_not_joined_at_tokens_that_only_start_at_the_same_byte(under_merges):
    """In both windows, a token starts at byte 63: `x` at the end of the first window, and `xy` in the second window.

    The token before byte 63 is `aa` in the first window and `a` in the second, so neither window contains `aaxy`.
    """
    word = b"b" + b"a" * 62 + b"xy"
    assert under_merges([("a", "a"), ("x", "y"), ("aa", "xy")], [word, word * 9, word + b"c" * 500]) == 0


def test_a_word_whose_start_depends_on_its_end_is_left_to_the_cpu(under_merges):
    """Units are merged in pairs from the end of the word. If the number of units is odd, the first is not merged."""
    units = [left + right for left in "abcdefghijklmnop" for right in "qrstuvwxyz"] + ["AB"]
    pairs = [(left, right) for left, right in pairwise(units)]
    words = ["".join(units[:num_units]).encode() for num_units in (3, 20, 41, 160, 161)]
    assert under_merges([*map(tuple, units), *pairs[::-1]], words) == 1


def test_a_token_longer_than_half_a_step_is_left_to_the_cpu(under_merges):
    doubled = [("a" * length, "a" * length) for length in (1, 2, 4, 8, 16, 32, 64, 128)]
    assert under_merges(doubled[:6], [b"a" * 5003]) == 0
    assert under_merges(doubled, [b"a" * 40, b"a" * 5003, b"b" + b"a" * 700]) > 0


def test_a_token_that_only_a_later_merge_produces(under_merges):
    """Merging all `a a` at once would be wrong: the first `aa` takes a third `a` before the next `aa` is produced."""
    assert under_merges([("aa", "a"), ("a", "a")], [b"a" * length for length in range(2, 200)]) == 0
    words = [b"abcbc", b"bcbc", b"bcbcbcabc", b"abcbc" * 10, b"abcbcbc" * 100, b"bc" * 300]
    assert under_merges([("a", "bc"), ("b", "c"), ("bc", "bc"), ("abc", "bc")], words) == 0


# The kernels are compiled for two id widths and two families of patterns. Test both of each.
@pytest.mark.parametrize(("name", "first_id"), [*zip(TRAINED, cycle([0, 1 << 16]), strict=False)])
def test_words_that_are_one_token_without_a_merge(make_gpu, name, first_id):
    definition = gpu_texts.with_exceptions(definition_named(name), gpu_texts.exceptional_words())
    definition = gpu_texts.with_ids_above(definition, first_id) if first_id else definition
    tokenizer = CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=CHUNK_BYTES)
    for word in gpu_texts.exceptional_words():
        assert_on_card(tokenizer, [word, b"x" + word])
    tokenizer.forget()
    for _ in range(2):  # in the first round, all words are new
        assert_on_card(tokenizer, gpu_texts.around_exceptions())


def test_a_word_with_the_hash_of_an_exception_is_no_exception(make_gpu):
    """The two words have the same length and the same 64-bit hash. They were found by inverting the hash."""
    same, other = b"wordsofsamehashx", b"AOfzMayhMzUtNLlX"
    assert hash_word(same) == hash_word(other)
    definition = gpu_texts.with_exceptions(definition_named("cl100k"), [same])
    assert_on_card(
        CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=CHUNK_BYTES), [same, other, other + b" " + same]
    )


def test_exceptions_of_two_bytes_need_no_extra_kernel(make_gpu):
    definition = definition_of(made.byte_level_with([("a", "b")], ["qz"], ignore_merges=True))
    tokenizer = CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=CHUNK_BYTES)
    assert_on_card(tokenizer, [b"qz", b"qzq qz", b" qz", b"abqz"])
    assert "apply_exceptions" not in str(tokenizer._engine._stages)


def test_exceptions_are_found_even_if_the_pool_is_full(make_gpu):
    definition = gpu_texts.with_exceptions(definition_named("gpt2"), [random_letters(60)])
    tables, pattern = MergeTables.of(definition), Pattern.of(definition)
    gpu, sizes = make_gpu(compile_options(pattern, tables.id_bits)), structs.Sizes.of(CHUNK_BYTES, tables.id_bits)
    engine = Engine(gpu, tables, character_classes(pattern), sizes._replace(pool_ids=20, arena_bytes=64))
    tokenizer = CudaTokenizer(tokenizer_for(definition), gpu, engine)
    documents = [random_letters(60), random_letters(61, 1), b"x"]
    assert assert_reference(tokenizer, documents) == 1
    assert_on_card(tokenizer, [random_letters(60), b"x"])


def test_ignore_merges_without_exceptions(make_gpu):
    definition = definition_of(made.byte_level_with([("a", "b"), ("ab", "c")], ignore_merges=True))
    assert_on_card(CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=CHUNK_BYTES), [b"abc", b"abcabc", b"cab"])


@pytest.fixture(scope="module")
def normalizing(make_gpu):
    """Return a function that loads each tokenizer once, with NFC as its normalizer."""

    @cache
    def tokenizer(name):
        return CudaTokenizer.with_gpu(gpu_texts.with_nfc(definition_named(name)), make_gpu, chunk_bytes=CHUNK_BYTES)

    return tokenizer


@cache
def stable_characters():
    return frozenset(map(chr, stable_code_points().tolist()))


def num_left_to_cpu(texts):
    return sum(not stable_characters().issuperset(text) for text in texts)


@every_tokenizer
def test_documents_that_nfc_may_change_are_left_to_the_cpu(normalizing, name):
    documents, num_changed = gpu_texts.changed_by_nfc()
    assert assert_reference(normalizing(name), documents) == num_changed


@every_tokenizer
def test_text_in_nfc_is_encoded_on_the_gpu(normalizing, name):
    pieces = [piece for piece in SETTLED if not num_left_to_cpu([piece])]
    texts = ["".join(pieces), *pieces, "각 가 힣 が ガ ñ Å ≠", "\u1100\u1100 \u3131"]
    assert_on_card(normalizing(name), [*(text.encode() for text in texts), *gpu_texts.documents_around(32)])


def test_a_combining_mark_does_not_join_the_previous_document(normalizing):
    assert (
        assert_reference(normalizing("qwen2"), [b"e", "\u0301x".encode(), b"e", "\u1100".encode(), "\u1161".encode()])
        == 2
    )


@no_deadline
@given(texts=st.lists(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES)).map("".join)), max_size=6))
def test_random_characters_with_nfc(normalizing, texts):
    assert assert_reference(normalizing("qwen2"), [text.encode() for text in texts]) == num_left_to_cpu(texts)


def test_characters_in_context_with_nfc(make_gpu):
    tokenizer = CudaTokenizer.with_gpu(
        gpu_texts.with_nfc(definition_named("revealing qwen2")), make_gpu, chunk_bytes=LARGE_CHUNK_BYTES
    )
    documents = gpu_texts.scalars_in_context(step=197, all_below=0x3000)
    num_unstable = num_left_to_cpu(document.decode() for document in documents)
    assert 0 < assert_reference(tokenizer, documents) == num_unstable < len(documents) / 2


def test_a_large_document_is_cut_where_nfc_does_not_join(make_gpu):
    definition = gpu_texts.with_nfc(definition_named("qwen2"))
    tokenizer = CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=3000)
    lines = b"".join(b"x = 1;\n" + line for line in ("e\u0301\n".encode(), "=\u0338y\n".encode(), b"a\n") * 300)
    assert assert_reference(tokenizer, [b"before", lines, code_like(8000)]) > 1


def test_encode_many_with_nfc_matches_the_reference(normalizing):
    texts = [b"def f(): pass\n", "e\u0301 = 1\n".encode(), b""]
    for found, text in zip(normalizing("qwen2").encode_many(texts, with_starts=True), texts, strict=True):
        one = reference_for(normalizing("qwen2").definition).encode(text, with_starts=True)
        assert all(np.array_equal(*columns) for columns in zip(found[:3], one[:3], strict=True))


def new_words(num_words, seed, num_bytes=9):
    letters = random_letters(num_words * num_bytes, seed)
    return b" ".join(letters[at : at + num_bytes] for at in range(0, len(letters), num_bytes))


@pytest.mark.parametrize("name", ["codebert", "cl100k"])
def test_a_full_word_table_is_cleared_and_the_cpu_encodes_the_rest(make_gpu, name):
    tokenizer = CudaTokenizer.with_gpu(definition_named(name), make_gpu, chunk_bytes=CHUNK_BYTES, num_slots=1024)
    documents = [new_words(400, seed) for seed in range(8)]
    assert 0 < assert_reference(tokenizer, documents) <= len(documents)
    assert tokenizer._engine.num_clears == 0
    assert_on_card(tokenizer, [new_words(400, 1)])
    assert tokenizer._engine.num_clears == 1


def test_a_cleared_table_has_no_ids_of_earlier_words(make_gpu):
    """If a new word occurs twice in a chunk, the second occurrence is looked up before the word has ids.

    The lookup must not return ids that the table had before it was cleared.
    """
    definition = definition_named("codebert")
    tokenizer = CudaTokenizer.with_gpu(definition, make_gpu, chunk_bytes=CHUNK_BYTES, num_slots=1024)
    for turn in range(12):
        assert_on_card(tokenizer, [gpu_texts.words_of_one_id(definition, 150, 150 * turn)])
    assert tokenizer._engine.num_clears > 0


def test_a_table_that_fills_slowly_is_cleared_in_time(make_gpu):
    tokenizer = CudaTokenizer.with_gpu(definition_named("codebert"), make_gpu, chunk_bytes=CHUNK_BYTES, num_slots=1024)
    for seed in range(12):
        assert_on_card(tokenizer, [new_words(100, seed), new_words(50, seed, num_bytes=20)])
    assert tokenizer._engine.num_clears >= 2


def test_ids_that_do_not_fit_into_the_pool_are_left_to_the_cpu(fresh):
    tokenizer = fresh("codebert", pool_ids=100)
    documents = [b"a short one", random_letters(60), random_letters(90, 1), random_letters(600, 2), b"x"]
    assert 0 < assert_reference(tokenizer, documents) < len(documents)
    assert_on_card(tokenizer, [b"a short one", random_letters(60)])
    assert tokenizer._engine.num_clears == 1


def test_an_endless_supply_of_long_new_words_fits(fresh):
    tokenizer = fresh("codebert", chunk_bytes=3000)
    assert_on_card(tokenizer, [random_letters(2900, seed) for seed in range(20)])
    assert_on_card(tokenizer, [new_words(90, seed, num_bytes=30) for seed in range(20)])
    assert tokenizer._engine.num_clears > 0


def test_words_that_do_not_fit_into_the_arena_are_forgotten(fresh):
    tokenizer = fresh("codebert", arena_bytes=64)
    documents = [new_words(5, seed, num_bytes=30) for seed in range(6)]
    for _ in range(2):
        assert_on_card(tokenizer, [*documents, *documents])
    assert tokenizer._engine.num_clears == 1


@every_tokenizer
def test_large_documents_are_cut_and_encoded_on_the_gpu(fresh, name):
    tokenizer = fresh(name, chunk_bytes=3000)
    assert_on_card(tokenizer, [code_like(20_000), b"", b"small", code_like(9000, 1), code_like(100, 2)])


def test_a_large_document_without_a_safe_cut_is_left_to_the_cpu(fresh):
    tokenizer = fresh("codebert", chunk_bytes=3000)
    documents = [b"before", b"x " * 2000, b"between", code_like(5000) + b" y" * 3000, b"after"]
    assert assert_reference(tokenizer, documents) == 2


@every_vocabulary
def test_documents_at_the_edges_of_chunks(fresh, name):
    assert_on_card(
        fresh(name, chunk_bytes=2000),
        [document for edge in (32, 500) for document in gpu_texts.documents_around(edge)],
    )


def test_more_documents_than_fit_into_a_chunk(fresh):
    assert_on_card(fresh("codebert", max_documents=10), [b"ab"[: number % 3] for number in range(95)])


@every_tokenizer
def test_known_and_forgotten_words_give_the_same_ids(fresh, name):
    tokenizer, documents = fresh(name), [code_like(3000), new_words(50, 1), random_letters(700)]
    assert_on_card(tokenizer, documents)
    assert_on_card(tokenizer, documents)
    tokenizer.forget()
    assert_on_card(tokenizer, documents)


def test_a_word_is_merged_once_unless_forgotten(fresh):
    tokenizer, num_new = fresh("codebert"), []
    take = tokenizer._engine._collect
    tokenizer._engine._collect = lambda slot, receive: take(
        slot, lambda chunk_ids: (num_new.append(chunk_ids.num_new_words), receive(chunk_ids))
    )
    for _ in range(2):
        tokenizer.encode_batch([b"three new words three new words"])
    tokenizer.forget()
    tokenizer.encode_batch([b"three new words"])
    assert num_new == [4, 0, 3]


def test_two_tokenizers_alternate(fresh):
    tokenizers = [fresh("codebert"), fresh("codebert"), fresh("cl100k")]
    for documents in (DOCUMENTS, DOCUMENTS[::-1], [code_like(2000)]):
        for tokenizer in tokenizers:
            assert_on_card(tokenizer, documents)


@every_tokenizer
def test_encode_many_equals_encode_for_each_text(loaded, name):
    documents = [code_like(size, size) for size in range(0, 400, 37)]
    for found, document in zip(loaded(name).encode_many(documents, with_starts=True), documents, strict=True):
        one = loaded(name).encode(document, with_starts=True)
        assert all(np.array_equal(*columns) for columns in zip(found[:3], one[:3], strict=True))
        assert found.control_id is one.control_id is None


@pytest.mark.parametrize("chunk_bytes", [500, CHUNK_BYTES])
def test_ids_in_gpu_memory(fresh, chunk_bytes):
    documents = [b"x = 1\n" * 500, b"", code_like(900), random_letters(10_000, alphabet=b"0123456789!?")]
    batch = fresh("codebert", chunk_bytes=chunk_bytes).encode_batch(documents, to="card")
    assert_same(batch, documents, ids_by_cpu(definition_named("codebert"), documents))


@pytest.mark.parametrize("to", ["machine", "card"])
def test_more_ids_than_expected(fresh, to):
    """Single digits give one id per byte, but the first buffer has space for only 0.6 ids per byte."""
    documents = [random_letters(60_000, seed, b"0123456789") for seed in range(3)]
    batch = fresh("qwen2", chunk_bytes=70_000).encode_batch(documents, to=to)
    assert_same(batch, documents, ids_by_reference(definition_named("qwen2"), documents))


def test_text_in_pinned_and_other_memory(fresh):
    tokenizer, documents = fresh("codebert", chunk_bytes=2000), [code_like(size, size) for size in range(0, 3000, 123)]
    (text, offsets), expected = joined(documents), ids_by_reference(definition_named("codebert"), documents)
    pinned, pinned_later = tokenizer.pinned(len(text)), text.copy()
    pinned[:] = text
    tokenizer.pin(pinned_later)
    for memory in (text, pinned, pinned_later):
        assert_same(tokenizer.encode_joined(memory, offsets), documents, expected)
    tokenizer.unpin(pinned_later)
    assert not tokenizer._gpu.is_pinned(pinned_later)


def test_a_batch_without_memory_does_not_affect_the_next(fresh):
    tokenizer, documents = fresh("codebert", chunk_bytes=1000), [code_like(900, seed) for seed in range(12)]
    takes, take = [], tokenizer._engine._collect

    def without_memory(slot, receive):
        takes.append(slot)
        if len(takes) == 3:
            raise MemoryError
        take(slot, receive)

    tokenizer._engine._collect = without_memory
    with pytest.raises(MemoryError):
        tokenizer.encode_batch(documents)
    assert_on_card(tokenizer, documents)


def test_ids_remain_valid_after_the_next_batch(loaded):
    first = loaded("codebert").encode_batch([b"the first of two"])
    kept = first.ids.copy()
    loaded("codebert").encode_batch([b"something else"] * 100)
    assert np.array_equal(first.ids, kept)


@pytest.mark.parametrize(
    "offsets", [[0, 9], [0, 5, 3], [-1, 3], [4, 2], []], ids=["beyond", "back and forth", "before", "back", "none"]
)
def test_invalid_offsets_are_an_error(loaded, offsets):
    with pytest.raises(InputError, match="encode_joined needs"):
        loaded("codebert").encode_joined(np.frombuffer(b"x = 1", np.uint8), np.array(offsets, np.int64))


def test_text_in_a_strided_array(loaded):
    spread = np.repeat(np.frombuffer(b"def f(): pass", np.uint8), 2)[::2]
    batch = loaded("codebert").encode_joined(spread, np.array([0, 13]))
    assert np.array_equal(batch.ids, loaded("codebert").encode(b"def f(): pass").ids)
