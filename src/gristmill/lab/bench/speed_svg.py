"""What `bench --tokenizers` found, as one SVG: a bar per method, a panel per state, a group per way of handing it text.

Bars are linear and share one scale: twice as long is twice as fast, whichever panel it is in.
"""

from collections.abc import Iterator
from typing import NamedTuple

from gristmill.core.names import counted
from gristmill.core.text import size_text
from gristmill.lab.bench.bench_svg import CHART_HEAD, GAP, LETTER_WIDTH, MARGIN, ROW_HEIGHT, WIDTH, rect, words
from gristmill.lab.bench.speed_text import CARD, place_text, rate_text, speed_of
from gristmill.lab.bench.speeds import CASE_TITLES, Case, State, TokenizerBench, TokenizerMethod
from gristmill.views.theme import ACCENT, BACKGROUND, BORDER, FAINT_INK, FONT, OTHER

TOP = 84
"""Above the first group: the title and the panels' headings."""
TITLE_HEIGHT = 26
"""Of a group."""
VALUE_WIDTH = 84
FIRST_LEFT = MARGIN + 10 * LETTER_WIDTH + GAP
PLACE_LETTERS = 150


class Row(NamedTuple):
    top: float
    case: Case
    method: TokenizerMethod | None
    """None: the title of the group."""


def tokenizers_svg(result: TokenizerBench) -> str:
    rows = list(_rows(result))
    height = (rows[-1].top if rows else TOP) + ROW_HEIGHT + MARGIN
    area = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    edge = f'rx="8" fill="{BACKGROUND}" stroke="{BORDER}"'
    parts = [
        CHART_HEAD,
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {area} font-family="{FONT}" font-size="12">',
        "<title>Source bytes per second of each tokenizer</title>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" {edge}/>',
        *_head(result),
        *(part for row in rows for part in _drawn(row, result)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rows(result: TokenizerBench) -> Iterator[Row]:
    top = float(TOP)
    for case in Case:
        names = {speed.method for speed in result.speeds if speed.case == case}
        if names:
            yield Row(top, case, None)
            top += TITLE_HEIGHT
        for method in (method for method in result.methods if method.name in names):
            yield Row(top, case, method)
            top += ROW_HEIGHT


def _head(result: TokenizerBench) -> Iterator[str]:
    corpus = result.corpus
    yield words(MARGIN, 34, "How fast each tokenizer is", weight="600", size=16)
    facts = f"{counted(corpus.files, 'file')}, {size_text(corpus.bytes)}, {counted(corpus.tokens, 'id')}"
    yield words(WIDTH - MARGIN, 34, facts, fill=FAINT_INK, anchor="end")
    yield words(MARGIN, 52, place_text(result)[:PLACE_LETTERS], fill=FAINT_INK, size=11)
    for number, state in enumerate(State):
        yield words(_left(number), TOP - 8, state, fill=FAINT_INK)


def _drawn(row: Row, result: TokenizerBench) -> Iterator[str]:
    base = row.top + ROW_HEIGHT / 2 + 4
    if row.method is None:
        yield words(MARGIN, base, CASE_TITLES[row.case], weight="600")
        return
    is_card = row.method.name == CARD
    weight = "600" if is_card else "400"
    yield words(MARGIN, base, row.method.name, weight=weight)
    most = max((speed.bytes_per_second for speed in result.speeds), default=0.0) or 1.0
    for number, state in enumerate(State):
        speed = speed_of(row.method.name, row.case, state, result)
        if speed is not None:
            width = _bar_width() * speed.bytes_per_second / most
            yield rect(_left(number), row.top, width, ACCENT if is_card else OTHER)
            yield words(_left(number) + width + 6, base, rate_text(speed, row.method), weight=weight)


def _bar_width() -> float:
    """Of the longest bar; its value stands to the right of it."""
    return _panel_width() - VALUE_WIDTH


def _panel_width() -> float:
    return (WIDTH - MARGIN - FIRST_LEFT - GAP * (len(State) - 1)) / len(State)


def _left(number: int) -> float:
    return FIRST_LEFT + number * (_panel_width() + GAP)
