"""What a benchmark found, as one SVG: a row per method with its seconds by phase, its size and its leakage.

It brings its own background and no fonts, so that it reads the same on a light page and a dark one.
"""

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from gristmill.core.names import counted, printable
from gristmill.lab.bench.bench_result import PHASES, Bench, MethodResult
from gristmill.lab.bench.bench_text import (
    ORIGINAL,
    OURS,
    START,
    cores_text,
    l50_text,
    ratio_of,
    ratio_text,
    sample_notes,
    seconds_of,
    size_of,
    skip_notes,
)
from gristmill.views.theme import ACCENT, BACKGROUND, BAND, BORDER, FAINT_INK, FONT, INK, OTHER, TRACK

CHART_HEAD = "<!-- made by gristmill bench -->"
"""The first line: by it a chart is known as one of these."""
WIDTH = 1000
MARGIN = 24
ROW_HEIGHT = 28
BAR_HEIGHT = 12
TOP = 104
"""Above the first row: the title, the legend, the panels' headings."""
NOTE_HEIGHT = 18
NOTE_LETTERS = 150
LETTER_WIDTH = 7.1
"""Of a bold letter at the size of the names, about."""
GAP = 24

COLOURS = dict(
    zip((*PHASES, START), ("#8b7fb0", "#5f92b5", "#3f7f8c", "#7fae8a", "#d3b25c", "#c9814f", "#c4c0b6"), strict=True)
)


class Panel(NamedTuple):
    title: str
    left: float
    width: float
    """Of the longest bar; its value stands to the right of it."""


def chart_svg(result: Bench) -> str:
    notes = [_shortened(note) for note in (*sample_notes(result), *skip_notes(result))]
    height = TOP + ROW_HEIGHT * len(result.methods) + MARGIN + NOTE_HEIGHT * len(notes)
    area = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    edge = f'rx="8" fill="{BACKGROUND}" stroke="{BORDER}"'
    parts = [
        CHART_HEAD,
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {area} font-family="{FONT}" font-size="12">',
        "<title>Seconds by phase, size and leakage of each method</title>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" {edge}/>',
        *_head(result),
        *_rows(result),
        *(
            words(MARGIN, height - MARGIN + 8 - NOTE_HEIGHT * (len(notes) - 1 - number), note, fill=FAINT_INK, size=11)
            for number, note in enumerate(notes)
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panels(result: Bench) -> tuple[Panel, Panel, Panel]:
    longest = max((len(printable(method.name)) for method in result.methods), default=0)
    left = MARGIN + min(280.0, max(90.0, longest * LETTER_WIDTH)) + GAP / 2
    value_widths = (112, 68, 50)
    room = WIDTH - MARGIN - left - sum(value_widths) - 2 * GAP
    widths = [room * share for share in (0.56, 0.24, 0.20)]
    size_left = left + widths[0] + value_widths[0] + GAP
    leak_left = size_left + widths[1] + value_widths[1] + GAP
    return (
        Panel("seconds · times as fast", left, widths[0]),
        Panel("size", size_left, widths[1]),
        Panel("leakage (L50)", leak_left, widths[2]),
    )


def _head(result: Bench) -> Iterator[str]:
    corpus = result.corpus
    yield words(MARGIN, 34, "What each method costs and gives", weight="600", size=16)
    facts = f"{counted(corpus.files, 'file')}, {counted(corpus.tokens, 'token')}, {cores_text(result)}"
    yield words(WIDTH - MARGIN, 34, facts, fill=FAINT_INK, anchor="end")
    at = float(MARGIN)
    for phase, colour in COLOURS.items():
        yield f'<rect x="{at:.1f}" y="51" width="10" height="10" rx="2" fill="{colour}"/>'
        yield words(at + 15, 60, phase, fill=FAINT_INK)
        at += 15 + len(phase) * LETTER_WIDTH + 16
    for panel in _panels(result):
        yield words(panel.left, TOP - 12, panel.title, fill=FAINT_INK)


def _rows(result: Bench) -> Iterator[str]:
    seconds, size, leak = _panels(result)
    most_seconds = max((method.seconds_for_all for method in result.methods), default=0.0) or 1.0
    most_bytes = max((method.bytes * method.scale for method in result.methods), default=0.0) or 1.0
    for number, method in enumerate(result.methods):
        top = TOP + number * ROW_HEIGHT
        is_ours = method.name.startswith(OURS)
        weight, colour = "600" if method.name == OURS else "400", ACCENT if is_ours else OTHER
        if is_ours:
            left, width = MARGIN - 10, WIDTH - 2 * MARGIN + 20
            yield f'<rect x="{left}" y="{top}" width="{width}" height="{ROW_HEIGHT}" fill="{BAND}"/>'
        base = top + ROW_HEIGHT / 2 + 4
        yield words(MARGIN, base, method.name, weight=weight)
        yield from _stacked(method, seconds, top, most_seconds)
        has_ratio = method.name != ORIGINAL and ratio_of(method, result) is not None
        ratio = f" · {ratio_text(method, result)}" if has_ratio else ""
        end = seconds.left + seconds.width * method.seconds_for_all / most_seconds
        yield words(end + 6, base, f"{seconds_of(method)} s{ratio}", weight=weight)
        yield from _bar(size, top, method.bytes * method.scale / most_bytes, colour)
        yield words(size.left + size.width + 6, base, size_of(method), weight=weight)
        if method.l50 is not None:
            yield from _bar(leak, top, method.l50, colour)
        yield words(leak.left + leak.width + 6, base, l50_text(method), weight=weight)


def _stacked(method: MethodResult, panel: Panel, top: float, most: float) -> Iterator[str]:
    parts = {phase: method.phase_for_all(phase) or 0.0 for phase in PHASES}
    parts[START] = method.other_seconds
    total = sum(parts.values()) or 1.0
    at = panel.left
    for phase, seconds in parts.items():
        width = panel.width * method.seconds_for_all / most * seconds / total
        yield rect(at, top, width, COLOURS[phase])
        at += width


def _bar(panel: Panel, top: float, share: float, colour: str) -> Iterator[str]:
    yield rect(panel.left, top, panel.width, TRACK)
    yield rect(panel.left, top, panel.width * share, colour)


def rect(left: float, top: float, width: float, colour: str) -> str:
    y = top + (ROW_HEIGHT - BAR_HEIGHT) / 2
    return f'<rect x="{left:.2f}" y="{y:.1f}" width="{width:.2f}" height="{BAR_HEIGHT}" fill="{colour}"/>'


def words(
    x: float, y: float, text: str, *, fill: str = INK, weight: str = "400", size: int = 12, anchor: str = "start"
) -> str:
    style = f'fill="{fill}" font-weight="{weight}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(printable(text))}</text>'


def _shortened(note: str) -> str:
    return note if len(note) <= NOTE_LETTERS else f"{note[: NOTE_LETTERS - 1]}…"
