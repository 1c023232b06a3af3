"""Compare the lookup tables of the kernels with the merges of a tokenizer and with the ids of `tokenizers`."""

import json
import random
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import Tokenizer

from gristmill.core.errors import NotOnGpuError, TokenizerError
from gristmill.tokenizers.cuda import merge_tables as merging
from gristmill.tokenizers.cuda.character_classes import character_classes
from gristmill.tokenizers.cuda.merge_tables import EMPTY, NO_ID, MergeTables, bpe, byte_characters, first_slots
from gristmill.tokenizers.cuda.patterns import CL100K, GPT2, QWEN2, STARCODER2, Pattern
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.huggingface import ReferenceTokenizer
from support import trained_tokenizers as made
from support.word_starts_in_numpy import word_starts

TEXTS = [
    'def f(x):\n\treturn {"it\'s": 12345, "WE\'LL": [½, x]}  # ok?!\r\n\n   ',
    "import json\n\n\nclass JSONDecoder(object):\n    encode = True  \t\n",
    "naïve 字 🙂 e\u0301 \u3000x\u00a0y '\u017fo",
    "    aaaa bbbbbb \x00\x1c __init__==0.125",
]


def definition(content):
    return Definition(name="test", json=content.encode(), config=b"{}")


def changed(content, change):
    tree = json.loads(content)
    change(tree)
    return definition(json.dumps(tree))


def rank_of(tables, left, right):
    """Search the table as a kernel does."""
    slot = int(first_slots(np.array([left << 21 | right], np.uint64), tables.table_bits)[0])
    while (entry := int(tables.table[slot])) != EMPTY:
        if entry >> 22 == left << 21 | right:
            return entry & (1 << 22) - 1
        slot = (slot + 1) % len(tables.table)
    return None


def ranks_of(tables):
    entries = [entry for entry in tables.table.tolist() if entry != EMPTY]
    return {entry >> 22: entry & (1 << 22) - 1 for entry in entries}


def merged(tables, word):
    return bpe([int(tables.byte_ids[byte]) for byte in word], ranks_of(tables), tables.products.tolist())


def test_every_merge_is_found_and_no_other_pair(codebert):
    tables = MergeTables.of(codebert.definition)
    ids = codebert.definition.ids_by_token
    pairs = json.loads(codebert.definition.json)["model"]["merges"]
    assert len(pairs) == len(tables.products) == 50_000
    for rank, (left, right) in enumerate(pairs):
        assert rank_of(tables, ids[left], ids[right]) == rank
        assert tables.products[rank] == ids[left + right]
    known, generator = {(ids[left], ids[right]) for left, right in pairs}, random.Random(0)
    absent = {(generator.randrange(50_265), generator.randrange(50_265)) for _ in range(50_000)} - known
    assert all(rank_of(tables, *pair) is None for pair in absent)


def test_tables_of_any_size_are_at_most_half_full_and_searchable():
    for num_merges in (0, 1, 7, 8, 9, 100, 5000):
        keys = np.random.default_rng(num_merges).choice(1 << 42, num_merges, replace=False).astype(np.uint64)
        bits = max(4, (2 * num_merges - 1).bit_length())
        tables = MergeTables._make(
            [None, None, merging._build_table(keys, bits), bits, *[None] * (len(MergeTables._fields) - 4)]
        )
        assert 2 * num_merges <= len(tables.table)
        found = [rank_of(tables, key >> 21, key & (1 << 21) - 1) for key in keys.tolist()]
        assert found == list(range(num_merges))


def test_entries_beyond_the_end_of_the_table_wrap_around():
    candidates = np.arange(1, 200_000, dtype=np.uint64)
    at_the_end = candidates[first_slots(candidates, 4) == 15][:5]
    tables = MergeTables._make(
        [None, None, merging._build_table(at_the_end, 4), 4, *[None] * (len(MergeTables._fields) - 4)]
    )
    assert [rank_of(tables, 0, key) for key in at_the_end.tolist()] == [0, 1, 2, 3, 4]


def test_the_byte_alphabet_matches_the_reference():
    engine = Tokenizer.from_str(made.byte_level_with([]))
    encoded = [engine.pre_tokenizer.pre_tokenize_str(chr(byte))[0][0] for byte in range(0x21)]
    assert "".join(encoded) == byte_characters()[:0x21]
    assert engine.pre_tokenizer.pre_tokenize_str("é")[0][0] == byte_characters()[0xC3] + byte_characters()[0xA9]
    assert len(set(byte_characters())) == 256


