"""A row as HTML: static, classes only, readable without colours; and its style sheet, all of it under one class.

What is in its <pre>, tags taken out, is the text of the row's strokes.
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
    RowLook,
    Stroke,
    WindowLook,
    has_middle,
    has_odd,
    has_special,
    row_facts,
    shared_words,
    window_edges,
    window_facts,
    window_name,
)
from gristmill.views.syntax import KINDS
from gristmill.views.theme import variables_under

CLASSES = {SPECIAL: "special", BEFORE: "before", AFTER: "after", MIDDLE: "middle"}
LINES = {BEFORE: "dotted", AFTER: "dashed"}
SCOPE = ".gristmill-look"
RULES = """\
.gristmill-look{color:var(--ink);background:var(--card);border:1px solid var(--edge);border-radius:4px;\
padding:.6em .8em;margin:.6em 0;font:14px/1.5 system-ui,sans-serif}
.gristmill-look p{margin:0;color:var(--soft)}
.gristmill-look b{color:var(--ink);overflow-wrap:anywhere}
.gristmill-look pre{color:var(--ink);background:var(--card);border:0;margin:.6em 0;padding:0;white-space:pre-wrap;\
overflow-wrap:anywhere;tab-size:4;font:13px/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.gristmill-look .second{background:var(--token)}
.gristmill-look .after{background:var(--after);text-decoration:underline dashed 1px;text-underline-offset:3px}
.gristmill-look .after.second{background:var(--after-token)}
.gristmill-look .before{background:var(--before);text-decoration:underline dotted 1px;text-underline-offset:3px}
.gristmill-look .before.second{background:var(--before-token)}
.gristmill-look .before.after{text-decoration:underline double 1px}
.gristmill-look .middle{background:var(--after);text-decoration:underline solid 2px;text-underline-offset:3px}
.gristmill-look .middle.second{background:var(--after-token)}
.gristmill-look .special{background:var(--band);color:var(--special);border-radius:3px;\
padding:0 2px;font-weight:600;outline:1px solid var(--field)}
.gristmill-look .odd{color:var(--odd);font-weight:600;outline:1px dotted var(--odd)}
.gristmill-look .comment{font-style:italic}
.gristmill-look .keyword{font-weight:600}
.gristmill-look .feed::before{content:"\\21b5";color:var(--soft)}
.gristmill-look .window{display:block;border-top:1px dashed var(--soft);padding:.4em 0}
"""
ROW_STYLE = variables_under(SCOPE) + RULES + "".join(f"{SCOPE} .{name}{{color:var(--{name})}}\n" for name in KINDS)

FEED = '<span class="feed">\n</span>'
"""A line feed is a token too: the style sheet gives it a sign."""


def row_html(look: RowLook) -> str:
    heads = "".join(f"<p>{_head(window)}</p>\n" for window in look.windows)
    note = f"<p>{escape(look.note)}</p>\n" if look.note else ""
    return (
        f'<section class="gristmill-look">\n{heads}<p>{escape(", ".join(row_facts(look)))}</p>\n'
        f"<pre>{''.join(_windows(look))}</pre>\n{note}<p>{'; '.join(_legend(look))}.</p>\n</section>\n"
    )


def _head(window: WindowLook) -> str:
    return f"<b>{escape(window_name(window))}</b> {escape(', '.join(window_facts(window)))}"


def _windows(look: RowLook) -> Iterator[str]:
    """Where several share a row, each is a block."""
    edges = window_edges(look)
    for number, own in groupby(look.strokes, key=lambda stroke: bisect_right(edges, stroke.token)):
        tokens = "".join(_tokens(look, own))
        title = escape(window_name(look.windows[number - 1])) if number else ""
        yield f'<span class="window" title="{title}">{tokens}</span>' if len(edges) > 1 else tokens


def _tokens(look: RowLook, strokes: Iterable[Stroke]) -> Iterator[str]:
    for token, own in groupby(strokes, key=attrgetter("token")):
        index, flags = look.tokens[token]
        classes = ["second"] if token % 2 else []
        classes += [name for flag, name in CLASSES.items() if flags & flag]
        named = f' class="{" ".join(classes)}"' if classes else ""
        yield f'<span{named} title="{token}: id {index}">{"".join(map(_drawn, own))}</span>'


def _drawn(stroke: Stroke) -> str:
    text = escape(stroke.text).replace("\n", FEED)
    return f'<span class="{stroke.kind}">{text}</span>' if stroke.kind else text


def _legend(look: RowLook) -> Iterator[str]:
    yield '<span class="second">every second token</span> is shaded'
    for flag, words in shared_words(look):
        yield f'<span class="{CLASSES[flag]}">{LINES[flag]} line</span>: {escape(words)}'
    if has_middle(look):
        yield '<span class="middle">solid line</span>: the middle, which the model fills in'
    if has_special(look):
        yield '<span class="special">boxed</span>: a special token'
    if has_odd(look):
        yield '<span class="odd">\\u202e</span>: stands for what cannot be shown'
