"""Overlap of the test files (frozen files) with a train split: shared 50-grams and near-duplicate files.

The keys of the frozen 50-grams are in a table, and the train split is streamed once. As in a build
(splits.shared_spans), a shared span is a verbatim span of 50 or more tokens with 8 or more distinct ids.

Only keys of 64 bits are compared, not the tokens. Equal spans have equal keys, so no shared span is missed. With 3
million frozen and 100 million train 50-grams, about one train split in sixty thousand contains a 50-gram with the key
of a different frozen 50-gram. Such a collision removes 50 tokens from the test set that are in no train split. All
datasets still have the same test set.
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
from gristmill.core.records import INDEPENDENT_WINDOW_KINDS, FileKey, Split
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.row_windows import TextKey, Window, WindowWithIds, join_windows, read_rows
from gristmill.dataset.token_spans import Ids, TokenSpan
from gristmill.dedup.clusters import MIN_JACCARD
from gristmill.dedup.signatures import DOCUMENTS_AT_ONCE, Keys, band_keys, concatenate_ids, distinct, grams_of
from gristmill.lab.training.train_config import UNTRAINED_VARIANTS
from gristmill.splits.shared_spans import (
    MIN_DISTINCT_IDS,
    SPAN_TOKENS,
    Flags,
    KeyTable,
    Positions,
    expand_ranges,
    merge_into_ranges,
    span_keys,
)

BATCH_TOKENS = 1 << 16
"""Approximate number of tokens in a batch. Its arrays take half a megabyte each, which fits into the cache of a
core."""
SEPARATOR = np.zeros(1, np.uint32)
"""Id between two frozen spans, so that shared ranges in the two spans are never merged."""


TrainSpan = tuple[TextKey, TokenSpan]
"""A text in train, and a contiguous span of its tokens."""


class FrozenGrams:
    """Index of the 50-grams in the frozen spans."""

    def __init__(self, spans: Sequence[Ids]) -> None:
        parts = [part for ids in spans for part in (ids, SEPARATOR)]
        self._ids: Ids = np.concatenate([SEPARATOR[:0], *parts])
        lengths = np.array([len(ids) for ids in spans], np.int64)
        self._first = np.cumsum(lengths + 1) - (lengths + 1)
        self._lengths = lengths
        self._starts = _gram_starts(self._first, lengths)
        self._keys, self._key_indices = np.unique(span_keys(self._ids, self._starts), return_inverse=True)
        self._table = KeyTable.of([self._keys], len(self._keys))

    def find_shared(self, train: Iterable[Ids]) -> list[Flags]:
        """Return an array of flags for each frozen span, True for tokens in ranges that also occur in train."""
        is_found = np.zeros(len(self._keys), np.bool_)
        for batch in _batches(train):
            is_found[self._matching_keys(batch)] = True
        shared = np.zeros(len(self._ids), np.bool_)
        for start, end in merge_into_ranges(self._ids, self._starts[is_found[self._key_indices]], MIN_DISTINCT_IDS):
            shared[start:end] = True
        return [shared[first : first + size] for first, size in zip(self._first, self._lengths, strict=True)]

    def _matching_keys(self, batch: Sequence[Ids]) -> Positions:
        """Return the indices of the frozen keys that also occur in these texts."""
        lengths = np.array([len(ids) for ids in batch], np.int64)
        keys = span_keys(np.concatenate(batch), _gram_starts(np.cumsum(lengths) - lengths, lengths))
        if not len(self._keys):
            return np.zeros(0, np.int64)
        keys = keys[self._table.may_contain(keys)]
        indices = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found: Positions = indices[self._keys[indices] == keys]
        return found


def _gram_starts(first: Positions, lengths: Positions) -> Positions:
    """Return the start of every 50-gram in concatenated texts. `first` has the start of each text."""
    return expand_ranges(first, np.maximum(0, lengths - SPAN_TOKENS + 1))


def _batches(texts: Iterable[Ids]) -> Iterator[list[Ids]]:
    batch, size = list[Ids](), 0
    for ids in texts:
        batch.append(ids)
        size += len(ids)
        if size >= BATCH_TOKENS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class NearDuplicateFinder:
    """Finds the frozen files that are near-duplicates of a train file, by the same rule as a build."""

    def __init__(self, texts: Sequence[Ids]) -> None:
        self._texts = texts
        self._by_key: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number, keys in enumerate(band_keys(*concatenate_ids(texts)).tolist()):
            for slot in enumerate(keys):
                self._by_key[slot].append(number)

    def scan(self, spans: Iterable[TrainSpan], found: set[int]) -> Iterator[TrainSpan]:
        """Yield the train spans unchanged, and add the indices of frozen files with a near-duplicate to `found`."""
        documents: list[Ids] = []
        for text, parts in groupby(spans, itemgetter(0)):
            ids = []
            for part in parts:
                ids.append(part[1].ids)
                yield part
            if text.variant not in INDEPENDENT_WINDOW_KINDS:
                documents.append(np.concatenate(ids))
            if len(documents) == DOCUMENTS_AT_ONCE:
                self._check(documents, found)
                documents = []
        self._check(documents, found)

    def _check(self, documents: Sequence[Ids], found: set[int]) -> None:
        for ids, keys in zip(documents, band_keys(*concatenate_ids(documents)).tolist(), strict=True):
            candidates = {number for slot in enumerate(keys) for number in self._by_key.get(slot, ())} - found
            if candidates:
                grams = distinct(grams_of(ids))
                found |= {one for one in candidates if _jaccard(self._texts[one], grams) >= MIN_JACCARD}


def _jaccard(text: Ids, grams: Keys) -> float:
    text_grams = distinct(grams_of(text))
    num_common = len(np.intersect1d(text_grams, grams, assume_unique=True))
    return num_common / (len(text_grams) + len(grams) - num_common)


SEAM_TOKENS = SPAN_TOKENS - 1
ID_BYTES = np.dtype(np.uint32).itemsize


class TrainScan:
    """A pass over a train split that finds the overlap with the frozen files and counts windows and ids."""

    def __init__(self, dataset: Dataset, advance: Callable[[int], None]) -> None:
        self._dataset, self._advance = dataset, advance
        self._is_grouped_by_file = isinstance(dataset.record, Manifest)
        self.num_windows = self.num_ids = 0

    def compare_with(self, grams: FrozenGrams, finder: NearDuplicateFinder) -> tuple[list[Flags], set[int]]:
        """Find the overlap with the frozen files.

        Returns an array of flags for each frozen span, True for tokens in ranges that also occur in train, and the
        indices of the frozen files with a near-duplicate in train.

        Near-duplicates are found only if gristmill built the dataset, because only then are the rows of a file
        consecutive.
        """
        found: set[int] = set()
        spans = self._spans()
        spans = finder.scan(spans, found) if self._is_grouped_by_file else _add_seams(spans)
        return grams.find_shared(span.ids for _, span in spans), found

    def _spans(self) -> Iterator[TrainSpan]:
        """Yield spans of joined windows. The parts of fill-in-the-middle documents are in their original order."""
        for _, windows in groupby(self._windows(), lambda entry: entry.window.file):
            by_text: defaultdict[TextKey, list[WindowWithIds]] = defaultdict(list)
            for entry in windows:
                text = entry.window.text_key
                if text.variant in INDEPENDENT_WINDOW_KINDS or not text.path:
                    yield text, entry.span
                else:
                    by_text[text].append(entry)
            for text, entries in by_text.items():
                joined = join_windows(self._dataset, entries)
                spans = [entry.span for entry in entries] if joined is None else joined
                yield from ((text, span) for span in spans)

    def _windows(self) -> Iterator[WindowWithIds]:
        """Yield all windows. The windows of a file are consecutive if gristmill built the dataset."""
        return self._read_windows() if self._dataset.record.packing is None else _group_by_file(self._read_windows())

    def _read_windows(self) -> Iterator[WindowWithIds]:
        """Yield the windows in stored order.

        After each noisy window, also yield its ids without noise, as a window of the file.
        """
        for row in read_rows(self._dataset, Split.TRAIN, self._advance):
            if any(window.variant not in UNTRAINED_VARIANTS for window in row.windows):
                self.num_windows += 1
                self.num_ids += len(row.ids)
            for window in row.windows:
                yield row.with_ids(window)
                if row.ids_before_noise is not None:
                    yield WindowWithIds(msgspec.structs.replace(window, variant=""), row.ids_before_noise)


def _group_by_file(entries: Iterable[WindowWithIds]) -> Iterator[WindowWithIds]:
    """Group the windows of packed rows by file. The ids are stored in a temporary file, not in memory."""
    offsets: defaultdict[FileKey, list[tuple[Window, int]]] = defaultdict(list)
    with TemporaryFile() as stream:
        end = 0
        for window, ids in entries:
            offsets[window.file].append((window, end))
            end += stream.write(ids.astype(np.uint32, copy=False).tobytes())
        for windows in offsets.values():
            for window, offset in windows:
                stream.seek(offset)
                yield WindowWithIds(window, np.frombuffer(stream.read(window.length * ID_BYTES), np.uint32))


class Seams:
    """Tokens around the boundary of two adjacent or overlapping spans, for the 50-grams that cross the boundary."""

    def __init__(self) -> None:
        self._heads: dict[TextKey, dict[int, Ids]] = {}
        self._tails: dict[TextKey, dict[int, Ids]] = {}

    def add(self, text: TextKey, span: TokenSpan) -> None:
        if text.variant not in INDEPENDENT_WINDOW_KINDS and text.path:
            self._heads.setdefault(text, {})[span.start] = span.ids[:SEAM_TOKENS].copy()
            self._tails.setdefault(text, {})[span.end] = span.ids[-SEAM_TOKENS:].copy()

    def __iter__(self) -> Iterator[TrainSpan]:
        for text, tails in self._tails.items():
            heads = self._heads[text]
            starts = sorted(heads)
            for end, tail in tails.items():
                for start in starts[bisect_left(starts, end - SEAM_TOKENS + 1) : bisect_right(starts, end)]:
                    yield text, TokenSpan(end - len(tail), np.concatenate((tail, heads[start][end - start :])))


def _add_seams(spans: Iterable[TrainSpan]) -> Iterator[TrainSpan]:
    """Yield the spans, and then the tokens around their boundaries, for datasets whose rows are in any order."""
    seams = Seams()
    for text, span in spans:
        seams.add(text, span)
        yield text, span
    yield from seams
