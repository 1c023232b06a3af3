"""What a report is made of: sections with figures, each a chart and the table behind it; how numbers read in them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gristmill.views.report.charts import Chart
from gristmill.views.svg import shown
from gristmill.views.table import Table

MILLION = 1_000_000
SMALLEST_SHARE = 0.0005


class Figure(NamedTuple):
    id: str
    title: str
    told: str
    """What one sees, in a sentence or two."""
    chart: Chart
    table: Table
    is_wide: bool = False
    """Takes the page's whole width."""


class Section(NamedTuple):
    id: str
    title: str
    told: str
    figures: Sequence[Figure] = ()
    more: Sequence[str] = ()
    """HTML, below the figures."""


def share_text(part: float, whole: float) -> str:
    """`12.3%`; little is not nothing."""
    share = part / whole if whole else 0.0
    return "<0.1%" if 0 < share < SMALLEST_SHARE else f"{share:.1%}"


def short_number(value: float) -> str:
    """`16.8 million`, `65,708`: for headlines, where the table has every digit."""
    if value >= 1000 * MILLION:
        return f"{value / 1e9:,.2f} billion"
    return f"{value / 1e6:,.1f} million" if value >= MILLION else f"{value:,.0f}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`"""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def folded(summary: str, parts: Iterable[str], kind: str = "more", *, is_open: bool = False) -> list[str]:
    """What opens by a click; `summary` is plain text."""
    start = f'<details class="{kind}"{" open" if is_open else ""}><summary>{shown(summary)}</summary>'
    return [start, *parts, "</details>"]


def name_html(name: str, detail: str) -> str:
    """A file in a list, with what there is to say of it."""
    return f"<li><code>{shown(name)}</code>{f' <span>{shown(detail)}</span>' if detail else ''}</li>"


def paragraph(text: str) -> str:
    return f"<p>{shown(text)}</p>"