def test_pair_ids_match_the_merges(codebert):
    tables = MergeTables.of(codebert.definition)
    for first in range(0, 256, 3):
        for second in range(256):
            pair, of_bytes = tables.pair_ids[first | second << 8], tables.byte_ids[[first, second]].tolist()
            rank = rank_of(tables, *of_bytes)
            assert pair == (NO_ID if rank is None else tables.products[rank])


def test_codeberts_ids_fit_in_two_bytes_and_its_merges_are_in_order(codebert):
    tables = MergeTables.of(codebert.definition)
    assert (tables.id_bits, tables.is_in_order, tables.exceptions) == (16, True, ())


def test_a_merge_before_the_token_it_uses_is_out_of_order(codebert):
    def plant(tree):
        merges = tree["model"]["merges"]
        merges.insert(0, merges.pop(merges.index(["Ġt", "he"])))

    assert not MergeTables.of(changed(codebert.definition.json, plant)).is_in_order


def test_a_token_produced_again_after_its_use_is_out_of_order():
    once = [("a", "b"), ("b", "c"), ("ab", "c"), ("abc", "d")]
    assert MergeTables.of(definition(made.byte_level_with(once))).is_in_order
    assert not MergeTables.of(definition(made.byte_level_with([*once, ("a", "bc")]))).is_in_order


def test_an_id_beyond_two_bytes_needs_32_bits():
    def move(tree):
        tree["model"]["vocab"]["ab"] = 70_000

    tables = MergeTables.of(changed(made.byte_level_with([("a", "b")]), move))
    assert (tables.id_bits, tables.pair_ids[ord("a") | ord("b") << 8]) == (32, 70_000)


def test_merges_may_be_pairs_or_strings():
    def spell(tree):
        tree["model"]["merges"] = [" ".join(merge) for merge in tree["model"]["merges"]]

    pairs = MergeTables.of(definition(made.roberta_like()))
    strings = MergeTables.of(changed(made.roberta_like(), spell))
    assert all(np.array_equal(one, other) for one, other in zip(pairs, strings, strict=True))


def test_exceptions_are_tokens_that_merges_do_not_produce():
    merges = [("b", "c"), ("a", "b"), ("ab", "c"), ("x", "y")]
    tokens = ["qz", "Ġqzx", "▁", "q z", "\xadq"]  # the last three contain characters that represent no byte
    content = made.byte_level_with(merges, tokens, ignore_merges=True)
    tables = MergeTables.of(definition(content))
    assert {token.content for token in tables.exceptions} == {b"abc", b"qz", b" qzx"}
    engine = Tokenizer.from_str(content)
    assert all(engine.encode(word.decode()).ids == [index] for word, index in tables.exceptions)
    assert tables.pair_ids[ord("q") | ord("z") << 8] == engine.token_to_id("qz")
    assert MergeTables.of(definition(made.byte_level_with(merges, tokens))).exceptions == ()


def test_a_control_token_in_the_vocabulary_is_an_exception_as_in_the_reference():
    def mark(tree):
        token = {"id": tree["model"]["vocab"]["PAD"], "content": "PAD", "special": True, "normalized": False}
        tree["added_tokens"] = [{**token, "single_word": False, "lstrip": False, "rstrip": False}]

    marked = changed(made.byte_level_with([], ["PAD"], ignore_merges=True), mark)
    (exception,) = MergeTables.of(marked).exceptions
    assert ReferenceTokenizer(marked).encode(b"PAD").control_id == exception.id


def encoded_by_tables(content, text):
    pattern, tables = Pattern.of(definition(content)), MergeTables.of(definition(content))
    starts = np.flatnonzero(word_starts(text, pattern, character_classes(pattern)))
    words = [text[start:end] for start, end in pairwise([*starts.tolist(), len(text)])]
    return [index for word in words for index in merged(tables, word)]


@pytest.mark.parametrize("pattern", [GPT2, STARCODER2, CL100K, QWEN2], ids=lambda pattern: pattern.name)
def test_patterns_and_tables_give_the_reference_ids(pattern):
    content = made.byte_level_for(pattern)
    assert Pattern.of(definition(content)) == pattern
    for text in TEXTS:
        assert encoded_by_tables(content, text.encode()) == Tokenizer.from_str(content).encode(text).ids


