"""Records of the differences that `gristmill diff` finds."""

from enum import StrEnum
from typing import Any

import msgspec

from gristmill.core.records import Split


class Step(StrEnum):
    """Part of a version number MAJOR.MINOR.PATCH that a change must increase, according to Croissant.

    In short (docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html#version): PATCH if the data are the same but
    stored differently. MINOR if fields or records were added, and all existing data are still available unchanged.
    MAJOR if existing data were edited, removed or moved to another split.
    """

    NONE = "none"
    PATCH = "patch"
    MINOR = "minor"
    MAJOR = "major"


class FileKind(StrEnum):
    """Kind of change to a file."""

    ADDED = "added"
    NO_LONGER_DROPPED = "taken_in"
    REMOVED = "removed"
    DROPPED = "dropped"
    CHANGED = "changed"
    MOVED = "moved"
    RESHAPED = "reshaped"

    @property
    def label(self) -> str:
        """Name of the kind in printed text, such as `no longer dropped`."""
        return self.name.lower().replace("_", " ")


FILE_KINDS: dict[FileKind, str] = {
    FileKind.ADDED: "kept now, not found before",
    FileKind.NO_LONGER_DROPPED: "kept now, dropped before",
    FileKind.REMOVED: "kept before, not found now",
    FileKind.DROPPED: "kept before, dropped now",
    FileKind.CHANGED: "different text",
    FileKind.MOVED: "in another split",
    FileKind.RESHAPED: "same text in the same split, but different rows",
}


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A changed file, with its state in both datasets."""

    file: str
    """Path of the file, with its repo in front."""
    before: str | None
    """Split of the file in the earlier dataset, or the reason why it was dropped. None if the file was not found."""
    after: str | None
    """Split of the file in the later dataset, or the reason why it was dropped. None if the file was not found."""


class FileChanges(msgspec.Struct, kw_only=True):
    """Changed files of one kind."""

    count: int = 0
    examples: list[FileChange] = msgspec.field(default_factory=list)
    """The first changed files in path order, or all of them if requested."""


class BeforeAfter(msgspec.Struct, frozen=True, kw_only=True):
    """A count in the earlier and in the later dataset."""

    before: int
    after: int


class SplitChange(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a split in the earlier and in the later dataset."""

    files: BeforeAfter
    windows: BeforeAfter
    tokens: BeforeAfter


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A named value that differs between the datasets."""

    name: str
    """Name of a setting like `window.overlap`, of a package, of a tokenizer value, or of a dataset file."""
    before: Any
    """None if the earlier dataset has no such value."""
    after: Any
    """None if the later dataset has no such value."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Differences between two datasets."""

    before: str
    """Folder of the earlier dataset."""
    after: str
    """Folder of the later dataset."""
    is_same: bool
    """True if the splits have the same rows with the same columns. The formats may differ."""
    step: Step
    why: str
    """Reason for the step."""
    content_sha256: tuple[str, str]
    files: dict[FileKind, FileChanges]
    """Changed files, keyed by kind. A file may have several kinds, like changed and moved."""
    splits: dict[Split, SplitChange]
    settings: list[ValueChange]
    versions: list[ValueChange]
    """Changed versions of gristmill and of the packages that affect its output."""
    tokenizer: list[ValueChange]
    columns: tuple[list[str], list[str]]
    """Columns only in the earlier dataset, and columns only in the later dataset."""
    formats: tuple[list[str], list[str]]
    """Formats only in the earlier dataset, and formats only in the later dataset."""
    data: list[ValueChange]
    """SHA-256 digests of the dataset files that differ."""
