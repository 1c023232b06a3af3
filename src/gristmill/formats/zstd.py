"""Zstandard in independent frames, so that a row can be read without what stands before it.

The file is an ordinary .zst, with two skippable frames at its end: the rows in each frame, and the seek table of the
"Zstandard seekable format" (version 0.1.0), which other tools read too:

    frame, frame, …, [rows per frame: uint32 …], [compressed size, size: uint32, uint32 …, number of frames, 0, magic]
"""

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

from gristmill.core.errors import DatasetError
from gristmill.core.manifest import Edition, reading
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain

LEVEL = 3
FRAME_BYTES = 256 << 10
"""Rows are gathered into a frame until it has this size: what must be unpacked to reach one of them."""
MAX_FRAME_BYTES = 1 << 30
"""A frame ends with the row that fills it, and no row is near that long."""
SKIPPABLE_ROWS = 0x184D2A5D
SKIPPABLE_SEEK_TABLE = 0x184D2A5E
SEEKABLE_MAGIC = 0x8F92EAB1
SKIPPABLE_HEAD = struct.Struct("<II")
SEEK_ENTRY = struct.Struct("<II")
SEEK_FOOT = struct.Struct("<IBI")


class Frame(NamedTuple):
    num_compressed: int
    num_bytes: int
    num_rows: int


def compress_rows(rows: Sequence[bytes]) -> tuple[bytes, list[Frame]]:
    """Rows -> frames end to end, and the table of them. The same rows give the same bytes."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
    compressed: list[bytes] = []
    frames: list[Frame] = []
    gathered: list[bytes] = []
    size = 0
    for index, row in enumerate(rows):
        gathered.append(row)
        size += len(row)
        if size >= FRAME_BYTES or index == len(rows) - 1:
            compressed.append(compressor.compress(b"".join(gathered)))
            frames.append(Frame(len(compressed[-1]), size, len(gathered)))
            gathered, size = [], 0
    return b"".join(compressed), frames


def table_of(frames: Sequence[Frame]) -> bytes:
    """What stands at the end of the file."""
    rows = b"".join(frame.num_rows.to_bytes(4, "little") for frame in frames)
    entries = b"".join(SEEK_ENTRY.pack(frame.num_compressed, frame.num_bytes) for frame in frames)
    foot = SEEK_FOOT.pack(len(frames), 0, SEEKABLE_MAGIC)
    return b"".join(
        (
            SKIPPABLE_HEAD.pack(SKIPPABLE_ROWS, len(rows)),
            rows,
            SKIPPABLE_HEAD.pack(SKIPPABLE_SEEK_TABLE, len(entries) + len(foot)),
            entries,
            foot,
        )
    )


def read_table(path: Path) -> list[Frame]:
    content_bytes = path.stat().st_size
    with open_plain(path) as stream:
        stream.seek(max(0, content_bytes - SEEK_FOOT.size))
        foot = stream.read()
        if len(foot) != SEEK_FOOT.size or SEEK_FOOT.unpack(foot)[2] != SEEKABLE_MAGIC:
            raise DatasetError(f"{str(path)!r} is damaged: its table of frames is missing. Build the dataset again.")
        count = SEEK_FOOT.unpack(foot)[0]
        table_bytes = SKIPPABLE_HEAD.size + count * SEEK_ENTRY.size + SEEK_FOOT.size
        rows_bytes = SKIPPABLE_HEAD.size + count * 4
        if table_bytes + rows_bytes > content_bytes:
            raise DatasetError(f"{str(path)!r} is damaged: its table of frames is cut short. Build the dataset again.")
        stream.seek(content_bytes - table_bytes - rows_bytes + SKIPPABLE_HEAD.size)
        rows = np.frombuffer(stream.read(count * 4), "<u4").tolist()
        stream.seek(SKIPPABLE_HEAD.size, 1)
        sizes: list[list[int]] = np.frombuffer(stream.read(count * SEEK_ENTRY.size), "<u4").reshape(count, 2).tolist()
    if any(size > MAX_FRAME_BYTES for _, size in sizes):
        raise DatasetError(f"{str(path)!r} is damaged: its table of frames is none. Build the dataset again.")
    return [Frame(compressed, size, num) for (compressed, size), num in zip(sizes, rows, strict=True)]


class ZstdJsonlFile:
    """Reads rows of one .jsonl.zst, in order or by number; the frame last used is kept. Threads may share it."""

    def __init__(self, path: Path, num_rows: int, edition: Edition | None = None) -> None:
        """`edition`: the build it is of; no row of another in the same place is given."""
        self.path, self._num_rows, self._edition = path, num_rows, edition
        self._frames: list[Frame] | None = None
        self._kept: tuple[int, list[bytes]] = (-1, [])

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[bytes]:
        for index in range(len(self._table())):
            yield from self._rows_of(index)

    def __getitem__(self, row: int) -> bytes:
        self._table()
        index = int(np.searchsorted(self._first_rows, row, "right")) - 1
        return self._rows_of(index)[row - int(self._first_rows[index])]

    def _table(self) -> list[Frame]:
        if self._frames is None:
            with reading(self._edition):
                frames = read_table(self.path)
            found = sum(frame.num_rows for frame in frames)
            if found != self._num_rows:
                raise DatasetError(
                    f"{str(self.path)!r} is damaged: {counted(found, 'row')}, the manifest says {self._num_rows}."
                )
            self._first_rows = np.array([0, *accumulate(frame.num_rows for frame in frames)])
            self._offsets = [0, *accumulate(frame.num_compressed for frame in frames)]
            self._frames = frames
        return self._frames

    def _rows_of(self, index: int) -> list[bytes]:
        kept = self._kept
        if kept[0] != index:
            with reading(self._edition), open_plain(self.path) as stream:
                stream.seek(self._offsets[index])
                compressed = stream.read(self._table()[index].num_compressed)
            self._kept = kept = (index, self._rows_in(compressed, index))
        return kept[1]

    def _rows_in(self, compressed: bytes, index: int) -> list[bytes]:
        frame = self._table()[index]
        try:
            # What a damaged head promises is not allocated; the table is ours and says what to expect.
            if zstandard.frame_content_size(compressed) != frame.num_bytes:
                raise zstandard.ZstdError("not the size that the table says")
            rows = zstandard.ZstdDecompressor().decompress(compressed).splitlines(keepends=True)
        except zstandard.ZstdError as error:
            raise DatasetError(f"{str(self.path)!r} is damaged in frame {index}: {error}.") from None
        if len(rows) != frame.num_rows:
            raise DatasetError(f"{str(self.path)!r} is damaged in frame {index}: {counted(len(rows), 'row')}.")
        return rows
