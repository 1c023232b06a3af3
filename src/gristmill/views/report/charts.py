"""Charts as records, and the JSON that assets/report.js draws them from.

Plotly reads a label as a little HTML of its own (`<b>`, `<br>`, `&lt;`): names go there escaped, and read as they are.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from gristmill.core.names import counted_units, printable
from gristmill.views.numbers import UNITS
from gristmill.views.theme import (
    BACKGROUND,
    BORDER,
    DARK_BACKGROUND,
    DARK_BORDER,
    DARK_FAINT_INK,
    DARK_INK,
    DARK_LINE_COLOURS,
    FONT,
    INK,
    LINE_COLOURS,
)

LONGEST_LABEL = 30
"""Signs; the hint and the table have all of them."""
SHORT_FROM = 10
"""Of a unit: from here on without decimals."""
SOFT_INK = "#5f5b53"
"""Of small words: the drawings' faint ink does not stand out enough for these on light ground."""


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


Chart = Bars | Funnel | Treemap


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    ink: str
    soft: str
    ground: str
    edge: str
    lines: tuple[str, ...]


LOOKS = {
    "light": _Look(ink=INK, soft=SOFT_INK, ground=BACKGROUND, edge=BORDER, lines=LINE_COLOURS),
    "dark": _Look(ink=DARK_INK, soft=DARK_FAINT_INK, ground=DARK_BACKGROUND, edge=DARK_BORDER, lines=DARK_LINE_COLOURS),
}


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
