"""Read the splits of an earlier build, so that a file keeps its split when the dataset is rebuilt."""

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
    """Splits of the files in an earlier build.

    A file is looked up by its text first, so that a moved file keeps its split, and then by repo and path.
    """

    by_key: Mapping[FileKey, Split]
    by_text: Mapping[str, Split]
    """Splits, keyed by `text_sha256`."""

    def find(self, document: PreparedDocument) -> Split | None:
        """Return the earlier split of a document, or None if it is new."""
        return self.by_text.get(document.text_sha256) or (self.by_key.get(document.key) if self.by_key else None)

    def find_all(self, documents: Iterable[PreparedDocument]) -> list[Split]:
        """Return the earlier splits of the documents. New documents are skipped."""
        if not self.by_text and not self.by_key:
            return []
        return [split for document in documents if (split := self.find(document))]


NO_PREVIOUS_SPLIT = PreviousSplit({}, {})


class _PreviousRow(msgspec.Struct, frozen=True):
    repo: str
    path: str
    split: Split | None = None
    text_sha256: str | None = None


def read_previous_splits(config: Config) -> tuple[PreviousSplit, str | None]:
    """Return the splits in the files.jsonl of the earlier build, and the digest of that file.

    Without an earlier build, or with `split.fresh`, the result is empty and the digest is None.
    """
    path = previous_file(config)
    if path is None:
        return NO_PREVIOUS_SPLIT, None
    try:
        content = read_plain(path)
    except OSError as error:
        raise InputError(f"cannot read the splits of the earlier build from {str(path)!r}: {error.strerror}.") from None
    decoder = msgspec.json.Decoder(_PreviousRow)
    try:
        rows = [row for row in decoder.decode_lines(content) if row.split is not None]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        advice = (
            "Use --fresh-splits to ignore it." if config.split.previous is None else "Name another file in --splits."
        )
        raise InputError(f"{str(path)!r} is not the files.jsonl of an earlier build: {error}. {advice}") from None
    by_key = {(row.repo, row.path): row.split for row in rows if row.split}
    by_text = {row.text_sha256: row.split for row in rows if row.text_sha256 and row.split}
    return PreviousSplit(by_key, by_text), hashlib.sha256(content).hexdigest()


def previous_file(config: Config) -> Path | None:
    """Return the path of the earlier build's files.jsonl, or None if no earlier splits are used."""
    if config.split.fresh:
        return None
    if config.split.previous is not None:
        given_path = Path(os.path.expanduser(config.split.previous))
        return given_path / FILES if given_path.is_dir() else given_path
    path = Path(config.out) / FILES
    return path if path.is_file() else None
