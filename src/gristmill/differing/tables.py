"""Two files.jsonl side by side, in one pass: both are in order of repo and path, so neither is held in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from gristmill.differing.result import FileChange, FileChanges, FileKind
from gristmill.errors import DatasetError
from gristmill.filestable import Count, VariantRow, decoded_lines
from gristmill.layout import FILES
from gristmill.records import Cut, DropReason, FileKey, Split


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Of files.jsonl, what decides a file's rows."""

    repo: str
    path: str
    status: Literal["kept", "dropped"]
    split: Split | None
    language: str | None
    tokens: Count | None
    windows: Count | None
    draw: tuple[Count, Count] | None
    left_tokens: Count | None
    weight: float | None
    variants: tuple[VariantRow, ...]
    text_sha256: str | None
    reason: DropReason | None
    cuts: tuple[Cut, ...]

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def is_kept(self) -> bool:
        return self.status == "kept"

    @property
    def state(self) -> str | None:
        return self.split if self.is_kept else self.reason

    @property
    def shape(self) -> tuple[object, ...]:
        """With the same text, tokenizer and settings: the same shape, the same rows."""
        cuts = tuple((cut.start, cut.end) for cut in self.cuts)
        made = tuple(one for one in self.variants if one.missing is None)
        return self.language, self.tokens, self.windows, self.draw, self.left_tokens, self.weight, made, cuts


def compare_tables(before: Path, after: Path, most: int | None) -> dict[FileKind, FileChanges]:
    """`most`: examples of a kind; None: all."""
    found = {kind: FileChanges() for kind in FileKind}
    for old, new in paired(read_rows(before), read_rows(after)):
        kinds = kinds_of(old, new)
        for kind in kinds:
            changes = found[kind]
            changes.count += 1
            if most is None or len(changes.examples) < most:
                changes.examples.append(_told(old, new))
    return found


def kinds_of(old: Row | None, new: Row | None) -> list[FileKind]:
    """None of a file that is dropped in both, or in one and unknown to the other."""
    if old is None or not old.is_kept:
        if new is None or not new.is_kept:
            return []
        return [FileKind.ADDED if old is None else FileKind.TAKEN_IN]
    if new is None:
        return [FileKind.REMOVED]
    if not new.is_kept:
        return [FileKind.DROPPED]
    kinds = []
    if old.text_sha256 != new.text_sha256:
        kinds.append(FileKind.CHANGED)
    if old.split is not new.split:
        kinds.append(FileKind.MOVED)
    return kinds or ([FileKind.RESHAPED] if old.shape != new.shape else [])


def paired(before: Iterator[Row], after: Iterator[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Every file of either, with its row of both."""
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old.key < new.key):
            yield old, None
            old = next(before, None)
        elif old is None or new.key < old.key:
            yield None, new
            new = next(after, None)
        else:
            yield old, new
            old, new = next(before, None), next(after, None)


def read_rows(folder: Path) -> Iterator[Row]:
    path = folder / FILES
    last: FileKey | None = None
    for number, (_, row) in enumerate(decoded_lines(path, Row), 1):
        if last is not None and row.key <= last:
            raise DatasetError(f"{str(path)!r} is damaged: line {number:,} is not in order. Build it again.")
        last = row.key
        yield row


def _told(old: Row | None, new: Row | None) -> FileChange:
    one = new or old
    assert one is not None, "one of the two has the file"
    return FileChange(
        file=f"{one.repo}/{one.path}",
        before=None if old is None else old.state,
        after=None if new is None else new.state,
    )
