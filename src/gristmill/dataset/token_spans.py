"""Join windows into spans. A span contains consecutive tokens of a text, each token once.

windows = [TokenSpan(0, ids[:512]), TokenSpan(256, ids[256:768]), TokenSpan(900, ids[900:])]
join_spans(windows)     # two spans, 132 tokens apart
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]
UNKNOWN = np.iinfo(np.uint32).max
"""Value for an id that is not known yet. Larger than any id."""


class TokenSpan(NamedTuple):
    """Consecutive tokens of a text: one window, or several joined windows."""

    start: int
    """Position in the text of the span's first id."""
    ids: Ids

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


def join_spans(windows: Iterable[TokenSpan]) -> list[TokenSpan] | None:
    """Join windows of one text, in any order and with repeats.

    Return None if overlapping windows have different ids at the same position.
    """
    spans: list[TokenSpan] = []
    for group in _group_adjacent(sorted(windows, key=lambda window: (window.start, len(window.ids)))):
        start, end = group[0].start, max(window.end for window in group)
        ids = np.full(end - start, UNKNOWN, np.uint32)
        for window in group:
            covered = ids[window.start - start : window.end - start]
            if ((covered != window.ids) & (covered != UNKNOWN)).any():
                return None
            covered[:] = window.ids
        spans.append(TokenSpan(start, ids))
    return spans


def _group_adjacent(ordered: Iterable[TokenSpan]) -> Iterator[list[TokenSpan]]:
    """Group windows that overlap or are adjacent. The windows must be sorted by start."""
    group: list[TokenSpan] = []
    end = 0
    for window in ordered:
        if group and window.start > end:
            yield group
            group = []
        end = max(end, window.end) if group else window.end
        group.append(window)
    if group:
        yield group
