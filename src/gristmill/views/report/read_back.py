"""The text of a file once more: from its windows, or from its source, read and cleaned as the build did.

Either counts only if its digest is the one that files.jsonl has of the text that was tokenized. So what was redacted
then is redacted here, and a source that has changed since gives nothing.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from gristmill.checks.source_texts import folders_by_repo, location_of
from gristmill.cleaning.clean import clean
from gristmill.cleaning.rules import Limits
from gristmill.config.config import Config
from gristmill.core.errors import ConfigError, DatasetError, InputError
from gristmill.core.files_table import FileRow
from gristmill.core.manifest import Manifest
from gristmill.core.names import is_address
from gristmill.core.records import Drop, FileKey, SourceFile, Split
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.row_windows import ShownWindow, join_windows, read_row
from gristmill.dataset.stretches import Stretch
from gristmill.pipeline.build import BUILT, Built
from gristmill.pipeline.cache import recall
from gristmill.pipeline.work_folder import Workspace
from gristmill.sources.addresses import is_table_name
from gristmill.sources.documents import read_document
from gristmill.tokenizers.tokenizer import Tokenizer

# The settings that a manifest tells of, as a configuration again.

ELSEWHERE = "URL"
"""In place of an address that no manifest tells."""


def config_of(manifest: Manifest) -> Config:
    """Without what it does not tell: sources, where the dataset went, and how the work was done."""
    try:
        named = manifest.settings.items()
        tree: dict[str, Any] = {name: dict(one) if isinstance(one, Mapping) else one for name, one in named}
        tree["sampling"]["weights"] = dict(tree["sampling"]["weights"])  # pairs, since their order counts
        tree["rewrite"]["endpoint"] = ELSEWHERE
        return msgspec.convert({**tree, "sources": ["."], "out": "."}, Config)
    except (LookupError, TypeError, ValueError, msgspec.ValidationError, ConfigError) as error:
        raise DatasetError(f"the manifest is damaged: its settings: {error}. Build the dataset again.") from None


class Missing(NamedTuple):
    """Why there is no text."""

    why: str


NOT_HERE = Missing("its source is not here: name it with --source")
ROW_OF_TABLE = Missing("it is a row of a table, and these are not read again")
GONE = Missing("it is not in its source any more")
CHANGED = Missing("its source has changed since")


class Sources:
    """Folders by the names that their files go by in the rows."""

    def __init__(self, names: Sequence[str], manifest: Manifest) -> None:
        self._folders = folders_by_repo(names)
        self._has_table = any(is_table_name(os.path.basename(name)) for name in names)
        self._config = config_of(manifest)
        self._limits = Limits(self._config.rules)

    def text_of(self, row: FileRow) -> bytes | Missing:
        folder = self._folders.get(row.repo)
        if folder is None:
            return ROW_OF_TABLE if self._has_table else NOT_HERE
        location = location_of(folder, row.path)
        if location is None or not os.path.lexists(location):
            return GONE
        file = SourceFile(repo=row.repo, path=row.path, location=location, size=row.bytes or 0)
        try:
            document = read_document(file, self._config.scan)
        except InputError:
            return Missing("its source cannot be read")
        cleaned = document if isinstance(document, Drop) else clean(document, self._config, self._limits)
        return CHANGED if isinstance(cleaned, Drop) or not _is_text_of(row, cleaned.text) else cleaned.text


def _is_text_of(row: FileRow, text: bytes) -> bool:
    return hashlib.sha256(text).hexdigest() == row.text_sha256


def sources_of(dataset: Dataset, given: Sequence[str]) -> Sources:
    """Those that are given, else those that the work folder remembers, by the same settings, and that are here."""
    return Sources(given or _remembered(dataset), dataset.manifest)


def _remembered(dataset: Dataset) -> list[str]:
    """Nothing is fetched: of what lies elsewhere there is none."""
    try:
        kept = recall(Workspace(os.fspath(dataset.folder)).built, BUILT, str)
        built = None if kept is None else Built.of(kept)
    except (ValueError, TypeError, msgspec.MsgspecError, ConfigError, DatasetError):  # of another version
        built = None
    if built is None or built.config.settings() != config_of(dataset.manifest).settings():
        return []
    words = [word for word in built.config.sources if not is_address(word)]
    paths = [os.path.join(built.folder, os.path.expanduser(word)) for word in words]
    return [path for path in paths if os.path.exists(path)]


class ShownTexts:
    """What windows spell."""

    def __init__(self, dataset: Dataset, rows_of: Mapping[FileKey, Sequence[int]]) -> None:
        """`rows_of`: by file, the rows in which its windows are."""
        self._dataset, self._rows_of = dataset, rows_of

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return self._dataset.tokenizer

    def text_of(self, row: FileRow) -> bytes | None:
        """Each token once; None where that is not the file's whole text."""
        numbers = self._rows_of.get(row.key)
        if row.split is None or not numbers or not self._tokenizer.gives_text_back:
            return None
        match join_windows(self._dataset, self._windows(row, row.split, numbers)):
            case [Stretch(start=0, ids=ids)]:
                text = self._tokenizer.decode(ids)
                return text if _is_text_of(row, text) else None
        return None

    def _windows(self, row: FileRow, split: Split, numbers: Sequence[int]) -> Iterator[ShownWindow]:
        for number in numbers:
            read = read_row(self._dataset, split, number)
            for window in read.windows:
                if window.file == row.key and not window.variant:
                    yield read.shown(window)
