"""Curves of a run or a comparison: points make lines, lines make a panel. As words and as a table of values.

curves_svg.py draws panels as a picture, curves_html.py as a page.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gristmill.core.errors import GristmillError
from gristmill.core.names import counted
from gristmill.views.numbers import value_text
from gristmill.views.table import Cell, Table
from gristmill.views.theme import Style

MOST = 1e150
"""Farther from zero, and on a log scale nearer to it than 1/MOST, nothing is drawn: differences must not overflow."""
MOST_NAMED = 12
"""Lines in a sentence."""
MOST_ROWS = 120
POINTS_PER_CHART, MOST_POINTS, LEAST_POINTS = 5000, 600, 24
"""A line has its share of a chart's points: files stay small, and a screen shows no more."""


class Point(NamedTuple):
    x: float
    y: float
    """A value that is not finite, or not above zero on a log scale, is a gap."""


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    """Lines of one name look alike in every panel, and the legend has the name once."""
    points: Sequence[Point]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    """The edges of a band around the line, one for each point."""
    faint: bool = False

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise GristmillError(f"A band of line {self.name!r} has one edge; give both low and high, or neither.")
        for edge in (self.low, self.high):
            if edge is not None and len(edge) != len(self.points):
                counts = f"{counted(len(self.points), 'point')} and a band of {len(edge)}"
                raise GristmillError(f"Line {self.name!r} has {counts}; give each point a low and a high.")

    def band(self) -> Iterator[tuple[float, float, float]]:
        """Each x with its low and high; nothing for a line without a band."""
        if self.low is not None and self.high is not None:
            for point, low, high in zip(self.points, self.low, self.high, strict=True):
                yield point.x, low, high


