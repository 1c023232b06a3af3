"""Splits of an earlier build as an input, so that a file stays in its split over rebuilds."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gristmill.config.config import Config
from gristmill.core.errors import InputError
from gristmill.core.layout import FILES
from gristmill.core.plain_files import read_plain
from gristmill.core.records import FileKey, PreparedDocument, Split


class PreviousSplit(NamedTuple):
    """Where an earlier build put its files: by content, so that none crosses over by being moved; else by name."""

    by_key: Mapping[FileKey, Split]
    by_text: Mapping[str, Split]
    """By text_sha256."""

    def of(self, document: PreparedDocument) -> Split | None:
        return self.by_text.get(document.text_sha256) or (self.by_key.get(document.key) if self.by_key else None)

    def of_all(self, documents: Iterable[PreparedDocument]) -> list[Split]:
        """Of those that have one."""
        if not self.by_text and not self.by_key:
            return []
        return [split for document in documents if (split := self.of(document))]


NOTHING_BEFORE = PreviousSplit({}, {})


class _PreviousRow(msgspec.Struct, frozen=True):
    repo: str
    path: str
    split: Split | None = None
    text_sha256: str | None = None


def read_previous_splits(config: Config) -> tuple[PreviousSplit, str | None]:
    """The earlier build's files.jsonl as an input, and its digest; nothing where there is none or it is not wanted."""
    path = previous_file(config)
    if path is None:
        return NOTHING_BEFORE, None
    try:
        content = read_plain(path)
    except OSError as error:
        raise InputError(f"cannot read the earlier splits {str(path)!r}: {error.strerror}.") from None
    decoder = msgspec.json.Decoder(_PreviousRow)
    try:
        rows = [row for row in decoder.decode_lines(content) if row.split is not None]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{str(path)!r} is no files.jsonl of an earlier build: {error}. Use --fresh-splits to do without."
        ) from None
    by_key = {(row.repo, row.path): row.split for row in rows if row.split}
    by_text = {row.text_sha256: row.split for row in rows if row.text_sha256 and row.split}
    return PreviousSplit(by_key, by_text), hashlib.sha256(content).hexdigest()


def previous_file(config: Config) -> Path | None:
    if config.split.fresh:
        return None
    if config.split.previous is not None:
        named = Path(os.path.expanduser(config.split.previous))
        return named / FILES if named.is_dir() else named
    path = Path(config.out) / FILES
    return path if path.is_file() else None
