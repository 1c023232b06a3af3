"""Compare the rules for word starts with the regexes of `tokenizers`: short texts, all characters, random texts."""

import importlib.util
import itertools
import sys
import unicodedata
from functools import cache, lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from gristmill.tokenizers.cuda.character_classes import NEWER_NUMBER, NUMBER, OTHER, character_classes
from gristmill.tokenizers.cuda.patterns import (
    CL100K,
    CL100K_REGEX,
    CONTRACTIONS,
    GPT2,
    GPT2_REGEX,
    LONG_S,
    PATTERNS_BY_REGEX,
    QWEN2_REGEX,
    STARCODER2,
)
from support.gpu_texts import SCALARS
from support.source_trees import ROOT
from support.word_pieces import PIECES
from support.word_starts_in_numpy import word_starts

# Most characters are unassigned, for private use, or letters without case, such as Chinese characters. Only every 64th
# of these is tested in context, because the rules depend only on character classes, and another test compares the class
# of every character.
ALIKE = {"Cn", "Co", "Lo"}
STRUCTURE = "s'1!é \t\n\r\u00a0"
APOSTROPHES = f"'srelvdSL{LONG_S}! "
BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
DIGITS_APART = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL])
SPLITS = [(pre_tokenizers.Split(Regex(regex), "isolated"), pattern) for regex, pattern in PATTERNS_BY_REGEX.items()]
CASES = [(BYTE_LEVEL, GPT2), (DIGITS_APART, STARCODER2), *SPLITS]
FOUR = [(BYTE_LEVEL, GPT2), (DIGITS_APART, STARCODER2), SPLITS[1], SPLITS[2]]

classes_of = cache(character_classes)
every_case = pytest.mark.parametrize(
    ("splitter", "pattern"), CASES, ids=[f"{p.name}{n}" for n, (_, p) in enumerate(CASES)]
)
every_pattern = pytest.mark.parametrize(("splitter", "pattern"), FOUR, ids=[pattern.name for _, pattern in FOUR])


def assert_same(splitter, pattern, texts):
    """Compare word starts in the concatenated texts, because a GPU gets documents concatenated."""
    found, expected = starts_by_rules(pattern, texts), starts_by_regex(splitter, texts)
    if not np.array_equal(found, expected):
        ends = np.cumsum([len(text.encode()) for text in texts])
        first = int(np.searchsorted(ends, int(np.argmax(found != expected)), "right"))
        start, end = ends[first] - len(texts[first].encode()), ends[first]
        pytest.fail(f"{texts[first]!r}: got {found[start:end]}, but the regex gives {expected[start:end]}")


@lru_cache(maxsize=4)
def starts_by_rules(pattern, texts):
    """Return the word starts by the rules. The results are cached, because several regexes have the same pattern."""
    ends = itertools.accumulate(len(text.encode()) for text in texts[:-1])
    return word_starts("".join(texts).encode(), pattern, classes_of(pattern), [0, *ends])


def starts_by_regex(splitter, texts):
    """Return, for each byte, True if a word starts at the byte. `tokenizers` returns positions in characters."""
    positions, first = list[int](), 0
    for text in texts:
        positions += [first + start for _, (start, _) in splitter.pre_tokenize_str(text)]
        first += len(text)
    by_character = np.zeros(first, bool)
    by_character[positions] = True
    utf8 = np.frombuffer("".join(texts).encode(), np.uint8)
    starts = np.zeros(len(utf8), bool)
    starts[(utf8 & 0xC0) != 0x80] = by_character
    return starts


@cache
def short_texts(alphabet, longest):
    lengths = range(1, longest + 1)
    return tuple("".join(text) for length in lengths for text in itertools.product(alphabet, repeat=length))


@every_case
def test_every_short_text_of_each_class(splitter, pattern):
    assert_same(splitter, pattern, short_texts(STRUCTURE, 5))


@every_case
def test_every_short_text_around_apostrophes(splitter, pattern):
    assert_same(splitter, pattern, short_texts(APOSTROPHES, 4))


@pytest.fixture(scope="module")
def tried_in_context():
    return [one for at, one in enumerate(SCALARS) if at % 64 == 0 or unicodedata.category(one) not in ALIKE]


@every_pattern
def test_every_character_in_context(splitter, pattern, tried_in_context):
    for at in range(0, len(tried_in_context), 10_000):
        some = tried_in_context[at : at + 10_000]
        assert_same(splitter, pattern, ("".join(f"a{one}'{one}b {one}\n" for one in some),))


@every_case
@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=30).map("".join), min_size=1, max_size=3))
def test_random_documents_end_to_end(splitter, pattern, texts):
    assert_same(splitter, pattern, tuple(texts))


@every_pattern
@settings(max_examples=100, deadline=None)
@given(text=st.text(min_size=1, max_size=60))
def test_random_characters(splitter, pattern, text):
    assert_same(splitter, pattern, (text,))


def test_classes_match_the_installed_engine(monkeypatch):
    """Compare the class of every character, in the file and as passed to the kernels."""
    spec = importlib.util.spec_from_file_location("write_classes", ROOT / "tools/write_classes.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    probed = tool.probed_classes()
    monkeypatch.setattr(tool, "probed_classes", lambda: probed)
    monkeypatch.setattr(sys, "argv", ["write_classes.py", "--check"])
    tool.main()
    for pattern in {pattern for _, pattern in CASES}:
        newer = NUMBER if pattern.digits == "apart" else OTHER
        assert np.array_equal(classes_of(pattern), np.where(probed == NEWER_NUMBER, newer, probed))


def test_surrogates_and_file_separators_are_other():
    assert not classes_of(GPT2)[[0xD800, 0xDFFF, *range(0x1C, 0x20)]].any()


def test_long_s_is_the_only_non_ascii_letter_of_contractions():
    letters = "|".join(sorted(set("".join(CONTRACTIONS))))
    found = pre_tokenizers.Split(Regex(f"(?i:{letters})"), "removed", invert=True).pre_tokenize_str(SCALARS)
    matched = {character for run, _ in found for character in run}
    assert {character for character in matched if not character.isascii()} == {LONG_S}


def test_digits_pre_tokenizer_has_numbers_that_regexes_do_not_have():
    newer = np.flatnonzero(classes_of(STARCODER2) != classes_of(CL100K))
    assert newer.tolist() == [*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)]


def test_possessive_quantifiers_have_a_different_meaning_in_tokenizers():
    threes = pre_tokenizers.Split(Regex(r"\p{N}{1,3}+"), "isolated").pre_tokenize_str("1234567")
    assert [word for word, _ in threes] == ["1234567"]


def test_the_three_regexes_are_supported():
    assert {GPT2_REGEX, CL100K_REGEX, QWEN2_REGEX} < PATTERNS_BY_REGEX.keys()
