"""What `gristmill diff` found: records that tell themselves."""

from enum import StrEnum
from typing import Any

import msgspec

from gristmill.core.records import Split


class Step(StrEnum):
    """Which part of a version MAJOR.MINOR.PATCH a change asks for, by Croissant's rule.

    docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html#version says in effect: PATCH where the data are the same
    and only written in another way; MINOR where what was there can still be had as it was, and fields or records came
    in; MAJOR where something that was there was edited, removed or put into another split.
    """

    NONE = "none"
    PATCH = "patch"
    MINOR = "minor"
    MAJOR = "major"


class FileKind(StrEnum):
    """What became of a file."""

    ADDED = "added"
    TAKEN_IN = "taken_in"
    REMOVED = "removed"
    DROPPED = "dropped"
    CHANGED = "changed"
    MOVED = "moved"
    RESHAPED = "reshaped"


FILE_KINDS: dict[FileKind, str] = {
    FileKind.ADDED: "kept now, and not found before",
    FileKind.TAKEN_IN: "kept now, and dropped before",
    FileKind.REMOVED: "kept before, and not found now",
    FileKind.DROPPED: "kept before, and dropped now",
    FileKind.CHANGED: "another text",
    FileKind.MOVED: "in another split",
    FileKind.RESHAPED: "the same text in the same split, but other rows",
}


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    """With its repo in front."""
    before: str | None
    """The split it was in, or the reason it was dropped for; None: it was not found."""
    after: str | None


class FileChanges(msgspec.Struct, kw_only=True):
    count: int = 0
    examples: list[FileChange] = msgspec.field(default_factory=list)
    """The first in path order; all of them if so asked."""


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    before: int
    after: int


class SplitChange(msgspec.Struct, frozen=True, kw_only=True):
    files: Numbers
    windows: Numbers
    tokens: Numbers


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Dotted, like `window.overlap`."""
    before: Any
    after: Any
    """None: it has no such value."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    before: str
    after: str
    """The two folders."""
    is_same: bool
    """The same rows of the same columns in the same splits, however they are written."""
    step: Step
    why: str
    """What decides the step."""
    content_sha256: tuple[str, str]
    files: dict[FileKind, FileChanges]
    """A file may be of several kinds: changed, and moved."""
    splits: dict[Split, SplitChange]
    settings: list[ValueChange]
    versions: list[ValueChange]
    """Of gristmill and of the packages that decide what comes out."""
    tokenizer: list[ValueChange]
    columns: tuple[list[str], list[str]]
    """Those that only one of the two has."""
    formats: tuple[list[str], list[str]]
    data: list[ValueChange]
    """Files of the two folders with other digests."""
