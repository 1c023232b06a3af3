"""LitData's chunks, which `litdata.StreamingDataset("litdata/train")` reads: each row a dict of these columns.

Written by own code. LitData's writer looks whether the texts of the first row are files on this machine, as a path of
source code may be, and then stores that column as something else; and it puts the time into its index. Its chunks are
otherwise the same, byte by byte, and a test holds them against it.

    litdata/train/index.json, chunk-0-0.bin, chunk-0-1.bin …

    input_ids                      torch.uint16, or torch.int32 where the vocabulary is larger
    lines, labels, segment_ids …   torch.int32; attention_mask: torch.uint8
    path, text …; start, fresh …   str; int
    weight; segments               float; str, to be read with json.loads

Ids take two bytes, a quarter of int64: the collate function of torch stacks them where rows are padded (--pad), and an
embedding wants `batch["input_ids"].long()`.
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
    COUNT,
    Chunk,
    ChunkReader,
    EncodedRows,
    Field,
    Layout,
    encoded_batches,
    fields_of,
    read_index,
    write_chunks,
)
from gristmill.formats.format import Format, SplitReader, Target, rows_of_piece

INDEX = "index.json"
FORMATS = {Kind.TEXT: "str", Kind.NUMBER: "int", Kind.FRACTION: "float", Kind.OBJECTS: "str"}
TORCH_TYPES = {"uint8": 11, "int32": 16, "uint16": 20}
"""By which number LitData knows them. It has none for torch.uint32."""
SPEC_VERSION = 1
LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


def write_litdata(batches: Iterable[WindowBatch], target: Target) -> list[str]:
    layout = _layout(target.schema)
    return _write(encoded_batches(batches, target.schema, layout), target, layout)


def join_litdata(pieces: Iterable[Path], target: Target) -> list[str]:
    layout = _layout(target.schema)
    readers = (_open(piece / target.split, target.schema, layout) for piece in pieces)
    return _write((rows for reader in readers for rows in reader.encoded()), target, layout)


def _write(rows: Iterable[EncodedRows], target: Target, layout: Layout) -> list[str]:
    folder = target.folder / target.split
    digest = hashlib.sha256()
    chunks = write_chunks(rows, layout, lambda number: folder / _chunk_name(number), digest)
    if not chunks:
        return []
    # LitData keeps what it has fetched under this word, and fetches again when it is another: for us, other content.
    index = {"chunks": [*map(_told, chunks)], "config": _config(layout), "updated_at": digest.hexdigest()}
    (folder / INDEX).write_text(json.dumps(index, sort_keys=True))
    return [f"{target.split}/{name}" for name in (INDEX, *(chunk.name for chunk in chunks))]


def open_litdata(folder: Path, split: Split, schema: Schema) -> SplitReader:
    return _open(folder / split, schema, _layout(schema))


def _open(folder: Path, schema: Schema, layout: Layout) -> ChunkReader:
    chunks = _chunks(folder / INDEX, _config(layout)) if folder.exists() else []
    return ChunkReader(folder, chunks, layout, schema)


def _layout(schema: Schema) -> Layout:
    id_type = np.uint16 if schema.id_type is np.uint16 else np.int32
    fields = fields_of(schema, id_type)
    return Layout(fields, b"", has_shapes=False, has_all_sizes=True, max_bytes=CHUNK_BYTES, is_table_counted=False)


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
        return FORMATS[field.kind]
    return f"no_header_tensor:{TORCH_TYPES[field.dtype.name]}"


def _spec(names: list[str]) -> dict[str, Any]:
    """A dict whose values have no parts."""
    return {"type": "builtins.dict", "context": json.dumps(names), "children_spec": [LEAF] * len(names)}


def _chunk_name(number: int) -> str:
    return f"chunk-0-{number}.bin"


def _told(chunk: Chunk) -> dict[str, Any]:
    return {"chunk_bytes": chunk.num_bytes, "chunk_size": chunk.num_rows, "dim": None, "filename": chunk.name}


def _chunks(path: Path, config: dict[str, Any]) -> list[Chunk]:
    match read_index(path):
        case {"chunks": [*found], "config": told} if told == config:
            return [_chunk(chunk, number, path) for number, chunk in enumerate(found)]
    raise DatasetError(f"{str(path)!r} is no index of this dataset's LitData chunks. Build the dataset again.")


def _chunk(told: Any, number: int, path: Path) -> Chunk:
    """Under the name that it must have: none leads out of the folder."""
    match told:
        case {"chunk_size": int(num_rows), "chunk_bytes": int(num_bytes)}:
            chunk = Chunk(_chunk_name(number), num_rows, num_bytes)
            if told == _told(chunk):
                return chunk
    raise DatasetError(f"{str(path)!r} is damaged: chunk {number} is not of this dataset. Build the dataset again.")


# A stream of ids for LitData's TokensLoader, which cuts it into blocks as long as a training wants them. No block goes
# from one chunk into the next.


def write_token_chunks(contents: Iterable[bytes], kind: np.dtype[Any], folder: Path) -> None:
    """`contents`: the stream, as raw `kind`. A chunk is one item: only the loader's blocks count."""
    folder.mkdir()
    digest = hashlib.sha256()
    chunks: list[dict[str, Any]] = []
    head_bytes = 3 * COUNT.itemsize
    for content in _in_chunks(contents, (CHUNK_BYTES - head_bytes) // kind.itemsize * kind.itemsize):
        name, num_bytes = _chunk_name(len(chunks)), head_bytes + len(content)
        head = np.array([1, head_bytes, num_bytes], COUNT).tobytes()
        with (folder / name).open("wb") as stream:
            stream.writelines((head, content))
        digest.update(content)
        chunks.append({**_told(Chunk(name, 1, num_bytes)), "dim": len(content) // kind.itemsize})
    config = {
        "chunk_bytes": CHUNK_BYTES,
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_tensor:{TORCH_TYPES[kind.name]}"],
        "data_spec": json.dumps([SPEC_VERSION, LEAF]),
        "encryption": None,
        "item_loader": "TokensLoader",
    }
    index = {"chunks": chunks, "config": config, "updated_at": digest.hexdigest()}
    (folder / INDEX).write_text(json.dumps(index, sort_keys=True))


def _in_chunks(contents: Iterable[bytes], num_bytes: int) -> Iterator[bytes]:
    """The same bytes, so many at once; the last has what is left."""
    waiting = bytearray()
    for content in contents:
        waiting += content
        while len(waiting) >= num_bytes:
            yield bytes(waiting[:num_bytes])
            del waiting[:num_bytes]
    if waiting:
        yield bytes(waiting)


LITDATA = Format(
    name="litdata",
    write=write_litdata,
    open=open_litdata,
    is_all_ours=True,
    rows_per_task=rows_of_piece,
    join=join_litdata,
)
