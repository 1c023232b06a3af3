"""Panels of curves as one SVG, two to a row, with a legend that has every name once."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gristmill.views.curves import (
    Line,
    Panel,
    Point,
    band_runs,
    caption,
    drawn_points,
    share_of_points,
    spread_indexes,
    styles_of,
)
from gristmill.views.numbers import log_tick_text, tick_texts
from gristmill.views.svg import DPI, MARGIN, WIDTH, add_axes, add_words, picture, shortened, svg_text, text_width
from gristmill.views.theme import LIGHT, MARKERS, TRACK, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

CURVES_HEAD = "<!-- curves drawn by gristmill -->"
"""The first line: by it a chart is known as one of these."""
PANEL_HEIGHT, COLUMNS, GAP, ROW_GAP = 320, 2, 36, 20
TITLE_BASE, SUBTITLE_BASE, TOP = 34, 54, 70
TITLE_SIZE, PANEL_TITLE_SIZE, TICK_SIZE = 16, 13, 11
LEFT, RIGHT, ABOVE, BELOW = 52, 16, 64, 40
"""Around a plot, inside its panel: ticks and names."""
LEGEND_HEIGHT, SWATCH, LEGEND_GAP = 20, 26, 18
ALL_MARKED, MARKERS_PER_LINE = 16, 8
"""A line of so many points shows each of them; a longer one just enough to be known by its marker."""
TICKS_X, TICKS_Y, FEWEST_TICKS = 8, 6, 2
MOST_BETWEEN_POWERS = 100
"""Of a log scale: over a wider range, ticks are powers of ten only."""
WIDEST_MARK = 0.6
"""Of a plot: a longer name of a mark is shortened."""


class Box(NamedTuple):
    name: str
    """Begins the ids of all that is drawn in it."""
    left: float
    top: float
    width: float
    height: float


class Entry(NamedTuple):
    """A name in the legend, and its place from the legend's corner."""

    line: Line
    text: str
    left: float
    top: float


def curves_svg(title: str, subtitle: str, panels: Sequence[Panel]) -> str:
    styles = styles_of(panels)
    legend = _legend(panels, WIDTH - 2 * MARGIN)
    top = TOP if subtitle else SUBTITLE_BASE
    below = top + (legend[-1].top + LEGEND_HEIGHT + 8 if legend else 0)
    boxes = _boxes(len(panels), below)
    height = max((box.top + box.height for box in boxes), default=below) + MARGIN - 8
    with picture(height) as figure:
        room = WIDTH - 2 * MARGIN
        add_words(figure, MARGIN, TITLE_BASE, shortened(title, room, TITLE_SIZE + 1), bold=True, size=TITLE_SIZE)
        add_words(figure, MARGIN, SUBTITLE_BASE, shortened(subtitle, room), faint=True)
        _draw_legend(figure, legend, styles, top)
        for panel, box in zip(panels, boxes, strict=True):
            _draw_panel(figure, panel, box, styles, share_of_points(panels))
        return svg_text(figure, CURVES_HEAD, title, " ".join(map(caption, panels)))


def _boxes(count: int, top: float) -> list[Box]:
    """Of the panels; one that is left over takes a whole row."""
    width = (WIDTH - 2 * MARGIN - GAP) / COLUMNS
    boxes = []
    for number in range(count):
        row, column = divmod(number, COLUMNS)
        is_alone = column == 0 and number == count - 1
        left = MARGIN + column * (width + GAP)
        at = top + row * (PANEL_HEIGHT + ROW_GAP)
        boxes.append(Box(f"panel-{number}", left, at, WIDTH - 2 * MARGIN if is_alone else width, PANEL_HEIGHT))
    return boxes


def _legend(panels: Sequence[Panel], width: float) -> list[Entry]:
    """In rows, as many names to a row as fit; a name is at most half as wide as all."""
    lines: dict[str, Line] = {}
    for panel in panels:
        for line in panel.named_lines():
            lines.setdefault(line.name, line)
    entries: list[Entry] = []
    left = top = 0.0
    for line in (lines[name] for name in styles_of(panels) if name in lines):
        text = shortened(line.name, width / 2 - SWATCH - LEGEND_GAP)
        needed = SWATCH + text_width(text) + LEGEND_GAP
        if left and left + needed > width:
            left, top = 0.0, top + LEGEND_HEIGHT
        entries.append(Entry(line, text, left, top))
        left += needed
    return entries


