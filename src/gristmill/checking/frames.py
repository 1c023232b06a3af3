"""A .jsonl.zst as it must be: frames that fill the file up to their table, each one frame of the size and rows stated.

The build's reader goes by the table alone; here nothing may stand between what the table names.
"""

import struct
from itertools import accumulate, pairwise
from typing import BinaryIO, NamedTuple

import zstandard

from gristmill.errors import DatasetError
from gristmill.formats.zstd import (
    SEEK_ENTRY,
    SEEK_FOOT,
    SEEKABLE_MAGIC,
    SKIPPABLE_HEAD,
    SKIPPABLE_ROWS,
    SKIPPABLE_SEEK_TABLE,
)
from gristmill.naming import counted

ROW_COUNT = struct.Struct("<I")
LARGEST_FRAME_BYTES = 64 << 20
"""A frame is full at a quarter of a megabyte, and the longest row has sixteen."""


class StatedFrame(NamedTuple):
    start: int
    end: int
    num_bytes: int
    num_rows: int


def stated_frames(stream: BinaryIO) -> list[StatedFrame]:
    """What the table says, where it lies exactly behind the last frame; raises DatasetError."""
    size = stream.seek(0, 2)
    foot = _read(stream, size - SEEK_FOOT.size, SEEK_FOOT.size)
    count, flags, magic = SEEK_FOOT.unpack(foot)
    sizes_bytes, rows_bytes = count * SEEK_ENTRY.size, count * ROW_COUNT.size
    table_start = size - 2 * SKIPPABLE_HEAD.size - rows_bytes - sizes_bytes - SEEK_FOOT.size
    if (flags, magic) != (0, SEEKABLE_MAGIC) or table_start < 0:
        raise DatasetError("its table of frames is missing or cut short")
    table = _read(stream, table_start, size - table_start)
    sizes_start = 2 * SKIPPABLE_HEAD.size + rows_bytes
    heads = table[: SKIPPABLE_HEAD.size], table[sizes_start - SKIPPABLE_HEAD.size : sizes_start]
    if heads != (
        SKIPPABLE_HEAD.pack(SKIPPABLE_ROWS, rows_bytes),
        SKIPPABLE_HEAD.pack(SKIPPABLE_SEEK_TABLE, sizes_bytes + SEEK_FOOT.size),
    ):
        raise DatasetError("its table of frames is none")
    rows = ROW_COUNT.iter_unpack(table[SKIPPABLE_HEAD.size : SKIPPABLE_HEAD.size + rows_bytes])
    sizes = list(SEEK_ENTRY.iter_unpack(table[sizes_start : sizes_start + sizes_bytes]))
    edges = [0, *accumulate(num_compressed for num_compressed, _ in sizes)]
    if edges[-1] != table_start:
        raise DatasetError(f"its table names {edges[-1]} bytes of frames, and {table_start} stand before it")
    places = zip(pairwise(edges), sizes, rows, strict=True)
    return [StatedFrame(start, end, num_bytes, num_rows) for (start, end), (_, num_bytes), (num_rows,) in places]


def unpacked(stream: BinaryIO, frame: StatedFrame) -> bytes:
    """Raises DatasetError for anything but the one frame that the table states."""
    if frame.num_bytes > LARGEST_FRAME_BYTES:
        raise DatasetError(f"a frame of {counted(frame.num_bytes, 'byte')}")
    compressed = _read(stream, frame.start, frame.end - frame.start)
    try:
        # What a damaged head promises is not allocated.
        if not compressed.startswith(zstandard.FRAME_HEADER) or (
            zstandard.frame_content_size(compressed) != frame.num_bytes
        ):
            raise DatasetError("a frame is not of the size that the table of frames says")
        content = zstandard.ZstdDecompressor().decompress(compressed, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DatasetError(f"not one frame: {error}") from None
    num_rows = content.count(b"\n")
    if num_rows != frame.num_rows or not content.endswith(b"\n"):
        raise DatasetError(f"a frame of {counted(num_rows, 'whole row')}, the table says {frame.num_rows}")
    return content


def _read(stream: BinaryIO, start: int, num_bytes: int) -> bytes:
    if start < 0:
        raise DatasetError("its table of frames is missing or cut short")
    stream.seek(start)
    return stream.read(num_bytes)
