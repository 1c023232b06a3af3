"""Charts drawn by plotly: chart records, their JSON for assets/charts.js, and the HTML figure around each chart.

Plotly interprets some HTML in labels (`<b>`, `<br>`, `&lt;`), so names are escaped and appear literally.
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
from gristmill.views.html import collapsible, escape_text, paragraph, scrolling_table
from gristmill.views.numbers import UNITS
from gristmill.views.table import Table
from gristmill.views.theme import DARK, DARK_LINE_COLORS, FONT, LIGHT, LINE_COLORS, Palette

MAX_LABEL_LENGTH = 30
"""Maximum length of a label, in characters. A line of a hover text may have 120. Tables have the complete name."""
MIN_WITHOUT_DECIMALS = 10
"""Numbers of at least this many units have no decimals: 4.1k, but 12k."""
NO_SCRIPT_HTML = paragraph("The charts need JavaScript. The table below each chart has its values.")
PLOTLY_SCRIPT = "package_data/plotly.min.js"


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A series of bars with the same color and pattern."""

    name: str
    values: list[float]
    hints: list[str]
    """Hover text of each bar."""
    texts: list[str] | None = None
    """Text beside each bar."""
    style: int = 0
    """Index of the color in LINE_COLORS and of the pattern in assets/charts.js."""


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A tick with its position on an axis."""

    at: float
    text: str


class Bars(msgspec.Struct, frozen=True, kw_only=True, tag="bars", tag_field="kind"):
    """A bar chart, horizontal unless `is_upright` is set."""

    labels: list[str]
    """Labels of the bars, from top to bottom, or from left to right if `is_upright` is set."""
    series: list[Series]
    is_stacked: bool = False
    is_upright: bool = False
    is_share: bool = False
    """True if values are between 0 and 1 and are displayed in percent."""
    totals: list[str] | None = None
    """Text beside each stack of bars, such as its total."""
    ticks: list[Tick] | None = None
    """Axis ticks that replace the labels. The center of the first bar is at 0, and that of the next at 1."""
    axis: str = ""
    """Title of the value axis."""
    places_axis: str = ""
    """Title of the axis with the labels."""


class Funnel(msgspec.Struct, frozen=True, kw_only=True, tag="funnel", tag_field="kind"):
    """A funnel chart with one bar per stage."""

    labels: list[str]
    values: list[float]
    texts: list[str]
    hints: list[str]


class Treemap(msgspec.Struct, frozen=True, kw_only=True, tag="treemap", tag_field="kind"):
    """Nested boxes. `ids` identify the boxes, because several boxes may have the same name."""

    labels: list[str]
    ids: list[str]
    parents: list[str]
    values: list[float]
    texts: list[str]
    hints: list[str]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A line through points, with an optional band around it."""

    name: str
    xs: list[float]
    ys: list[float]
    """NaN marks a gap and becomes null in JSON."""
    hints: list[str]
    bands: list[list[tuple[float, float, float]]]
    """Parts of the band between gaps, each as a list of (x, low, high)."""
    style: int
    marker: int
    dash: tuple[int, ...]
    is_faint: bool
    is_named: bool
    """True if the legend lists this curve. Only one of the curves with the same name is listed."""


class ChartMark(msgspec.Struct, frozen=True, kw_only=True):
    """A straight line across a chart at one value of an axis."""

    name: str
    at: float
    axis: str


class Curves(msgspec.Struct, frozen=True, kw_only=True, tag="curves", tag_field="kind"):
    """A line chart."""

    curves: list[Curve]
    marks: list[ChartMark]
    x_axis: str
    y_axis: str
    is_log_x: bool
    is_log_y: bool
    is_empty: bool


Chart = Bars | Funnel | Treemap | Curves


class _ColorScheme(msgspec.Struct, frozen=True, kw_only=True):
    """Colors of charts on a light or dark background."""

    ink: str
    soft: str
    ground: str
    edge: str
    lines: tuple[str, ...]


def _color_scheme(palette: Palette, ground: str, lines: tuple[str, ...]) -> _ColorScheme:
    return _ColorScheme(
        ink=palette["ink"], soft=palette["soft"], ground=palette[ground], edge=palette["edge"], lines=lines
    )


COLOR_SCHEMES = {
    "light": _color_scheme(LIGHT, "page", LINE_COLORS),
    "dark": _color_scheme(DARK, "card", DARK_LINE_COLORS),
}


class Figure(NamedTuple):
    """A chart with a title, a caption and a table of its values."""

    id: str
    title: str
    caption: str
    """One or two sentences that describe the chart."""
    chart: Chart
    table: Table
    is_wide: bool = False
    """True if the figure takes the full width of the page."""


def figure_html(figure: Figure) -> Iterator[str]:
    yield '<figure class="wide"><figcaption>' if figure.is_wide else "<figure><figcaption>"
    yield f"<h3>{escape_text(figure.title)}</h3><p>{escape_text(figure.caption)}</p></figcaption>"
    description = escape_text(f"{figure.title}. {figure.caption} The table below has the values.")
    # The script that draws the chart also removes `hidden`.
    yield f'<div class="chart" id="chart-{figure.id}" role="img" aria-label="{description}" hidden=""></div>'
    yield from collapsible(f"Table: {figure.title}", scrolling_table(figure.table), "values")
    yield "</figure>"


def charts_script(figures: Iterable[Figure]) -> str:
    """Return the data of all charts of a page as a script element."""
    charts = {f"chart-{figure.id}": figure.chart for figure in figures}
    return f'<script type="application/json" id="charts">{charts_json(charts)}</script>'


def chart_scripts() -> list[str]:
    """Return the scripts that draw the charts, in the order of execution. The Python package plotly is not imported."""
    package = find_spec("plotly")
    plotly = Path(package.origin if package and package.origin else "").parent / PLOTLY_SCRIPT
    if not plotly.is_file():
        raise MissingExtraError("charts need plotly and its JavaScript file: pip install -U 'gristmill[report]'.")
    assets = files("gristmill.views").joinpath("assets")
    before_plotly, charts_js = (assets.joinpath(name).read_text("utf-8") for name in ("before_plotly.js", "charts.js"))
    return [before_plotly, plotly.read_text("utf-8"), charts_js]


def label(text: str, max_length: int = MAX_LABEL_LENGTH) -> str:
    """Return text escaped for plotly. In a text longer than `max_length`, `…` replaces the middle."""
    text = printable(text)
    if len(text) > max_length:
        text = f"{text[: max_length // 2 - 1]}…{text[-(max_length - max_length // 2) :]}"
    return escape(text, quote=False)


def compact_number(value: float) -> str:
    """Return a short form of a number, like `512`, `4.1k` or `2.0M`."""
    for size, unit in UNITS:
        if value >= size:
            return f"{value / size:.1f}{unit}" if value < MIN_WITHOUT_DECIMALS * size else f"{value / size:.0f}{unit}"
    return f"{value:.0f}"


def hover_text(*lines: str) -> str:
    """Join lines of text into the hover text of one value."""
    return "<br>".join(label(line, max_length=120) for line in lines)


def charts_json(charts: dict[str, Chart]) -> str:
    """Encode charts, keyed by element id, as JSON. `<` is escaped, so that no text can end the script element."""
    content: dict[str, Any] = {"font": FONT, "looks": COLOR_SCHEMES, "charts": charts}
    text = msgspec.json.encode(content).decode()
    for character in "<\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def count_series(values: Sequence[float], labels: Sequence[str], unit: str, name: str = "") -> Series:
    """Return a series of integers, each displayed beside its bar."""
    texts = [f"{value:,.0f}" for value in values]
    hints = [hover_text(bar_label, counted_units(text, unit)) for bar_label, text in zip(labels, texts, strict=True)]
    return Series(name=name or unit, values=list(values), hints=hints, texts=texts)
