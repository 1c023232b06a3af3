"""Windows -> stretches: tokens of a text without a gap, as far as rows show them.

A span may cross the edge of two windows, which without overlap no window shows whole. Rows of a build stand in order,
so neighbours are put together as they come. Elsewhere (a kept method shuffles its rows) the edges of what came are
remembered, and where two meet, the *seam* is looked at: the last 49 tokens of one and the first 49 of the other. That
is needed only where windows overlap by fewer than 49 tokens; else every 50-gram is whole in some window.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from gristmill.comparing.reading import Ids, ShownWindow, TextKey
from gristmill.grouping.leakage import SPAN_TOKENS
from gristmill.records import BY_THEMSELVES

REACH = SPAN_TOKENS - 1


class Stretch(NamedTuple):
    text: TextKey
    start: int
    ids: Ids

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


def stretches_of(windows: Iterable[ShownWindow]) -> Iterator[Stretch]:
    """Rows that follow each other and are neighbours in their text, put together."""
    parts: list[Ids] = []
    first = last = None
    for window in windows:
        if first is not None and last is not None and _goes_on(last, window):
            parts.append(window.ids[last.end - window.start :])
        else:
            if first is not None:
                yield Stretch(first.text, first.start, np.concatenate(parts))
            first, parts = window, [window.ids]
        last = window
    if first is not None:
        yield Stretch(first.text, first.start, np.concatenate(parts))


def _goes_on(last: ShownWindow, window: ShownWindow) -> bool:
    is_neighbour = last.start < window.start <= last.end < window.end
    return is_neighbour and last.text == window.text and window.text.variant not in BY_THEMSELVES


class Seams:
    """What stretches of the same text show together and neither shows alone."""

    def __init__(self) -> None:
        self._heads: dict[TextKey, dict[int, Ids]] = {}
        self._tails: dict[TextKey, dict[int, Ids]] = {}

    def add(self, stretch: Stretch) -> None:
        if stretch.text.variant not in BY_THEMSELVES:
            self._heads.setdefault(stretch.text, {})[stretch.start] = stretch.ids[:REACH].copy()
            self._tails.setdefault(stretch.text, {})[stretch.end] = stretch.ids[-REACH:].copy()

    def taken(self) -> Iterator[Stretch]:
        """All there are; then it begins anew."""
        for text, tails in self._tails.items():
            heads = self._heads[text]
            starts = sorted(heads)
            for end, tail in tails.items():
                for start in starts[bisect_left(starts, end - REACH + 1) : bisect_right(starts, end)]:
                    yield Stretch(text, end - len(tail), np.concatenate((tail, heads[start][end - start :])))
        self._heads, self._tails = {}, {}


def with_seams(stretches: Iterable[Stretch], *, is_by_file: bool) -> Iterator[Stretch]:
    """The same, and the seams between them; `is_by_file`: all of a file stand together, so that few are remembered."""
    seams = Seams()
    file = None
    for stretch in stretches:
        if is_by_file and stretch.text.file != file:
            yield from seams.taken()
            file = stretch.text.file
        seams.add(stretch)
        yield stretch
    yield from seams.taken()


def whole(windows: Iterable[tuple[int, Ids]]) -> list[tuple[int, Ids]] | None:
    """Windows of one file, in any order and from several datasets -> its stretches; None where two contradict."""
    ordered = sorted(windows, key=lambda window: (window[0], len(window[1])))
    stretches: list[tuple[int, Ids]] = []
    for group in _touching(ordered):
        start, end = group[0][0], max(at + len(ids) for at, ids in group)
        # One more than any id: nothing is known there yet.
        canvas = np.full(end - start, np.iinfo(np.uint32).max, np.uint32)
        for at, ids in group:
            place = canvas[at - start : at - start + len(ids)]
            if ((place != ids) & (place != np.iinfo(np.uint32).max)).any():
                return None
            place[:] = ids
        stretches.append((start, canvas))
    return stretches


def _touching(ordered: list[tuple[int, Ids]]) -> Iterator[list[tuple[int, Ids]]]:
    group: list[tuple[int, Ids]] = []
    end = 0
    for at, ids in ordered:
        if group and at > end:
            yield group
            group = []
        group.append((at, ids))
        end = max(end, at + len(ids)) if len(group) > 1 else at + len(ids)
    if group:
        yield group
