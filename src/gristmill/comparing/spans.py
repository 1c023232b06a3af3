"""Which 50-grams of the frozen side a train split has too: the frozen keys lie in a table, train streams past them.

The rule is the build's (grouping.leakage): spans of 50 tokens or more, verbatim, with 8 distinct ids or more.

Keys have 64 bits and are not compared token by token: equal spans have equal keys, so nothing that is shared is ever
missed. Two different spans have the same key by chance only: of 3 million frozen and 100 million train 50-grams that is
one run in sixty thousand, and it would cost 50 clean tokens of the frozen set, the same ones for every dataset.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from gristmill.comparing.reading import Ids
from gristmill.grouping.leakage import (
    MIN_DISTINCT_IDS,
    SPAN_TOKENS,
    Flags,
    KeyTable,
    Positions,
    counted_from,
    ranges_of,
    span_keys,
)

BATCH_TOKENS = 1 << 16
"""Arrays of half a megabyte stay in a core's cache."""
NO_TEXT = np.zeros(1, np.uint32)
"""Stands between two frozen stretches, so that spans of both never touch."""


class FrozenSpans:
    """The frozen stretches as one array, and the keys of their 50-grams."""

    def __init__(self, stretches: Sequence[Ids]) -> None:
        parts = [part for ids in stretches for part in (ids, NO_TEXT)]
        self._ids: Ids = np.concatenate([NO_TEXT[:0], *parts])
        lengths = np.array([len(ids) for ids in stretches], np.int64)
        self._first = np.cumsum(lengths + 1) - (lengths + 1)
        self._lengths = lengths
        self._starts = _gram_starts(self._first, lengths)
        self._keys, self._numbers = np.unique(span_keys(self._ids, self._starts), return_inverse=True)
        self._table = KeyTable.of([self._keys], len(self._keys))

    def shared_with(self, train: Iterable[Ids]) -> list[Flags]:
        """Of each frozen stretch, which tokens lie in a span that one of these has too."""
        is_found = np.zeros(len(self._keys), np.bool_)
        for batch in _batches(train):
            is_found[self._found_in(batch)] = True
        shared = np.zeros(len(self._ids), np.bool_)
        for start, end in ranges_of(self._ids, self._starts[is_found[self._numbers]], MIN_DISTINCT_IDS):
            shared[start:end] = True
        return [shared[first : first + size] for first, size in zip(self._first, self._lengths, strict=True)]

    def _found_in(self, batch: Sequence[Ids]) -> Positions:
        """Numbers of the frozen keys that are among those of these texts."""
        lengths = np.array([len(ids) for ids in batch], np.int64)
        keys = span_keys(np.concatenate(batch), _gram_starts(np.cumsum(lengths) - lengths, lengths))
        if not len(self._keys):
            return np.zeros(0, np.int64)
        keys = keys[self._table.may_hold(keys)]
        numbers = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found: Positions = numbers[self._keys[numbers] == keys]
        return found


def _gram_starts(first: Positions, lengths: Positions) -> Positions:
    """Of every 50-gram that lies within one of the texts that begin here."""
    return counted_from(first, np.maximum(0, lengths - SPAN_TOKENS + 1))


def _batches(texts: Iterable[Ids]) -> Iterator[list[Ids]]:
    gathered, size = list[Ids](), 0
    for ids in texts:
        gathered.append(ids)
        size += len(ids)
        if size >= BATCH_TOKENS:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered
