"""Test two ways to tokenize a long word: in overlapping windows that are then joined, and with many merges at once.

Joining is exact for any order of merges. Proof: Take a span of the word whose edges no merge has crossed so far. The
next merge inside the span joins the pair with the lowest rank in the span, leftmost first, regardless of the bytes
outside the span. The span therefore goes through the same merges as a separate word with these bytes. It follows that a
sequence of tokens is the encoding of the word if and only if, for every two adjacent tokens, encoding their joined
bytes gives exactly these two tokens. If two windows share a token, this is true for every pair of the first window up to the token, and for every
pair of the second window from the token on.
"""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from gristmill.tokenizers.cuda.merge_tables import EMPTY, MergeTables, bpe
from gristmill.tokenizers.definition import Definition
from support import trained_tokenizers as made

TEXT = st.text("abc", min_size=1, max_size=50)


class Merging:
    def __init__(self, definition):
        self.tables = MergeTables.of(definition)
        self.byte_ids, self.products = self.tables.byte_ids.tolist(), self.tables.products.tolist()
        entries = [entry for entry in self.tables.table.tolist() if entry != EMPTY]
        self.ranks = {entry >> 22: entry & (1 << 22) - 1 for entry in entries}
        self.num_bytes_by_id = {index: len(token) for token, index in definition.ids_by_token.items()}

    @classmethod
    def of(cls, merges):
        return cls(Definition(name="test", json=made.byte_level_with(merges).encode(), config=b"{}"))

    def one_by_one(self, text):
        return bpe([self.byte_ids[byte] for byte in text], self.ranks, self.products)

    def all_at_once(self, text):
        """Merge all occurrences of the pair with the lowest rank in one pass from the left, then repeat."""
        ids = [self.byte_ids[byte] for byte in text]
        while found := {self.ranks[key] for key in self.keys(ids) if key in self.ranks}:
            ids = self.with_rank_merged(ids, min(found))
        return ids

    def with_rank_merged(self, ids, rank):
        merged, at, keys = [], 0, [*self.keys(ids), None]
        while at < len(ids):
            is_merged = self.ranks.get(keys[at]) == rank
            merged.append(self.products[rank] if is_merged else ids[at])
            at += 1 + is_merged
        return merged

    def keys(self, ids):
        return [left << 21 | right for left, right in pairwise(ids)]

    def in_windows(self, text, window_bytes, overlap_bytes):
        """Join adjacent windows at the first token that they share. Return None if two windows share no token."""
        joined, start = self.spans(text[:window_bytes], 0), 0
        while start + window_bytes < len(text):
            start += window_bytes - overlap_bytes
            window = self.spans(text[start : start + window_bytes], start)
            shared = next((token for token in joined if token in window), None)
            if shared is None:
                return None
            joined = joined[: joined.index(shared)] + window[window.index(shared) :]
        return [index for _, _, index in joined]

    def spans(self, text, start):
        """Return (start, end, id) of each token."""
        ids = self.one_by_one(text)
        ends = (start + np.cumsum([self.num_bytes_by_id[index] for index in ids])).tolist()
        return list(zip([start, *ends[:-1]], ends, ids, strict=True))


@st.composite
def merge_lists(draw, *, is_in_order):
    """Draw merges of a, b and c.

    If `is_in_order` is True, no merge produces a token that an earlier merge uses. Otherwise, the merges are shuffled.
    """
    tokens, merges, used = ["a", "b", "c"], [], set()
    for _ in range(draw(st.integers(1, 12))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if (left, right) not in merges and left + right not in used and len(left + right) <= 6:
            merges.append((left, right))
            used |= {left, right}
            tokens.append(left + right)
    return merges if is_in_order else draw(st.permutations(merges))


@pytest.mark.parametrize("is_in_order", [True, False])
@settings(max_examples=200, deadline=None)
@given(data=st.data(), text=TEXT)
def test_merging_one_by_one_gives_the_reference_ids(is_in_order, data, text):
    merges = data.draw(merge_lists(is_in_order=is_in_order))
    merging = Merging.of(merges)
    assert merging.tables.is_in_order or not is_in_order
    assert merging.one_by_one(text.encode()) == Tokenizer.from_str(made.byte_level_with(merges)).encode(text).ids


@pytest.mark.parametrize("is_in_order", [True, False])
@settings(max_examples=300, deadline=None)
@given(data=st.data(), text=TEXT, overlap_bytes=st.integers(3, 11))
def test_windows_that_share_a_token_join_to_the_ids_of_the_word(is_in_order, data, text, overlap_bytes):
    merging = Merging.of(data.draw(merge_lists(is_in_order=is_in_order)))
    joined = merging.in_windows(text.encode(), 12, overlap_bytes)
    assume(joined is not None)
    assert joined == merging.one_by_one(text.encode())


def test_windows_join_exactly_with_merges_out_of_order():
    """Use merges for which merging all occurrences at once gives wrong tokens."""
    merging = Merging.of([("aa", "a"), ("b", "aaa"), ("a", "a"), ("a", "b")])
    assert not merging.tables.is_in_order
    num_joined = 0
    for number in range(1 << 12):
        text = f"{number:012b}".replace("0", "a").replace("1", "b").encode()
        joined = merging.in_windows(text, 7, 4)
        if joined is not None:
            num_joined += 1
            assert joined == merging.one_by_one(text)
    assert num_joined > 2000


@settings(max_examples=300, deadline=None)
@given(merges=merge_lists(is_in_order=True), text=TEXT)
def test_merges_in_order_can_be_applied_to_all_occurrences_at_once(merges, text):
    merging = Merging.of(merges)
    assert merging.all_at_once(text.encode()) == merging.one_by_one(text.encode())


def test_merges_out_of_order_cannot_be_applied_at_once():
    merging = Merging.of([("aa", "a"), ("a", "a")])
    assert not merging.tables.is_in_order
    assert merging.all_at_once(b"aaaa") != merging.one_by_one(b"aaaa")


def test_a_long_word_is_joined_from_windows(codebert):
    merging, generator = Merging(codebert.definition), random.Random(0)
    word = "".join(generator.choices("etaoinshrdlu", k=1500)).encode()
    assert merging.in_windows(word, 256, 128) == codebert.encode(word).ids.tolist()
