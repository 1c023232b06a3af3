"""`megatron`: the token stream of `bin`, with the index that Megatron-Core's IndexedDataset reads.

Each document, or with --pack each row, is one sequence. train.idx is little-endian and has these parts:

    "MMIDIDX" and two zero bytes
    version (uint64), type code of the ids (uint8), number of sequences (uint64), number of document indices (uint64)
    length of each sequence (int32)
    offset of each sequence in train.bin, in bytes (int64)
    first sequence of each document, followed by the number of sequences (int64)
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.core.errors import OutputError
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain
from gristmill.core.schema import Schema
from gristmill.formats.arrays import damage_error, map_part, no_header
from gristmill.formats.token_streams import StreamFiles, id_dtype, stream_format
from gristmill.windows.cut import Indices

HEADER = struct.Struct("<9sQBQQ")
MAGIC = b"MMIDIDX\0\0"
VERSION = 1
TYPE_CODES = {np.dtype("<u2"): 8, np.dtype("<i4"): 4}
BYTES_PER_SEQUENCE = 4 + 8
MAX_SEQUENCE_IDS = 2**31 - 1
"""Maximum number of ids in a sequence. The index stores the number as int32."""


def _stream_dtype(schema: Schema) -> np.dtype[Any]:
    """Return the dtype of ids in the stream. Megatron has no uint32, so int32 replaces it."""
    dtype = id_dtype(schema)
    return dtype if dtype in TYPE_CODES else np.dtype("<i4")


def _write_index(path: Path, ends: Indices, dtype: np.dtype[Any]) -> None:
    starts = np.concatenate((np.zeros(1, np.int64), ends))[:-1]
    lengths = ends - starts
    if int(lengths.max(initial=0)) > MAX_SEQUENCE_IDS:
        raise OutputError(
            f"a document of {int(lengths.max())} tokens is too long for {path.name!r}: the limit of megatron is "
            f"{MAX_SEQUENCE_IDS} tokens. Exclude the file with --exclude, or leave out the format megatron."
        )
    with path.open("wb") as stream:
        stream.write(HEADER.pack(MAGIC, VERSION, TYPE_CODES[dtype], len(ends), len(ends) + 1))
        stream.write(lengths.astype("<i4").tobytes())
        stream.write((starts * dtype.itemsize).astype("<i8", copy=False).tobytes())
        stream.write(np.arange(len(ends) + 1, dtype="<i8").tobytes())


def _read_num_ids(path: Path, dtype: np.dtype[Any]) -> int:
    """Check the index and return the total number of ids in all sequences."""
    try:
        size = path.stat().st_size
        with open_plain(path) as stream:
            header = stream.read(HEADER.size)
    except OSError as error:
        raise damage_error(path, error.strerror or str(error)) from None
    if len(header) < HEADER.size:
        raise damage_error(path, f"it is truncated after {counted(len(header), 'byte')}")
    magic, version, code, num_sequences, num_documents = HEADER.unpack(header)
    if (magic, version, code, num_documents) != (MAGIC, VERSION, TYPE_CODES[dtype], num_sequences + 1):
        raise damage_error(path, f"its header is not that of an index for {dtype.name} ids")
    if size != HEADER.size + num_sequences * BYTES_PER_SEQUENCE + num_documents * 8:
        raise damage_error(
            path,
            f"its size, {counted(size, 'byte')}, is not that of an index of {counted(num_sequences, 'sequence')}",
        )
    if not num_sequences:
        return 0
    after_lengths = HEADER.size + num_sequences * 4
    last_length = int(map_part(path, np.dtype("<i4"), after_lengths - 4, 1)[0])
    last_start = int(map_part(path, np.dtype("<i8"), after_lengths + (num_sequences - 1) * 8, 1)[0])
    num_ids, rest = divmod(last_start, dtype.itemsize)
    if rest:
        raise damage_error(path, f"its last sequence begins inside an id, at byte {last_start}")
    return num_ids + last_length


def _read_index(path: Path, _dtype: np.dtype[Any]) -> Indices:
    """Return the end of each sequence in the stream."""
    num_sequences = (path.stat().st_size - HEADER.size - 8) // (BYTES_PER_SEQUENCE + 8)
    return np.cumsum(map_part(path, np.dtype("<i4"), HEADER.size, num_sequences), dtype=np.int64)


FILES = StreamFiles(".bin", ".idx", no_header, _stream_dtype, _write_index, _read_num_ids, _read_index)
MEGATRON = stream_format("megatron", FILES)