def set_in(part, **values):
    return lambda tree: tree[part].update(values)


def with_a_merge_twice(tree):
    tree["model"]["vocab"].setdefault("ab", 1 + max(tree["model"]["vocab"].values()))
    tree["model"]["merges"] = ["a b", "a b"]


def without_a_byte(tree):
    del tree["model"]["vocab"]["!"]


def with_a_merge(tree, merge):
    tree["model"]["merges"].append(merge)


def with_a_plain_token(tree):
    token = {**tree["added_tokens"][0], "id": 600, "content": "    ", "special": False}
    tree["added_tokens"].append(token)


def sequence(*steps):
    return lambda tree: tree.update(pre_tokenizer={"type": "Sequence", "pretokenizers": list(steps)})


BYTES_ALONE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Isolated", "invert": False}
KNOWN_SPLIT = {**SPLIT, "pattern": {"Regex": made.CL100K_REGEX}}
REFUSALS = {
    "model is WordLevel, not BPE": set_in("model", type="WordLevel"),
    "normalizer NFKC is": lambda tree: tree.update(normalizer={"type": "NFKC"}),
    "byte_fallback is": set_in("model", byte_fallback=True),
    "dropout is": set_in("model", dropout=0.1),
    "continuing_subword_prefix is": set_in("model", continuing_subword_prefix="##"),
    "end_of_word_suffix is": set_in("model", end_of_word_suffix="</w>"),
    "added tokens for ordinary text, such as '    '": with_a_plain_token,
    r"ByteLevel\(add_prefix_space": set_in("pre_tokenizer", add_prefix_space=True),
    r"pre-tokenizer \(none\)": lambda tree: tree.update(pre_tokenizer=None),
    r"pre-tokenizer ByteLevel\(trim_offsets\) is": lambda tree: tree.update(pre_tokenizer=BYTES_ALONE),
    r"pre-tokenizer Sequence\[Split\('Isolated', .*ByteLevel": sequence(SPLIT, BYTES_ALONE),
    r"Sequence\[Split\('Removed'": sequence({**KNOWN_SPLIT, "behavior": "Removed"}, BYTES_ALONE),
    r"Sequence\[Split\(invert": sequence({**KNOWN_SPLIT, "invert": True}, BYTES_ALONE),
    r"Sequence\[Split\(.*use_regex": sequence(KNOWN_SPLIT, {**BYTES_ALONE, "use_regex": True}),
    r"Sequence\[Digits, ": sequence({"type": "Digits", "individual_digits": False}, {**BYTES_ALONE, "use_regex": True}),
    "Whitespace is": lambda tree: tree.update(pre_tokenizer={"type": "Whitespace"}),
    "lacks 1 of the 256 bytes, such as 0x21": without_a_byte,
    "merge 'a b' is listed twice": with_a_merge_twice,
    "contain 'notthere', which is not in its vocabulary": partial(with_a_merge, merge=["notthere", "a"]),
    "contain '!~', which is not": lambda tree: tree["model"].update(merges=["! ~"]),
    "merge 'a b c' does not have two parts": lambda tree: tree["model"].update(merges=["a b c"]),
    r"ids \(maximum: 2097152\)": lambda tree: tree["model"]["vocab"].update(far=1 << 21),
    "have the same id": lambda tree: tree["model"]["vocab"].update(again=5),
}


@pytest.mark.parametrize("named", REFUSALS)
def test_unsupported_tokenizers_are_rejected_with_the_reason(named):
    refused = changed(made.byte_level(), REFUSALS[named])
    with pytest.raises(NotOnGpuError, match=f"'test' is not supported on a GPU: .*{named}.*Leave out --device cuda"):
        Pattern.of(refused), MergeTables.of(refused)


def test_too_many_merges_are_rejected(monkeypatch):
    monkeypatch.setattr(merging, "MAX_MERGES", 3)
    with pytest.raises(NotOnGpuError, match=r"4 merges \(maximum: 3\)"):
        MergeTables.of(definition(made.byte_level_with([("a", letter) for letter in "bcde"])))


def test_damaged_merges_are_an_error():
    with pytest.raises(TokenizerError, match="damaged"):
        MergeTables.of(changed(made.byte_level(), lambda tree: tree["model"].update(merges=[5])))
