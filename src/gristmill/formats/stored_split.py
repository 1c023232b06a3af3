"""Rows of a split in any format, as JSON lines, in sequence or by row index."""

import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO

from gristmill.core.errors import DatasetError, OutputError
from gristmill.core.manifest import OpenedBuild, guard_reading
from gristmill.core.names import counted
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.format import SplitReader, format_folder, get_format
from gristmill.formats.jsonl import JsonlFile
from gristmill.formats.jsonl_rows import format_lines
from gristmill.formats.zstd import ZstdJsonlFile

ROWS_AT_ONCE = 256
MAX_CACHED_READERS = 8

Stamp = tuple[tuple[str, int, int], ...]
"""Names, sizes and modification times of the files of a split."""


class StoredSplit:
    """Reader of one split in one format.

    Access by index reads and caches a batch of rows around the requested row, because the next request is often for a
    row nearby. Several threads may share a reader.
    """

    def __init__(
        self,
        dataset: Path,
        name: str,
        split: Split,
        schema: Schema,
        num_rows: int,
        *,
        edition: OpenedBuild | None = None,
    ) -> None:
        """`edition` is the build that the split belongs to. Reading fails if a later build has replaced the dataset."""
        self.dataset, self.name, self.split, self.schema, self._num_rows = dataset, name, split, schema, num_rows
        self._edition = edition
        self.path = format_folder(dataset, name) / split
        self._step = schema.num_rows_at_once(ROWS_AT_ONCE)
        self._reader: SplitReader | None = None
        self._lock = threading.Lock()
        self._cached: tuple[int, list[bytes]] = (-1, [])

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self), self._step):
            yield from self.lines(start, min(start + self._step, len(self)))

    def __getitem__(self, row: int) -> bytes:
        number, cached = row // self._step, self._cached
        if cached[0] != number:
            start = number * self._step
            self._cached = cached = (number, self.lines(start, min(start + self._step, len(self))))
        return cached[1][row % self._step]

    def lines(self, start: int, stop: int) -> list[bytes]:
        """Return the rows `start` to `stop - 1` as lines of a JSONL file."""
        return format_lines(self.read(start, stop), self.schema)

    def read(self, start: int, stop: int) -> WindowBatch:
        with self._lock, guard_reading(self._edition):
            if self._reader is None:
                self._reader = self._open()
            return self._reader.read(start, stop)

    def opened(self) -> "StoredSplit":
        """Open the split and return self.

        Raises DatasetError if the split cannot be opened, or if its number of rows differs from the manifest.
        """
        self._reader = self._open()
        return self

    def _open(self) -> SplitReader:
        folder = format_folder(self.dataset, self.name)
        try:
            reader = _cached_reader(folder, self.name, self.split, self.schema, _stamp(folder, self.split))
        except OSError as error:
            raise DatasetError(f"cannot read {str(self.path)!r}: {error.strerror or error}.") from None
        if len(reader) != self._num_rows:
            raise DatasetError(
                f"{str(self.path)!r} is damaged: it has {counted(len(reader), 'row')}, but the manifest records "
                f"{self._num_rows}. Build the dataset again."
            )
        return reader

    def __reduce__(self) -> tuple[Callable[..., "StoredSplit"], tuple[Path, str, Split, Schema, int]]:
        """Pickle only the arguments of the constructor, because an open reader cannot be pickled."""
        factory = partial(StoredSplit, edition=self._edition)
        return factory, (self.dataset, self.name, self.split, self.schema, self._num_rows)


@lru_cache(maxsize=MAX_CACHED_READERS)
def _cached_reader(folder: Path, name: str, split: Split, schema: Schema, _: Stamp) -> SplitReader:
    """Open a split. The reader is cached, because many tasks of a process read the same split."""
    format_ = get_format(name)
    format_.require()
    return format_.open(folder, split, schema)


def _stamp(folder: Path, split: Split) -> Stamp:
    """Return the stamp of a split's files.

    Raises DatasetError if a folder is a symbolic link, or if a file is not a regular file.
    """
    entries: list[tuple[str, int, int]] = []
    for directory, start in ((folder, split), (folder / split, "")):
        if directory.is_symlink():
            raise DatasetError(
                f"{str(directory)!r} is a symbolic link, which no build creates. Remove it and build the dataset again."
            )
        for name in os.listdir(directory) if directory.is_dir() else ():
            if not name.startswith(start) or not os.path.lexists(directory / name):
                continue
            status = (directory / name).stat()
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                raise DatasetError(
                    f"{str(directory / name)!r} is not a regular file. Remove it and build the dataset again."
                )
            entries.append((name, status.st_size, status.st_mtime_ns))
    return tuple(sorted(entries))


# Fast access by row index for compressed JSONL and for all other formats, in which reading one row means decoding many.
# All rows are written once to a file on disk, as JSON lines. Afterwards, reading a row takes microseconds.

CompressedRows = ZstdJsonlFile | StoredSplit


class UnpackedJsonlFile(JsonlFile):
    """Reader by row index. The first access by index writes all rows as JSON lines to a temporary file."""

    def __init__(self, compressed: CompressedRows) -> None:
        super().__init__(compressed.path, len(compressed))
        self._compressed = compressed

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._compressed)

    def __getstate__(self) -> CompressedRows:  # type: ignore[override]
        return self._compressed

    def __setstate__(self, state: CompressedRows) -> None:  # type: ignore[override]
        self.__init__(state)  # type: ignore[misc]

    def _content(self) -> BinaryIO:
        stream = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            stream.writelines(self._compressed)
            stream.flush()
        except OSError as error:
            stream.close()
            raise OutputError(
                f"cannot unpack {str(self._path)!r} into {tempfile.gettempdir()!r}: {error.strerror}. "
                "Set TMPDIR to a folder with more free space, or read with streaming=True."
            ) from None
        return stream
