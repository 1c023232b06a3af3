"""Panels of curves as one SVG picture, with two panels per row and one legend for all panels."""

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
    evenly_spaced_indexes,
    line_styles,
    max_points_per_line,
)
from gristmill.views.numbers import log_tick_text, tick_texts
from gristmill.views.svg import DPI, MARGIN, WIDTH, add_axes, add_text, new_figure, shorten_text, svg_text, text_width
from gristmill.views.theme import LIGHT, MARKERS, TRACK, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

CURVES_HEAD = "<!-- curves drawn by gristmill -->"
"""First line of the file. It identifies pictures written by this module."""
PANEL_HEIGHT, COLUMNS, GAP, ROW_GAP = 320, 2, 36, 20
TITLE_BASE, SUBTITLE_BASE, TOP = 34, 54, 70
TITLE_SIZE, PANEL_TITLE_SIZE, TICK_SIZE = 16, 13, 11
LEFT, RIGHT, ABOVE, BELOW = 52, 16, 64, 40
"""Space between a plot and the edges of its panel, for ticks and names."""
LEGEND_HEIGHT, SWATCH, LEGEND_GAP = 20, 26, 18
MAX_ALL_MARKED, MARKERS_PER_LINE = 16, 8
"""A line of up to 16 points has a marker on each point. A line with more points has 8 or 9 markers."""
TICKS_X, TICKS_Y, MIN_TICKS = 8, 6, 2
MIN_RATIO_FOR_POWERS_ONLY = 100
"""If the limits of a log scale have at least this ratio, only powers of ten have ticks."""
MAX_MARK_WIDTH = 0.6
"""Maximum width of a mark's name as a fraction of the plot width."""


class Box(NamedTuple):
    name: str
    """Prefix of the ids of all elements in the box."""
    left: float
    top: float
    width: float
    height: float


class LegendEntry(NamedTuple):
    """A name in the legend, with its offset from the top left corner of the legend."""

    line: Line
    text: str
    left: float
    top: float


def curves_svg(title: str, subtitle: str, panels: Sequence[Panel]) -> str:
    """Return panels of curves as one SVG picture."""
    styles = line_styles(panels)
    legend = _legend(panels, WIDTH - 2 * MARGIN)
    top = TOP if subtitle else SUBTITLE_BASE
    below = top + (legend[-1].top + LEGEND_HEIGHT + 8 if legend else 0)
    boxes = _boxes(len(panels), below)
    height = max((box.top + box.height for box in boxes), default=below) + MARGIN - 8
    with new_figure(height) as figure:
        width = WIDTH - 2 * MARGIN
        add_text(figure, MARGIN, TITLE_BASE, shorten_text(title, width, TITLE_SIZE + 1), bold=True, size=TITLE_SIZE)
        add_text(figure, MARGIN, SUBTITLE_BASE, shorten_text(subtitle, width), faint=True)
        _draw_legend(figure, legend, styles, top)
        for panel, box in zip(panels, boxes, strict=True):
            _draw_panel(figure, panel, box, styles, max_points_per_line(panels))
        return svg_text(figure, CURVES_HEAD, title, " ".join(map(caption, panels)))


def _boxes(count: int, top: float) -> list[Box]:
    """Return the boxes of `count` panels. If the last panel is alone in its row, it takes the full width."""
    width = (WIDTH - 2 * MARGIN - GAP) / COLUMNS
    boxes = []
    for number in range(count):
        row, column = divmod(number, COLUMNS)
        is_alone = column == 0 and number == count - 1
        left = MARGIN + column * (width + GAP)
        panel_top = top + row * (PANEL_HEIGHT + ROW_GAP)
        boxes.append(Box(f"panel-{number}", left, panel_top, WIDTH - 2 * MARGIN if is_alone else width, PANEL_HEIGHT))
    return boxes


def _legend(panels: Sequence[Panel], width: float) -> list[LegendEntry]:
    """Arrange the line names in rows of the given width. A name longer than half of the width is cut."""
    lines: dict[str, Line] = {}
    for panel in panels:
        for line in panel.legend_lines():
            lines.setdefault(line.name, line)
    entries: list[LegendEntry] = []
    left = top = 0.0
    for line in (lines[name] for name in line_styles(panels) if name in lines):
        text = shorten_text(line.name, width / 2 - SWATCH - LEGEND_GAP)
        needed = SWATCH + text_width(text) + LEGEND_GAP
        if left and left + needed > width:
            left, top = 0.0, top + LEGEND_HEIGHT
        entries.append(LegendEntry(line, text, left, top))
        left += needed
    return entries


