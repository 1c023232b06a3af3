"""Panels of curves as one HTML file that needs nothing else, with facts above them and tables below."""

import math
from collections.abc import Iterator, Mapping, Sequence

from gristmill.views.charts import (
    NO_SCRIPT,
    ChartMark,
    Curve,
    Curves,
    Figure,
    chart_scripts,
    charts_script,
    figure_html,
    hint,
    label,
)
from gristmill.views.curves import (
    Line,
    Panel,
    band_runs,
    caption,
    drawn_points,
    share_of_points,
    styles_of,
    values_table,
)
from gristmill.views.html import page_html, page_style, scrolling_table, shown
from gristmill.views.numbers import value_text
from gristmill.views.table import Table
from gristmill.views.theme import Style


def curves_html(
    title: str,
    facts: Sequence[tuple[str, str]],
    panels: Sequence[Panel],
    tables: Sequence[Table],
    refresh_seconds: int | None,
) -> str:
    """`refresh_seconds`: how often the page loads itself again, while a run goes on; None when it is over."""
    styles, most = styles_of(panels), share_of_points(panels)
    figures = [
        Figure(f"panel-{number}", panel.title, caption(panel), _chart(panel, styles, most), values_table(panel))
        for number, panel in enumerate(panels)
    ]
    body = [
        f'<div class="sheet curves"><header><h1>{shown(title)}</h1>',
        *_facts(facts),
        f"</header><main><noscript>{NO_SCRIPT}</noscript>",
        '<section aria-labelledby="curves"><h2 id="curves">Curves</h2><div class="figures">',
        *(part for figure in figures for part in figure_html(figure)),
        "</div></section>",
        *(part for table in tables for part in scrolling_table(table)),
        "</main></div>",
        charts_script(figures),
    ]
    head = ['<meta name="generator" content="gristmill">']
    if refresh_seconds is not None:
        head.append(f'<meta http-equiv="refresh" content="{max(1, refresh_seconds)}">')
    return page_html(title, body, style=page_style(), scripts=chart_scripts(), head=head)


def _facts(facts: Sequence[tuple[str, str]]) -> Iterator[str]:
    if facts:
        named = "".join(f"<div><dt>{shown(name)}</dt><dd>{shown(fact)}</dd></div>" for name, fact in facts)
        yield f'<dl class="facts">{named}</dl>'


def _chart(panel: Panel, styles: Mapping[str, Style], most: int) -> Curves:
    named = panel.named_lines()
    is_empty = panel.extent() is None
    lines = sorted(panel.lines, key=lambda line: not line.faint)  # what matters lies on top
    marks = [
        ChartMark(name=label(mark.name), at=mark.at, axis=axis)
        for axis in ("x", "y")
        for mark in panel.drawn_marks(axis)
    ]
    return Curves(
        curves=[
            _curve(line, panel, styles[line.name], most, is_named=any(line is one for one in named)) for line in lines
        ],
        marks=[] if is_empty else marks,
        x_axis=label(panel.x_label),
        y_axis=label(panel.y_label),
        is_log_x=panel.log_x,
        is_log_y=panel.log_y,
        is_empty=is_empty,
    )


def _curve(line: Line, panel: Panel, style: Style, most: int, *, is_named: bool) -> Curve:
    points = drawn_points(line, panel, most)
    where = f"at {panel.x_label}"
    return Curve(
        name=label(line.name),
        xs=[x for x, _ in points],
        ys=[y for _, y in points],
        hints=[
            "" if math.isnan(y) else hint(f"{line.name}: {value_text(y)} {where} {value_text(x)}") for x, y in points
        ],
        bands=band_runs(line, panel, most),
        style=style.place,
        marker=style.marker,
        dash=style.dash,
        is_faint=line.faint,
        is_named=is_named,
    )
