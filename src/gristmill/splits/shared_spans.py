"""Long spans that two sides of documents share, found without comparing each document with each.

A span is 50 tokens or more, found verbatim on both sides, with 8 distinct ids or more (else it is a rule of dashes).
One side, `small`, is what is held out; the other, `large`, is train.

1. Of each document some 25-grams are its anchors: of any 26 neighbours, the one with the smallest key. Whatever 50
   tokens two documents share, both have the same 26 neighbours there, and so the same anchor. Anchors are a thirteenth
   of all 25-grams and depend on the document alone: they are noted once, in step 1.
2. The anchors of the large side are looked up among those of the small side. What is found may be part of a span.
3. The 50-grams around it, on both sides, are written down by key and place (`span_keys`, partitioned on disk by key);
   where a key is on both sides there is a span (steps.compare joins them), which is then compared token by token.

The small side is a few percent of all, so step 2 runs in memory; the rest goes through the disk.
(Anchors are Schleimer, Wilkerson and Aiken's winnowing, 2003.)
"""

from collections.abc import Iterable
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.records import Range
from gristmill.dedup.signatures import Ids, Keys, distinct, mixed

SPAN_TOKENS = 50
BLOCK_TOKENS = 25
NUM_NEIGHBOURS = SPAN_TOKENS - BLOCK_TOKENS + 1
MIN_DISTINCT_IDS = 8
BASE = 0x5851F42D4C957F2D
INVERSE_BASE = pow(BASE, -1, 1 << 64)
TABLE_SLOTS_PER_KEY = 16
MAX_TABLE_BITS = 30
PART_TOKENS = 1 << 16
"""Of a long document at a time: the tables of powers stay in the processor's cache."""
KEYS_AT_ONCE = 1 << 15

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
BlockKeys = npt.NDArray[np.uint32]
"""32 bits will do: of a billion grams and a million keys, a quarter of a million are found by mistake."""
AnyKeys = npt.NDArray[Any]


def gram_keys(ids: Ids) -> BlockKeys:
    """A key for each 25-gram, whatever the order of its tokens: two additions a token; the spans decide."""
    if len(ids) < BLOCK_TOKENS:
        return np.zeros(0, np.uint32)
    sums = np.zeros(len(ids) + 1, np.uint32)
    np.cumsum(_short_numbers(_len_of_table(ids)).take(ids), out=sums[1:])
    return sums[BLOCK_TOKENS:] - sums[:-BLOCK_TOKENS]


class Anchors(NamedTuple):
    """Of several texts, one after the other."""

    counts: Positions
    """By text."""
    positions: npt.NDArray[np.uint32]
    """In its text; two neighbours are at most 26 apart."""
    keys: BlockKeys


NO_ANCHORS = Anchors(np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros(0, np.uint32))


def anchors_of(ids: Ids, edges: Positions) -> Anchors:
    """Of all texts at once. `edges`: where each text's ids begin, and the end."""
    keys = gram_keys(ids)
    # Grams that begin so near to a text's end that they reach into the next one.
    across = (edges[1:-1, None] - np.arange(1, BLOCK_TOKENS)).ravel()
    across = across[(across >= 0) & (across < len(keys))]
    keys[across] = np.iinfo(np.uint32).max
    is_anchor = _is_anchor(keys)
    is_anchor[across] = False
    starts = np.flatnonzero(is_anchor)
    counts = np.diff(np.searchsorted(starts, edges))
    positions = (starts - np.repeat(edges[:-1], counts)).astype(np.uint32)
    # The smallest keys are alike in their leading bits, by which they are to be told apart.
    return Anchors(counts, positions, _stirred(keys[starts]))


def _stirred(keys: BlockKeys) -> BlockKeys:
    stirred: BlockKeys = keys * np.uint32(0x9E3779B1)
    return (stirred ^ (stirred >> np.uint32(15))) * np.uint32(0x85EBCA77)


def _is_anchor(keys: BlockKeys) -> Flags:
    """Whether each is the smallest of some 26 neighbours: then the largest of their minima is the key itself."""
    reach = NUM_NEIGHBOURS - 1
    flags = np.zeros(len(keys), np.bool_)
    for at in range(0, len(keys), KEYS_AT_ONCE):
        first, end = max(0, at - reach), at + KEYS_AT_ONCE
        some = keys[first : end + reach]
        if len(some) < NUM_NEIGHBOURS:
            break
        minima = np.pad(_over_neighbours(np.minimum, some), reach)
        flags[at:end] = (_over_neighbours(np.maximum, minima) == some)[at - first : end - first]
    return flags


def _over_neighbours(function: np.ufunc, keys: BlockKeys) -> BlockKeys:
    """Of each 26 neighbours; in five steps, as what holds of two overlapping runs holds of both together."""
    size = 1
    while 2 * size <= NUM_NEIGHBOURS:
        keys = function(keys[:-size], keys[size:])
        size *= 2
    both: BlockKeys = function(keys[: size - NUM_NEIGHBOURS], keys[NUM_NEIGHBOURS - size :])
    return both


