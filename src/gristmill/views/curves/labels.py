"""Names at the ends of lines: moved apart where they would touch, or none at all where that does not do."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gristmill.views.curves.frame import LEAST_RIGHT, Frame
from gristmill.views.curves.panel import Line, Panel
from gristmill.views.curves.scale import is_drawable
from gristmill.views.svg import text_width, words
from gristmill.views.theme import Style

LABEL_HEIGHT = 15
LABEL_GAP = 16
"""From a line's end to its name: room for a leader."""
WIDEST = 0.3
"""Of a panel: longer names go to the legend."""
FURTHEST = 3 * LABEL_HEIGHT
NEAR_END = 0.03
"""Of the plot's width: a line that ends earlier is not named beside the plot."""


class Label(NamedTuple):
    name: str
    end: tuple[float, float]
    y: float


def room_for_labels(panel: Panel, width: float) -> float | None:
    """Beside the plot; None where a name is too long."""
    widest = max((text_width(line.name) for line in named_lines(panel)), default=0.0)
    if widest > width * WIDEST:
        return None
    return LABEL_GAP + widest + 4 if widest else LEAST_RIGHT


def named_lines(panel: Panel) -> list[Line]:
    """The first line of each name that has something to show; a faint one only if no other bears its name."""
    named: dict[str, Line] = {}
    for line in sorted(panel.lines, key=lambda line: line.faint):
        if line.name and last_shown(line, panel) is not None:
            named.setdefault(line.name, line)
    return list(named.values())


def labels_of(panel: Panel, frame: Frame) -> list[Label] | None:
    """None if they do not fit: too many, too far from their lines, or a line ends far from the edge."""
    ends = []
    for line in named_lines(panel):
        last = last_shown(line, panel)
        assert last is not None
        ends.append((frame.at(*line.points[last]), line.name))
    ends.sort(key=lambda end: end[0][1])
    if len(ends) * LABEL_HEIGHT > frame.box.height:
        return None
    top, bottom = frame.box.top, frame.box.top + frame.box.height
    places = moved_apart([y for (_, y), _ in ends], LABEL_HEIGHT, top, bottom)
    labels = [Label(name, end, y) for (end, name), y in zip(ends, places, strict=True)]
    return labels if all(_is_near(label, frame) for label in labels) else None


def _is_near(label: Label, frame: Frame) -> bool:
    short_by = frame.box.left + frame.box.width - label.end[0]
    return abs(label.y - label.end[1]) <= FURTHEST and short_by <= frame.box.width * NEAR_END


def last_shown(line: Line, panel: Panel) -> int | None:
    for index in range(len(line.points) - 1, -1, -1):
        x, y = line.points[index]
        if is_drawable(x, log=panel.log_x) and is_drawable(y, log=panel.log_y):
            return index
    return None


def moved_apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The nearest places to those wanted (ascending) that are so far apart, from low to high if there is room.

    Less number * gap, places apart are just places in order: the mean of each run out of order puts it right.
    """
    runs: list[list[float]] = []
    for number, place in enumerate(wanted):
        runs.append([place - number * gap])
        while len(runs) > 1 and _mean(runs[-2]) > _mean(runs[-1]):
            runs[-2:] = [runs[-2] + runs[-1]]
    even = [_mean(run) for run in runs for _ in run]
    most = max(low, high - gap * (len(wanted) - 1))
    return [min(max(place, low), most) + number * gap for number, place in enumerate(even)]


def _mean(run: Sequence[float]) -> float:
    return math.fsum(run) / len(run)


def label_parts(labels: Sequence[Label], frame: Frame, styles: Mapping[str, Style]) -> Iterator[str]:
    right = frame.box.left + frame.box.width
    for name, (x, y), at in labels:
        style = styles[name]
        leader = f"M{x + 5:.1f} {y:.1f}L{right + LABEL_GAP - 3:.1f} {at:.1f}"
        yield f'<g class="line{style.place}" color="{style.colour}">'
        yield f'<path d="{leader}" fill="none" stroke="currentColor" opacity="0.6"/></g>'
        yield words(right + LABEL_GAP, at + 4, name)
