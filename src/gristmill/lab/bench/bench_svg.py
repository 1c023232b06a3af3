"""Draw a benchmark result as an SVG chart: one row per method, with its seconds by phase, size and leakage."""

from typing import TYPE_CHECKING, NamedTuple

from gristmill.core.names import counted
from gristmill.lab.bench.bench_result import PHASES, Bench, MethodResult
from gristmill.lab.bench.bench_text import (
    GRISTMILL,
    ORIGINAL,
    START,
    cores_text,
    data_size_text,
    l50_text,
    ratio_text,
    sample_notes,
    seconds_text,
    skip_notes,
    speed_ratio,
)
from gristmill.views.svg import MARGIN, WIDTH, add_axes, add_text, new_figure, shorten_text, svg_text, text_width
from gristmill.views.theme import BAR, LIGHT, OTHER_BAR, TRACK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHART_HEAD = "<!-- made by gristmill bench -->"
"""First line of the chart. A later benchmark replaces only a file that begins with this line."""
ROW_HEIGHT = 28
BAR_HEIGHT = 12 / ROW_HEIGHT
"""Height of a bar as a fraction of the row height."""
TOP = 104
"""Space above the first row for the title, the legend and the panel headings."""
NOTE_HEIGHT = 18
NOTE_SIZE = 11
GAP = 24
MAX_NAME_WIDTH = 280.0

COLORS = dict(
    zip((*PHASES, START), ("#8b7fb0", "#5f92b5", "#3f7f8c", "#7fae8a", "#d3b25c", "#c9814f", "#c4c0b6"), strict=True)
)


class Panel(NamedTuple):
    title: str
    left: float
    width: float
    """Width of the longest bar. The value is drawn to the right of the bar."""


def chart_svg(result: Bench) -> str:
    notes = [*sample_notes(result), *skip_notes(result)]
    rows_height = ROW_HEIGHT * len(result.methods)
    height = TOP + rows_height + MARGIN + NOTE_HEIGHT * len(notes)
    with new_figure(height) as figure:
        _draw_head(figure, result)
        if result.methods:
            _draw_rows(figure, result)
        for number, note in enumerate(notes):
            base = TOP + rows_height + MARGIN + 8 + NOTE_HEIGHT * number
            text = shorten_text(note, WIDTH - 2 * MARGIN, NOTE_SIZE)
            add_text(figure, MARGIN, base, text, faint=True, size=NOTE_SIZE)
        return svg_text(figure, CHART_HEAD, "Seconds by phase, size and leakage of each method")


def _panels(result: Bench) -> tuple[Panel, Panel, Panel]:
    longest = max((text_width(method.name) for method in result.methods), default=0.0)
    left = MARGIN + min(MAX_NAME_WIDTH, max(90.0, longest)) + GAP / 2
    value_widths = (112, 68, 50)
    bar_space = WIDTH - MARGIN - left - sum(value_widths) - 2 * GAP
    widths = [bar_space * share for share in (0.56, 0.24, 0.20)]
    size_left = left + widths[0] + value_widths[0] + GAP
    leak_left = size_left + widths[1] + value_widths[1] + GAP
    return (
        Panel("seconds · times as fast", left, widths[0]),
        Panel("size", size_left, widths[1]),
        Panel("leakage (L50)", leak_left, widths[2]),
    )


def _draw_head(figure: "Figure", result: Bench) -> None:
    corpus = result.corpus
    add_text(figure, MARGIN, 34, "Cost and quality of each method", bold=True, size=16)
    facts = f"{counted(corpus.files, 'file')}, {counted(corpus.tokens, 'token')}, {cores_text(result)}"
    add_text(figure, WIDTH - MARGIN, 34, facts, faint=True, anchor="right")
    left = float(MARGIN)
    for phase, color in COLORS.items():
        add_axes(figure, left, 51, 10, 10).axhspan(0, 1, color=color, linewidth=0)
        add_text(figure, left + 15, 60, phase, faint=True)
        left += 15 + text_width(phase) + 16
    for panel in _panels(result):
        add_text(figure, panel.left, TOP - 12, panel.title, faint=True)


def _draw_rows(figure: "Figure", result: Bench) -> None:
    methods = result.methods
    max_seconds = max(method.seconds_for_all for method in methods) or 1.0
    max_bytes = max(method.bytes * method.scale for method in methods) or 1.0
    gristmill_rows = [number for number, method in enumerate(methods) if method.name.startswith(GRISTMILL)]
    background = bar_axes(figure, Panel("", MARGIN - 10, WIDTH - 2 * MARGIN + 20), TOP, len(methods))
    for number in gristmill_rows:
        background.axhspan(number, number + 1, color=LIGHT["band"], linewidth=0, gid=f"ours-{number}")
    seconds, size, leak = _panels(result)
    axes = [bar_axes(figure, panel, TOP, len(methods)) for panel in (seconds, size, leak)]
    for number, method in enumerate(methods):
        base = TOP + number * ROW_HEIGHT + ROW_HEIGHT / 2 + 4
        bold, color = method.name == GRISTMILL, BAR if number in gristmill_rows else OTHER_BAR
        add_text(figure, MARGIN, base, shorten_text(method.name, MAX_NAME_WIDTH), bold=bold)
        total_share = method.seconds_for_all / max_seconds
        _draw_phases(axes[0], method, number, total_share)
        has_ratio = method.name != ORIGINAL and speed_ratio(method, result) is not None
        ratio = f" · {ratio_text(method, result)}" if has_ratio else ""
        add_text(
            figure, seconds.left + seconds.width * total_share + 6, base, f"{seconds_text(method)} s{ratio}", bold=bold
        )
        _draw_share(axes[1], number, method.bytes * method.scale / max_bytes, color, f"size-{number}")
        add_text(figure, size.left + size.width + 6, base, data_size_text(method), bold=bold)
        if method.l50 is not None:
            _draw_share(axes[2], number, method.l50, color, f"leakage-{number}")
        add_text(figure, leak.left + leak.width + 6, base, l50_text(method), bold=bold)


def bar_axes(figure: "Figure", panel: Panel, top: float, num_rows: int) -> "Axes":
    """Add axes with one row per bar, the first row on top. The length of a bar is a share of the longest bar."""
    axes = add_axes(figure, panel.left, top, panel.width, ROW_HEIGHT * num_rows)
    axes.set_xlim(0, 1)
    axes.set_ylim(num_rows, 0)
    return axes


def draw_bar(axes: "Axes", row: int, width: float, color: str, gid: str, *, start: float = 0.0) -> None:
    axes.barh(row + 0.5, width, BAR_HEIGHT, start, color=color, linewidth=0, gid=gid)


def _draw_phases(axes: "Axes", method: MethodResult, row: int, total_share: float) -> None:
    parts = {phase: method.phase_for_all(phase) or 0.0 for phase in PHASES}
    parts[START] = method.other_seconds
    total = sum(parts.values()) or 1.0
    left = 0.0
    for phase, seconds in parts.items():
        draw_bar(axes, row, total_share * seconds / total, COLORS[phase], f"seconds-{row}-{phase}", start=left)
        left += total_share * seconds / total


def _draw_share(axes: "Axes", row: int, share: float, color: str, gid: str) -> None:
    draw_bar(axes, row, 1, TRACK, f"track-{gid}")
    draw_bar(axes, row, share, color, gid)
