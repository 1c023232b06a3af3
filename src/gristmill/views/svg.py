"""Pictures to commit, as SVG by matplotlib: the same bytes on every machine and in every run.

A picture has its own background, so that it reads the same on light and dark pages. Text stays text: no fonts are in
the file, and names are neither markup nor mathematics.
"""

import io
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gristmill.core.names import printable
from gristmill.views.html import shown
from gristmill.views.theme import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, MARGIN = 1000, 24
DPI = 72
"""At this many, matplotlib's points are pixels."""
SETTINGS: dict[Any, Any] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, which measures ticks by it
    "font.size": 12,
    "path.simplify": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "gristmill",
    "text.color": LIGHT["ink"],
    "text.parse_math": False,
}
NARROW, WIDE = frozenset("fijltrI.,:;|!'()[]/ -"), frozenset("mwMW@%")
NARROW_WIDTH, USUAL_WIDTH, CAPITAL_WIDTH, WIDE_WIDTH = 0.38, 0.62, 0.72, 1.0
"""Of a letter's size, in the widest of the usual fonts: text must not run over in any of them."""


@contextmanager
def picture(height: float) -> Iterator["Figure"]:
    """An empty one with its background, under our settings alone, whatever the user's matplotlibrc says."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, and not needed for --help
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.patches import FancyBboxPatch  # noqa: PLC0415

    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        # The reader's fonts have what ours lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, facecolor="none")
        card = FancyBboxPatch((0.5, 0.5), WIDTH - 1, height - 1, "round,pad=0,rounding_size=8")
        card.set(facecolor=LIGHT["page"], edgecolor=LIGHT["edge"], linewidth=1, transform=None, zorder=-1, gid="card")
        figure.add_artist(card)
        yield figure


def svg_text(figure: "Figure", head: str, title: str, description: str = "") -> str:
    """The picture of `figure`. `head` is its first line, by which files of its kind are known."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    drawn = stream.getvalue().partition("</metadata>")[2].lstrip()
    width, height = (round(inches * DPI) for inches in figure.get_size_inches())
    area = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    about = f"<title>{shown(title)}</title>\n" + (f"<desc>{shown(description)}</desc>\n" if description else "")
    return f'{head}\n<svg {spaces} role="img" {area}>\n{about}{drawn}'


def add_axes(figure: "Figure", left: float, top: float, width: float, height: float) -> "Axes":
    """Axes with nothing around them; the box is in pixels from the top left corner."""
    whole = figure.get_size_inches()[1] * DPI
    axes = figure.add_axes((left / WIDTH, 1 - (top + height) / whole, width / WIDTH, height / whole), frameon=False)
    axes.set_xticks([])
    axes.set_yticks([])
    return axes


def add_words(
    figure: "Figure",
    x: float,
    y: float,
    text: str,
    *,
    faint: bool = False,
    bold: bool = False,
    size: int = 12,
    anchor: str = "left",
) -> None:
    """Text on a line `y` pixels from the top."""
    height = figure.get_size_inches()[1] * DPI
    artist = figure.text(x / WIDTH, 1 - y / height, printable(text), va="baseline", ha=anchor, fontsize=size)
    artist.set(color=LIGHT["soft" if faint else "ink"], fontweight="bold" if bold else "normal")


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