class Mark(NamedTuple):
    """A straight line through the whole panel: `Mark("best, epoch 31", 31)` stands, `Mark("chance", 0.5, "y")` lies."""

    name: str
    at: float
    axis: Literal["x", "y"] = "x"


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_y: bool = False
    log_x: bool = False
    marks: Sequence[Mark] = ()

    def has_x(self, value: float) -> bool:
        return _is_drawable(value, log=self.log_x)

    def has_y(self, value: float) -> bool:
        return _is_drawable(value, log=self.log_y)

    def drawn_marks(self, axis: str) -> list[Mark]:
        """Marks of an axis, in order."""
        has = self.has_x if axis == "x" else self.has_y
        return sorted((mark for mark in self.marks if mark.axis == axis and has(mark.at)), key=lambda mark: mark.at)

    def named_lines(self) -> list[Line]:
        """The first line of each name that has something to show; a faint one only if no other has its name."""
        named: dict[str, Line] = {}
        for line in sorted(self.lines, key=lambda line: line.faint):
            if line.name and any(self.has_x(x) and self.has_y(y) for x, y in line.points):
                named.setdefault(line.name, line)
        return list(named.values())

    def extent(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """The least x and y to be drawn, and the greatest; None if no line has a point to show."""
        points = [point for line in self.lines for point in line.points if self.has_x(point.x) and self.has_y(point.y)]
        if not points:
            return None
        edges = [edge for line in self.lines for x, *both in line.band() if self.has_x(x) for edge in both]
        xs = [point.x for point in points] + [mark.at for mark in self.drawn_marks("x")]
        ys = [point.y for point in points] + [mark.at for mark in self.drawn_marks("y")]
        ys += filter(self.has_y, edges)
        return (min(xs), min(ys)), (max(xs), max(ys))


def _is_drawable(value: float, *, log: bool) -> bool:
    return math.isfinite(value) and abs(value) <= MOST and (not log or value > 1 / MOST)


def styles_of(panels: Sequence[Panel]) -> dict[str, Style]:
    """By name, in the order in which names first come."""
    names = dict.fromkeys(line.name for panel in panels for line in panel.lines)
    return {name: Style(number) for number, name in enumerate(names)}


# What is drawn of a line: as many points as a chart can show, every peak among them, NaN for gaps.


def share_of_points(panels: Sequence[Panel]) -> int:
    """Most points of one line in a chart of these panels."""
    num_lines = sum(len(panel.lines) for panel in panels)
    return max(LEAST_POINTS, min(MOST_POINTS, POINTS_PER_CHART // max(1, num_lines)))


def drawn_points(line: Line, panel: Panel, most: int) -> list[Point]:
    gap = Point(math.nan, math.nan)
    points = [point if panel.has_x(point.x) and panel.has_y(point.y) else gap for point in line.points]
    return [points[index] for index in kept_indexes([[y for _, y in points]], most)]


def band_runs(line: Line, panel: Panel, most: int) -> list[list[tuple[float, float, float]]]:
    """x, low and high, in runs without gaps. On a log scale a band that reaches zero ends at the least value drawn."""
    extent = panel.extent()
    if extent is None:
        return []
    (_, floor), _ = extent
    edges = [
        (x, floor if panel.log_y and math.isfinite(low) and low <= 0 else low, high) for x, low, high in line.band()
    ]
    is_whole = [panel.has_x(x) and panel.has_y(low) and panel.has_y(high) for x, low, high in edges]
    lows, highs = (
        [edge[side] if whole else math.nan for edge, whole in zip(edges, is_whole, strict=True)] for side in (1, 2)
    )
    runs: list[list[tuple[float, float, float]]] = [[]]
    for index in kept_indexes([lows, highs], most // 2):  # each is a point of both edges
        if is_whole[index]:
            runs[-1].append(edges[index])
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def kept_indexes(columns: Sequence[Sequence[float]], most: int) -> list[int]:
    """Of equally long columns: first and last, and of each stretch the least and greatest in each column.

    A stretch with a gap (NaN) in it keeps that too. `most` is about how many are kept.
    """
    count = len(columns[0])
    if count <= most:
        return list(range(count))
    num_stretches = max(1, (most - 2) // (2 * len(columns)))
    kept = {0, count - 1}
    for number in range(num_stretches):
        stretch = range(count * number // num_stretches, count * (number + 1) // num_stretches)
        whole = [index for index in stretch if not any(math.isnan(column[index]) for column in columns)]
        if len(whole) < len(stretch):
            kept.add(next(index for index in stretch if any(math.isnan(column[index]) for column in columns)))
        for column in columns if whole else ():
            kept |= {min(whole, key=column.__getitem__), max(whole, key=column.__getitem__)}
    return sorted(kept)


# A panel without the picture.


def caption(panel: Panel) -> str:
    """`Loss, nats by epoch: train from 2.31 to 0.38; validation from 2.4 to 0.51.`"""
    lines = panel.named_lines()
    spans = [_span(line, panel) for line in lines[:MOST_NAMED]]
    spans += [f"and {len(lines) - MOST_NAMED} more"] if len(lines) > MOST_NAMED else []
    return f"{_heading(panel)} by {panel.x_label}: {'; '.join(spans) or 'nothing yet'}."


def _heading(panel: Panel) -> str:
    return f"{panel.title}, {panel.y_label}" if panel.y_label else panel.title


def _span(line: Line, panel: Panel) -> str:
    drawn = list(filter(panel.has_y, (y for _, y in line.points)))
    return f"{line.name} from {value_text(drawn[0])} to {value_text(drawn[-1])}"


def values_table(panel: Panel) -> Table:
    """A row for each x, a column for each line; of very many rows, evenly many."""
    lines = [line for line in panel.lines if not line.faint] or list(panel.lines)
    columns = [_column(line) for line in lines]
    xs = sorted({x for column in columns for x in column if panel.has_x(x)})
    chosen = [xs[index] for index in spread_indexes(len(xs), MOST_ROWS)]
    note = f", {len(chosen):,} of {counted(len(xs), 'row')}" if len(chosen) < len(xs) else ""
    rows: list[list[Cell]] = [[x, *(column.get(x) for column in columns)] for x in chosen]
    return Table(f"{_heading(panel)}{note}", [panel.x_label, *(line.name for line in lines)], rows)


def _column(line: Line) -> dict[float, Cell]:
    bands = list(line.band())
    if not bands:
        return dict(line.points)
    return {
        point.x: f"{value_text(point.y)} ({value_text(low)} to {value_text(high)})"
        for point, (_, low, high) in zip(line.points, bands, strict=True)
    }


def spread_indexes(count: int, most: int, shift: float = 0.0) -> list[int]:
    """Evenly many of so many, the last among them; `shift`, from 0 to 1, moves the others by that much of a stride."""
    if count <= most:
        return list(range(count))
    stride = (count - 1) / most
    return sorted({int(stride * (number + shift)) for number in range(most)} | {count - 1})
