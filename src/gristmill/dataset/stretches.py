"""Windows -> stretches: tokens of a text without a gap, each once, as far as windows show them.

join([Stretch(0, ids[:512]), Stretch(256, ids[256:768]), Stretch(900, ids[900:])])     two stretches, a gap of 132
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]
UNKNOWN = np.iinfo(np.uint32).max
"""More than any id."""


class Stretch(NamedTuple):
    """A window, or several that were joined."""

    start: int
    """Of its first id, in the text."""
    ids: Ids

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


def join(windows: Iterable[Stretch]) -> list[Stretch] | None:
    """Windows of one text, in any order, repeated or not; None where two contradict each other."""
    stretches: list[Stretch] = []
    for group in _touching(sorted(windows, key=lambda window: (window.start, len(window.ids)))):
        start, end = group[0].start, max(window.end for window in group)
        canvas = np.full(end - start, UNKNOWN, np.uint32)
        for window in group:
            place = canvas[window.start - start : window.end - start]
            if ((place != window.ids) & (place != UNKNOWN)).any():
                return None
            place[:] = window.ids
        stretches.append(Stretch(start, canvas))
    return stretches


def _touching(ordered: Iterable[Stretch]) -> Iterator[list[Stretch]]:
    group: list[Stretch] = []
    end = 0
    for window in ordered:
        if group and window.start > end:
            yield group
            group = []
        end = max(end, window.end) if group else window.end
        group.append(window)
    if group:
        yield group
