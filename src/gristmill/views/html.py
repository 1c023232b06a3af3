"""HTML building blocks: escaped text, tables, collapsible sections, and a complete self-contained page.

The Content-Security-Policy of a page allows only the style sheet and the scripts of the page, by their hashes.
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

MAX_ROWS = 1000
"""Maximum number of displayed rows of a scrolling table, so that a page remains small enough to send."""


def escape_text(text: str) -> str:
    r"""Escape text for HTML and XML. Invisible characters and direction marks become escapes like `\u202e`."""
    return escape(printable(text))


def paragraph(text: str) -> str:
    return f"<p>{escape_text(text)}</p>"


def collapsible(summary: str, parts: Iterable[str], kind: str = "more", *, is_open: bool = False) -> list[str]:
    """Return a collapsible section. `summary` is plain text."""
    start = f'<details class="{kind}"{" open" if is_open else ""}><summary>{escape_text(summary)}</summary>'
    return [start, *parts, "</details>"]


def list_item_html(name: str, detail: str) -> str:
    """Return a list item with a name and an optional detail."""
    return f"<li><code>{escape_text(name)}</code>{f' <span>{escape_text(detail)}</span>' if detail else ''}</li>"


def html_table(table: Table) -> Iterator[str]:
    """Yield the HTML of a table, with the title as caption and numeric columns aligned right."""
    classes = [' class="number"' if is_numeric else "" for is_numeric in table.numeric_columns()]
    headers = "".join(
        f'<th scope="col"{class_}>{escape_text(header)}</th>'
        for header, class_ in zip(table.headers, classes, strict=True)
    )
    yield f"<table><caption>{escape_text(table.title)}</caption>"
    yield f"<thead><tr>{headers}</tr></thead><tbody>"
    for row in table.texts():
        cells = (f"<td{class_}>{escape_text(text)}</td>" for text, class_ in zip(row, classes, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"


def scrolling_table(table: Table) -> Iterator[str]:
    """Yield the first MAX_ROWS rows of a table as HTML, in a region that mouse and keyboard can scroll."""
    yield f'<div class="scrolling" tabindex="0" role="region" aria-label="{escape_text(table.title)}">'
    yield from html_table(replace(table, rows=table.rows[:MAX_ROWS]))
    if len(table.rows) > MAX_ROWS:
        num_more = len(table.rows) - MAX_ROWS
        yield f"<p>{counted(num_more, 'more row')} {'is' if num_more == 1 else 'are'} not displayed.</p>"
    yield "</div>"


def page_style() -> str:
    """Return the style sheet of the report and of pages with curves."""
    return page_variables() + files("gristmill.views").joinpath("assets/page.css").read_text("utf-8")


def page_html(
    title: str, body: Iterable[str], *, style: str, scripts: Sequence[str] = (), head: Sequence[str] = ()
) -> str:
    """Return a complete page. `scripts` run after the body, in the given order. `head` adds elements to the head."""
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_csp_hash, scripts))}",
            f"style-src {_csp_hash(style)} {_csp_hash('')}",
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
        f"<title>{escape_text(title)}</title>",
        f"<style>{style}</style>",
        # If this element exists, plotly adds no styles. page.css has the rules that the charts need.
        '<style id="plotly.js-style-global" class="no-inline-styles"></style></head><body>',
        *body,
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
