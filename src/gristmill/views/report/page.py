"""What a report is made of, and its page: headlines, contents, sections with figures."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gristmill.core.layout import REPORT_MARK
from gristmill.core.names import counted
from gristmill.core.records import NO_LIMIT
from gristmill.views.charts import NO_SCRIPT, Figure, charts_script, figure_html
from gristmill.views.html import page_html, shown

MILLION = 1_000_000
SMALLEST_SHARE = 0.0005


class Section(NamedTuple):
    id: str
    title: str
    told: str
    figures: Sequence[Figure] = ()
    more: Sequence[str] = ()
    """HTML, below the figures."""


def share_text(part: float, whole: float) -> str:
    """`12.3%`; little is not nothing."""
    share = part / whole if whole else 0.0
    return "<0.1%" if 0 < share < SMALLEST_SHARE else f"{share:.1%}"


def short_number(value: float) -> str:
    """`16.8 million`, `65,708`: for headlines, where the table has every digit."""
    if value >= 1000 * MILLION:
        return f"{value / 1e9:,.2f} billion"
    return f"{value / 1e6:,.1f} million" if value >= MILLION else f"{value:,.0f}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`"""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


class Headline(NamedTuple):
    name: str
    figure: str
    note: str


def row_headline(num_rows: int, num_windows: int | None, window_length: int) -> Headline:
    """`num_windows`: of those that share rows; None: each row is one. Without a limit, each is a document."""
    if window_length == NO_LIMIT:
        return Headline("documents", f"{num_rows:,}", "texts without ids")
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


def report_html(page: Page, style: str, scripts: Sequence[str]) -> bytes:
    figures = [figure for section in page.sections for figure in section.figures]
    body = [
        '<a class="skip" href="#main">Skip to the report</a><div class="sheet">',
        *_header(page),
        *_contents(page.sections),
        f'<main id="main" tabindex="-1"><noscript>{NO_SCRIPT}</noscript>',
        *(part for section in page.sections for part in section_html(section)),
        f"</main><footer><p>{shown(page.footer)}</p></footer></div>",
        charts_script(figures),
    ]
    return page_html(f"{page.title}: report", body, style=style, scripts=scripts, head=[REPORT_MARK]).encode()


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
        yield from (part for figure in section.figures for part in figure_html(figure))
        yield "</div>"
    yield from section.more
    yield "</section>"
