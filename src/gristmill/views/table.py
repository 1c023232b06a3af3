"""Tables: as Markdown and as HTML, numbers at the right."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gristmill.core.errors import GristmillError
from gristmill.core.markdown import plain_text
from gristmill.core.names import counted
from gristmill.views.numbers import value_text
from gristmill.views.svg import shown

Cell = str | int | float | None
"""None is a value that is not there."""
NUMBER = re.compile(r"[≈<>±+-]?\s?\d[\d,.]*(e[+-]?\d+)?(\s?[%a-zA-Zµ/]{1,8})?(\s?(±|-)\s?\d[\d,.]*%?)?")
"""`1,234`, `85.7%`, `≈2.1 s`, `0.41 ± 0.02`."""
ABSENT = "-"
MOST_ROWS = 1000
"""Of a table in a page: nobody reads further, and a page must stay one that can be sent."""


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


def markdown_table(table: Table) -> str:
    """Without its title, which is a heading of the page that it stands on."""
    rules = ("--:" if is_right else ":--" for is_right in columns_at_right(table))
    lines = [map(plain_text, table.heads), rules, *(map(plain_text, row) for row in _texts(table))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def html_table(table: Table) -> Iterator[str]:
    """Its title is its caption."""
    sides = [' class="number"' if is_right else "" for is_right in columns_at_right(table)]
    heads = "".join(f'<th scope="col"{side}>{shown(head)}</th>' for head, side in zip(table.heads, sides, strict=True))
    yield f"<table><caption>{shown(table.title)}</caption>"
    yield f"<thead><tr>{heads}</tr></thead><tbody>"
    for row in _texts(table):
        yield f"<tr>{''.join(f'<td{side}>{shown(text)}</td>' for text, side in zip(row, sides, strict=True))}</tr>"
    yield "</tbody></table>"


def scrolling_table(table: Table) -> Iterator[str]:
    """As HTML; where it is wide it scrolls by itself, by keyboard too."""
    yield f'<div class="scrolling" tabindex="0" role="region" aria-label="{shown(table.title)}">'
    yield from html_table(replace(table, rows=table.rows[:MOST_ROWS]))
    if len(table.rows) > MOST_ROWS:
        num_more = len(table.rows) - MOST_ROWS
        yield f"<p>{counted(num_more, 'more row')} {'is' if num_more == 1 else 'are'} not shown.</p>"
    yield "</div>"


def columns_at_right(table: Table) -> list[bool]:
    """Those in which there are numbers and nothing else."""
    columns = [[row[place] for row in table.rows if not _is_absent(row[place])] for place in range(len(table.heads))]
    return [bool(column) and all(map(_is_number, column)) for column in columns]


def _is_absent(cell: Cell) -> bool:
    return cell is None or cell in {"", ABSENT}


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell, str) or NUMBER.fullmatch(cell) is not None


def _texts(table: Table) -> list[list[str]]:
    return [[_text(cell) for cell in row] for row in table.rows]


def _text(cell: Cell) -> str:
    if cell is None:
        return ABSENT
    return cell if isinstance(cell, str) else value_text(cell)
