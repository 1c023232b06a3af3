"""Charts that plotly draws in a page: records, the JSON that assets/charts.js reads, the figure around each.

Plotly reads a label as a little HTML of its own (`<b>`, `<br>`, `&lt;`): names go there escaped, and read as they are.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.core.errors import MissingExtraError
from gristmill.core.names import counted_units, printable
from gristmill.views.html import folded, paragraph, scrolling_table, shown
from gristmill.views.numbers import UNITS
from gristmill.views.table import Table
from gristmill.views.theme import DARK, DARK_LINES, FONT, LIGHT, LINES, Palette

LONGEST_LABEL = 30
"""Signs; the hint and the table have all of them."""
SHORT_FROM = 10
"""Of a unit: from here on without decimals."""
NO_SCRIPT = paragraph("The charts need JavaScript. The tables below each of them have all the numbers.")
PLOTLY = "package_data/plotly.min.js"


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Bars of one colour and pattern."""

    name: str
    values: list[float]
    hints: list[str]
    """What is told of each, where a pointer rests on it."""
    texts: list[str] | None = None
    """Beside each."""
    style: int = 0
    """Which colour and pattern."""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    text: str


class Bars(msgspec.Struct, frozen=True, kw_only=True, tag="bars", tag_field="kind"):
    labels: list[str]
    """Of each place, from the top or from the left."""
    series: list[Series]
    is_stacked: bool = False
    is_upright: bool = False
    is_share: bool = False
    """Values from 0 to 1, told in percent."""
    totals: list[str] | None = None
    """Beside each stack."""
    ticks: list[Tick] | None = None
    """Instead of the labels; places are counted from 0."""
    axis: str = ""
    """What the values are."""
    places_axis: str = ""


class Funnel(msgspec.Struct, frozen=True, kw_only=True, tag="funnel", tag_field="kind"):
    labels: list[str]
    values: list[float]
    texts: list[str]
    hints: list[str]


class Treemap(msgspec.Struct, frozen=True, kw_only=True, tag="treemap", tag_field="kind"):
    """Ids are numbers, so that no name is taken for another's."""

    labels: list[str]
    ids: list[str]
    parents: list[str]
    values: list[float]
    texts: list[str]
    hints: list[str]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    xs: list[float]
    ys: list[float]
    """NaN, null in JSON, is a gap."""
    hints: list[str]
    bands: list[list[tuple[float, float, float]]]
    """x, low and high, in runs without gaps."""
    style: int
    marker: int
    dash: tuple[int, ...]
    is_faint: bool
    is_named: bool
    """Its name is in the legend; others of the same name look alike."""


class ChartMark(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    at: float
    axis: str


class Curves(msgspec.Struct, frozen=True, kw_only=True, tag="curves", tag_field="kind"):
    curves: list[Curve]
    marks: list[ChartMark]
    x_axis: str
    y_axis: str
    is_log_x: bool
    is_log_y: bool
    is_empty: bool


Chart = Bars | Funnel | Treemap | Curves


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    ink: str
    soft: str
    ground: str
    edge: str
    lines: tuple[str, ...]


def _look(palette: Palette, ground: str, lines: tuple[str, ...]) -> _Look:
    return _Look(ink=palette["ink"], soft=palette["soft"], ground=palette[ground], edge=palette["edge"], lines=lines)


LOOKS = {"light": _look(LIGHT, "page", LINES), "dark": _look(DARK, "card", DARK_LINES)}


class Figure(NamedTuple):
    """A chart with its title, and the table behind it."""

    id: str
    title: str
    told: str
    """What one sees, in a sentence or two."""
    chart: Chart
    table: Table
    is_wide: bool = False
    """Takes the page's whole width."""


def figure_html(figure: Figure) -> Iterator[str]:
    yield '<figure class="wide"><figcaption>' if figure.is_wide else "<figure><figcaption>"
    yield f"<h3>{shown(figure.title)}</h3><p>{shown(figure.told)}</p></figcaption>"
    drawing = shown(f"{figure.title}. {figure.told} The table below has the numbers.")
    # Shown by the script, which draws into it.
    yield f'<div class="chart" id="chart-{figure.id}" role="img" aria-label="{drawing}" hidden=""></div>'
    yield from folded(f"Table: {figure.title}", scrolling_table(figure.table), "values")
    yield "</figure>"


def charts_script(figures: Iterable[Figure]) -> str:
    """The data of all charts of a page, as an element of its body."""
    charts = {f"chart-{figure.id}": figure.chart for figure in figures}
    return f'<script type="application/json" id="charts">{charts_json(charts)}</script>'


def chart_scripts() -> list[str]:
    """What draws the charts of a page, in order. Plotly's Python is not imported: its script lies in its package."""
    package = find_spec("plotly")
    plotly = Path(package.origin if package and package.origin else "").parent / PLOTLY
    if not plotly.is_file():
        raise MissingExtraError("charts need plotly, with its script: pip install -U 'gristmill[report]'.")
    ours = files("gristmill.views").joinpath("assets")
    before, drawing = (ours.joinpath(name).read_text("utf-8") for name in ("before_plotly.js", "charts.js"))
    return [before, plotly.read_text("utf-8"), drawing]


def label(text: str, longest: int = LONGEST_LABEL) -> str:
    """As plotly shows it: the name itself, and of a long one its two ends."""
    text = printable(text)
    if len(text) > longest:
        text = f"{text[: longest // 2 - 1]}…{text[-(longest - longest // 2) :]}"
    return escape(text, quote=False)


def compact(value: float) -> str:
    """`512`, `4.1k`, `2.0M`: where there is little room."""
    for size, unit in UNITS:
        if value >= size:
            return f"{value / size:.1f}{unit}" if value < SHORT_FROM * size else f"{value / size:.0f}{unit}"
    return f"{value:.0f}"


def hint(*lines: str) -> str:
    """Lines one below the other."""
    return "<br>".join(label(line, longest=120) for line in lines)


def charts_json(charts: dict[str, Chart]) -> str:
    """By the id of their place in the page. Nothing in it ends the script element that it stands in."""
    content: dict[str, Any] = {"font": FONT, "looks": LOOKS, "charts": charts}
    text = msgspec.json.encode(content).decode()
    for sign in "<\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def count_series(values: Sequence[float], labels: Sequence[str], unit: str, name: str = "") -> Series:
    """One series of whole numbers, each told beside its bar."""
    texts = [f"{value:,.0f}" for value in values]
    hints = [hint(label_, counted_units(text, unit)) for label_, text in zip(labels, texts, strict=True)]
    return Series(name=name or unit, values=list(values), hints=hints, texts=texts)
