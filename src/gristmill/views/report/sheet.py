"""The page's style sheet: the colours of all that gristmill draws, and the rules in assets/report.css."""

from importlib.resources import files

from gristmill.views.report.charts import SOFT_INK
from gristmill.views.theme import (
    BACKGROUND,
    BAND,
    BORDER,
    DARK_BACKGROUND,
    DARK_BORDER,
    DARK_FAINT_INK,
    DARK_INK,
    DARK_PAGE,
    DARK_TRACK,
    FONT,
    INK,
)

LIGHT = {
    "page": BACKGROUND,
    "card": "#ffffff",
    "edge": BORDER,
    "band": BAND,
    "ink": INK,
    "soft": SOFT_INK,
    "link": "#8a4517",
    "good": "#1f6b3a",
    "bad": "#a3241c",
    "taken": "#fbe3dd",
    "given": "#dff1e3",
}
DARK = {
    "page": DARK_PAGE,
    "card": DARK_BACKGROUND,
    "edge": DARK_BORDER,
    "band": DARK_TRACK,
    "ink": DARK_INK,
    "soft": DARK_FAINT_INK,
    "link": "#e9a06a",
    "good": "#7fd79b",
    "bad": "#ff9c8f",
    "taken": "#4a2420",
    "given": "#1d3d28",
}


def style_sheet() -> str:
    rules = files("gristmill.views.report").joinpath("assets/report.css").read_text("utf-8")
    light, dark = (" ".join(f"--{name}: {colour};" for name, colour in look.items()) for look in (LIGHT, DARK))
    return (
        f":root {{ color-scheme: light dark; --font: {FONT}; {light} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{rules}"
    )
