"""Tables of values, and their conversion to Markdown. views/html.py converts tables to HTML."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.core.errors import GristmillError
from gristmill.core.markdown import LEFT, RIGHT, escape_markdown, table_lines
from gristmill.core.names import counted
from gristmill.views.numbers import value_text

Cell = str | int | float | None
"""Value of a table cell. None is a missing value."""
NUMBER = re.compile(r"[≈<>±+-]?\s?\d[\d,.]*(e[+-]?\d+)?(\s?[%a-zA-Zµ/]{1,8})?(\s?(±|-)\s?\d[\d,.]*%?)?")
"""Cell text that counts as a number, like `1,234`, `85.7%`, `≈2.1 s` or `0.41 ± 0.02`."""
ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.headers):
                counts = f"{counted(len(row), 'cell')} for {counted(len(self.headers), 'column')}"
                raise GristmillError(f"Row {number} of table {self.title!r} has {counts}. Give each column one cell.")

    def texts(self) -> list[list[str]]:
        return [[_text(cell) for cell in row] for row in self.rows]

    def numeric_columns(self) -> list[bool]:
        """Return, for each column, whether all its values are numbers. A column without values is not numeric."""
        columns = [
            [row[index] for row in self.rows if not _is_absent(row[index])] for index in range(len(self.headers))
        ]
        return [bool(column) and all(map(_is_number, column)) for column in columns]


def markdown_table(table: Table) -> str:
    """Return the headers and rows of a table as Markdown, without the title."""
    alignments = [RIGHT if is_numeric else LEFT for is_numeric in table.numeric_columns()]
    rows = ([escape_markdown(cell) for cell in row] for row in table.texts())
    return "\n".join(table_lines([escape_markdown(header) for header in table.headers], rows, alignments))


def _is_absent(cell: Cell) -> bool:
    return cell is None or cell in {"", ABSENT}


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, str) or NUMBER.fullmatch(cell) is not None


def _text(cell: Cell) -> str:
    if cell is None:
        return ABSENT
    return cell if isinstance(cell, str) else value_text(cell)
