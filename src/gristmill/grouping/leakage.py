"""Long spans that two sides of documents share, found without comparing each document with each.

A span is 50 tokens or more, found verbatim on both sides, with 8 distinct ids or more (else it is a rule of dashes).
One side, `small`, is what is held out; the other, `large`, is train.

1. Of each small document, every 26th 25-gram is noted (`gram_keys`). Whatever 50 tokens a large document shares with
   it, one of those 25-grams lies in them: 26 neighbouring starts always hold a multiple of 26.
2. Every 25-gram of the large side is looked up among them (`Blocks.hits_in`). What is found may be part of a span.
3. The 50-grams around it, on both sides, are written down by key and place (`span_keys`, partitioned on disk by key);
   where a key is on both sides there is a span (steps.compare joins them), which is then compared token by token.

Noted is 1/26 of the small side, itself a few percent of all, so step 2 runs in memory; the rest goes through the disk.
"""

from functools import cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.grouping.signatures import Ids, Keys, distinct, mixed
from gristmill.records import Range

SPAN_TOKENS = 50
BLOCK_TOKENS = 25
BLOCK_STEP = SPAN_TOKENS - BLOCK_TOKENS + 1
MIN_DISTINCT_IDS = 8
BASE = 0x5851F42D4C957F2D
INVERSE_BASE = pow(BASE, -1, 1 << 64)
TABLE_SLOTS_PER_KEY = 8
MAX_TABLE_BITS = 28
PART_TOKENS = 1 << 16
"""Of a long document at a time: the tables of powers stay in the processor's cache."""

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
BlockKeys = npt.NDArray[np.uint32]
"""32 bits will do: of a billion grams and a million keys, a quarter of a million are found by mistake."""
AnyKeys = npt.NDArray[Any]

NO_POSITIONS = np.zeros(0, np.int64)


def gram_keys(ids: Ids) -> BlockKeys:
    """A key for each 25-gram, whatever the order of its tokens: two additions a token; the spans decide."""
    if len(ids) < BLOCK_TOKENS:
        return np.zeros(0, np.uint32)
    sums = np.zeros(len(ids) + 1, np.uint32)
    np.cumsum(_short_numbers(_len_of_table(ids)).take(ids), out=sums[1:])
    return sums[BLOCK_TOKENS:] - sums[:-BLOCK_TOKENS]


class Blocks(NamedTuple):
    """The small side's noted 25-grams."""

    keys: BlockKeys
    """Sorted, distinct."""
    table: Flags
    """Whether any key has these leading bits: says no to most of the large side at the cost of one look."""

    @classmethod
    def of(cls, keys: BlockKeys) -> "Blocks":
        keys = distinct(keys)
        table = empty_table(len(keys))
        note_keys(table, keys)
        return cls(keys, table)

    def hits_in(self, ids: Ids) -> tuple[Positions, Positions]:
        """Where in these ids a noted 25-gram begins, and which of the keys it is."""
        keys = gram_keys(ids)
        positions = np.flatnonzero(may_hold(self.table, keys))
        if not len(positions) or not len(self.keys):
            return NO_POSITIONS, NO_POSITIONS
        found = np.searchsorted(self.keys, keys[positions])
        found[found == len(self.keys)] = 0
        is_hit = self.keys[found] == keys[positions]
        return positions[is_hit], found[is_hit]


def empty_table(num_keys: int) -> Flags:
    """By leading bits: whether there is a key that begins so."""
    return np.zeros(1 << min(MAX_TABLE_BITS, max(8, (num_keys * TABLE_SLOTS_PER_KEY).bit_length())), np.bool_)


def note_keys(table: Flags, keys: AnyKeys) -> None:
    table[_leading(keys, len(table).bit_length() - 1)] = True


def may_hold(table: Flags, keys: AnyKeys) -> Flags:
    """Whether each of these may be among the keys of the table: yes for all that are, no for most that are not."""
    flags: Flags = table.take(_leading(keys, len(table).bit_length() - 1))
    return flags


def _leading(keys: AnyKeys, num_bits: int) -> AnyKeys:
    leading: AnyKeys = keys >> keys.dtype.type(8 * keys.dtype.itemsize - num_bits)
    return leading


def spans_around(positions: Positions, num_tokens: int) -> Positions:
    """The starts of all 50-grams that hold one of the 25-grams that begin at these positions."""
    last_start = num_tokens - SPAN_TOKENS
    first = np.maximum(positions - (SPAN_TOKENS - BLOCK_TOKENS), 0)
    last = np.minimum(positions, last_start)
    first, last = first[first <= last_start], last[first <= last_start]
    if not len(first):
        return NO_POSITIONS
    is_apart = first[1:] > last[:-1] + 1
    first, last = first[np.concatenate(([True], is_apart))], last[np.concatenate((is_apart, [True]))]
    sizes = last - first + 1
    before = np.cumsum(sizes) - sizes
    starts: Positions = np.arange(sizes.sum()) + np.repeat(first - before, sizes)
    return starts


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
    return [(start, end) for start, end in ranges if len(np.unique(ids[start:end])) >= min_distinct]


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
