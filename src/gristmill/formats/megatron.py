"""`megatron`: the stream of `bin` with the index that Megatron-Core's IndexedDataset reads, one sequence a document.

train.idx, little-endian: "MMIDIDX" and two zero bytes, version (uint64), code of the ids' type (uint8), number of
sequences and of document indices (uint64 each); then of each sequence its length (int32), of each where it begins in
train.bin (int64, in bytes), and the number of the first sequence of each document and of the end (int64).
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.core.errors import OutputError
from gristmill.core.plain_files import open_plain
from gristmill.core.schema import Schema
from gristmill.formats.arrays import damaged, map_part, no_head
from gristmill.formats.token_streams import StreamFiles, id_kind, stream_format
from gristmill.windows.cut import Indices

HEAD = struct.Struct("<9sQBQQ")
MAGIC = b"MMIDIDX\0\0"
VERSION = 1
CODES = {np.dtype("<u2"): 8, np.dtype("<i4"): 4}
BYTES_PER_SEQUENCE = 4 + 8
MOST_IDS = 2**31 - 1
"""In a sequence."""


def _kind(schema: Schema) -> np.dtype[Any]:
    """It knows no uint32."""
    kind = id_kind(schema)
    return kind if kind in CODES else np.dtype("<i4")


def _write_index(path: Path, ends: Indices, kind: np.dtype[Any]) -> None:
    starts = np.concatenate((np.zeros(1, np.int64), ends))[:-1]
    lengths = ends - starts
    if int(lengths.max(initial=0)) > MOST_IDS:
        raise OutputError(
            f"a document of {int(lengths.max())} tokens is too long for {path.name!r}: megatron takes {MOST_IDS}. "
            "Leave out that file with --exclude, or the format megatron."
        )
    with path.open("wb") as stream:
        stream.write(HEAD.pack(MAGIC, VERSION, CODES[kind], len(ends), len(ends) + 1))
        stream.write(lengths.astype("<i4").tobytes())
        stream.write((starts * kind.itemsize).astype("<i8", copy=False).tobytes())
        stream.write(np.arange(len(ends) + 1, dtype="<i8").tobytes())


def _num_indexed(path: Path, kind: np.dtype[Any]) -> int:
    try:
        size = path.stat().st_size
        with open_plain(path) as stream:
            head = stream.read(HEAD.size)
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from None
    if len(head) < HEAD.size:
        raise damaged(path, f"it ends after {len(head)} bytes")
    magic, version, code, num_sequences, num_documents = HEAD.unpack(head)
    if (magic, version, code, num_documents) != (MAGIC, VERSION, CODES[kind], num_sequences + 1):
        raise damaged(path, f"its head is not that of {kind.name} ids")
    if size != HEAD.size + num_sequences * BYTES_PER_SEQUENCE + num_documents * 8:
        raise damaged(path, f"{size} bytes, which is not {num_sequences} sequences")
    if not num_sequences:
        return 0
    after_lengths = HEAD.size + num_sequences * 4
    last_length = int(map_part(path, np.dtype("<i4"), after_lengths - 4, 1)[0])
    last_start = int(map_part(path, np.dtype("<i8"), after_lengths + (num_sequences - 1) * 8, 1)[0])
    num_ids, rest = divmod(last_start, kind.itemsize)
    if rest:
        raise damaged(path, f"its last sequence begins within an id, at byte {last_start}")
    return num_ids + last_length


def _read_index(path: Path, _kind: np.dtype[Any]) -> Indices:
    num_sequences = (path.stat().st_size - HEAD.size - 8) // (BYTES_PER_SEQUENCE + 8)
    return np.cumsum(map_part(path, np.dtype("<i4"), HEAD.size, num_sequences), dtype=np.int64)


FILES = StreamFiles(".bin", ".idx", no_head, _kind, _write_index, _num_indexed, _read_index)
MEGATRON = stream_format("megatron", FILES)
