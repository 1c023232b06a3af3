"""What a report is made of: sections with figures; how numbers read in them."""

from collections.abc import Sequence
from typing import NamedTuple

from gristmill.views.charts import Figure

MILLION = 1_000_000
SMALLEST_SHARE = 0.0005


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
