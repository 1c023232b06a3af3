"""Curves of a training run or a comparison: panels of lines, with captions and tables of values.

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

MAX_MAGNITUDE = 1e150
"""Largest absolute value drawn, so that differences cannot overflow. On a log scale, only values above 1e-150 are
drawn."""
MAX_LINES_IN_CAPTION = 12
MAX_ROWS = 120
MAX_POINTS, MAX_POINTS_PER_LINE, MIN_POINTS_PER_LINE = 5000, 600, 24
"""Limits on drawn points. MAX_POINTS is the limit for all panels of a file and is divided among the lines. The limits
keep files small, and a screen cannot display more points."""


class Point(NamedTuple):
    """A point of a line. If x or y is not finite, or not positive on a log scale, the line has a gap."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    """Lines with the same name have the same style in all panels and one entry in the legend."""
    points: Sequence[Point]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    """`low` and `high` are the edges of a band around the line, with one value per point."""
    faint: bool = False

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None):
            raise GristmillError(
                f"The band of line {self.name!r} has only one edge. Give both low and high, or neither."
            )
        for edge in (self.low, self.high):
            if edge is not None and len(edge) != len(self.points):
                counts = f"{counted(len(self.points), 'point')} but {counted(len(edge), 'band value')}"
                raise GristmillError(f"Line {self.name!r} has {counts}. Give each point a low and a high value.")

    def band(self) -> Iterator[tuple[float, float, float]]:
        """Yield (x, low, high) for each point, or nothing for a line without a band."""
        if self.low is not None and self.high is not None:
            for point, low, high in zip(self.points, self.low, self.high, strict=True):
                yield point.x, low, high


class Mark(NamedTuple):
    """A straight line across a panel. `Mark("best", 31)` is vertical, `Mark("chance", 0.5, "y")` is horizontal."""

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

    def can_draw_x(self, value: float) -> bool:
        return _is_drawable(value, log=self.log_x)

    def can_draw_y(self, value: float) -> bool:
        return _is_drawable(value, log=self.log_y)

    def drawable_marks(self, axis: str) -> list[Mark]:
        """Return the drawable marks on an axis, sorted by position."""
        can_draw = self.can_draw_x if axis == "x" else self.can_draw_y
        marks = (mark for mark in self.marks if mark.axis == axis and can_draw(mark.at))
        return sorted(marks, key=lambda mark: mark.at)

    def legend_lines(self) -> list[Line]:
        """Return one drawable line per name: the first that is not faint or, if all are faint, the first."""
        named: dict[str, Line] = {}
        for line in sorted(self.lines, key=lambda line: line.faint):
            if line.name and any(self.can_draw_x(x) and self.can_draw_y(y) for x, y in line.points):
                named.setdefault(line.name, line)
        return list(named.values())

    def extent(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """Return (min x, min y) and (max x, max y) of the drawn values, or None if no line has a drawable point."""
        points = [
            point
            for line in self.lines
            for point in line.points
            if self.can_draw_x(point.x) and self.can_draw_y(point.y)
        ]
        if not points:
            return None
        edges = [edge for line in self.lines for x, *pair in line.band() if self.can_draw_x(x) for edge in pair]
        xs = [point.x for point in points] + [mark.at for mark in self.drawable_marks("x")]
        ys = [point.y for point in points] + [mark.at for mark in self.drawable_marks("y")]
        ys += filter(self.can_draw_y, edges)
        return (min(xs), min(ys)), (max(xs), max(ys))


def _is_drawable(value: float, *, log: bool) -> bool:
    return math.isfinite(value) and abs(value) <= MAX_MAGNITUDE and (not log or value > 1 / MAX_MAGNITUDE)


def line_styles(panels: Sequence[Panel]) -> dict[str, Style]:
    """Return a style for each line name. Names are in order of first occurrence."""
    names = dict.fromkeys(line.name for panel in panels for line in panel.lines)
    return {name: Style(index) for index, name in enumerate(names)}


# Points to draw: a limited number that includes all peaks. Gaps are NaN.


def max_points_per_line(panels: Sequence[Panel]) -> int:
    """Return the maximum number of drawn points per line if these panels are in one file."""
    num_lines = sum(len(panel.lines) for panel in panels)
    return max(MIN_POINTS_PER_LINE, min(MAX_POINTS_PER_LINE, MAX_POINTS // max(1, num_lines)))


def drawn_points(line: Line, panel: Panel, max_points: int) -> list[Point]:
    gap = Point(math.nan, math.nan)
    points = [point if panel.can_draw_x(point.x) and panel.can_draw_y(point.y) else gap for point in line.points]
    return [points[index] for index in thin_indexes([[y for _, y in points]], max_points)]


def band_runs(line: Line, panel: Panel, max_points: int) -> list[list[tuple[float, float, float]]]:
    """Split a band at its gaps. Return each part as a list of (x, low, high).

    On a log y scale, a low value that is not positive is replaced by the smallest drawn y.
    """
    extent = panel.extent()
    if extent is None:
        return []
    (_, floor), _ = extent
    edges = [
        (x, floor if panel.log_y and math.isfinite(low) and low <= 0 else low, high) for x, low, high in line.band()
    ]
    is_drawable = [panel.can_draw_x(x) and panel.can_draw_y(low) and panel.can_draw_y(high) for x, low, high in edges]
    lows, highs = (
        [edge[side] if drawable else math.nan for edge, drawable in zip(edges, is_drawable, strict=True)]
        for side in (1, 2)
    )
    runs: list[list[tuple[float, float, float]]] = [[]]
    for index in thin_indexes([lows, highs], max_points // 2):  # each index gives two points: one on each edge
        if is_drawable[index]:
            runs[-1].append(edges[index])
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def thin_indexes(columns: Sequence[Sequence[float]], max_points: int) -> list[int]:
    """Choose about `max_points` indexes of columns of equal length, without losing a peak.

    Keep the first and the last index. Divide the indexes into buckets. From each bucket, keep the smallest and the
    largest value of each column, and the first gap (NaN).
    """
    count = len(columns[0])
    if count <= max_points:
        return list(range(count))
    num_buckets = max(1, (max_points - 2) // (2 * len(columns)))
    kept = {0, count - 1}
    for number in range(num_buckets):
        bucket = range(count * number // num_buckets, count * (number + 1) // num_buckets)
        drawable = [index for index in bucket if not any(math.isnan(column[index]) for column in columns)]
        if len(drawable) < len(bucket):
            kept.add(next(index for index in bucket if any(math.isnan(column[index]) for column in columns)))
        for column in columns if drawable else ():
            kept |= {min(drawable, key=column.__getitem__), max(drawable, key=column.__getitem__)}
    return sorted(kept)


# Captions and tables of values.


def caption(panel: Panel) -> str:
    """Describe a panel by the first and last value of each line.

    Example: `Loss, nats by epoch: train from 2.310 to 0.3800; validation from 2.400 to 0.5100.`
    """
    lines = panel.legend_lines()
    ranges = [_range_text(line, panel) for line in lines[:MAX_LINES_IN_CAPTION]]
    ranges += [f"and {len(lines) - MAX_LINES_IN_CAPTION} more"] if len(lines) > MAX_LINES_IN_CAPTION else []
    return f"{_heading(panel)} by {panel.x_label}: {'; '.join(ranges) or 'no data yet'}."


def _heading(panel: Panel) -> str:
    return f"{panel.title}, {panel.y_label}" if panel.y_label else panel.title


def _range_text(line: Line, panel: Panel) -> str:
    drawn = list(filter(panel.can_draw_y, (y for _, y in line.points)))
    return f"{line.name} from {value_text(drawn[0])} to {value_text(drawn[-1])}"


def values_table(panel: Panel) -> Table:
    """Return a table with a row per x and a column per line. More than MAX_ROWS rows are thinned out evenly.

    Faint lines have columns only if all lines are faint.
    """
    lines = [line for line in panel.lines if not line.faint] or list(panel.lines)
    columns = [_column(line) for line in lines]
    xs = sorted({x for column in columns for x in column if panel.can_draw_x(x)})
    chosen = [xs[index] for index in evenly_spaced_indexes(len(xs), MAX_ROWS)]
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


def evenly_spaced_indexes(count: int, max_count: int, shift: float = 0.0) -> list[int]:
    """Choose up to `max_count` evenly spaced indexes, and the last index.

    `shift`, from 0 to 1, moves all indexes except the last by this fraction of a stride.
    """
    if count <= max_count:
        return list(range(count))
    stride = (count - 1) / max_count
    return sorted({int(stride * (number + shift)) for number in range(max_count)} | {count - 1})
