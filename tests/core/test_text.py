"""Plain-text tables are equal to the tables that Rich prints."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from gristmill.core.text import table_text

cells = st.sampled_from(["", "a", "python", "日本語", "12,345", "é", "a file.py", "x" * 40, "0.5 %", "👍", "a\u200bb"])
tables = st.integers(1, 5).flatmap(lambda size: st.lists(st.lists(cells, min_size=size, max_size=size), min_size=1))


def rich_table_text(headings, rows, left):
    table = Table(box=None, pad_edge=False, show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(file=io.StringIO(), width=250, color_system=None, markup=False, highlight=False)
    console.print(table)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))


@given(tables, st.integers(0, 3))
def test_table_text_equals_rich(table, left):
    headings, *rows = table
    assert table_text(headings, rows, num_left_aligned=left) == rich_table_text(headings, rows, left)
