"""Rows of files.jsonl, one per file that was found: its split, or the reason why it was dropped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from gristmill.core.errors import DatasetError
from gristmill.core.plain_files import open_plain
from gristmill.core.records import (
    Cut,
    DropReason,
    FileKey,
    Redaction,
    Respelling,
    Split,
    VariantKind,
    WhyNotRewritten,
    WhyNoVariant,
)

MAX_ROW_BYTES = 64 << 20
"""Maximum number of bytes in a line. gristmill never writes a longer line."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Kind = TypeVar("Kind")


class VariantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of a file: its rows in train, or the reason why it is missing."""

    kind: VariantKind
    seed: int | None = None
    tokens: Count = 0
    windows: Count = 0
    own_windows: tuple[Count, ...] = ()
    """Indices, from 0, of the variant's windows that are equal to windows of the file and therefore get no rows."""
    draw: tuple[Count, Count] | None = None
    text_sha256: str | None = None
    missing: WhyNoVariant | None = None


class FimRow(msgspec.Struct, frozen=True, kw_only=True):
    """A file chosen for fill-in-the-middle: its rewritten windows, or the reason why there are none."""

    seed: int | None = None
    rewritten: Count = 0
    """Number of windows with a middle. The remaining windows of the file are unchanged."""
    missing: WhyNotRewritten | None = None


class FileRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of files.jsonl. Every row has every column. Columns that do not apply are null or empty lists."""

    repo: str
    path: str
    status: Literal["kept", "dropped"]
    split: Split | None
    """Split of the file, or the split that it would be in if it was dropped after splits were assigned."""
    group: str | None
    language: str | None
    encoding: str | None
    bytes: Count | None
    lines: Count | None
    tokens: Count | None
    cut_tokens: Count | None
    windows: Count | None
    """Number of rows in the dataset: one per window of the file, unless `draw` is set."""
    draw: tuple[Count, Count] | None
    """Number of rows per window, and number of windows with one more row. Null if each window has one row."""
    left_tokens: Count | None
    """Number of tokens that are in no row because their windows were not drawn."""
    weight: float | None
    fim: FimRow | None
    variants: tuple[VariantRow, ...]
    sha256: str | None
    """Digest of the file's bytes. Null if secrets were redacted, because the digest would confirm a guess of a
    secret."""
    text_sha256: str | None
    license: str | None
    license_from: str | None
    moved_from: Split | None
    reason: DropReason | None
    detail: str | None
    twin: str | None
    similarity: float | None
    measures: dict[str, float | str | None] | None
    redactions: tuple[Redaction, ...]
    respellings: tuple[Respelling, ...]
    """Spaces that were inserted into the text of control tokens, in rows of documents. Without these spaces, the text
    of the rows is the text of the file after redaction."""
    cuts: tuple[Cut, ...]

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"

    @property
    def kept_tokens(self) -> int:
        """Number of a kept file's tokens that are in the dataset: not cut, and drawn at least once."""
        return max(0, (self.tokens or 0) - (self.cut_tokens or 0) - (self.left_tokens or 0))


def read_file_rows(path: Path) -> Iterator[FileRow]:
    """Yield the rows in path order. They are read one at a time, because there may be a hundred thousand."""
    return (row for _, row in read_file_lines(path))


def read_file_lines(path: Path) -> Iterator[tuple[bytes, FileRow]]:
    """Yield each stored line and its row, in path order. Raise DatasetError if the file is damaged."""
    for line, row in decode_lines(path, FileRow):
        if row.split is None if row.status == "kept" else row.reason is None:
            what = f"{row.name!r} is {row.status}, but has no {'split' if row.status == 'kept' else 'reason'}"
            raise DatasetError(f"{str(path)!r} is damaged: {what}. Build the dataset again.")
        yield line, row


def decode_lines(path: Path, kind: type[Kind]) -> Iterator[tuple[bytes, Kind]]:
    """Yield each line and its record. `kind` is the type of the record, with the columns to read."""
    decoder = msgspec.json.Decoder(kind)
    number = 1
    try:
        with open_plain(path) as stream:
            while line := stream.readline(MAX_ROW_BYTES):
                yield line, decoder.decode(line)
                number += 1
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{str(path)!r} is damaged on line {number:,}: {error}. Build the dataset again.") from None