def _draw_legend(figure: "Figure", legend: Sequence[LegendEntry], styles: Mapping[str, Style], top: float) -> None:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - slow to import

    height = figure.get_size_inches()[1] * DPI
    for number, entry in enumerate(legend):
        style, x, y = styles[entry.line.name], MARGIN + entry.left, top + entry.top + LEGEND_HEIGHT / 2
        options = _line_options(entry.line, style) | ({} if entry.line.faint else _marker_options(style))
        swatch = Line2D(
            [x, x + 10, x + 20], [height - y] * 3, markevery=[1], transform=None, gid=f"legend-{number}", **options
        )
        figure.add_artist(swatch)
        add_text(figure, x + SWATCH, y + 4, entry.text)


def _draw_panel(figure: "Figure", panel: Panel, box: Box, styles: Mapping[str, Style], max_points: int) -> None:
    plot = Box(box.name, box.left + LEFT, box.top + ABOVE, box.width - LEFT - RIGHT, box.height - ABOVE - BELOW)
    title = shorten_text(panel.title, box.width, PANEL_TITLE_SIZE)
    add_text(figure, box.left, box.top + 15, title, bold=True, size=PANEL_TITLE_SIZE)
    y_name = shorten_text(_axis_name(panel.y_label, log=panel.log_y), box.width)
    add_text(figure, box.left, box.top + 34, y_name, faint=True)
    bottom, right = plot.top + plot.height, plot.left + plot.width
    x_name = shorten_text(_axis_name(panel.x_label, log=panel.log_x), plot.width)
    add_text(figure, right, bottom + 34, x_name, faint=True, anchor="right")
    axes = add_axes(figure, plot.left, plot.top, plot.width, plot.height)
    axes.plot([0, 1], [0, 0], color=LIGHT["soft"], linewidth=1, transform=axes.transAxes, clip_on=False)
    extent = panel.extent()
    if extent is None:
        middle = plot.left + plot.width / 2, plot.top + plot.height / 2
        add_text(figure, *middle, "no data yet", faint=True, size=14, anchor="center")
        return
    _scale(axes, panel, extent)
    _draw_marks(figure, axes, panel, plot)
    for number, line in sorted(enumerate(panel.lines), key=lambda one: not one[1].faint):  # faint lines first
        style = styles[line.name]
        for run in band_runs(line, panel, max_points):
            edge = [(x, high) for x, _, high in run] + [(x, low) for x, low, _ in reversed(run)]
            axes.fill(
                *zip(*edge, strict=True), color=style.color, alpha=0.16, linewidth=0, gid=f"{box.name}-band-{number}"
            )
        _draw_line(axes, drawn_points(line, panel, max_points), line, style, f"{box.name}-line-{number}")


def _axis_name(label: str, *, log: bool) -> str:
    return f"{label}, log scale" if log and label else label


def _scale(axes: "Axes", panel: Panel, extent: tuple[tuple[float, float], tuple[float, float]]) -> None:
    (_, min_y), _ = extent
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    axes.update_datalim(extent)
    axes.margins(x=0, y=0.05)
    axes.autoscale_view()
    axes.autoscale(enable=False)
    if min_y >= 0 and not panel.log_y:  # without negative values, the axis does not extend below zero
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))
    has_integer_x = all(
        point.x == round(point.x) for line in panel.lines for point in line.points if panel.can_draw_x(point.x)
    )
    _set_ticks(axes.xaxis, *axes.get_xlim(), TICKS_X, log=panel.log_x, integer=has_integer_x)
    _set_ticks(axes.yaxis, *axes.get_ylim(), TICKS_Y, log=panel.log_y, integer=False)
    axes.minorticks_off()
    axes.tick_params(length=4, color=LIGHT["soft"], labelcolor=LIGHT["soft"], labelsize=TICK_SIZE)
    axes.tick_params(axis="y", length=0, pad=7)
    axes.grid(axis="y", color=TRACK, linewidth=1)
    axes.set_axisbelow(True)


