"""What a model sees: a row of each split, token by token."""

import msgspec

from gristmill.dataset import Dataset
from gristmill.looking.markup import row_html
from gristmill.looking.row import RowLook, look_at
from gristmill.naming import counted
from gristmill.records import Split
from gristmill.reporting.section import Section

MOST_TOKENS = 1024
"""Of a row, as each is an element of the page."""


def rows_section(dataset: Dataset) -> Section:
    splits = [split for split in Split if len(dataset[split])]
    if not splits:
        return Section("rows", "What a model sees", "There are no rows.")
    told = "The row in the middle of each split: where tokens begin and end, and what neighbouring windows show too."
    tokenizer = dataset.tokenizer
    looks = (look_at(dataset, split, len(dataset[split]) // 2, tokenizer) for split in splits)
    return Section("rows", "What a model sees", told, (), [row_html(shortened(look)) for look in looks])


def shortened(look: RowLook, most: int = MOST_TOKENS) -> RowLook:
    """A long row's first tokens."""
    if len(look.tokens) <= most:
        return look
    note = f"These are the first {most:,} of its {counted(len(look.tokens), 'token')}."
    return msgspec.structs.replace(
        look,
        tokens=look.tokens[:most],
        strokes=[stroke for stroke in look.strokes if stroke.token < most],
        windows=[window for window in look.windows if window.at < most],
        note=f"{look.note} {note}" if look.note else note,
    )
