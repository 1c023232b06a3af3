"""JSON Lines files, plain or compressed: readers by row index, and a writer for batches of rows.

`gristmill export` and builds with --pack use this writer. Builds without --pack instead compute the position of each
group of rows in the file, so that several workers can write the file at once (pipeline.pieces).
"""

import mmap
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from gristmill.core.errors import DatasetError
from gristmill.core.manifest import OpenedBuild, guard_reading, open_data_file
from gristmill.core.names import counted
from gristmill.core.partition import consecutive_groups, stable_groups
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.format import Format, Target, find_files, name_rows
from gristmill.formats.jsonl_rows import format_lines, parse_lines
from gristmill.formats.zstd import Frame, ZstdJsonlFile, compress_rows, encode_table, read_table
from gristmill.windows.cut import Indices

COUNT_BUFFER_BYTES = 1 << 22
PIECE_BYTES = 1 << 20
SCAN_BUFFER_BYTES = 1 << 24


def write_jsonl(batches: Iterable[WindowBatch], target: Target) -> list[str]:
    """Write one file of a split and return its name."""
    name = target.file_name(".jsonl" if target.compressed_piece_bytes is None else ".jsonl.zst")
    with (target.folder / name).open("wb") as stream:
        if target.compressed_piece_bytes is None:
            stream.writelines(line for batch in batches for line in format_lines(batch, target.schema))
        else:
            stream.writelines(_compress_pieces(_pieces(batches, target.schema, target.compressed_piece_bytes)))
    return [name]


def max_piece_bytes(shard_bytes: int) -> int:
    """Return the maximum size of a piece in bytes, before compression.

    A piece is a group of consecutive rows that a build formats, compresses and writes together. If rows are not packed,
    the mean size is half of the maximum. A worker needs memory for a few times the maximum. Larger pieces compress
    slightly better, but more bytes have to be rewritten after a change.
    """
    return min(PIECE_BYTES, shard_bytes)


class _Document(NamedTuple):
    name: str
    lines: list[bytes]

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.lines))


def _pieces(batches: Iterable[WindowBatch], schema: Schema, limit: int) -> Iterator[list[bytes]]:
    """Divide rows into the same pieces as a build.

    The path and size of a document determine whether it begins a new piece, so that a changed document affects only
    nearby pieces. Packed rows are divided by size only.
    """
    if schema.is_packed:
        yield from consecutive_groups((line for batch in batches for line in format_lines(batch, schema)), len, limit)
        return
    for piece in stable_groups(_documents(batches, schema), attrgetter("name"), attrgetter("num_bytes"), limit):
        yield [line for document in piece for line in document.lines]


def _documents(batches: Iterable[WindowBatch], schema: Schema) -> Iterator[_Document]:
    """Yield the documents: the lines of each file, and of each variant of a file."""
    rows = ((key, line) for batch in batches for key, line in _keyed_lines(batch, schema))
    for (_, path, _), group in groupby(rows, key=itemgetter(0)):
        yield _Document(path, [line for _, line in group])


def _keyed_lines(batch: WindowBatch, schema: Schema) -> Iterator[tuple[tuple[str, str, str], bytes]]:
    columns = batch.columns
    variants = columns.get("variant", [""] * len(batch))
    return zip(zip(columns["repo"], columns["path"], variants, strict=True), format_lines(batch, schema), strict=True)


def _compress_pieces(pieces: Iterable[list[bytes]]) -> Iterator[bytes]:
    """Yield each piece, compressed to zstd frames, and finally the table of all frames (see formats.zstd)."""
    frames: list[Frame] = []
    for piece in pieces:
        content, new_frames = compress_rows(piece)
        frames += new_frames
        yield content
    yield encode_table(frames)


class JsonlFile:
    """Reader of one JSONL file, line by line or by row index. The first access by index finds the start of each row."""

    def __init__(self, path: Path, num_rows: int, edition: OpenedBuild | None = None) -> None:
        """`edition` is the build that the file belongs to. Reading fails if a later build has replaced the dataset."""
        self._path, self._num_rows, self._edition = path, num_rows, edition
        self._map: mmap.mmap | None = None
        self._starts: Indices | None = None

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[bytes]:
        num_rows = 0
        with open_data_file(self._path, self._edition) as stream:
            for row in stream:
                num_rows += 1
                yield row
        self._require_num_rows(num_rows)

    def __getitem__(self, row: int) -> bytes:
        if self._map is None or self._starts is None:
            with guard_reading(self._edition), self._content() as stream:
                if not os.fstat(stream.fileno()).st_size:
                    self._require_num_rows(0)
                content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            self._map = content
            self._starts = find_row_starts(self._map)
            self._require_num_rows(len(self._starts) - 1)
        start, end = self._starts[row : row + 2].tolist()
        return self._map[start:end]

    def _content(self) -> BinaryIO:
        return open_plain(self._path)

    def __getstate__(self) -> tuple[Path, int, OpenedBuild | None]:
        """Pickle only the arguments of the constructor, because a memory map cannot be pickled."""
        return self._path, self._num_rows, self._edition

    def __setstate__(self, state: tuple[Path, int, OpenedBuild | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def _require_num_rows(self, found: int) -> None:
        if found != self._num_rows:
            raise DatasetError(
                f"{str(self._path)!r} is damaged: it has {counted(found, 'row')}, but the manifest records "
                f"{self._num_rows}. Build the dataset again."
            )


def find_row_starts(content: mmap.mmap) -> Indices:
    """Return the offset of each row, followed by the offset after the last line feed."""
    starts = [np.zeros(1, np.int64)]
    for offset in range(0, len(content), SCAN_BUFFER_BYTES):
        part = np.frombuffer(content[offset : offset + SCAN_BUFFER_BYTES], np.uint8)
        starts.append(np.flatnonzero(part == ord("\n")) + (offset + 1))
    return np.concatenate(starts)


class JsonlReader:
    """Reader of a split in one or more JSONL files."""

    def __init__(self, folder: Path, split: Split, schema: Schema) -> None:
        self._folder, self._split, self._schema = folder, split, schema
        paths = find_files(folder, split, ".jsonl") or find_files(folder, split, ".jsonl.zst")
        self._files = [_open_file(path) for path in paths]
        self._first_rows = [0, *accumulate(map(len, self._files))]

    def __len__(self) -> int:
        return self._first_rows[-1]

    def read(self, start: int, stop: int) -> WindowBatch:
        try:
            return parse_lines(list(self._lines(start, stop)), self._schema)
        except ValueError as error:
            raise DatasetError(
                f"cannot read {name_rows(start, stop)} of {self._split} in {str(self._folder)!r}: {error}. "
                "Build the dataset again."
            ) from None

    def _lines(self, start: int, stop: int) -> Iterator[bytes]:
        for row in range(start, stop):
            file_index = bisect_right(self._first_rows, row) - 1
            yield self._files[file_index][row - self._first_rows[file_index]]


def _open_file(path: Path) -> JsonlFile | ZstdJsonlFile:
    try:
        if path.suffix == ".zst":
            return ZstdJsonlFile(path, sum(frame.num_rows for frame in read_table(path)))
        with open_plain(path) as stream:
            num_rows = sum(part.count(b"\n") for part in iter(lambda: stream.read(COUNT_BUFFER_BYTES), b""))
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    return JsonlFile(path, num_rows)


JSONL = Format(name="jsonl", rows_per_task=None, write=write_jsonl, open=JsonlReader)
