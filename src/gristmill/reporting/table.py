"""Rows of files.jsonl, one at a time: there may be a hundred thousand, and nobody asks for all of them at once."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gristmill.errors import DatasetError
from gristmill.filestable import FileRow
from gristmill.layout import FILES

LONGEST_ROW = 64 << 20
"""Bytes; past it, the file is none of ours."""


def file_rows(folder: Path) -> Iterator[FileRow]:
    """In path order."""
    path = folder / FILES
    decoder = msgspec.json.Decoder(FileRow)
    try:
        if not path.is_file() and os.path.lexists(path):
            raise DatasetError(f"{str(folder)!r} is damaged: its {FILES} is not an ordinary file.")
        with path.open("rb") as stream:
            while line := stream.readline(LONGEST_ROW):
                yield _sound(decoder.decode(line))
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{str(path)!r} is damaged: {error}. Build the dataset again.") from None


def _sound(row: FileRow) -> FileRow:
    """A file is in a split, or out for a reason."""
    if row.split is None if row.status == "kept" else row.reason is None:
        raise msgspec.ValidationError(f"{row.name!r} is {row.status}, and nothing says where or why")
    return row


def shown_tokens(row: FileRow) -> int:
    """Of a kept file: each once, less what was cut and what was not drawn."""
    return max(0, (row.tokens or 0) - (row.cut_tokens or 0) - (row.left_tokens or 0))
