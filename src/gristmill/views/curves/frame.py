"""A panel's frame: where its axes lie, what they show, and how they are drawn."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gristmill.views.curves.panel import Panel, Point
from gristmill.views.curves.scale import Scale, is_drawable, linear_ticks, log_ticks, range_of, tick_step, with_room
from gristmill.views.numbers import log_tick_text, tick_texts
from gristmill.views.svg import shortened, text_width, words
from gristmill.views.theme import FAINT_INK, TRACK

TITLE_BASE, LABEL_BASE, PLOT_TOP = 15, 34, 50
"""From a panel's top: the lines that its title and the name of y stand on, and where the plot begins."""
BOTTOM = 40
"""Under the plot: the ticks of x, and its name."""
TITLE_SIZE, TICK_SIZE = 13, 11
TICK_GAP = 7
PIXELS_PER_TICK, LEAST_TICKS = 44, 2
BETWEEN_TEXTS = 18
LEAST_RIGHT = 16


class Box(NamedTuple):
    left: float
    top: float
    width: float
    height: float


class Axis(NamedTuple):
    scale: Scale
    ticks: Sequence[tuple[float, str]]


class Frame(NamedTuple):
    x: Axis
    y: Axis
    box: Box
    is_empty: bool

    def at(self, x: float, y: float) -> tuple[float, float]:
        return self.x.scale.at(x), self.y.scale.at(y)


def frame_of(panel: Panel, box: Box, *, right: float = LEAST_RIGHT, above: float = 0.0) -> Frame:
    """The plot inside of `box`; `right` is left free for labels beside it, `above` for names of marks on top."""
    top, bottom = box.top + PLOT_TOP + above, box.top + box.height - BOTTOM
    x_values, y_values = _values(panel)
    xs, ys = range_of(x_values, log=panel.log_x), range_of(y_values, log=panel.log_y)
    is_empty = not any(_is_shown(panel, point) for line in panel.lines for point in line.points)
    y = _y_axis(ys or (1.0, 2.0), bottom, top, log=panel.log_y)
    left = box.left + max((text_width(text, TICK_SIZE) for _, text in y.ticks), default=0.0) + TICK_GAP
    whole = all(x == round(x) for x in x_values if is_drawable(x, log=False))
    x = _x_axis(xs or (1.0, 2.0), left, box.left + box.width - max(right, LEAST_RIGHT), log=panel.log_x, whole=whole)
    plot = Box(left, top, x.scale.end - left, bottom - top)
    return Frame(x, y, plot, is_empty)


def _is_shown(panel: Panel, point: Point) -> bool:
    return is_drawable(point.x, log=panel.log_x) and is_drawable(point.y, log=panel.log_y)


def _values(panel: Panel) -> tuple[list[float], list[float]]:
    xs = [point.x for line in panel.lines for point in line.points]
    ys = [point.y for line in panel.lines for point in line.points]
    ys += [edge for line in panel.lines for _, low, high in line.band() for edge in (low, high)]
    for mark in panel.marks:
        (xs if mark.axis == "x" else ys).append(mark.at)
    return xs, ys


def _y_axis(values: tuple[float, float], bottom: float, top: float, *, log: bool) -> Axis:
    most = max(3, int((bottom - top) / PIXELS_PER_TICK))
    scale = Scale(*with_room(*values, most, log=log), bottom, top, log)
    return Axis(scale, _ticks(scale, most, whole=False))


def _x_axis(values: tuple[float, float], left: float, right: float, *, log: bool, whole: bool) -> Axis:
    """As many ticks as can be told apart."""
    scale = Scale(*values, left, right, log)
    most = max(LEAST_TICKS, int((right - left) / PIXELS_PER_TICK))
    ticks = _ticks(scale, most, whole=whole)
    while most > LEAST_TICKS and not _fit(ticks, scale):
        most -= 1
        ticks = _ticks(scale, most, whole=whole)
    return Axis(scale, ticks)


def _ticks(scale: Scale, most: int, *, whole: bool) -> list[tuple[float, str]]:
    if scale.log:
        # The room around the values may reach beyond what can be drawn.
        found = (tick for tick in log_ticks(scale.low, scale.high, most) if is_drawable(tick, log=True))
        return [(tick, log_tick_text(tick)) for tick in found]
    ticks = linear_ticks(scale.low, scale.high, most, whole=whole)
    step = tick_step(scale.low, scale.high, most, whole=whole)
    return list(zip(ticks, tick_texts(ticks, step), strict=True))


def _fit(ticks: Sequence[tuple[float, str]], scale: Scale) -> bool:
    ends = [(scale.at(tick), text_width(text, TICK_SIZE) / 2) for tick, text in ticks]
    return all(
        after - half_after - before - half_before >= BETWEEN_TEXTS
        for (before, half_before), (after, half_after) in pairwise(ends)
    )


def frame_parts(panel: Panel, frame: Frame, box: Box) -> Iterator[str]:
    """The grid, the numbers along it, and the names of the panel and its axes."""
    left, top, width, height = frame.box
    bottom, right = top + height, left + width
    yield words(
        box.left, box.top + TITLE_BASE, shortened(panel.title, box.width, TITLE_SIZE), bold=True, size=TITLE_SIZE
    )
    y_name = shortened(_axis_name(panel.y_label, log=panel.log_y), box.width)
    yield words(box.left, box.top + LABEL_BASE, y_name, faint=True)
    yield f'<path class="axis" d="M{left:.1f} {bottom:.1f}H{right:.1f}" stroke="{FAINT_INK}" fill="none"/>'
    x_name = shortened(_axis_name(panel.x_label, log=panel.log_x), width)
    yield words(right, bottom + 34, x_name, faint=True, anchor="end")
    if frame.is_empty:
        yield words(left + width / 2, top + height / 2, "nothing yet", faint=True, size=14, anchor="middle")
    else:
        yield from (*_y_parts(frame), *_x_parts(frame))


def _axis_name(label: str, *, log: bool) -> str:
    return f"{label}, log scale" if log and label else label


def _y_parts(frame: Frame) -> Iterator[str]:
    left, right = frame.box.left, frame.box.left + frame.box.width
    rows = "".join(f"M{left:.1f} {frame.y.scale.at(tick):.1f}H{right:.1f}" for tick, _ in frame.y.ticks)
    yield f'<path class="grid" d="{rows}" stroke="{TRACK}" fill="none"/>'
    for tick, text in frame.y.ticks:
        at = frame.y.scale.at(tick) + TICK_SIZE * 0.35
        yield words(frame.box.left - TICK_GAP, at, text, faint=True, size=TICK_SIZE, anchor="end")


def _x_parts(frame: Frame) -> Iterator[str]:
    bottom = frame.box.top + frame.box.height
    places = [(frame.x.scale.at(tick), text) for tick, text in frame.x.ticks]
    short = "".join(f"M{at:.1f} {bottom:.1f}v4" for at, _ in places)
    yield f'<path class="axis" d="{short}" stroke="{FAINT_INK}" fill="none"/>'
    for at, text in places:
        yield words(at, bottom + 17, text, faint=True, size=TICK_SIZE, anchor="middle")
