"""A row as static HTML that is readable without colors, and its style sheet.

All CSS rules are limited to the class `gristmill-row`. The text content of the <pre> is the joined text of the strokes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from operator import attrgetter

from gristmill.views.row import (
    AFTER,
    BEFORE,
    MIDDLE,
    SPECIAL,
    RowView,
    Stroke,
    WindowView,
    has_middle,
    has_special,
    has_unprintable,
    overlap_notes,
    row_facts,
    window_facts,
    window_name,
    window_starts,
)
from gristmill.views.syntax import KINDS
from gristmill.views.theme import scoped_variables

CLASSES = {SPECIAL: "special", BEFORE: "before", AFTER: "after", MIDDLE: "middle"}
UNDERLINES = {BEFORE: "dotted", AFTER: "dashed"}
SCOPE = ".gristmill-row"
RULES = """\
.gristmill-row{color:var(--ink);background:var(--card);border:1px solid var(--edge);border-radius:4px;\
padding:.6em .8em;margin:.6em 0;font:14px/1.5 system-ui,sans-serif}
.gristmill-row p{margin:0;color:var(--soft)}
.gristmill-row b{color:var(--ink);overflow-wrap:anywhere}
.gristmill-row pre{color:var(--ink);background:var(--card);border:0;margin:.6em 0;padding:0;white-space:pre-wrap;\
overflow-wrap:anywhere;tab-size:4;font:13px/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.gristmill-row .second{background:var(--token)}
.gristmill-row .after{background:var(--after);text-decoration:underline dashed 1px;text-underline-offset:3px}
.gristmill-row .after.second{background:var(--after-token)}
.gristmill-row .before{background:var(--before);text-decoration:underline dotted 1px;text-underline-offset:3px}
.gristmill-row .before.second{background:var(--before-token)}
.gristmill-row .before.after{text-decoration:underline double 1px}
.gristmill-row .middle{background:var(--after);text-decoration:underline solid 2px;text-underline-offset:3px}
.gristmill-row .middle.second{background:var(--after-token)}
.gristmill-row .special{background:var(--band);color:var(--special);border-radius:3px;\
padding:0 2px;font-weight:600;outline:1px solid var(--field)}
.gristmill-row .odd{color:var(--odd);font-weight:600;outline:1px dotted var(--odd)}
.gristmill-row .comment{font-style:italic}
.gristmill-row .keyword{font-weight:600}
.gristmill-row .feed::before{content:"\\21b5";color:var(--soft)}
.gristmill-row .window{display:block;border-top:1px dashed var(--soft);padding:.4em 0}
"""
ROW_STYLE = scoped_variables(SCOPE) + RULES + "".join(f"{SCOPE} .{name}{{color:var(--{name})}}\n" for name in KINDS)

LINE_FEED = '<span class="feed">\n</span>'
"""A line feed can be a token, so the style sheet makes it visible."""


def row_html(view: RowView) -> str:
    heads = "".join(f"<p>{_window_head(window)}</p>\n" for window in view.windows)
    note = f"<p>{escape(view.note)}</p>\n" if view.note else ""
    return (
        f'<section class="gristmill-row">\n{heads}<p>{escape(", ".join(row_facts(view)))}</p>\n'
        f"<pre>{''.join(_windows_html(view))}</pre>\n{note}<p>{'; '.join(_legend(view))}.</p>\n</section>\n"
    )


def _window_head(window: WindowView) -> str:
    return f"<b>{escape(window_name(window))}</b> {escape(', '.join(window_facts(window)))}"


def _windows_html(view: RowView) -> Iterator[str]:
    """Yield the tokens as HTML. If the row has several windows, each window is a block."""
    starts = window_starts(view)
    for number, strokes in groupby(view.strokes, key=lambda stroke: bisect_right(starts, stroke.token)):
        tokens = "".join(_tokens_html(view, strokes))
        title = escape(window_name(view.windows[number - 1])) if number else ""
        yield f'<span class="window" title="{title}">{tokens}</span>' if len(starts) > 1 else tokens


def _tokens_html(view: RowView, strokes: Iterable[Stroke]) -> Iterator[str]:
    for token, token_strokes in groupby(strokes, key=attrgetter("token")):
        token_id, flags = view.tokens[token]
        classes = ["second"] if token % 2 else []
        classes += [name for flag, name in CLASSES.items() if flags & flag]
        attribute = f' class="{" ".join(classes)}"' if classes else ""
        yield f'<span{attribute} title="{token}: id {token_id}">{"".join(map(_stroke_html, token_strokes))}</span>'


def _stroke_html(stroke: Stroke) -> str:
    text = escape(stroke.text).replace("\n", LINE_FEED)
    return f'<span class="{stroke.kind}">{text}</span>' if stroke.kind else text


def _legend(view: RowView) -> Iterator[str]:
    yield '<span class="second">shaded</span>: every second token'
    for flag, note in overlap_notes(view):
        yield f'<span class="{CLASSES[flag]}">{UNDERLINES[flag]} line</span>: {escape(note)}'
    if has_middle(view):
        yield '<span class="middle">solid line</span>: the middle that the model fills in'
    if has_special(view):
        yield '<span class="special">boxed</span>: a special token'
    if has_unprintable(view):
        yield 'escapes such as <span class="odd">\\u202e</span>: unprintable characters'
