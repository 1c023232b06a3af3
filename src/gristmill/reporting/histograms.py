"""How long files are, and how full rows: counts by value -> bars for each split."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping

from gristmill.filestable import FileRow
from gristmill.records import Split
from gristmill.reporting.facts import Histogram

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
