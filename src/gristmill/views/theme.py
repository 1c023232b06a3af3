"""How all pages and pictures look: fonts, colours for light and dark ground, and what sets one line apart from another.

Report, viewer, notebook and curves take colours from here as CSS variables (`var(--ink)`), matplotlib and plotly as
values. Tests measure what the palettes promise: every ink is readable on every paper (4.5:1); lines stand out from
their ground (3:1) and from each other, for colour-blind people too (0.09 and more in Oklab). Each line has its own
marker, for those who see or print no colours.
"""

from collections.abc import Mapping
from typing import NamedTuple

FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"

Palette = Mapping[str, str]

PAPERS = (
    "page",
    "card",
    "band",
    "token",
    "before",
    "before-token",
    "after",
    "after-token",
    "both",
    "both-token",
)
INKS = (
    "ink",
    "soft",
    "link",
    "keyword",
    "name",
    "builtin",
    "string",
    "comment",
    "number",
    "operator",
    "odd",
    "special",
)
"""Colours of text: any of them may stand on any paper."""

LIGHT: Palette = {
    "page": "#fbfaf7",
    "card": "#ffffff",
    "band": "#f1ecdf",
    "edge": "#dedad0",
    "field": "#8b867b",
    "ink": "#2b2a27",
    "soft": "#5f5b53",
    "link": "#8a4517",
    "on-link": "#ffffff",
    "good": "#1f6b3a",
    "bad": "#a3241c",
    "taken": "#fbe3dd",
    "given": "#dff1e3",
    "found": "#ffe27a",
    "found-ink": "#2b2a27",
    # code
    "token": "#efe9da",
    "before": "#e3ecf2",
    "before-token": "#d3e2ec",
    "after": "#f6e7d8",
    "after-token": "#f0dcc8",
    "both": "#ece3f2",
    "both-token": "#e3d8eb",
    "keyword": "#7d2bb0",
    "name": "#195a80",
    "builtin": "#8a4414",
    "string": "#1f665e",
    "comment": "#5f5b53",
    "number": "#1f5f86",
    "operator": "#2b2a27",
    "odd": "#9b2c2c",
    "special": "#544310",
}
DARK: Palette = {
    "page": "#161512",
    "card": "#1f1e1b",
    "band": "#2a2823",
    "edge": "#3b3932",
    "field": "#7d786c",
    "ink": "#ece8df",
    "soft": "#a8a397",
    "link": "#e9a06a",
    "on-link": "#161512",
    "good": "#7fd79b",
    "bad": "#ff9c8f",
    "taken": "#4a2420",
    "given": "#1d3d28",
    "found": "#e2cc5f",
    "found-ink": "#161512",
    # code
    "token": "#302d26",
    "before": "#1c2b35",
    "before-token": "#243a48",
    "after": "#36291c",
    "after-token": "#453421",
    "both": "#2e2538",
    "both-token": "#3b2f47",
    "keyword": "#cda2f2",
    "name": "#9ccbe6",
    "builtin": "#f0b183",
    "string": "#9fdcd2",
    "comment": "#b0ab9f",
    "number": "#8ac4e2",
    "operator": "#ece8df",
    "odd": "#ff9d9d",
    "special": "#e2cc5f",
}

LINES = ("#c8642a", "#1f6286", "#3a9c92", "#9038c4", "#544310", "#1b2733")
DARK_LINES = ("#dc7f3c", "#5f94b8", "#b4ebe2", "#a04fdc", "#e2cc5f", "#8ac4e2")
BAR, OTHER_BAR, TRACK = "#b4632a", "#a9a59b", "#e6e1d4"
"""Bars of pictures: of what the picture is about, of all else, and the ground of a bar that shows a share."""

MARKERS = ("o", "s", "^", "D", "v", "P")
"""As matplotlib names them; plotly's names are in assets/charts.js, in the same order."""
DASHES = ((), (9, 3), (2, 3), (9, 3, 2, 3))
"""Lengths of strokes and gaps: of the first lines, and of those that share their colours."""


class Style(NamedTuple):
    """The look of a line, by its number in the chart."""

    number: int

    @property
    def place(self) -> int:
        """Index of the colour."""
        return self.number % len(LINES)

    @property
    def colour(self) -> str:
        return LINES[self.place]

    @property
    def marker(self) -> int:
        """Index into MARKERS. Lines that share a colour do not share a marker too."""
        return (self.number + self.number // len(LINES)) % len(MARKERS)

    @property
    def dash(self) -> tuple[int, ...]:
        return DASHES[self.number // len(LINES) % len(DASHES)]


# JupyterLab and VS Code say on the body which ground a page has; elsewhere the reader's system says so.
SAYS_LIGHT = ('[data-jp-theme-light="true"]', ".vscode-light")
SAYS_DARK = ('[data-jp-theme-light="false"]', ".vscode-dark")
WHERE_DARK = "@media screen and (prefers-color-scheme:dark)"
"""Paper is light."""


def page_variables() -> str:
    """Fonts and colours as CSS variables of a whole page."""
    fonts = f":root{{color-scheme:light dark;--font:{FONT};--mono:{MONO_FONT}}}"
    return f"{fonts}\n:root{_variables(LIGHT)}\n{WHERE_DARK}{{:root{_variables(DARK)}}}\n"


def variables_under(scope: str) -> str:
    """Colours as CSS variables of one class, for HTML that stands in another's page."""
    light, dark = (",".join(f"{one} {scope}" for one in says) for says in (SAYS_LIGHT, SAYS_DARK))
    return (
        f"{scope}{_variables(LIGHT)}\n{WHERE_DARK}{{{scope}{_variables(DARK)}}}\n"
        f"{light}{_variables(LIGHT)}\n{dark}{_variables(DARK)}\n"
    )


def _variables(palette: Palette) -> str:
    return "{" + ";".join(f"--{name}:{colour}" for name, colour in palette.items()) + "}"