def _draw_legend(figure: "Figure", legend: Sequence[Entry], styles: Mapping[str, Style], top: float) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - as in svg.py

    height = figure.get_size_inches()[1] * DPI
    for number, entry in enumerate(legend):
        style, x, y = styles[entry.line.name], MARGIN + entry.left, top + entry.top + LEGEND_HEIGHT / 2
        look = _pen(entry.line, style) | ({} if entry.line.faint else _marker(style))
        piece = Line2D(
            [x, x + 10, x + 20], [height - y] * 3, markevery=[1], transform=None, gid=f"legend-{number}", **look
        )
        figure.add_artist(piece)
        add_words(figure, x + SWATCH, y + 4, entry.text)


def _draw_panel(figure: "Figure", panel: Panel, box: Box, styles: Mapping[str, Style], most: int) -> None:
    plot = Box(box.name, box.left + LEFT, box.top + ABOVE, box.width - LEFT - RIGHT, box.height - ABOVE - BELOW)
    title = shortened(panel.title, box.width, PANEL_TITLE_SIZE)
    add_words(figure, box.left, box.top + 15, title, bold=True, size=PANEL_TITLE_SIZE)
    y_name = shortened(_axis_name(panel.y_label, log=panel.log_y), box.width)
    add_words(figure, box.left, box.top + 34, y_name, faint=True)
    bottom, right = plot.top + plot.height, plot.left + plot.width
    x_name = shortened(_axis_name(panel.x_label, log=panel.log_x), plot.width)
    add_words(figure, right, bottom + 34, x_name, faint=True, anchor="right")
    axes = add_axes(figure, plot.left, plot.top, plot.width, plot.height)
    axes.plot([0, 1], [0, 0], color=LIGHT["soft"], linewidth=1, transform=axes.transAxes, clip_on=False)
    extent = panel.extent()
    if extent is None:
        middle = plot.left + plot.width / 2, plot.top + plot.height / 2
        add_words(figure, *middle, "nothing yet", faint=True, size=14, anchor="center")
        return
    _scale(axes, panel, extent)
    _draw_marks(figure, axes, panel, plot)
    for number, line in sorted(enumerate(panel.lines), key=lambda one: not one[1].faint):  # what matters lies on top
        style = styles[line.name]
        for run in band_runs(line, panel, most):
            edge = [(x, high) for x, _, high in run] + [(x, low) for x, low, _ in reversed(run)]
            axes.fill(
                *zip(*edge, strict=True), color=style.colour, alpha=0.16, linewidth=0, gid=f"{box.name}-band-{number}"
            )
        _draw_line(axes, drawn_points(line, panel, most), line, style, f"{box.name}-line-{number}")


def _axis_name(label: str, *, log: bool) -> str:
    return f"{label}, log scale" if log and label else label


def _scale(axes: "Axes", panel: Panel, extent: tuple[tuple[float, float], tuple[float, float]]) -> None:
    (_, least), _ = extent
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    axes.update_datalim(extent)
    axes.margins(x=0, y=0.05)
    axes.autoscale_view()
    axes.autoscale(enable=False)
    if least >= 0 and not panel.log_y:  # what is never below zero is not drawn as if it could be
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    whole = all(point.x == round(point.x) for line in panel.lines for point in line.points if panel.has_x(point.x))
    _set_ticks(axes.xaxis, *axes.get_xlim(), TICKS_X, log=panel.log_x, whole=whole)
    _set_ticks(axes.yaxis, *axes.get_ylim(), TICKS_Y, log=panel.log_y, whole=False)
    axes.minorticks_off()
    axes.tick_params(length=4, color=LIGHT["soft"], labelcolor=LIGHT["soft"], labelsize=TICK_SIZE)
    axes.tick_params(axis="y", length=0, pad=7)
    axes.grid(axis="y", color=TRACK, linewidth=1)
    axes.set_axisbelow(True)


