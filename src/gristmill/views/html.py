"""HTML: escaped text, tables, folds, and the skeleton of a page that needs nothing else.

A browser holds a page to that: its Content-Security-Policy allows the style sheet and the scripts in it, by hash, and
nothing more.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files

from gristmill.core.names import counted, printable
from gristmill.views.table import Table
from gristmill.views.theme import page_variables

MOST_ROWS = 1000
"""Of a table in a page: nobody reads further, and a page must stay one that can be sent."""


def shown(text: str) -> str:
    r"""Text for HTML and XML: `<` is escaped, and what cannot be seen or turns the writing around reads `\u202e`."""
    return escape(printable(text))


def paragraph(text: str) -> str:
    return f"<p>{shown(text)}</p>"


def folded(summary: str, parts: Iterable[str], kind: str = "more", *, is_open: bool = False) -> list[str]:
    """What opens by a click; `summary` is plain text."""
    start = f'<details class="{kind}"{" open" if is_open else ""}><summary>{shown(summary)}</summary>'
    return [start, *parts, "</details>"]


def name_html(name: str, detail: str) -> str:
    """A file in a list, with what there is to say of it."""
    return f"<li><code>{shown(name)}</code>{f' <span>{shown(detail)}</span>' if detail else ''}</li>"


def html_table(table: Table) -> Iterator[str]:
    """The table with its title as caption, numbers at the right."""
    sides = [' class="number"' if is_right else "" for is_right in table.columns_at_right()]
    heads = "".join(f'<th scope="col"{side}>{shown(head)}</th>' for head, side in zip(table.heads, sides, strict=True))
    yield f"<table><caption>{shown(table.title)}</caption>"
    yield f"<thead><tr>{heads}</tr></thead><tbody>"
    for row in table.texts():
        yield f"<tr>{''.join(f'<td{side}>{shown(text)}</td>' for text, side in zip(row, sides, strict=True))}</tr>"
    yield "</tbody></table>"


def scrolling_table(table: Table) -> Iterator[str]:
    """A table that scrolls by itself where it is wide, by keyboard too."""
    yield f'<div class="scrolling" tabindex="0" role="region" aria-label="{shown(table.title)}">'
    yield from html_table(replace(table, rows=table.rows[:MOST_ROWS]))
    if len(table.rows) > MOST_ROWS:
        num_more = len(table.rows) - MOST_ROWS
        yield f"<p>{counted(num_more, 'more row')} {'is' if num_more == 1 else 'are'} not shown.</p>"
    yield "</div>"


def page_style() -> str:
    """The style sheet of the report and of curves."""
    return page_variables() + files("gristmill.views").joinpath("assets/page.css").read_text("utf-8")


def page_html(
    title: str, body: Iterable[str], *, style: str, scripts: Sequence[str] = (), head: Sequence[str] = ()
) -> str:
    """A whole page. `scripts` run in their order, after the body; `head` has further elements for the head."""
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {_hash(style)} {_hash('')}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        *head,
        f"<title>{shown(title)}</title>",
        f"<style>{style}</style>",
        # Finding this, plotly adds no style of its own; what its charts need is in ours.
        '<style id="plotly.js-style-global" class="no-inline-styles"></style></head><body>',
        *body,
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
