"""Find long spans that two sets of documents share, without comparing all pairs of documents.

The two sets are called sides: the `small` side is held out, the `large` side is train. A shared span is a sequence of
50 or more tokens that appears verbatim on both sides. It must contain 8 or more distinct ids, so that a line of dashes
is not a shared span.

1. Some 25-grams of each document are its anchors: of any 26 neighboring 25-grams, the one with the smallest key. If two
   documents share 50 tokens, these contain the same 26 neighbors in both documents, and therefore the same anchor.
   About one in 13 of all 25-grams is an anchor. Anchors depend only on the document, so `prepare` computes them once.
2. The anchors of the large side are looked up among the anchors of the small side. A match may be part of a shared
   span.
3. On both sides, the 50-grams around each match are written to disk with their key (`span_keys`) and position,
   partitioned by key. `span_join.compare` finds the keys that both sides contain, and compares their 50-grams token by
   token.

The small side is a few percent of all documents, so step 2 runs in memory. Step 3 uses the disk.
This choice of anchors is called winnowing (Schleimer, Wilkerson and Aiken, 2003).
"""

from collections.abc import Iterable
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.records import Range
from gristmill.dedup.signatures import Ids, Keys, distinct, mix_bits

SPAN_TOKENS = 50
ANCHOR_TOKENS = 25
NUM_NEIGHBORS = SPAN_TOKENS - ANCHOR_TOKENS + 1
MIN_DISTINCT_IDS = 8
BASE = 0x5851F42D4C957F2D
INVERSE_BASE = pow(BASE, -1, 1 << 64)
TABLE_SLOTS_PER_KEY = 16
MAX_TABLE_BITS = 30
PART_TOKENS = 1 << 16
"""Number of tokens of a long document to process at a time, so that the tables of powers fit in the CPU cache."""
KEYS_PER_BATCH = 1 << 15

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
AnchorKeys = npt.NDArray[np.uint32]
"""32 bits are enough: a lookup of a billion grams among a million keys gives a quarter of a million false matches."""
AnyKeys = npt.NDArray[Any]


def gram_keys(ids: Ids) -> AnchorKeys:
    """Return a key for each 25-gram, with two additions per token.

    The key ignores the order of tokens. The later comparison of spans removes false matches.
    """
    if len(ids) < ANCHOR_TOKENS:
        return np.zeros(0, np.uint32)
    sums = np.zeros(len(ids) + 1, np.uint32)
    np.cumsum(_random_numbers_32(_id_table_size(ids)).take(ids), out=sums[1:])
    return sums[ANCHOR_TOKENS:] - sums[:-ANCHOR_TOKENS]


class Anchors(NamedTuple):
    """Anchors of several texts, concatenated."""

    counts: Positions
    """Number of anchors of each text."""
    positions: npt.NDArray[np.uint32]
    """Position of each anchor in its text. Neighboring anchors are at most 26 tokens apart."""
    keys: AnchorKeys


NO_ANCHORS = Anchors(np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros(0, np.uint32))


def find_anchors(ids: Ids, edges: Positions) -> Anchors:
    """Find the anchors of several texts. `edges` are the start of each text in `ids`, and the end of the last text."""
    keys = gram_keys(ids)
    # 25-grams near the end of a text that extend into the next text.
    crossing = (edges[1:-1, None] - np.arange(1, ANCHOR_TOKENS)).ravel()
    crossing = crossing[(crossing >= 0) & (crossing < len(keys))]
    keys[crossing] = np.iinfo(np.uint32).max
    is_anchor = _is_anchor(keys)
    is_anchor[crossing] = False
    starts = np.flatnonzero(is_anchor)
    counts = np.diff(np.searchsorted(starts, edges))
    positions = (starts - np.repeat(edges[:-1], counts)).astype(np.uint32)
    # The smallest keys have similar leading bits. KeyTable distinguishes keys by these bits, so they are mixed.
    return Anchors(counts, positions, _mix_bits(keys[starts]))


def _mix_bits(keys: AnchorKeys) -> AnchorKeys:
    mixed_keys: AnchorKeys = keys * np.uint32(0x9E3779B1)
    return (mixed_keys ^ (mixed_keys >> np.uint32(15))) * np.uint32(0x85EBCA77)


def _is_anchor(keys: AnchorKeys) -> Flags:
    """Return True for each key that is the smallest in at least one range of 26 neighbors.

    This is the case if the key equals the largest minimum of all ranges of 26 neighbors that contain the key.
    """
    reach = NUM_NEIGHBORS - 1
    flags = np.zeros(len(keys), np.bool_)
    for start in range(0, len(keys), KEYS_PER_BATCH):
        first, end = max(0, start - reach), start + KEYS_PER_BATCH
        batch = keys[first : end + reach]
        if len(batch) < NUM_NEIGHBORS:
            break
        minima = np.pad(_reduce_neighbors(np.minimum, batch), reach)
        flags[start:end] = (_reduce_neighbors(np.maximum, minima) == batch)[start - first : end - first]
    return flags


def _reduce_neighbors(reduce: np.ufunc, keys: AnchorKeys) -> AnchorKeys:
    """Return the minimum or maximum of every 26 neighbors, in five steps that combine overlapping ranges."""
    size = 1
    while 2 * size <= NUM_NEIGHBORS:
        keys = reduce(keys[:-size], keys[size:])
        size *= 2
    reduced: AnchorKeys = reduce(keys[: size - NUM_NEIGHBORS], keys[NUM_NEIGHBORS - size :])
    return reduced


