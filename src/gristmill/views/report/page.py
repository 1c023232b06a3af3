"""Parts of a report page and their HTML: headlines, contents, and sections with figures."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gristmill.core.layout import REPORT_MARK
from gristmill.core.names import counted
from gristmill.core.records import NO_LIMIT
from gristmill.views.charts import NO_SCRIPT_HTML, Figure, charts_script, figure_html
from gristmill.views.html import escape_text, page_html

MILLION = 1_000_000
MIN_DISPLAYED_SHARE = 0.0005


class Section(NamedTuple):
    id: str
    title: str
    summary: str
    figures: Sequence[Figure] = ()
    more: Sequence[str] = ()
    """HTML below the figures."""


def share_text(part: float, whole: float) -> str:
    """Format a share like `12.3%`. A small share that is not zero becomes `<0.1%`."""
    share = part / whole if whole else 0.0
    return "<0.1%" if 0 < share < MIN_DISPLAYED_SHARE else f"{share:.1%}"


def short_number(value: float) -> str:
    """Format a number for a headline like `16.8 million` or `65,708`."""
    if value >= 1000 * MILLION:
        return f"{value / 1e9:,.2f} billion"
    return f"{value / 1e6:,.1f} million" if value >= MILLION else f"{value:,.0f}"


def join_words(words: Sequence[str]) -> str:
    """Join words like `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


class Headline(NamedTuple):
    name: str
    figure: str
    note: str


def row_headline(num_rows: int, num_windows: int | None, window_length: int) -> Headline:
    """Return the headline with the number of rows. `num_windows` is None if each row is one window or one document."""
    if window_length == NO_LIMIT:
        return Headline("documents", f"{num_rows:,}", "text without ids")
    if num_windows is None:
        return Headline("windows", f"{num_rows:,}", f"of {window_length:,} ids")
    return Headline("rows", f"{num_rows:,}", f"of {window_length:,} ids, with {counted(num_windows, 'window')}")


class Page(NamedTuple):
    title: str
    lead: str
    headlines: Sequence[Headline]
    notes: Sequence[str]
    sections: Sequence[Section]
    footer: str


def report_html(page: Page, style: str, scripts: Sequence[str]) -> bytes:
    figures = [figure for section in page.sections for figure in section.figures]
    body = [
        '<a class="skip" href="#main">Skip to the report</a><div class="sheet">',
        *_header(page),
        *_contents(page.sections),
        f'<main id="main" tabindex="-1"><noscript>{NO_SCRIPT_HTML}</noscript>',
        *(part for section in page.sections for part in section_html(section)),
        f"</main><footer><p>{escape_text(page.footer)}</p></footer></div>",
        charts_script(figures),
    ]
    return page_html(f"{page.title}: report", body, style=style, scripts=scripts, head=[REPORT_MARK]).encode()


def _header(page: Page) -> Iterator[str]:
    yield f'<header><h1>{escape_text(page.title)}</h1><p class="lead">{escape_text(page.lead)}</p>'
    yield from headlines_html(page.headlines)
    if page.notes:
        yield f'<ul class="notes">{"".join(f"<li>{escape_text(note)}</li>" for note in page.notes)}</ul>'
    yield "</header>"


def headlines_html(headlines: Sequence[Headline]) -> Iterator[str]:
    yield '<dl class="headline">'
    for one in headlines:
        note = f'<dd class="note">{escape_text(one.note)}</dd>' if one.note else ""
        yield f'<div><dt>{escape_text(one.name)}</dt><dd class="figure">{escape_text(one.figure)}</dd>{note}</div>'
    yield "</dl>"


def _contents(sections: Sequence[Section]) -> Iterator[str]:
    links = "".join(f'<li><a href="#{section.id}">{escape_text(section.title)}</a></li>' for section in sections)
    yield f'<nav class="contents" aria-label="Contents"><ul>{links}</ul></nav>'


def section_html(section: Section) -> Iterator[str]:
    title = f"{section.id}-title"
    yield f'<section id="{section.id}" aria-labelledby="{title}"><h2 id="{title}">{escape_text(section.title)}</h2>'
    yield f"<p>{escape_text(section.summary)}</p>"
    if section.figures:
        yield '<div class="figures">'
        yield from (part for figure in section.figures for part in figure_html(figure))
        yield "</div>"
    yield from section.more
    yield "</section>"
