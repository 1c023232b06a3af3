"""Curves as one HTML file that needs nothing else: no script, nothing fetched, light and dark, on paper too.

A browser holds it to that: its Content-Security-Policy allows the one style sheet in it, by its hash, and nothing more.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence

from gristmill.views.curves.captions import told_of, values_table
from gristmill.views.curves.frame import Box
from gristmill.views.curves.legend import Entry, entries_of, swatch
from gristmill.views.curves.panel import Panel, styles_of
from gristmill.views.curves.plot import Plot, aligned, labels_fit, plot_of, plot_parts
from gristmill.views.curves.sheet import STYLE_SHEET
from gristmill.views.svg import shown
from gristmill.views.table import Table, scrolling_table
from gristmill.views.theme import FONT

PANEL_WIDTH, PANEL_HEIGHT = 460, 310


def curves_html(
    title: str,
    facts: Sequence[tuple[str, str]],
    panels: Sequence[Panel],
    tables: Sequence[Table],
    refresh_seconds: int | None,
) -> str:
    """`refresh_seconds`: how often the page loads itself again, while a run goes on; None when it is over."""
    box = Box(0, 0, PANEL_WIDTH, PANEL_HEIGHT)
    with_labels = all(labels_fit(panel, box) for panel in panels)
    parts = [
        *_head(title, refresh_seconds),
        f"<body><main><h1>{shown(title)}</h1>",
        *_facts(facts),
        *([] if with_labels else _legend(entries_of(panels))),
        '<div class="panels">',
        *_figures(panels, box, with_labels=with_labels),
        "</div>",
        *(part for table in tables for part in scrolling_table(table)),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _head(title: str, refresh_seconds: int | None) -> Iterator[str]:
    digest = base64.b64encode(hashlib.sha256(STYLE_SHEET.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="generator" content="gristmill"><meta name="referrer" content="no-referrer">'
    if refresh_seconds is not None:
        yield f'<meta http-equiv="refresh" content="{max(1, refresh_seconds)}">'
    yield f"<title>{shown(title)}</title>"
    yield f"<style>{STYLE_SHEET}</style></head>"


def _facts(facts: Sequence[tuple[str, str]]) -> Iterator[str]:
    if facts:
        told = "".join(f"<div><dt>{shown(name)}</dt><dd>{shown(fact)}</dd></div>" for name, fact in facts)
        yield f'<dl class="facts">{told}</dl>'


def _legend(entries: Sequence[Entry]) -> Iterator[str]:
    yield '<ul class="legend" aria-label="Lines">'
    for entry in entries:
        piece = f'<svg viewBox="0 0 20 14" width="20" height="14" aria-hidden="true">{swatch(entry, 0, 7)}</svg>'
        yield f"<li>{piece} {shown(entry.line.name)}</li>"
    yield "</ul>"


def _figures(panels: Sequence[Panel], box: Box, *, with_labels: bool) -> Iterator[str]:
    plots = [plot_of(panel, box, with_labels=with_labels) for panel in panels]
    styles = styles_of(panels)
    num_lines = sum(len(panel.lines) for panel in panels)
    for plot in aligned(plots):
        yield "<figure>"
        yield from _picture(plot, plot_parts(plot, styles, num_lines, with_labels=with_labels))
        yield f"<details><summary>Values of {shown(plot.panel.title)}</summary>"
        yield from scrolling_table(values_table(plot.panel))
        yield "</details></figure>"


def _picture(plot: Plot, parts: Iterator[str]) -> Iterator[str]:
    area = f'viewBox="0 0 {PANEL_WIDTH} {PANEL_HEIGHT}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}"'
    yield f'<svg role="img" {area} font-family="{FONT}" font-size="12">'
    yield f"<title>{shown(plot.panel.title)}</title><desc>{shown(told_of(plot.panel))}</desc>"
    yield from parts
    yield "</svg>"