def _set_ticks(axis: "Axis", low: float, high: float, max_ticks: int, *, log: bool, integer: bool) -> None:
    """Place ticks on an axis. With `integer`, for example for epochs, the ticks of a linear scale are integers."""
    from matplotlib.ticker import LogLocator, MaxNLocator  # noqa: PLC0415 - slow to import

    ticks: list[float] = []
    if log:
        subs = (1, 2, 5) if high / low < MIN_RATIO_FOR_POWERS_ONLY else (1,)
        ticks = _ticks_between(LogLocator(subs=subs, numticks=max_ticks).tick_values(low, high), low, high)
    if len(ticks) < MIN_TICKS:
        ticks = _ticks_between(
            MaxNLocator(max_ticks, steps=[1, 2, 5, 10], integer=integer).tick_values(low, high), low, high
        )
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    axis.set_ticks(ticks, labels=list(map(log_tick_text, ticks)) if log else tick_texts(ticks, step))


def _ticks_between(ticks: Iterable[float], low: float, high: float) -> list[float]:
    return [float(tick) for tick in ticks if low <= tick <= high]


def _draw_line(axes: "Axes", points: Sequence[Point], line: Line, style: Style, gid: str) -> None:
    xs, ys = [point.x for point in points], [point.y for point in points]
    axes.plot(xs, ys, clip_on=False, gid=gid, **_line_options(line, style))
    gaps = [True, *map(math.isnan, ys), True]
    drawn = [index for index, is_gap in enumerate(gaps[1:-1]) if not is_gap]
    overlays: dict[str, tuple[list[int], dict[str, Any]]] = {}
    # A single point between two gaps has no line, so it is drawn as a dot.
    isolated = [index for index in drawn if gaps[index] and gaps[index + 2]]
    overlays["dots"] = isolated, {"marker": ".", "markersize": 4, "markeredgewidth": 0}
    if not line.faint:
        num_markers = MARKERS_PER_LINE if len(drawn) > MAX_ALL_MARKED else len(drawn)
        marked_indexes = [
            drawn[index] for index in evenly_spaced_indexes(len(drawn), num_markers, style.color_index / 6)
        ]
        overlays["markers"] = marked_indexes, _marker_options(style)
    for name, (indexes, marker) in overlays.items():
        options = _line_options(line, style) | marker | {"linestyle": "none"}
        options.pop("dashes")
        axes.plot(
            [xs[one] for one in indexes], [ys[one] for one in indexes], clip_on=False, gid=f"{gid}-{name}", **options
        )


def _line_options(line: Line, style: Style) -> dict[str, Any]:
    weight = {"linewidth": 1.2, "alpha": 0.55} if line.faint else {"linewidth": 1.8}
    return {"color": style.color, "dashes": style.dash or (None, None), "solid_capstyle": "round", **weight}


def _marker_options(style: Style) -> dict[str, Any]:
    return {"marker": MARKERS[style.marker_index], "markersize": 5, "markeredgewidth": 0}


def _draw_marks(figure: "Figure", axes: "Axes", panel: Panel, plot: Box) -> None:
    """Draw marks as dashed lines. The name of a vertical mark is above the plot, if there is space for it."""
    dashed: dict[str, Any] = {"color": LIGHT["soft"], "linewidth": 1, "dashes": (3, 3)}
    end = plot.left
    for number, mark in enumerate(panel.drawable_marks("x")):
        axes.axvline(mark.at, gid=f"{plot.name}-mark-x-{number}", **dashed)
        text = shorten_text(mark.name, plot.width * MAX_MARK_WIDTH, TICK_SIZE)
        width = text_width(text, TICK_SIZE)
        at = float(axes.transData.transform((mark.at, axes.get_ylim()[0]))[0])
        left = min(max(at - width / 2, plot.left), plot.left + plot.width - width)
        if left >= end:
            add_text(figure, left, plot.top - 6, text, faint=True, size=TICK_SIZE)
            end = left + width + LEGEND_GAP
    for number, mark in enumerate(panel.drawable_marks("y")):
        axes.axhline(mark.at, gid=f"{plot.name}-mark-y-{number}", **dashed)
        text = shorten_text(mark.name, plot.width * MAX_MARK_WIDTH, TICK_SIZE)
        axes.text(0.01, mark.at, text, transform=axes.get_yaxis_transform(), fontsize=TICK_SIZE, color=LIGHT["soft"])
