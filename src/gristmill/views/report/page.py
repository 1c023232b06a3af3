"""A report as one HTML file that needs nothing else: its data, its style and plotly are in it, and nothing is fetched.

A browser holds it to that: the Content-Security-Policy allows the scripts and the style in it, by hash, and no more.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gristmill.core.layout import REPORT_MARK
from gristmill.core.names import counted
from gristmill.views.report.charts import Chart, charts_json
from gristmill.views.report.section import Figure, Section
from gristmill.views.svg import shown
from gristmill.views.table import scrolling_table

NO_SCRIPT = "The charts need JavaScript. The tables below each of them have all the numbers."


class Headline(NamedTuple):
    name: str
    figure: str
    note: str


def row_headline(num_rows: int, num_windows: int | None, window_length: int) -> Headline:
    """`num_windows`: of those that share rows; None: each row is one."""
    if num_windows is None:
        return Headline("windows", f"{num_rows:,}", f"of {window_length:,} ids")
    return Headline("rows", f"{num_rows:,}", f"of {window_length:,} ids, for {counted(num_windows, 'window')}")


class Page(NamedTuple):
    title: str
    lead: str
    headlines: Sequence[Headline]
    notes: Sequence[str]
    sections: Sequence[Section]
    footer: str


class Assets(NamedTuple):
    style: str
    scripts: Sequence[str]
    """In the order in which they run."""


def page_html(page: Page, assets: Assets) -> bytes:
    parts = [
        *_head(page, assets),
        '<body><a class="skip" href="#main">Skip to the report</a><div class="sheet">',
        *_header(page),
        *_contents(page.sections),
        f'<main id="main" tabindex="-1"><noscript><p>{NO_SCRIPT}</p></noscript>',
        *(part for section in page.sections for part in section_html(section)),
        f"</main><footer><p>{shown(page.footer)}</p></footer></div>",
        f'<script type="application/json" id="charts">{charts_json(_charts(page.sections))}</script>',
        *(f"<script>{script}</script>" for script in assets.scripts),
        "</body></html>",
    ]
    return ("\n".join(parts) + "\n").encode()


def _charts(sections: Sequence[Section]) -> dict[str, Chart]:
    return {f"chart-{figure.id}": figure.chart for section in sections for figure in section.figures}


def _head(page: Page, assets: Assets) -> Iterator[str]:
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, assets.scripts))}",
            f"style-src {_hash(assets.style)} {_hash('')}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'{REPORT_MARK}<meta name="referrer" content="no-referrer">'
    yield f"<title>{shown(page.title)}: report</title>"
    yield f"<style>{assets.style}</style>"
    # Finding this, plotly adds no style of its own; what its charts need is in ours.
    yield '<style id="plotly.js-style-global" class="no-inline-styles"></style></head>'


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _header(page: Page) -> Iterator[str]:
    yield f'<header><h1>{shown(page.title)}</h1><p class="lead">{shown(page.lead)}</p>'
    yield from headlines_html(page.headlines)
    if page.notes:
        yield f'<ul class="notes">{"".join(f"<li>{shown(note)}</li>" for note in page.notes)}</ul>'
    yield "</header>"


def headlines_html(headlines: Sequence[Headline]) -> Iterator[str]:
    yield '<dl class="headline">'
    for one in headlines:
        note = f'<dd class="note">{shown(one.note)}</dd>' if one.note else ""
        yield f'<div><dt>{shown(one.name)}</dt><dd class="figure">{shown(one.figure)}</dd>{note}</div>'
    yield "</dl>"


def _contents(sections: Sequence[Section]) -> Iterator[str]:
    links = "".join(f'<li><a href="#{section.id}">{shown(section.title)}</a></li>' for section in sections)
    yield f'<nav class="contents" aria-label="Contents"><ul>{links}</ul></nav>'


def section_html(section: Section) -> Iterator[str]:
    title = f"{section.id}-title"
    yield f'<section id="{section.id}" aria-labelledby="{title}"><h2 id="{title}">{shown(section.title)}</h2>'
    yield f"<p>{shown(section.told)}</p>"
    if section.figures:
        yield '<div class="figures">'
        yield from (part for figure in section.figures for part in _figure(figure))
        yield "</div>"
    yield from section.more
    yield "</section>"


def _figure(figure: Figure) -> Iterator[str]:
    yield f"<figure{' class=wide' if figure.is_wide else ''}><figcaption>"
    yield f"<h3>{shown(figure.title)}</h3><p>{shown(figure.told)}</p></figcaption>"
    drawing = shown(f"{figure.title}. {figure.told} The table below has the numbers.")
    # Shown by the script, which draws into it.
    yield f'<div class="chart" id="chart-{figure.id}" role="img" aria-label="{drawing}" hidden></div>'
    yield f'<details class="values"><summary>Table: {shown(figure.title)}</summary>'
    yield from scrolling_table(figure.table)
    yield "</details></figure>"
