"""The colours of a row in HTML, light and dark, and its style sheet, all of it under one class.

Every ink is readable on every paper (4.5 to 1, a test says so), and nothing is told by colour alone.
"""

from collections.abc import Mapping

from gristmill.views.syntax import KINDS

Palette = Mapping[str, str]

LIGHT: Palette = {
    "paper": "#ffffff",
    "paper-2": "#e9eef5",
    "before": "#fbf3df",
    "before-2": "#f0e4c6",
    "after": "#e4f4ea",
    "after-2": "#d0e8d9",
    "special": "#dde1e7",
    "ink": "#1b1f24",
    "faint": "#565c64",
    "keyword": "#8b1a6b",
    "name": "#0b4f8a",
    "builtin": "#6b3fa0",
    "string": "#1a5e20",
    "comment": "#565c64",
    "number": "#874000",
    "operator": "#41464d",
    "odd": "#a3131a",
}
DARK: Palette = {
    "paper": "#15171b",
    "paper-2": "#262b33",
    "before": "#2a2616",
    "before-2": "#3b3520",
    "after": "#14291c",
    "after-2": "#1f3a29",
    "special": "#3a404a",
    "ink": "#e8eaed",
    "faint": "#b3bac3",
    "keyword": "#ff9ad5",
    "name": "#86c8ff",
    "builtin": "#cdb0ff",
    "string": "#9bd88a",
    "comment": "#b3bac3",
    "number": "#ffbd75",
    "operator": "#d0d4da",
    "odd": "#ff9c96",
}
PAPERS = ("paper", "paper-2", "before", "before-2", "after", "after-2", "special")

# Where a page says which of the two it is, that counts; else what the reader's system prefers. JupyterLab and VS Code
# say so on the body.
SAYS_LIGHT = ('[data-jp-theme-light="true"]', ".vscode-light")
SAYS_DARK = ('[data-jp-theme-light="false"]', ".vscode-dark")

RULES = """\
.gristmill-look{color:var(--ink);background:var(--paper);border:1px solid var(--paper-2);border-radius:4px;\
padding:.6em .8em;margin:.6em 0;font:14px/1.5 system-ui,sans-serif}
.gristmill-look p{margin:0;color:var(--faint)}
.gristmill-look b{color:var(--ink);overflow-wrap:anywhere}
.gristmill-look pre{color:var(--ink);background:var(--paper);border:0;margin:.6em 0;padding:0;white-space:pre-wrap;\
overflow-wrap:anywhere;tab-size:4;font:13px/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.gristmill-look .second{background:var(--paper-2)}
.gristmill-look .after{background:var(--after);text-decoration:underline dashed 1px;text-underline-offset:3px}
.gristmill-look .after.second{background:var(--after-2)}
.gristmill-look .before{background:var(--before);text-decoration:underline dotted 1px;text-underline-offset:3px}
.gristmill-look .before.second{background:var(--before-2)}
.gristmill-look .before.after{text-decoration:underline double 1px}
.gristmill-look .special{background:var(--special);color:var(--ink);border-radius:3px;padding:0 2px;font-weight:600}
.gristmill-look .odd{color:var(--odd);font-weight:600;outline:1px dotted var(--odd)}
.gristmill-look .comment{font-style:italic}
.gristmill-look .keyword{font-weight:600}
.gristmill-look .feed::before{content:"\\21b5";color:var(--faint)}
.gristmill-look .window{display:block;border-top:1px dashed var(--faint);padding:.4em 0}
"""


def themed(scope: str, light: Palette, dark: Palette) -> str:
    """The colours of one class, as variables; paper is light."""
    light_here, dark_here = (_under(scope, says) for says in (SAYS_LIGHT, SAYS_DARK))
    return (
        f"{scope}{_variables(light)}\n"
        f"@media screen and (prefers-color-scheme:dark){{{scope}{_variables(dark)}}}\n"
        f"{light_here}{_variables(light)}\n{dark_here}{_variables(dark)}\n"
    )


def _under(scope: str, says: tuple[str, ...]) -> str:
    return ",".join(f"{one} {scope}" for one in says)


def _variables(palette: Palette) -> str:
    return "{" + ";".join(f"--{name}:{colour}" for name, colour in palette.items()) + "}"


LOOK_STYLE = (
    themed(".gristmill-look", LIGHT, DARK)
    + RULES
    + "".join(f".gristmill-look .{name}{{color:var(--{name})}}\n" for name in KINDS)
)
