"""What a notebook shows of a row: the row token by token, or a plain table of it where that cannot be."""

from pathlib import Path

from gristmill.dataset import Row, open_dataset
from gristmill.drawing.lettering import shown
from gristmill.looking.markup import row_html
from gristmill.looking.row import look_at
from gristmill.looking.style import LOOK_STYLE

LONGEST_VALUE = 400


def shown_row(row: Row) -> str:
    try:
        drawn = _drawn(row)
    except Exception:  # noqa: BLE001 - whatever became of the dataset or the row: a cell's output is no place for it
        drawn = None
    return drawn or _table(row)


def _drawn(row: Row) -> str | None:
    """None: the row that lies there now is another one, or this one was changed."""
    look = look_at(open_dataset(Path(row.source.folder)), row.source.split, row.number)
    if [index for index, _ in look.tokens] != row["input_ids"][: look.num_ids]:
        return None
    return f"<style>{LOOK_STYLE}</style>\n{row_html(look)}"


def _table(row: Row) -> str:
    cells = "".join(f"<tr><th>{_shown(name)}</th><td>{_shown(value)}</td></tr>" for name, value in row.items())
    return f"<table>{cells}</table>"


def _shown(value: object) -> str:
    text = str(value)
    return shown(text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…")
