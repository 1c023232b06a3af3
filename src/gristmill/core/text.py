"""Tables and sizes as plain text for a terminal."""

import io
from collections.abc import Iterable, Sequence

from gristmill.core.names import counted

WIDEST = 250
"""Tables are as wide as what stands in them: nothing is cut off."""


def table_text(headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Columns that line up, the first `left` of them at the left; an empty line at the end."""
    from rich.console import Console  # noqa: PLC0415 - slow to import, and not needed for --json
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(file=io.StringIO(), width=WIDEST, color_system=None, markup=False, highlight=False)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))


def size_text(num_bytes: float) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:,.1f} {unit}"
    return counted(f"{num_bytes:.0f}", "byte")
