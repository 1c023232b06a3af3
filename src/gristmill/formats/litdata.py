"""LitData chunks, which `litdata.StreamingDataset("litdata/train")` reads as one dict of columns per row.

This module does not use LitData's own writer. If a string in the first row is the path of an existing file, as the path
of a source file may be, that writer stores the column with a different type. It also writes the current time to the
index. Apart from these differences, this module writes the same bytes, and a test compares them.

    litdata/train/index.json, chunk-0-0.bin, chunk-0-1.bin …

    input_ids                      torch.uint16, or torch.int32 if the vocabulary has more than 65,536 ids
    lines, labels, segment_ids …   torch.int32
    attention_mask                 torch.uint8
    path, text …                   str
    start, fresh …                 int
    weight                         float
    segments                       str, to be parsed with json.loads

As torch.uint16, an id takes two bytes, a quarter of the size of an int64. If rows are padded (--pad), PyTorch's
default collate function can stack the rows of a batch. Embedding layers need `batch["input_ids"].long()`.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gristmill.core.columns import Kind
from gristmill.core.errors import DatasetError
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.chunks import (
    CHUNK_BYTES,
    COUNT_TYPE,
    Chunk,
    ChunkReader,
    EncodedRows,
    Field,
    Layout,
    encode_batches,
    make_fields,
    read_index,
    write_chunks,
)
from gristmill.formats.format import Format, SplitReader, Target, rows_per_piece

INDEX = "index.json"
DATA_FORMATS = {Kind.TEXT: "str", Kind.NUMBER: "int", Kind.FRACTION: "float", Kind.OBJECTS: "str"}
TORCH_TYPES = {"uint8": 11, "int32": 16, "uint16": 20}
"""LitData's codes for dtypes. LitData has no code for torch.uint32."""
SPEC_VERSION = 1
LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


def write_litdata(batches: Iterable[WindowBatch], target: Target) -> list[str]:
    layout = _layout(target.schema)
    return _write(encode_batches(batches, target.schema, layout), target, layout)


def join_litdata(pieces: Iterable[Path], target: Target) -> list[str]:
    layout = _layout(target.schema)
    readers = (_open(piece / target.split, target.schema, layout) for piece in pieces)
    return _write((rows for reader in readers for rows in reader.encoded_rows()), target, layout)


def _write(rows: Iterable[EncodedRows], target: Target, layout: Layout) -> list[str]:
    folder = target.folder / target.split
    digest = hashlib.sha256()
    chunks = write_chunks(rows, layout, lambda number: folder / _chunk_name(number), digest)
    if not chunks:
        return []
    # LitData downloads files again if updated_at changes. Here it is a digest, which changes only with the content.
    index = {"chunks": [*map(_index_entry, chunks)], "config": _config(layout), "updated_at": digest.hexdigest()}
    (folder / INDEX).write_text(json.dumps(index, sort_keys=True))
    return [f"{target.split}/{name}" for name in (INDEX, *(chunk.name for chunk in chunks))]


def open_litdata(folder: Path, split: Split, schema: Schema) -> SplitReader:
    return _open(folder / split, schema, _layout(schema))


def _open(folder: Path, schema: Schema, layout: Layout) -> ChunkReader:
    chunks = _read_chunks(folder / INDEX, _config(layout)) if folder.exists() else []
    return ChunkReader(folder, chunks, layout, schema)


def _layout(schema: Schema) -> Layout:
    id_type = np.uint16 if schema.id_type is np.uint16 else np.int32
    fields = make_fields(schema, id_type)
    return Layout(fields, b"", has_shapes=False, has_all_sizes=True, max_bytes=CHUNK_BYTES, limit_includes_table=False)


def _config(layout: Layout) -> dict[str, Any]:
    return {
        "chunk_bytes": layout.max_bytes,
        "chunk_size": None,
        "compression": None,
        "data_format": [*map(_data_format, layout.fields)],
        "data_spec": json.dumps([SPEC_VERSION, _spec([field.name for field in layout.fields])]),
        "encryption": None,
        "item_loader": "PyTreeLoader",
    }


