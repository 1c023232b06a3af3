"""Draw the result of `bench --tokenizers` as an SVG chart: a group per input, a panel per state, a bar per method.

All panels have the same linear scale: a bar that is twice as long means twice the speed.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gristmill.core.names import counted
from gristmill.core.text import size_text
from gristmill.lab.bench.bench_svg import CHART_HEAD, GAP, ROW_HEIGHT, Panel, bar_axes, draw_bar
from gristmill.lab.bench.tokenizers.speed_text import CUDA, environment_text, rate_text, speed_of
from gristmill.lab.bench.tokenizers.speeds import CASE_TITLES, Case, State, TokenizerBench, TokenizerMethod
from gristmill.views.svg import MARGIN, WIDTH, add_text, new_figure, shorten_text, svg_text
from gristmill.views.theme import BAR, OTHER_BAR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOP = 84
"""Space above the first group for the title and the panel headings."""
NAME_WIDTH, VALUE_WIDTH, ENVIRONMENT_SIZE = 71, 84, 11
FIRST_LEFT = MARGIN + NAME_WIDTH + GAP
PANEL_WIDTH = (WIDTH - MARGIN - FIRST_LEFT - GAP * (len(State) - 1)) / len(State)
BAR_WIDTH = PANEL_WIDTH - VALUE_WIDTH
"""Width of the longest bar. The value is drawn to the right of the bar."""


class Row(NamedTuple):
    case: Case
    method: TokenizerMethod | None
    """None in the row that holds the title of a group."""


def tokenizers_svg(result: TokenizerBench) -> str:
    rows = list(_rows(result))
    with new_figure(TOP + ROW_HEIGHT * len(rows) + MARGIN) as figure:
        _draw_head(figure, result)
        _draw_rows(figure, rows, result)
        return svg_text(figure, CHART_HEAD, "Source bytes per second of each tokenizer")


def _rows(result: TokenizerBench) -> Iterator[Row]:
    for case in Case:
        names = {speed.method for speed in result.speeds if speed.case == case}
        if names:
            yield Row(case, None)
        yield from (Row(case, method) for method in result.methods if method.name in names)


def _draw_head(figure: "Figure", result: TokenizerBench) -> None:
    corpus = result.corpus
    add_text(figure, MARGIN, 34, "Speed of each tokenizer", bold=True, size=16)
    facts = f"{counted(corpus.files, 'file')}, {size_text(corpus.bytes)}, {counted(corpus.tokens, 'id')}"
    add_text(figure, WIDTH - MARGIN, 34, facts, faint=True, anchor="right")
    environment = shorten_text(environment_text(result), WIDTH - 2 * MARGIN, ENVIRONMENT_SIZE)
    add_text(figure, MARGIN, 52, environment, faint=True, size=ENVIRONMENT_SIZE)
    for number, state in enumerate(State):
        add_text(figure, _left(number), TOP - 8, state, faint=True)


def _draw_rows(figure: "Figure", rows: list[Row], result: TokenizerBench) -> None:
    max_rate = max((speed.bytes_per_second for speed in result.speeds), default=0.0) or 1.0
    panels = [Panel(state, _left(number), BAR_WIDTH) for number, state in enumerate(State)]
    axes = [bar_axes(figure, panel, TOP, max(1, len(rows))) for panel in panels]
    for row_number, (case, method) in enumerate(rows):
        base = TOP + row_number * ROW_HEIGHT + ROW_HEIGHT / 2 + 4
        if method is None:
            add_text(figure, MARGIN, base, CASE_TITLES[case], bold=True)
            continue
        is_cuda = method.name == CUDA
        add_text(figure, MARGIN, base, method.name, bold=is_cuda)
        for number, state in enumerate(State):
            speed = speed_of(method.name, case, state, result)
            if speed is not None:
                share = speed.bytes_per_second / max_rate
                draw_bar(axes[number], row_number, share, BAR if is_cuda else OTHER_BAR, f"bar-{row_number}-{state}")
                left = _left(number) + BAR_WIDTH * share + 6
                add_text(figure, left, base, rate_text(speed, method), bold=is_cuda)


def _left(number: int) -> float:
    return FIRST_LEFT + number * (PANEL_WIDTH + GAP)
