"""All rows, once: how full they are, what their ids are, and in which of them some files' windows are."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Mapping

import msgspec

from gristmill.core.files_table import FileRow
from gristmill.core.records import FileKey, Split
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.row_windows import Window, read_windows
from gristmill.views.report.facts import Histogram, Redundancy

# How long files are, and how full rows: counts by value -> bars for each split.

FILL_BARS = 20

Values = dict[Split, Counter[int]]
"""By split, how often there is which value."""


class Lengths:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self._values: Values = {split: Counter() for split in Split}
        self.num_undrawn = 0
        """Files without a window."""

    def add(self, row: FileRow) -> None:
        if row.status == "kept" and row.split is not None:
            self._values[row.split][row.tokens or 0] += 1
            self.num_undrawn += not row.windows

    def histogram(self) -> Histogram:
        """Each bar reaches twice as far as the one before."""
        largest = max((value for values in self._values.values() for value in values), default=1)
        edges = [float(1 << power) for power in range(max(largest, 1).bit_length() + 1)]
        return histogram_of(self._values, edges)


def fill_histogram(num_ids: Values, window_length: int) -> Histogram:
    return histogram_of(num_ids, [bar / FILL_BARS for bar in range(FILL_BARS + 1)], window_length)


def histogram_of(values: Values, edges: list[float], unit: int = 1) -> Histogram:
    """`unit`: what a value is divided by. What lies beyond the edges is in the bar next to it."""
    bars = {split: [0] * (len(edges) - 1) for split in Split}
    every: Counter[int] = Counter()
    for split, counts in values.items():
        every.update(counts)
        for value, count in counts.items():
            bar = bisect_right(edges, value / unit) - 1
            bars[split][max(0, min(bar, len(edges) - 2))] += count
    total = every.total()
    return Histogram(
        edges=edges,
        counts=bars,
        median=_median(every) / unit,
        mean=math.fsum(value * count for value, count in every.items()) / unit / total if total else 0.0,
        largest=max(every, default=0) / unit,
    )


def _median(counts: Mapping[int, int]) -> float:
    total, passed, below = sum(counts.values()), 0, None
    for value, count in sorted(counts.items()):
        passed += count
        if below is None and 2 * passed >= total:
            below = value
        if below is not None and 2 * passed > total:
            return (below + value) / 2
    return 0.0


ROWS_AT_ONCE = 1000


class RowsTold(msgspec.Struct, frozen=True, kw_only=True):
    num_ids: Values
    """Of rows, without padding."""
    redundancy: list[Redundancy]
    num_windows: Counter[str]
    """Those that show a stretch of a file for the first time, repeats and variants, by their fields in Redundancy."""
    rows_of: dict[FileKey, list[int]]
    """Of the files that were asked for: the rows, by number in their split, that show them."""


def read_rows(dataset: Dataset, wanted: Collection[FileKey], advance: Callable[[int], None]) -> RowsTold:
    told = RowsTold(num_ids={}, redundancy=[], num_windows=Counter(), rows_of={})
    for split in Split:
        if split in dataset.manifest.splits:
            tally = _SplitTally(dataset, split, wanted)
            tally.read(advance)
            told.num_ids[split] = tally.num_ids
            told.redundancy.append(tally.redundancy())
            told.num_windows.update(tally.num_windows)
            told.rows_of.update(tally.rows_of)
    return told


class _SplitTally:
    def __init__(self, dataset: Dataset, split: Split, wanted: Collection[FileKey]) -> None:
        self._dataset, self._split, self._wanted = dataset, split, wanted
        self.num_ids: Counter[int] = Counter()
        self.num_windows: Counter[str] = Counter()
        self.rows_of: dict[FileKey, list[int]] = {}
        self._fresh = self._overlap = self._repeats = self._variants = self._special = 0

    def read(self, advance: Callable[[int], None]) -> None:
        number = -1
        for number, (num_ids, windows) in enumerate(read_windows(self._dataset, self._split)):
            self.num_ids[num_ids] += 1
            self._special += num_ids - sum(window.length for window in windows)
            for window in windows:
                self._take(window)
                if not (window.variant or window.repeat) and window.file in self._wanted:
                    self._note(window.file, number)
            if number % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
                advance(ROWS_AT_ONCE)
        advance((number + 1) % ROWS_AT_ONCE)

    def _take(self, window: Window) -> None:
        self.num_windows["variants" if window.variant else "repeats" if window.repeat else "fresh"] += 1
        if window.variant:
            self._variants += window.length
        elif window.repeat:
            self._repeats += window.length
        else:
            self._fresh += window.fresh
            self._overlap += window.length - window.fresh

    def _note(self, key: FileKey, number: int) -> None:
        rows = self.rows_of.setdefault(key, [])
        if not rows or rows[-1] != number:
            rows.append(number)

    def redundancy(self) -> Redundancy:
        manifest = self._dataset.manifest
        num_ids = sum(num * count for num, count in self.num_ids.items())
        has_room = manifest.packing is not None or "attention_mask" in manifest.columns
        room = self.num_ids.total() * manifest.window_length
        return Redundancy(
            split=self._split,
            fresh=self._fresh,
            overlap=self._overlap,
            repeats=self._repeats,
            variants=self._variants,
            special=self._special,
            padding=max(0, room - num_ids) if has_room else 0,
        )