def _set_ticks(axis: "Axis", low: float, high: float, most: int, *, log: bool, whole: bool) -> None:
    """`whole`: no ticks between whole numbers, since there is no half epoch."""
    from matplotlib.ticker import LogLocator, MaxNLocator  # noqa: PLC0415 - as in svg.py

    ticks: list[float] = []
    if log:
        subs = (1, 2, 5) if high / low < MOST_BETWEEN_POWERS else (1,)
        ticks = _between(LogLocator(subs=subs, numticks=most).tick_values(low, high), low, high)
    if len(ticks) < FEWEST_TICKS:
        ticks = _between(MaxNLocator(most, steps=[1, 2, 5, 10], integer=whole).tick_values(low, high), low, high)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    axis.set_ticks(ticks, labels=list(map(log_tick_text, ticks)) if log else tick_texts(ticks, step))


def _between(ticks: Iterable[float], low: float, high: float) -> list[float]:
    return [float(tick) for tick in ticks if low <= tick <= high]


def _draw_line(axes: "Axes", points: Sequence[Point], line: Line, style: Style, gid: str) -> None:
    xs, ys = [point.x for point in points], [point.y for point in points]
    axes.plot(xs, ys, clip_on=False, gid=gid, **_pen(line, style))
    gaps = [True, *map(math.isnan, ys), True]
    shown = [index for index, is_gap in enumerate(gaps[1:-1]) if not is_gap]
    spots: dict[str, tuple[list[int], dict[str, Any]]] = {}
    # A point alone between gaps is a dot, as no line leads to it.
    alone = [index for index in shown if gaps[index] and gaps[index + 2]]
    spots["dots"] = alone, {"marker": ".", "markersize": 4, "markeredgewidth": 0}
    if not line.faint:
        most = MARKERS_PER_LINE if len(shown) > ALL_MARKED else len(shown)
        marked = [shown[index] for index in spread_indexes(len(shown), most, style.place / 6)]
        spots["markers"] = marked, _marker(style)
    for name, (indexes, marker) in spots.items():
        look = _pen(line, style) | marker | {"linestyle": "none"}
        look.pop("dashes")
        axes.plot(
            [xs[one] for one in indexes], [ys[one] for one in indexes], clip_on=False, gid=f"{gid}-{name}", **look
        )


def _pen(line: Line, style: Style) -> dict[str, Any]:
    weight = {"linewidth": 1.2, "alpha": 0.55} if line.faint else {"linewidth": 1.8}
    return {"color": style.colour, "dashes": style.dash or (None, None), "solid_capstyle": "round", **weight}


def _marker(style: Style) -> dict[str, Any]:
    return {"marker": MARKERS[style.marker], "markersize": 5, "markeredgewidth": 0}


def _draw_marks(figure: "Figure", axes: "Axes", panel: Panel, plot: Box) -> None:
    """Dashed lines. Names of those that stand are in one row above the plot: a name without room there is left out."""
    dashed: dict[str, Any] = {"color": LIGHT["soft"], "linewidth": 1, "dashes": (3, 3)}
    end = plot.left
    for number, mark in enumerate(panel.drawn_marks("x")):
        axes.axvline(mark.at, gid=f"{plot.name}-mark-x-{number}", **dashed)
        text = shortened(mark.name, plot.width * WIDEST_MARK, TICK_SIZE)
        width = text_width(text, TICK_SIZE)
        at = float(axes.transData.transform((mark.at, axes.get_ylim()[0]))[0])
        left = min(max(at - width / 2, plot.left), plot.left + plot.width - width)
        if left >= end:
            add_words(figure, left, plot.top - 6, text, faint=True, size=TICK_SIZE)
            end = left + width + LEGEND_GAP
    for number, mark in enumerate(panel.drawn_marks("y")):
        axes.axhline(mark.at, gid=f"{plot.name}-mark-y-{number}", **dashed)
        text = shortened(mark.name, plot.width * WIDEST_MARK, TICK_SIZE)
        axes.text(0.01, mark.at, text, transform=axes.get_yaxis_transform(), fontsize=TICK_SIZE, color=LIGHT["soft"])
