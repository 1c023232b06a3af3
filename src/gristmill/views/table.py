"""Tables, and as Markdown; views/html.py writes them as HTML."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.core.errors import GristmillError
from gristmill.core.markdown import LEFT, RIGHT, plain_text, table_lines
from gristmill.views.numbers import value_text

Cell = str | int | float | None
"""None is a value that is not there."""
NUMBER = re.compile(r"[≈<>±+-]?\s?\d[\d,.]*(e[+-]?\d+)?(\s?[%a-zA-Zµ/]{1,8})?(\s?(±|-)\s?\d[\d,.]*%?)?")
"""`1,234`, `85.7%`, `≈2.1 s`, `0.41 ± 0.02`."""
ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.heads):
                counts = f"{len(row)} cells under {len(self.heads)} heads"
                raise GristmillError(f"Row {number} of table {self.title!r} has {counts}; give each head a cell.")

    def texts(self) -> list[list[str]]:
        return [[_text(cell) for cell in row] for row in self.rows]

    def columns_at_right(self) -> list[bool]:
        """True for columns with numbers and nothing else."""
        columns = [[row[place] for row in self.rows if not _is_absent(row[place])] for place in range(len(self.heads))]
        return [bool(column) and all(map(_is_number, column)) for column in columns]


def markdown_table(table: Table) -> str:
    """Without its title, which is a heading of the page that it stands on."""
    sides = [RIGHT if is_right else LEFT for is_right in table.columns_at_right()]
    rows = ([plain_text(cell) for cell in row] for row in table.texts())
    return "\n".join(table_lines([plain_text(head) for head in table.heads], rows, sides))


def _is_absent(cell: Cell) -> bool:
    return cell is None or cell in {"", ABSENT}


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, str) or NUMBER.fullmatch(cell) is not None


def _text(cell: Cell) -> str:
    if cell is None:
        return ABSENT
    return cell if isinstance(cell, str) else value_text(cell)
