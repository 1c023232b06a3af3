"""The rules for word starts against the regexes of `tokenizers`: every short text, every character, random text."""

import itertools
import subprocess
import sys
import unicodedata
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from gristmill.tokenizers.cuda.character_classes import character_classes
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
from support.source_trees import ROOT
from support.word_pieces import PIECES
from support.word_starts_in_numpy import word_starts

SCALARS = [*map(chr, range(0xD800)), *map(chr, range(0xE000, 0x110000))]
# The rules see classes, and of which class each character is the engine is asked for all of them, below. Four of five
# stand for nothing yet, or privately: of these every 16th is tried in context.
IN_CONTEXT = [one for at, one in enumerate(SCALARS) if at % 16 == 0 or unicodedata.category(one) not in {"Cn", "Co"}]
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
    """The texts lie end to end, as documents do on a card."""
    ends = np.cumsum([len(text.encode()) for text in texts])
    found = word_starts("".join(texts).encode(), pattern, classes_of(pattern), [0, *ends[:-1].tolist()])
    expected = np.concatenate([starts_by_regex(splitter, text) for text in texts])
    if not np.array_equal(found, expected):
        first = int(np.searchsorted(ends, int(np.argmax(found != expected)), "right"))
        start, end = ends[first] - len(texts[first].encode()), ends[first]
        pytest.fail(f"{texts[first]!r}: got {found[start:end]}, the regex says {expected[start:end]}")


def starts_by_regex(splitter, text):
    starts = np.zeros(len(text), bool)
    starts[[start for _, (start, _) in splitter.pre_tokenize_str(text)]] = True
    if text.isascii():
        return starts
    by_byte = np.zeros(len(text.encode()), bool)
    by_byte[(np.frombuffer(text.encode(), np.uint8) & 0xC0) != 0x80] = starts
    return by_byte


def short_texts(alphabet, longest):
    lengths = range(1, longest + 1)
    return ["".join(text) for length in lengths for text in itertools.product(alphabet, repeat=length)]


@every_case
def test_every_short_text_of_each_class(splitter, pattern):
    assert_same(splitter, pattern, short_texts(STRUCTURE, 5))


@every_case
def test_every_short_text_around_apostrophes(splitter, pattern):
    assert_same(splitter, pattern, short_texts(APOSTROPHES, 4))


@every_pattern
def test_every_character_in_context(splitter, pattern):
    for at in range(0, len(IN_CONTEXT), 10_000):
        assert_same(splitter, pattern, ["".join(f"a{one}'{one}b {one}\n" for one in IN_CONTEXT[at : at + 10_000])])


@every_case
@settings(max_examples=100, deadline=None)
@given(texts=st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=30).map("".join), min_size=1, max_size=3))
def test_random_documents_end_to_end(splitter, pattern, texts):
    assert_same(splitter, pattern, texts)


@every_pattern
@settings(max_examples=100, deadline=None)
@given(text=st.text(min_size=1, max_size=60))
def test_random_characters(splitter, pattern, text):
    assert_same(splitter, pattern, [text])


def test_the_classes_are_those_of_the_installed_engine():
    subprocess.run([sys.executable, ROOT / "tools/write_classes.py", "--check"], check=True)


def test_surrogates_and_file_separators_are_other():
    assert not classes_of(GPT2)[[0xD800, 0xDFFF, *range(0x1C, 0x20)]].any()


def test_the_long_s_alone_matches_a_contraction_beyond_ascii():
    letters = "|".join(sorted(set("".join(CONTRACTIONS))))
    found = pre_tokenizers.Split(Regex(f"(?i:{letters})"), "removed", invert=True).pre_tokenize_str("".join(SCALARS))
    matched = {character for run, _ in found for character in run}
    assert {character for character in matched if not character.isascii()} == {LONG_S}


def test_digits_knows_numbers_that_no_regex_does():
    newer = np.flatnonzero(classes_of(STARCODER2) != classes_of(CL100K))
    assert newer.tolist() == [*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)]


def test_possessive_spellings_mean_something_else_here():
    threes = pre_tokenizers.Split(Regex(r"\p{N}{1,3}+"), "isolated").pre_tokenize_str("1234567")
    assert [word for word, _ in threes] == ["1234567"]


def test_the_four_regexes_are_known():
    assert {GPT2_REGEX, CL100K_REGEX, QWEN2_REGEX} < PATTERNS_BY_REGEX.keys()
