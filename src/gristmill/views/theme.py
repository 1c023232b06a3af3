"""How pictures and pages of gristmill look: fonts, colours, and what tells one line from another.

Colours come in two sets, for light and dark ground. Any two of a set stay apart for colour-blind people (0.09 and
more in Oklab under simulated protanopia, deuteranopia and tritanopia) and stand out from their ground (3:1 and more);
tests/test_drawing.py measures both. Each colour has a marker of its own, for those who see or print no colours at all.
"""

from typing import NamedTuple

FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"

BACKGROUND, BORDER, BAND = "#fbfaf7", "#dedad0", "#f1ecdf"
INK, FAINT_INK, TRACK = "#2b2a27", "#77736a", "#e6e1d4"
ACCENT, OTHER = "#b4632a", "#a9a59b"

DARK_BACKGROUND, DARK_BORDER, DARK_PAGE = "#1f1e1b", "#3b3932", "#161512"
DARK_INK, DARK_FAINT_INK, DARK_TRACK = "#ece8df", "#a8a397", "#35332d"

LINE_COLOURS = ("#c8642a", "#1f6286", "#3a9c92", "#9038c4", "#544310", "#1b2733")
DARK_LINE_COLOURS = ("#dc7f3c", "#5f94b8", "#b4ebe2", "#a04fdc", "#e2cc5f", "#8ac4e2")

# Each is drawn around the place that it marks.
MARKERS = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "m-2.7-2.7h5.4v5.4h-5.4z",
    "m0-3.8l3.6 6.4h-7.2z",
    "m0-4l4 4l-4 4l-4-4z",
    "m0 3.8l3.6-6.4h-7.2z",
    "m-3.9-1.3h2.6v-2.6h2.6v2.6h2.6v2.6h-2.6v2.6h-2.6v-2.6h-2.6z",
)
DASHED = "5 4"
DASHES = ("", "9 3", "2 3", "9 3 2 3")
"""Of the first lines, and of those that share their colours."""


class Style(NamedTuple):
    """What tells a line from the others, by its number in the chart."""

    number: int

    @property
    def place(self) -> int:
        """Among the colours; the page's style sheet knows it as a class."""
        return self.number % len(LINE_COLOURS)

    @property
    def colour(self) -> str:
        return LINE_COLOURS[self.place]

    @property
    def marker(self) -> str:
        """Lines that share a colour do not share a marker too."""
        return MARKERS[(self.number + self.number // len(LINE_COLOURS)) % len(MARKERS)]

    @property
    def dash(self) -> str:
        return DASHES[self.number // len(LINE_COLOURS) % len(DASHES)]
