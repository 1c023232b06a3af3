"""A panel without the picture: in a sentence, and as a table of its values."""

from gristmill.core.names import counted
from gristmill.views.curves.labels import named_lines
from gristmill.views.curves.lines import spread_indexes
from gristmill.views.curves.panel import Line, Panel
from gristmill.views.curves.scale import is_drawable
from gristmill.views.numbers import value_text
from gristmill.views.table import Cell, Table

MOST_TOLD = 12
"""Lines in a sentence."""
MOST_ROWS = 120


def told_of(panel: Panel) -> str:
    """`Loss, nats by epoch: train from 2.31 to 0.38; validation from 2.4 to 0.51.`"""
    lines = named_lines(panel)
    told = [_line_told(line, panel) for line in lines[:MOST_TOLD]]
    told += [f"and {len(lines) - MOST_TOLD} more"] if len(lines) > MOST_TOLD else []
    return f"{_heading(panel)} by {panel.x_label}: {'; '.join(told) or 'nothing yet'}."


def _heading(panel: Panel) -> str:
    return f"{panel.title}, {panel.y_label}" if panel.y_label else panel.title


def _line_told(line: Line, panel: Panel) -> str:
    shown = [y for _, y in line.points if is_drawable(y, log=panel.log_y)]
    return f"{line.name} from {value_text(shown[0])} to {value_text(shown[-1])}"


def values_table(panel: Panel) -> Table:
    """A row for each x, a column for each line; of very many rows, evenly many."""
    lines = [line for line in panel.lines if not line.faint] or list(panel.lines)
    columns = [_column(line) for line in lines]
    xs = sorted({x for column in columns for x in column if is_drawable(x, log=panel.log_x)})
    chosen = [xs[index] for index in spread_indexes(len(xs), MOST_ROWS)]
    note = f", {len(chosen):,} of {counted(len(xs), 'row')}" if len(chosen) < len(xs) else ""
    rows: list[list[Cell]] = [[x, *(column.get(x) for column in columns)] for x in chosen]
    return Table(f"{_heading(panel)}{note}", [panel.x_label, *(line.name for line in lines)], rows)


def _column(line: Line) -> dict[float, Cell]:
    bands = list(line.band())
    if not bands:
        return dict(line.points)
    return {
        point.x: f"{value_text(point.y)} ({value_text(low)} to {value_text(high)})"
        for point, (_, low, high) in zip(line.points, bands, strict=True)
    }
