"""The rows of a split in any format, as the JSON rows they are in JSONL: in order, or by number."""

import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO

from gristmill.core.errors import DatasetError, OutputError
from gristmill.core.manifest import Edition, reading
from gristmill.core.names import counted
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.format import SplitReader, folder_of, format_named
from gristmill.formats.jsonl import JsonlFile
from gristmill.formats.jsonl_rows import lines_of
from gristmill.formats.zstd import ZstdJsonlFile

ROWS_AT_ONCE = 256
READERS_KEPT = 8

Stamp = tuple[tuple[str, int, int], ...]
"""Names, sizes and times of what a reader reads."""


class StoredSplit:
    """By number, some rows around one that is asked for are read too and kept: the next is often beside it.

    Several threads may read at the same time.
    """

    def __init__(
        self, dataset: Path, name: str, split: Split, schema: Schema, num_rows: int, *, edition: Edition | None = None
    ) -> None:
        """`edition`: the build it is of; no row of another in the same place is given."""
        self.dataset, self.name, self.split, self.schema, self._num_rows = dataset, name, split, schema, num_rows
        self._edition = edition
        self.path = folder_of(dataset, name) / split
        self._step = schema.num_rows_at_once(ROWS_AT_ONCE)
        self._reader: SplitReader | None = None
        self._reading = threading.Lock()
        self._kept: tuple[int, list[bytes]] = (-1, [])

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self), self._step):
            yield from self.lines(start, min(start + self._step, len(self)))

    def __getitem__(self, row: int) -> bytes:
        number, kept = row // self._step, self._kept
        if kept[0] != number:
            start = number * self._step
            self._kept = kept = (number, self.lines(start, min(start + self._step, len(self))))
        return kept[1][row % self._step]

    def lines(self, start: int, stop: int) -> list[bytes]:
        return lines_of(self.read(start, stop), self.schema)

    def read(self, start: int, stop: int) -> WindowBatch:
        with self._reading, reading(self._edition):
            if self._reader is None:
                self._reader = self._opened()
            return self._reader.read(start, stop)

    def require(self) -> "StoredSplit":
        """Raises DatasetError where it cannot be opened, or has another number of rows."""
        self._reader = self._opened()
        return self

    def _opened(self) -> SplitReader:
        folder = folder_of(self.dataset, self.name)
        try:
            reader = _reader(folder, self.name, self.split, self.schema, _stamp(folder, self.split))
        except OSError as error:
            raise DatasetError(f"cannot read {str(self.path)!r}: {error.strerror or error}.") from None
        if len(reader) != self._num_rows:
            raise DatasetError(
                f"{str(self.path)!r} is damaged: {counted(len(reader), 'row')}, the manifest says {self._num_rows}. "
                "Build the dataset again."
            )
        return reader

    def __reduce__(self) -> tuple[Callable[..., "StoredSplit"], tuple[Path, str, Split, Schema, int]]:
        """An open file cannot travel to another process; it is opened again there."""
        make = partial(StoredSplit, edition=self._edition)
        return make, (self.dataset, self.name, self.split, self.schema, self._num_rows)


@lru_cache(maxsize=READERS_KEPT)
def _reader(folder: Path, name: str, split: Split, schema: Schema, _: Stamp) -> SplitReader:
    """Many tasks of a process read ranges of the same rows: where these begin is found once."""
    way = format_named(name)
    way.require()
    return way.open(folder, split, schema)


def _stamp(folder: Path, split: Split) -> Stamp:
    found: list[tuple[str, int, int]] = []
    for place, start in ((folder, split), (folder / split, "")):
        if place.is_symlink():
            raise DatasetError(f"{str(place)!r} is a link: it is not of the dataset. Remove it, and build again.")
        for name in os.listdir(place) if place.is_dir() else ():
            if not name.startswith(start) or not os.path.lexists(place / name):
                continue
            facts = (place / name).stat()
            if not stat.S_ISREG(facts.st_mode) and not stat.S_ISDIR(facts.st_mode):
                raise DatasetError(f"{str(place / name)!r} is not an ordinary file. Remove it, and build again.")
            found.append((name, facts.st_size, facts.st_mtime_ns))
    return tuple(sorted(found))


# Rows by number, within microseconds each, of a format that has to unpack many to give one: all of it, to disk,
# once.

Packed = ZstdJsonlFile | StoredSplit


class UnpackedJsonlFile(JsonlFile):
    def __init__(self, packed: Packed) -> None:
        super().__init__(packed.path, len(packed))
        self._packed = packed

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._packed)

    def __getstate__(self) -> Packed:  # type: ignore[override]
        return self._packed

    def __setstate__(self, state: Packed) -> None:  # type: ignore[override]
        self.__init__(state)  # type: ignore[misc]

    def _content(self) -> BinaryIO:
        stream = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            stream.writelines(self._packed)
            stream.flush()
        except OSError as error:
            stream.close()
            raise OutputError(
                f"cannot unpack {str(self._path)!r} into {tempfile.gettempdir()!r}: {error.strerror}. "
                "Set TMPDIR to a folder with more room, or read it with streaming=True."
            ) from None
        return stream
