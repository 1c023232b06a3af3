"""The page's style sheet. A picture brings its colours for light ground; here are those for dark."""

from gristmill.views.theme import (
    BACKGROUND,
    BORDER,
    DARK_BACKGROUND,
    DARK_BORDER,
    DARK_FAINT_INK,
    DARK_INK,
    DARK_LINE_COLOURS,
    DARK_PAGE,
    DARK_TRACK,
    FAINT_INK,
    FONT,
    INK,
)

_DARK_LINES = "".join(f".line{place} {{ color: {colour} }}\n" for place, colour in enumerate(DARK_LINE_COLOURS))

STYLE_SHEET = f"""
:root {{ color-scheme: light dark; --page: {BACKGROUND}; --card: {BACKGROUND}; --edge: {BORDER}; --ink: {INK};
  --faint: {FAINT_INK} }}
* {{ box-sizing: border-box }}
body {{ margin: 0; background: var(--page); color: var(--ink); font: 15px/1.45 {FONT} }}
main {{ max-width: 1180px; margin: 0 auto; padding: 20px 16px 48px }}
h1 {{ font-size: 1.35rem; margin: 0 0 12px; overflow-wrap: anywhere }}
.facts {{ display: flex; flex-wrap: wrap; gap: 8px 28px; margin: 0 0 16px }}
.facts div {{ min-width: 0 }}
dt {{ color: var(--faint); font-size: .8rem }}
dd {{ margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere }}
.legend {{ display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 12px; padding: 0; list-style: none;
  font-size: .87rem }}
.legend li {{ overflow-wrap: anywhere }}
.legend svg {{ vertical-align: -2px; margin-right: 4px }}
.panels {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px;
  align-items: start }}
figure {{ margin: 0; padding: 14px 14px 10px; min-width: 0; background: var(--card); border: 1px solid var(--edge);
  border-radius: 8px }}
figure > svg {{ display: block; width: 100%; height: auto }}
summary {{ color: var(--faint); font-size: .87rem; cursor: pointer }}
:focus-visible {{ outline: 2px solid currentColor; outline-offset: 2px }}
.scrolling {{ overflow: auto; max-width: 100% }}
details .scrolling {{ max-height: 320px }}
main > .scrolling {{ margin-top: 24px }}
table {{ border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums }}
caption {{ text-align: left; font-weight: 600; padding: 8px 0 }}
details caption {{ font-weight: 400; color: var(--faint) }}
th, td {{ padding: 3px 18px 3px 0; text-align: left; border-bottom: 1px solid var(--edge) }}
th {{ font-weight: 600; vertical-align: bottom }}
.number {{ text-align: right }}
@media screen and (prefers-color-scheme: dark) {{
:root {{ --page: {DARK_PAGE}; --card: {DARK_BACKGROUND}; --edge: {DARK_BORDER}; --ink: {DARK_INK};
  --faint: {DARK_FAINT_INK} }}
.ink {{ fill: {DARK_INK} }}
.faint {{ fill: {DARK_FAINT_INK} }}
.grid {{ stroke: {DARK_TRACK} }}
.axis {{ stroke: {DARK_FAINT_INK} }}
.rim {{ stroke: {DARK_BACKGROUND} }}
{_DARK_LINES}}}
@media print {{
:root {{ color-scheme: light }}
.panels {{ grid-template-columns: 1fr 1fr }}
body {{ background: none; font-size: 11px }}
main {{ padding: 0 }}
figure, tr {{ break-inside: avoid }}
details:not([open]) {{ display: none }}
.scrolling {{ overflow: visible; max-height: none }}
}}
"""
