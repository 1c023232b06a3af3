"""Theme of all pages and pictures: fonts, colors for light and dark backgrounds, and line styles.

HTML pages and notebooks use the colors as CSS variables (`var(--ink)`). matplotlib and plotly use the color values.
Tests measure the contrast: each text color reaches 4.5:1 on each background, and each line color reaches 3:1 on the
background of charts. Any two line colors differ by at least 0.09 in Oklab, for normal vision and for color blindness.
Up to 24 lines also differ in marker or dash pattern, so that they can be distinguished without color.
"""

from collections.abc import Mapping
from typing import NamedTuple

FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"

Palette = Mapping[str, str]

BACKGROUNDS = (
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
TEXT_COLORS = (
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
"""Names of the text colors. Each is readable on each of BACKGROUNDS."""

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

LINE_COLORS = ("#c8642a", "#1f6286", "#3a9c92", "#9038c4", "#544310", "#1b2733")
DARK_LINE_COLORS = ("#dc7f3c", "#5f94b8", "#b4ebe2", "#a04fdc", "#e2cc5f", "#8ac4e2")
BAR, OTHER_BAR, TRACK = "#b4632a", "#a9a59b", "#e6e1d4"
"""Bar colors in pictures: the main bars, all other bars, and the unfilled part of a share bar."""

MARKERS = ("o", "s", "^", "D", "v", "P")
"""Names of the markers in matplotlib. assets/charts.js has the plotly names of the same markers, in the same order."""
DASHES = ((), (9, 3), (2, 3), (9, 3, 2, 3))
"""Dash patterns: lengths of dashes and gaps. After the last color, lines repeat the colors with the next pattern."""


class Style(NamedTuple):
    """Color, marker and dash pattern of a line in a chart."""

    line_index: int
    """Index of the line in its chart, from 0."""

    @property
    def color_index(self) -> int:
        """Index into LINE_COLORS."""
        return self.line_index % len(LINE_COLORS)

    @property
    def color(self) -> str:
        return LINE_COLORS[self.color_index]

    @property
    def marker_index(self) -> int:
        """Index into MARKERS. Lines with the same color have different markers."""
        return (self.line_index + self.line_index // len(LINE_COLORS)) % len(MARKERS)

    @property
    def dash(self) -> tuple[int, ...]:
        return DASHES[self.line_index // len(LINE_COLORS) % len(DASHES)]


# JupyterLab and VS Code mark the body of a page as light or dark. On other pages, the system setting applies.
LIGHT_SELECTORS = ('[data-jp-theme-light="true"]', ".vscode-light")
DARK_SELECTORS = ('[data-jp-theme-light="false"]', ".vscode-dark")
DARK_MEDIA_QUERY = "@media screen and (prefers-color-scheme:dark)"
"""`screen` excludes print: pages that follow the system setting are printed in the light colors."""


def page_variables() -> str:
    """Return fonts and colors as CSS variables for a page."""
    fonts = f":root{{color-scheme:light dark;--font:{FONT};--mono:{MONO_FONT}}}"
    return f"{fonts}\n:root{_variables(LIGHT)}\n{DARK_MEDIA_QUERY}{{:root{_variables(DARK)}}}\n"


def scoped_variables(selector: str) -> str:
    """Return colors as CSS variables under one selector, for HTML embedded in another page."""
    modes = (LIGHT_SELECTORS, DARK_SELECTORS)
    light, dark = (",".join(f"{body} {selector}" for body in bodies) for bodies in modes)
    return (
        f"{selector}{_variables(LIGHT)}\n{DARK_MEDIA_QUERY}{{{selector}{_variables(DARK)}}}\n"
        f"{light}{_variables(LIGHT)}\n{dark}{_variables(DARK)}\n"
    )


def _variables(palette: Palette) -> str:
    return "{" + ";".join(f"--{name}:{color}" for name, color in palette.items()) + "}"
