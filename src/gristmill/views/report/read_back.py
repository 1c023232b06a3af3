"""Read the text of a file again, from its windows or from its source, cleaned as in the build.

A text is accepted only if it has the digest that files.jsonl records for the tokenized text. So secrets that the build
redacted remain redacted, and a changed source is rejected.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from gristmill.checks.source_texts import folders_by_repo, locate_file
from gristmill.cleaning.clean import clean
from gristmill.cleaning.rules import Limits
from gristmill.config.config import Config
from gristmill.core.errors import ConfigError, DatasetError, InputError
from gristmill.core.files_table import FileRow
from gristmill.core.manifest import Manifest
from gristmill.core.names import is_remote_address
from gristmill.core.records import Drop, FileKey, SourceFile, Split
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.row_windows import WindowWithIds, join_windows, read_row
from gristmill.dataset.token_spans import TokenSpan
from gristmill.pipeline.build import BUILD_RECORD, BuildRecord
from gristmill.pipeline.cache import read_cached
from gristmill.pipeline.work_folder import Workspace
from gristmill.sources.addresses import is_table_name
from gristmill.sources.documents import read_document
from gristmill.tokenizers.tokenizer import Tokenizer

# Configuration from the settings in a manifest.

ENDPOINT_PLACEHOLDER = "URL"
"""Replaces the address of the rewriting endpoint, which manifests do not record."""


def config_from_manifest(manifest: Manifest) -> Config:
    """Return the configuration of a build, with placeholders for the paths of the sources and the output."""
    try:
        named = manifest.settings.items()
        tree: dict[str, Any] = {name: dict(one) if isinstance(one, Mapping) else one for name, one in named}
        tree["sampling"]["weights"] = dict(tree["sampling"]["weights"])  # recorded as pairs, because the order matters
        tree["rewrite"]["endpoint"] = ENDPOINT_PLACEHOLDER
        return msgspec.convert({**tree, "sources": ["."], "out": "."}, Config)
    except (LookupError, TypeError, ValueError, msgspec.ValidationError, ConfigError) as error:
        is_readable = isinstance(error, msgspec.ValidationError | ConfigError)
        detail = f" ({str(error).removesuffix('.')})" if is_readable else ""
        raise DatasetError(
            f"the manifest is damaged: it has invalid settings{detail}. Build the dataset again."
        ) from None


class Missing(NamedTuple):
    """Reason why a text cannot be read."""

    reason: str


SOURCE_UNKNOWN = Missing("the source of the file is unknown. Pass the source with --source")
TABLE_ROW = Missing("the file is in no source folder, and rows of tables cannot be read again")
FILE_GONE = Missing("the file is no longer in its source")
SOURCE_CHANGED = Missing("the file has changed since the build")


class SourceTexts:
    """Reads the texts of files from source folders. The repository of a file determines the folder."""

    def __init__(self, names: Sequence[str], manifest: Manifest) -> None:
        self._folders = folders_by_repo(names)
        self._has_table = any(is_table_name(os.path.basename(name)) for name in names)
        self._config = config_from_manifest(manifest)
        self._limits = Limits(self._config.rules)

    def text_of(self, row: FileRow) -> bytes | Missing:
        folder = self._folders.get(row.repo)
        if folder is None:
            return TABLE_ROW if self._has_table else SOURCE_UNKNOWN
        location = locate_file(folder, row.path)
        if location is None or not os.path.lexists(location):
            return FILE_GONE
        file = SourceFile(repo=row.repo, path=row.path, location=location, size=row.bytes or 0)
        try:
            document = read_document(file, self._config.scan)
        except InputError:
            return Missing("the file cannot be read from its source")
        cleaned = document if isinstance(document, Drop) else clean(document, self._config, self._limits)
        return SOURCE_CHANGED if isinstance(cleaned, Drop) or not _has_digest_of(row, cleaned.text) else cleaned.text


def _has_digest_of(row: FileRow, text: bytes) -> bool:
    return hashlib.sha256(text).hexdigest() == row.text_sha256


def find_sources(dataset: Dataset, given: Sequence[str]) -> SourceTexts:
    """Open the given sources. By default, open the local sources of the last build, if the dataset has its settings."""
    return SourceTexts(given or _recorded_sources(dataset), dataset.manifest)


def _recorded_sources(dataset: Dataset) -> list[str]:
    """Return the existing local sources that the work folder records. Remote sources are not fetched."""
    try:
        record = read_cached(Workspace(os.fspath(dataset.folder)).built, BUILD_RECORD, str)
        built = None if record is None else BuildRecord.of(record)
    except (ValueError, TypeError, msgspec.MsgspecError, ConfigError, DatasetError):
        built = None  # written by a different version of gristmill
    if built is None or built.config.settings() != config_from_manifest(dataset.manifest).settings():
        return []
    sources = [source for source in built.config.sources if not is_remote_address(source)]
    paths = [os.path.join(built.folder, os.path.expanduser(source)) for source in sources]
    return [path for path in paths if os.path.exists(path)]


class WindowTexts:
    """Decodes texts of files from the windows of a dataset."""

    def __init__(self, dataset: Dataset, rows_by_file: Mapping[FileKey, Sequence[int]]) -> None:
        """`rows_by_file` lists, for each file, the indexes of the rows that contain its windows."""
        self._dataset, self._rows_by_file = dataset, rows_by_file

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return self._dataset.tokenizer

    def text_of(self, row: FileRow) -> bytes | None:
        """Return the text of a file, or None if its complete text cannot be restored from its windows."""
        row_indexes = self._rows_by_file.get(row.key)
        if row.split is None or not row_indexes or not self._tokenizer.decodes_exactly:
            return None
        match join_windows(self._dataset, self._file_windows(row, row.split, row_indexes)):
            case [TokenSpan(start=0, ids=ids)]:
                text = self._tokenizer.decode(ids)
                return text if _has_digest_of(row, text) else None
        return None

    def _file_windows(self, row: FileRow, split: Split, row_indexes: Sequence[int]) -> Iterator[WindowWithIds]:
        for index in row_indexes:
            read = read_row(self._dataset, split, index)
            for window in read.windows:
                if window.file == row.key and not window.variant:
                    yield read.with_ids(window)