class KeyTable(NamedTuple):
    """Approximate set of keys: one bit for each value of the leading bits, set if a key begins with this value."""

    bits: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, keys: Iterable[AnyKeys], num_keys: int) -> "KeyTable":
        num_bits = min(MAX_TABLE_BITS, max(8, (num_keys * TABLE_SLOTS_PER_KEY).bit_length()))
        bits = np.zeros(1 << (num_bits - 3), np.uint8)
        for batch in keys:
            slots = _leading_bits(batch, num_bits).astype(np.uint32)
            np.bitwise_or.at(bits, slots >> 3, np.uint8(1) << (slots & 7).astype(np.uint8))
        return cls(bits)

    def may_contain(self, keys: AnyKeys) -> Flags:
        """Return True for all keys in the set, and False for most other keys."""
        slots = _leading_bits(keys, (8 * len(self.bits)).bit_length() - 1).astype(np.uint32)
        flags: Flags = (self.bits.take(slots >> 3) >> (slots & 7).astype(np.uint8)) & 1 != 0
        return flags


def _leading_bits(keys: AnyKeys, num_bits: int) -> AnyKeys:
    bits: AnyKeys = keys >> keys.dtype.type(8 * keys.dtype.itemsize - num_bits)
    return bits


class GramRuns(NamedTuple):
    """Runs of consecutive 50-grams, each given by the start of its first and of its last 50-gram."""

    first: Positions
    last: Positions

    def starts(self) -> Positions:
        return expand_ranges(self.first, self.counts())

    def counts(self) -> Positions:
        return self.last - self.first + 1

    def extract(self, ids: Ids) -> tuple[Ids, Positions]:
        """Return the concatenated ids of the runs, and the start of each 50-gram in the concatenated ids."""
        lengths = self.last - self.first + SPAN_TOKENS
        first = np.cumsum(lengths) - lengths
        return ids[expand_ranges(self.first, lengths)], GramRuns(first, first + self.last - self.first).starts()


def expand_ranges(first: Positions, counts: Positions) -> Positions:
    """Return consecutive numbers from each start: `[5, 9], [3, 2]` -> 5 6 7 9 10."""
    positions: Positions = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return positions


def gram_runs_around(positions: Positions, begin: Positions, end: Positions) -> GramRuns:
    """Return all 50-grams that contain a 25-gram at one of these positions.

    `begin` and `end` are the start and end of the text that contains each position.
    """
    first = np.maximum(positions - (SPAN_TOKENS - ANCHOR_TOKENS), begin)
    last = np.minimum(positions, end - SPAN_TOKENS)
    first, last = first[first <= last], last[first <= last]
    is_apart = first[1:] > last[:-1] + 1
    edge = np.ones(min(len(first), 1), np.bool_)
    return GramRuns(first[np.concatenate((edge, is_apart))], last[np.concatenate((is_apart, edge))])


def span_keys(ids: Ids, starts: Positions) -> Keys:
    """Return a key for the 50-gram at each of these ascending positions. The key depends on the order of tokens."""
    keys = np.zeros(len(starts), np.uint64)
    numbers = _random_numbers(_id_table_size(ids)) if len(starts) else keys
    edges = np.searchsorted(starts, np.arange(0, len(ids), PART_TOKENS))
    for part, first, end in zip(count(), edges.tolist(), [*edges[1:].tolist(), len(starts)], strict=False):
        if first < end:
            base = part * PART_TOKENS
            terms = numbers.take(ids[base : base + PART_TOKENS + SPAN_TOKENS])
            sums = np.zeros(len(terms) + 1, np.uint64)
            np.cumsum(terms * _powers(BASE)[: len(terms)], out=sums[1:])
            offsets = starts[first:end] - base
            keys[first:end] = (sums[offsets + SPAN_TOKENS] - sums[offsets]) * _powers(INVERSE_BASE)[offsets]
    return mix_bits(keys)


def merge_into_ranges(ids: Ids, starts: Positions, min_distinct: int) -> list[Range]:
    """Merge shared 50-grams that overlap or touch into ranges. Ranges with too few distinct ids are left out."""
    if not len(starts):
        return []
    is_apart = np.diff(starts) > SPAN_TOKENS
    first = starts[np.concatenate(([True], is_apart))]
    last = starts[np.concatenate((is_apart, [True]))]
    ranges = zip(first.tolist(), (last + SPAN_TOKENS).tolist(), strict=True)
    if min_distinct <= 1:
        return list(ranges)
    return [(start, end) for start, end in ranges if _has_distinct(ids[start:end], min_distinct)]


def _has_distinct(ids: Ids, min_distinct: int) -> bool:
    """Return True if a range has enough distinct ids. Usually the first 50 tokens already have enough."""
    return len(set(ids[:SPAN_TOKENS].tolist())) >= min_distinct or len(distinct(ids)) >= min_distinct


def _id_table_size(ids: Ids) -> int:
    return 1 << 16 if ids.dtype == np.uint16 else _round_table_size(int(ids.max()) + 1)


def _round_table_size(min_size: int) -> int:
    """Round up to a power of two, so that few tables are created."""
    return 1 << max(16, (min_size - 1).bit_length())


@cache
def _random_numbers(size: int) -> Keys:
    """Return a pseudorandom number for each id."""
    return mix_bits(mix_bits(np.arange(1, size + 1, dtype=np.uint64)))


@cache
def _random_numbers_32(size: int) -> AnchorKeys:
    return (_random_numbers(size) >> np.uint64(32)).astype(np.uint32)


@cache
def _powers(base: int) -> Keys:
    """Return base ** 0, base ** 1, … modulo 2 ** 64."""
    factors = np.full(PART_TOKENS + SPAN_TOKENS, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)
