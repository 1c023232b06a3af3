"""A row of files.jsonl: what became of one file that was found; and all of them, read one at a time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from gristmill.core.errors import DatasetError
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Cut, DropReason, FileKey, Redaction, Split, VariantKind, WhyNoVariant, WhyPlain

LONGEST_ROW = 64 << 20
"""Bytes; past it, the file is none of ours."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Kind = TypeVar("Kind")


class VariantRow(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of a file: one that is in train, or why there is none."""

    kind: VariantKind
    seed: int | None = None
    tokens: Count = 0
    windows: Count = 0
    own_windows: tuple[Count, ...] = ()
    """By number, those that are the file's own, and are not shown once more."""
    draw: tuple[Count, Count] | None = None
    text_sha256: str | None = None
    missing: WhyNoVariant | None = None


class FimRow(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was chosen for fill in the middle: its rows, or why it is not rewritten."""

    seed: int | None = None
    rewritten: Count = 0
    """Windows with a middle; the others are as they are in the file."""
    missing: WhyPlain | None = None


class FileRow(msgspec.Struct, frozen=True, kw_only=True):
    """Every row has every column; what does not apply is null."""

    repo: str
    path: str
    status: Literal["kept", "dropped"]
    split: Split | None
    """Of a dropped file: where it would be, if it was dropped after the splits were made."""
    group: str | None
    language: str | None
    encoding: str | None
    bytes: Count | None
    lines: Count | None
    tokens: Count | None
    cut_tokens: Count | None
    windows: Count | None
    """Rows in the dataset: all that it is cut into, unless `draw` says otherwise."""
    draw: tuple[Count, Count] | None
    """All its windows so many times, and so many of them once more; null: each once."""
    left_tokens: Count | None
    """Tokens that no row shows, as those that would were not drawn."""
    weight: float | None
    fim: FimRow | None
    variants: tuple[VariantRow, ...]
    sha256: str | None
    """Of the file's bytes; null where secrets were taken out, since it would confirm a guess."""
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
    cuts: tuple[Cut, ...]

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"

    @property
    def shown_tokens(self) -> int:
        """Of a kept file: each once, less what was cut and what was not drawn."""
        return max(0, (self.tokens or 0) - (self.cut_tokens or 0) - (self.left_tokens or 0))


def file_rows(path: Path) -> Iterator[FileRow]:
    """In path order. There may be a hundred thousand, and nobody asks for all of them at once."""
    return (row for _, row in file_lines(path))


def file_lines(path: Path) -> Iterator[tuple[bytes, FileRow]]:
    """The same, each with its line as it is stored."""
    for line, row in decoded_lines(path, FileRow):
        if row.split is None if row.status == "kept" else row.reason is None:
            what = f"{row.name!r} is {row.status}, and nothing says where or why"
            raise DatasetError(f"{str(path)!r} is damaged: {what}. Build the dataset again.")
        yield line, row


def decoded_lines(path: Path, kind: type[Kind]) -> Iterator[tuple[bytes, Kind]]:
    """For who reads other columns: `kind` names them."""
    decoder = msgspec.json.Decoder(kind)
    try:
        with open_plain(path) as stream:
            while line := stream.readline(LONGEST_ROW):
                yield line, decoder.decode(line)
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{str(path)!r} is damaged: {error}. Build the dataset again.") from None
