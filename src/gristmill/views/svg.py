"""Text in a picture: how wide it is, about, and how it is written so that it is only ever text."""

import unicodedata
from html import escape

from gristmill.core.names import printable
from gristmill.views.theme import FAINT_INK, INK

NARROW, WIDE = frozenset("fijltrI.,:;|!'()[]/ -"), frozenset("mwMW@%")
NARROW_WIDTH, USUAL_WIDTH, CAPITAL_WIDTH, WIDE_WIDTH = 0.38, 0.62, 0.72, 1.0
"""Of a letter's size, in the widest of the usual fonts: text must not run over in any of them."""


def shown(text: str) -> str:
    r"""For XML and HTML: `<` is escaped, and what cannot be seen or turns the direction of writing reads `\u202e`."""
    return escape(printable(text))


def words(
    x: float, y: float, text: str, *, faint: bool = False, bold: bool = False, size: int = 12, anchor: str = "start"
) -> str:
    ink = f'class="faint" fill="{FAINT_INK}"' if faint else f'class="ink" fill="{INK}"'
    weight = ' font-weight="600"' if bold else ""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {ink} font-size="{size}"{weight}{side}>{shown(text)}</text>'


def text_width(text: str, size: float = 12) -> float:
    return size * sum(map(_letter_width, printable(text)))


def shortened(text: str, width: float, size: float = 12) -> str:
    """The start of it that fits, and `…` for the rest."""
    text = printable(text)
    if text_width(text, size) <= width:
        return text
    left = width - text_width("…", size)
    for count, letter in enumerate(text):
        left -= size * _letter_width(letter)
        if left < 0:
            return f"{text[:count].rstrip()}…"
    return text


def _letter_width(letter: str) -> float:
    if letter in NARROW:
        return NARROW_WIDTH
    if letter in WIDE or unicodedata.east_asian_width(letter) in "WF":
        return WIDE_WIDTH
    return CAPITAL_WIDTH if letter.isupper() else USUAL_WIDTH
