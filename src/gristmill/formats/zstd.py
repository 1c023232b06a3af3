"""Zstandard files of independent frames, so that a row can be read without decompressing all rows before it.

The file is a valid .zst file with two skippable frames at its end. The first skippable frame holds the number of rows
in each frame. The second is the seek table of the "Zstandard seekable format" (version 0.1.0), which other tools also
read:

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
from gristmill.core.manifest import OpenedBuild, guard_reading
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain

LEVEL = 3
FRAME_BYTES = 256 << 10
"""Uncompressed size at which a frame ends. A reader decompresses a complete frame to read one row."""
MAX_FRAME_BYTES = 1 << 30
"""Maximum uncompressed size of a frame. No valid frame is larger: a frame ends with the row that reaches FRAME_BYTES,
and rows are much shorter than this limit."""
SKIPPABLE_ROWS = 0x184D2A5D
SKIPPABLE_SEEK_TABLE = 0x184D2A5E
SEEKABLE_MAGIC = 0x8F92EAB1
SKIPPABLE_HEAD = struct.Struct("<II")
SEEK_ENTRY = struct.Struct("<II")
SEEK_FOOT = struct.Struct("<IBI")


class Frame(NamedTuple):
    """Compressed size and uncompressed size of one frame in bytes, and its number of rows."""

    num_compressed: int
    num_bytes: int
    num_rows: int


def compress_rows(rows: Sequence[bytes]) -> tuple[bytes, list[Frame]]:
    """Compress rows. Return the concatenated frames and the sizes of each frame. The same rows give the same bytes."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
    compressed: list[bytes] = []
    frames: list[Frame] = []
    pending: list[bytes] = []
    size = 0
    for index, row in enumerate(rows):
        pending.append(row)
        size += len(row)
        if size >= FRAME_BYTES or index == len(rows) - 1:
            compressed.append(compressor.compress(b"".join(pending)))
            frames.append(Frame(len(compressed[-1]), size, len(pending)))
            pending, size = [], 0
    return b"".join(compressed), frames


def encode_table(frames: Sequence[Frame]) -> bytes:
    """Return the two skippable frames at the end of the file."""
    rows = b"".join(frame.num_rows.to_bytes(4, "little") for frame in frames)
    entries = b"".join(SEEK_ENTRY.pack(frame.num_compressed, frame.num_bytes) for frame in frames)
    footer = SEEK_FOOT.pack(len(frames), 0, SEEKABLE_MAGIC)
    return b"".join(
        (
            SKIPPABLE_HEAD.pack(SKIPPABLE_ROWS, len(rows)),
            rows,
            SKIPPABLE_HEAD.pack(SKIPPABLE_SEEK_TABLE, len(entries) + len(footer)),
            entries,
            footer,
        )
    )


def read_table(path: Path) -> list[Frame]:
    """Read the sizes of all frames. Raises DatasetError if the table at the end of the file is damaged."""
    content_bytes = path.stat().st_size
    with open_plain(path) as stream:
        stream.seek(max(0, content_bytes - SEEK_FOOT.size))
        footer = stream.read()
        if len(footer) != SEEK_FOOT.size or SEEK_FOOT.unpack(footer)[2] != SEEKABLE_MAGIC:
            raise DatasetError(f"{str(path)!r} is damaged: its table of frames is missing. Build the dataset again.")
        count = SEEK_FOOT.unpack(footer)[0]
        table_bytes = SKIPPABLE_HEAD.size + count * SEEK_ENTRY.size + SEEK_FOOT.size
        rows_bytes = SKIPPABLE_HEAD.size + count * 4
        if table_bytes + rows_bytes > content_bytes:
            raise DatasetError(f"{str(path)!r} is damaged: its table of frames is truncated. Build the dataset again.")
        stream.seek(content_bytes - table_bytes - rows_bytes + SKIPPABLE_HEAD.size)
        rows = np.frombuffer(stream.read(count * 4), "<u4").tolist()
        stream.seek(SKIPPABLE_HEAD.size, 1)
        sizes: list[list[int]] = np.frombuffer(stream.read(count * SEEK_ENTRY.size), "<u4").reshape(count, 2).tolist()
    largest = max((size for _, size in sizes), default=0)
    if largest > MAX_FRAME_BYTES:
        raise DatasetError(
            f"{str(path)!r} is damaged: its table of frames records a frame of {counted(largest, 'byte')}, more than "
            f"the limit of {MAX_FRAME_BYTES:,}. Build the dataset again."
        )
    return [Frame(compressed, size, num) for (compressed, size), num in zip(sizes, rows, strict=True)]


class ZstdJsonlFile:
    """Reader of one .jsonl.zst file, line by line or by row index. Threads may share a reader.

    The last decompressed frame is cached.
    """

    def __init__(self, path: Path, num_rows: int, edition: OpenedBuild | None = None) -> None:
        """`edition` is the build that the file belongs to. Reading fails if a later build has replaced the dataset."""
        self.path, self._num_rows, self._edition = path, num_rows, edition
        self._frames: list[Frame] | None = None
        self._cached: tuple[int, list[bytes]] = (-1, [])

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[bytes]:
        for index in range(len(self._load_table())):
            yield from self._frame_rows(index)

    def __getitem__(self, row: int) -> bytes:
        self._load_table()
        index = int(np.searchsorted(self._first_rows, row, "right")) - 1
        return self._frame_rows(index)[row - int(self._first_rows[index])]

    def _load_table(self) -> list[Frame]:
        if self._frames is None:
            with guard_reading(self._edition):
                frames = read_table(self.path)
            num_rows = sum(frame.num_rows for frame in frames)
            if num_rows != self._num_rows:
                raise DatasetError(
                    f"{str(self.path)!r} is damaged: it has {counted(num_rows, 'row')}, but the manifest records "
                    f"{self._num_rows}. Build the dataset again."
                )
            self._first_rows = np.array([0, *accumulate(frame.num_rows for frame in frames)])
            self._offsets = [0, *accumulate(frame.num_compressed for frame in frames)]
            self._frames = frames
        return self._frames

    def _frame_rows(self, index: int) -> list[bytes]:
        cached = self._cached
        if cached[0] != index:
            with guard_reading(self._edition), open_plain(self.path) as stream:
                stream.seek(self._offsets[index])
                compressed = stream.read(self._load_table()[index].num_compressed)
            self._cached = cached = (index, self._decompress(compressed, index))
        return cached[1]

    def _decompress(self, compressed: bytes, index: int) -> list[bytes]:
        frame = self._load_table()[index]
        try:
            # A damaged frame header may claim any size, so compare it with the table before memory is allocated.
            if zstandard.frame_content_size(compressed) != frame.num_bytes:
                raise zstandard.ZstdError("the size in its header differs from the table of frames")
            rows = zstandard.ZstdDecompressor().decompress(compressed).splitlines(keepends=True)
        except zstandard.ZstdError as error:
            raise DatasetError(
                f"{str(self.path)!r} is damaged in frame {index}: {error}. Build the dataset again."
            ) from None
        if len(rows) != frame.num_rows:
            raise DatasetError(
                f"{str(self.path)!r} is damaged in frame {index}: the frame has {counted(len(rows), 'row')}, but the "
                f"table of frames records {frame.num_rows}. Build the dataset again."
            )
        return rows