class KeyTable(NamedTuple):
    """By the leading bits of a key, one bit: whether any key begins so. Says no to most of what is not among them."""

    bits: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, keys: Iterable[AnyKeys], num_keys: int) -> "KeyTable":
        num_bits = min(MAX_TABLE_BITS, max(8, (num_keys * TABLE_SLOTS_PER_KEY).bit_length()))
        bits = np.zeros(1 << (num_bits - 3), np.uint8)
        for some in keys:
            slots = _leading(some, num_bits).astype(np.uint32)
            np.bitwise_or.at(bits, slots >> 3, np.uint8(1) << (slots & 7).astype(np.uint8))
        return cls(bits)

    def may_hold(self, keys: AnyKeys) -> Flags:
        """Yes for all that are among them, no for most that are not."""
        slots = _leading(keys, (8 * len(self.bits)).bit_length() - 1).astype(np.uint32)
        flags: Flags = (self.bits.take(slots >> 3) >> (slots & 7).astype(np.uint8)) & 1 != 0
        return flags


def _leading(keys: AnyKeys, num_bits: int) -> AnyKeys:
    leading: AnyKeys = keys >> keys.dtype.type(8 * keys.dtype.itemsize - num_bits)
    return leading


class Stretches(NamedTuple):
    """Runs of 50-grams: from the start of the first one of each to the start of its last."""

    first: Positions
    last: Positions

    def starts(self) -> Positions:
        return counted_from(self.first, self.counts())

    def counts(self) -> Positions:
        return self.last - self.first + 1

    def of_their_own(self, ids: Ids) -> tuple[Ids, Positions]:
        """Their ids one after the other, and where their 50-grams begin among these."""
        lengths = self.last - self.first + SPAN_TOKENS
        first = np.cumsum(lengths) - lengths
        return ids[counted_from(self.first, lengths)], Stretches(first, first + self.last - self.first).starts()


def counted_from(first: Positions, counts: Positions) -> Positions:
    """From each on, so many: `[5, 9], [3, 2]` -> 5 6 7 9 10"""
    numbers: Positions = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return numbers


def stretches_around(positions: Positions, begin: Positions, end: Positions) -> Stretches:
    """All 50-grams that hold one of the 25-grams at these positions; `begin` and `end`: of the text each is in."""
    first = np.maximum(positions - (SPAN_TOKENS - BLOCK_TOKENS), begin)
    last = np.minimum(positions, end - SPAN_TOKENS)
    first, last = first[first <= last], last[first <= last]
    is_apart = first[1:] > last[:-1] + 1
    ends = np.ones(min(len(first), 1), np.bool_)
    return Stretches(first[np.concatenate((ends, is_apart))], last[np.concatenate((is_apart, ends))])


def span_keys(ids: Ids, starts: Positions) -> Keys:
    """A key for each 50-gram that begins at these ascending positions; the order of its tokens counts."""
    keys = np.zeros(len(starts), np.uint64)
    numbers = _numbers(_len_of_table(ids)) if len(starts) else keys
    edges = np.searchsorted(starts, np.arange(0, len(ids), PART_TOKENS))
    for part, first, end in zip(count(), edges.tolist(), [*edges[1:].tolist(), len(starts)], strict=False):
        if first < end:
            base = part * PART_TOKENS
            terms = numbers.take(ids[base : base + PART_TOKENS + SPAN_TOKENS])
            sums = np.zeros(len(terms) + 1, np.uint64)
            np.cumsum(terms * _powers(BASE)[: len(terms)], out=sums[1:])
            at = starts[first:end] - base
            keys[first:end] = (sums[at + SPAN_TOKENS] - sums[at]) * _powers(INVERSE_BASE)[at]
    return mixed(keys)


def ranges_of(ids: Ids, starts: Positions, min_distinct: int) -> list[Range]:
    """Shared 50-grams that overlap or touch -> one range each; those of too few distinct ids do not count."""
    if not len(starts):
        return []
    is_apart = np.diff(starts) > SPAN_TOKENS
    first = starts[np.concatenate(([True], is_apart))]
    last = starts[np.concatenate((is_apart, [True]))]
    ranges = zip(first.tolist(), (last + SPAN_TOKENS).tolist(), strict=True)
    if min_distinct <= 1:
        return list(ranges)
    return [(start, end) for start, end in ranges if _has_distinct(ids[start:end], min_distinct)]


def _has_distinct(ids: Ids, least: int) -> bool:
    """Most spans of code have that many in their first tokens."""
    return len(set(ids[:SPAN_TOKENS].tolist())) >= least or len(distinct(ids)) >= least


def _len_of_table(ids: Ids) -> int:
    return 1 << 16 if ids.dtype == np.uint16 else _table_size(int(ids.max()) + 1)


def _table_size(wanted: int) -> int:
    """A power of two, so that few tables are made."""
    return 1 << max(16, (wanted - 1).bit_length())


@cache
def _numbers(size: int) -> Keys:
    """A number without a pattern for each id."""
    return mixed(mixed(np.arange(1, size + 1, dtype=np.uint64)))


@cache
def _short_numbers(size: int) -> BlockKeys:
    return (_numbers(size) >> np.uint64(32)).astype(np.uint32)


@cache
def _powers(base: int) -> Keys:
    """base ** 0, base ** 1, … modulo 2 ** 64"""
    factors = np.full(PART_TOKENS + SPAN_TOKENS, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)
