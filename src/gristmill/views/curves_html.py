"""Panels of curves as one self-contained HTML page, with facts above and tables below the charts."""

import math
from collections.abc import Iterator, Mapping, Sequence

from gristmill.views.charts import (
    NO_SCRIPT_HTML,
    ChartMark,
    Curve,
    Curves,
    Figure,
    chart_scripts,
    charts_script,
    figure_html,
    hover_text,
    label,
)
from gristmill.views.curves import (
    Line,
    Panel,
    band_runs,
    caption,
    drawn_points,
    line_styles,
    max_points_per_line,
    values_table,
)
from gristmill.views.html import escape_text, page_html, page_style, scrolling_table
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
    """Return a page with curves.

    `refresh_seconds` is for a run in progress: the page reloads at this interval, or never if it is None.
    """
    styles, max_points = line_styles(panels), max_points_per_line(panels)
    figures = [
        Figure(f"panel-{number}", panel.title, caption(panel), _chart(panel, styles, max_points), values_table(panel))
        for number, panel in enumerate(panels)
    ]
    body = [
        f'<div class="sheet curves"><header><h1>{escape_text(title)}</h1>',
        *_facts(facts),
        f"</header><main><noscript>{NO_SCRIPT_HTML}</noscript>",
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
        items = "".join(f"<div><dt>{escape_text(name)}</dt><dd>{escape_text(fact)}</dd></div>" for name, fact in facts)
        yield f'<dl class="facts">{items}</dl>'


def _chart(panel: Panel, styles: Mapping[str, Style], max_points: int) -> Curves:
    in_legend = panel.legend_lines()
    is_empty = panel.extent() is None
    lines = sorted(panel.lines, key=lambda line: not line.faint)  # faint lines are drawn first, below the others
    marks = [
        ChartMark(name=label(mark.name), at=mark.at, axis=axis)
        for axis in ("x", "y")
        for mark in panel.drawable_marks(axis)
    ]
    return Curves(
        curves=[
            _curve(line, panel, styles[line.name], max_points, is_named=any(line is one for one in in_legend))
            for line in lines
        ],
        marks=[] if is_empty else marks,
        x_axis=label(panel.x_label),
        y_axis=label(panel.y_label),
        is_log_x=panel.log_x,
        is_log_y=panel.log_y,
        is_empty=is_empty,
    )


def _curve(line: Line, panel: Panel, style: Style, max_points: int, *, is_named: bool) -> Curve:
    points = drawn_points(line, panel, max_points)
    x_text = f"at {panel.x_label}"
    return Curve(
        name=label(line.name),
        xs=[x for x, _ in points],
        ys=[y for _, y in points],
        hints=[
            "" if math.isnan(y) else hover_text(f"{line.name}: {value_text(y)} {x_text} {value_text(x)}")
            for x, y in points
        ],
        bands=band_runs(line, panel, max_points),
        style=style.color_index,
        marker=style.marker_index,
        dash=style.dash,
        is_faint=line.faint,
        is_named=is_named,
    )