def _data_format(field: Field) -> str:
    if field.kind is not Kind.NUMBERS or field.dtype is None:
        return DATA_FORMATS[field.kind]
    return f"no_header_tensor:{TORCH_TYPES[field.dtype.name]}"


def _spec(names: list[str]) -> dict[str, Any]:
    """Return the PyTree specification of a flat dict."""
    return {"type": "builtins.dict", "context": json.dumps(names), "children_spec": [LEAF] * len(names)}


def _chunk_name(number: int) -> str:
    return f"chunk-0-{number}.bin"


def _index_entry(chunk: Chunk) -> dict[str, Any]:
    return {"chunk_bytes": chunk.num_bytes, "chunk_size": chunk.num_rows, "dim": None, "filename": chunk.name}


def _read_chunks(path: Path, config: dict[str, Any]) -> list[Chunk]:
    match read_index(path):
        case {"chunks": [*entries], "config": found} if found == config:
            return [_checked_chunk(entry, number, path) for number, entry in enumerate(entries)]
    raise DatasetError(f"{str(path)!r} is not the index of this dataset's LitData chunks. Build the dataset again.")


def _checked_chunk(entry: Any, number: int, path: Path) -> Chunk:
    """Check an entry of the index and return its chunk.

    The entry must have the expected file name, so that it cannot point outside the folder.
    """
    match entry:
        case {"chunk_size": int(num_rows), "chunk_bytes": int(num_bytes)}:
            chunk = Chunk(_chunk_name(number), num_rows, num_bytes)
            if entry == _index_entry(chunk):
                return chunk
    raise DatasetError(
        f"{str(path)!r} is damaged: the entry of chunk {number} does not match this dataset. Build the dataset again."
    )


# A stream of ids for LitData's TokensLoader. The loader divides each chunk into blocks of the length that a training
# run needs.


def write_token_chunks(contents: Iterable[bytes], dtype: np.dtype[Any], folder: Path) -> None:
    """Write a stream of ids, given as bytes of `dtype`.

    Each chunk is stored as a single item. The loader divides it into blocks.
    """
    folder.mkdir()
    digest = hashlib.sha256()
    chunks: list[dict[str, Any]] = []
    header_bytes = 3 * COUNT_TYPE.itemsize
    for content in _rechunk(contents, (CHUNK_BYTES - header_bytes) // dtype.itemsize * dtype.itemsize):
        name, num_bytes = _chunk_name(len(chunks)), header_bytes + len(content)
        header = np.array([1, header_bytes, num_bytes], COUNT_TYPE).tobytes()
        with (folder / name).open("wb") as stream:
            stream.writelines((header, content))
        digest.update(content)
        chunks.append({**_index_entry(Chunk(name, 1, num_bytes)), "dim": len(content) // dtype.itemsize})
    config = {
        "chunk_bytes": CHUNK_BYTES,
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_tensor:{TORCH_TYPES[dtype.name]}"],
        "data_spec": json.dumps([SPEC_VERSION, LEAF]),
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    index = {"chunks": chunks, "config": config, "updated_at": digest.hexdigest()}
    (folder / INDEX).write_text(json.dumps(index, sort_keys=True))


def _rechunk(contents: Iterable[bytes], num_bytes: int) -> Iterator[bytes]:
    """Regroup bytes into pieces of `num_bytes`. The last piece has the remaining bytes."""
    pending = bytearray()
    for content in contents:
        pending += content
        while len(pending) >= num_bytes:
            yield bytes(pending[:num_bytes])
            del pending[:num_bytes]
    if pending:
        yield bytes(pending)


LITDATA = Format(
    name="litdata",
    write=write_litdata,
    open=open_litdata,
    has_own_writer=True,
    rows_per_task=rows_per_piece,
    join=join_litdata,
)
