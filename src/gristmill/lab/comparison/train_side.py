"""Which 50-grams of the frozen side a train split has too: the frozen keys lie in a table, train streams past them.

The rule is that of the build (splits.shared_spans): spans of 50 tokens or more, verbatim, with 8 distinct ids or more.

Keys have 64 bits and are not compared token by token: equal spans have equal keys, so nothing that is shared is ever
missed. Two different spans have the same key by chance only: of 3 million frozen and 100 million train 50-grams that is
one run in sixty thousand, and it would cost 50 clean tokens of the frozen set, the same ones for every dataset.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from tempfile import TemporaryFile

import msgspec
import numpy as np

from gristmill.core.manifest import Manifest
from gristmill.core.records import BY_THEMSELVES, FileKey, Split
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.row_windows import ShownWindow, TextKey, Window, join_windows, read_rows
from gristmill.dataset.stretches import Ids, Stretch
from gristmill.dedup.clusters import MIN_JACCARD
from gristmill.dedup.signatures import DOCUMENTS_AT_ONCE, Keys, band_keys, distinct, end_to_end, grams_of
from gristmill.lab.training.train_config import LEFT_OUT
from gristmill.splits.shared_spans import (
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


Shown = tuple[TextKey, Stretch]
"""A stretch of a text that train shows."""


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


# Held-out files that are near-duplicates of a train file: found by the build's own rule, as train streams past.


class Twins:
    def __init__(self, texts: Sequence[Ids]) -> None:
        self._texts = texts
        self._by_key: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number, keys in enumerate(band_keys(*end_to_end(texts)).tolist()):
            for place in enumerate(keys):
                self._by_key[place].append(number)

    def watching(self, shown: Iterable[Shown], found: set[int]) -> Iterator[Shown]:
        """The same stretches; behind the last of them `found` has the numbers of texts with a near-duplicate there."""
        documents: list[Ids] = []
        for text, parts in groupby(shown, itemgetter(0)):
            ids = []
            for part in parts:
                ids.append(part[1].ids)
                yield part
            if text.variant not in BY_THEMSELVES:
                documents.append(np.concatenate(ids))
            if len(documents) == DOCUMENTS_AT_ONCE:
                self._look_at(documents, found)
                documents = []
        self._look_at(documents, found)

    def _look_at(self, documents: Sequence[Ids], found: set[int]) -> None:
        for ids, keys in zip(documents, band_keys(*end_to_end(documents)).tolist(), strict=True):
            candidates = {number for place in enumerate(keys) for number in self._by_key.get(place, ())} - found
            if candidates:
                grams = distinct(grams_of(ids))
                found |= {one for one in candidates if _jaccard(self._texts[one], grams) >= MIN_JACCARD}


def _jaccard(text: Ids, grams: Keys) -> float:
    own = distinct(grams_of(text))
    num_common = len(np.intersect1d(own, grams, assume_unique=True))
    return num_common / (len(own) + len(grams) - num_common)


# A dataset's train split as it streams past, once: the frozen side looks at it, and its ids are counted.

REACH = SPAN_TOKENS - 1
ID_BYTES = np.dtype(np.uint32).itemsize


class TrainText:
    def __init__(self, dataset: Dataset, advance: Callable[[int], None]) -> None:
        self._dataset, self._advance = dataset, advance
        self._is_by_file = isinstance(dataset.record, Manifest)
        self.num_windows = self.num_ids = 0

    def compared_with(self, spans: FrozenSpans, twins: Twins) -> tuple[list[Flags], set[int]]:
        """Of each frozen stretch the tokens that train has too, and which frozen files have a near-duplicate here.

        Where a file's rows do not stand together there is no document to compare: only spans are looked for.
        """
        found: set[int] = set()
        shown = self._stretches()
        shown = twins.watching(shown, found) if self._is_by_file else _with_seams(shown)
        return spans.shared_with(stretch.ids for _, stretch in shown), found

    def _stretches(self) -> Iterator[Shown]:
        """Rows of a file that follow each other, joined; what fill in the middle has moved is back in its place."""
        for _, windows in groupby(self._windows(), lambda shown: shown.window.file):
            by_text: defaultdict[TextKey, list[ShownWindow]] = defaultdict(list)
            for shown in windows:
                text = shown.window.text
                if text.variant in BY_THEMSELVES or not text.path:
                    yield text, shown.stretch
                else:
                    by_text[text].append(shown)
            for text, some in by_text.items():
                joined = join_windows(self._dataset, some)
                stretches = [shown.stretch for shown in some] if joined is None else joined
                yield from ((text, stretch) for stretch in stretches)

    def _windows(self) -> Iterator[ShownWindow]:
        """Windows of a file stand together, where a build made them."""
        return self._stored() if self._dataset.record.packing is None else _gathered(self._stored())

    def _stored(self) -> Iterator[ShownWindow]:
        """What labels show, where there is noise in the ids, is a window of the file itself."""
        for row in read_rows(self._dataset, Split.TRAIN, self._advance):
            if any(window.variant not in LEFT_OUT for window in row.windows):  # nor are they trained on
                self.num_windows += 1
                self.num_ids += len(row.ids)
            for window in row.windows:
                yield row.shown(window)
                if row.clean is not None:
                    yield ShownWindow(msgspec.structs.replace(window, variant=""), row.clean)


def _gathered(shown: Iterable[ShownWindow]) -> Iterator[ShownWindow]:
    """Group the windows of packed rows by file. Their ids are in a temporary file, not in memory."""
    places: defaultdict[FileKey, list[tuple[Window, int]]] = defaultdict(list)
    with TemporaryFile() as stream:
        end = 0
        for window, ids in shown:
            places[window.file].append((window, end))
            end += stream.write(ids.astype(np.uint32, copy=False).tobytes())
        for windows in places.values():
            for window, at in windows:
                stream.seek(at)
                yield ShownWindow(window, np.frombuffer(stream.read(window.length * ID_BYTES), np.uint32))


class Seams:
    """What stretches of the same text show together and neither shows alone."""

    def __init__(self) -> None:
        self._heads: dict[TextKey, dict[int, Ids]] = {}
        self._tails: dict[TextKey, dict[int, Ids]] = {}

    def add(self, text: TextKey, stretch: Stretch) -> None:
        if text.variant not in BY_THEMSELVES and text.path:
            self._heads.setdefault(text, {})[stretch.start] = stretch.ids[:REACH].copy()
            self._tails.setdefault(text, {})[stretch.end] = stretch.ids[-REACH:].copy()

    def __iter__(self) -> Iterator[Shown]:
        for text, tails in self._tails.items():
            heads = self._heads[text]
            starts = sorted(heads)
            for end, tail in tails.items():
                for start in starts[bisect_left(starts, end - REACH + 1) : bisect_right(starts, end)]:
                    yield text, Stretch(end - len(tail), np.concatenate((tail, heads[start][end - start :])))


def _with_seams(shown: Iterable[Shown]) -> Iterator[Shown]:
    """The same, and the seams between them, for rows of a file that do not stand together."""
    seams = Seams()
    for text, stretch in shown:
        seams.add(text, stretch)
        yield text, stretch
    yield from seams
