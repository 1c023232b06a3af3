"""SVG pictures drawn by matplotlib. Their bytes are the same on every machine and in every run, so git can track them.

A picture has its own background, so that it looks the same on light and dark pages. Text is stored as text, without
embedded fonts. Names are not interpreted as markup or mathematics.
"""

import io
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gristmill.core.names import printable
from gristmill.views.html import escape_text
from gristmill.views.theme import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, MARGIN = 1000, 24
DPI = 72
"""At 72 dpi, one of matplotlib's points is one pixel."""
SETTINGS: dict[Any, Any] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # included in matplotlib, so that tick labels have the same size everywhere
    "font.size": 12,
    "path.simplify": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "gristmill",
    "text.color": LIGHT["ink"],
    "text.parse_math": False,
}
NARROW, WIDE = frozenset("fijltrI.,:;|!'()[]/ -"), frozenset("mwMW@%")
NARROW_WIDTH, USUAL_WIDTH, CAPITAL_WIDTH, WIDE_WIDTH = 0.38, 0.62, 0.72, 1.0
"""Character widths of the widest common font, as fractions of the font size, so that text fits in any common font."""


@contextmanager
def new_figure(height: float) -> Iterator["Figure"]:
    """Yield an empty figure with a background. The user's matplotlibrc is ignored."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to import, and not needed for --help
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.patches import FancyBboxPatch  # noqa: PLC0415

    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        # The SVG contains text, so the program that displays it provides the glyphs that DejaVu Sans lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH / DPI, height / DPI), dpi=DPI, facecolor="none")
        card = FancyBboxPatch((0.5, 0.5), WIDTH - 1, height - 1, "round,pad=0,rounding_size=8")
        card.set(facecolor=LIGHT["page"], edgecolor=LIGHT["edge"], linewidth=1, transform=None, zorder=-1, gid="card")
        figure.add_artist(card)
        yield figure


def svg_text(figure: "Figure", head: str, title: str, description: str = "") -> str:
    """Return a figure as SVG. `head` becomes the first line, which identifies the kind of file."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    drawing = stream.getvalue().partition("</metadata>")[2].lstrip()
    width, height = (round(inches * DPI) for inches in figure.get_size_inches())
    area = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    about = f"<title>{escape_text(title)}</title>\n" + (
        f"<desc>{escape_text(description)}</desc>\n" if description else ""
    )
    return f'{head}\n<svg {namespaces} role="img" {area}>\n{about}{drawing}'


def add_axes(figure: "Figure", left: float, top: float, width: float, height: float) -> "Axes":
    """Add axes without a frame. `left` and `top` are in pixels from the top left corner of the figure."""
    figure_height = figure.get_size_inches()[1] * DPI
    axes = figure.add_axes(
        (left / WIDTH, 1 - (top + height) / figure_height, width / WIDTH, height / figure_height), frameon=False
    )
    axes.set_xticks([])
    axes.set_yticks([])
    return axes


def add_text(
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
    """Add text whose baseline is `y` pixels below the top of the figure."""
    height = figure.get_size_inches()[1] * DPI
    artist = figure.text(x / WIDTH, 1 - y / height, printable(text), va="baseline", ha=anchor, fontsize=size)
    artist.set(color=LIGHT["soft" if faint else "ink"], fontweight="bold" if bold else "normal")


def text_width(text: str, size: float = 12) -> float:
    return size * sum(map(_character_width, printable(text)))


def shorten_text(text: str, width: float, size: float = 12) -> str:
    """Return the text. If it is wider than `width` pixels, cut it and append `…`."""
    text = printable(text)
    if text_width(text, size) <= width:
        return text
    remaining = width - text_width("…", size)
    for count, character in enumerate(text):
        remaining -= size * _character_width(character)
        if remaining < 0:
            return f"{text[:count].rstrip()}…"
    return text


def _character_width(character: str) -> float:
    if character in NARROW:
        return NARROW_WIDTH
    if character in WIDE or unicodedata.east_asian_width(character) in "WF":
        return WIDE_WIDTH
    return CAPITAL_WIDTH if character.isupper() else USUAL_WIDTH
