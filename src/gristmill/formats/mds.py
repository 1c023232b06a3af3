"""MDS, the format of MosaicML Streaming, which `streaming.StreamingDataset(local="mds/train")` reads.

This module does not use mosaicml-streaming (0.13), which needs the SDKs of five cloud providers, transformers<5 and
numpy<2.2. The last two conflict with the versions that training needs. The files have the same bytes as those of
mosaicml-streaming's MDSWriter for the same columns, and a test compares them. The index has no digests, because the
manifest has a digest of each file.

    mds/train/index.json, shard.00000.mds, shard.00001.mds …

    input_ids                      array of uint16, or of uint32 if the vocabulary has more than 65,536 ids
    lines, labels, segment_ids …   array of int32
    attention_mask                 array of uint8
    path, text …                   str
    start, fresh …                 int
    weight                         float64
    segments                       JSON

Embedding layers need `input_ids` as int64.
"""

import json
from collections.abc import Iterable
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
VERSION = 2
ENCODINGS = {Kind.TEXT: "str", Kind.NUMBER: "int", Kind.FRACTION: "float64", Kind.OBJECTS: "json"}


def write_mds(batches: Iterable[WindowBatch], target: Target) -> list[str]:
    config, layout = _config_and_layout(target.schema)
    return _write(encode_batches(batches, target.schema, layout), target, config, layout)


def join_mds(pieces: Iterable[Path], target: Target) -> list[str]:
    config, layout = _config_and_layout(target.schema)
    readers = (_open(piece / target.split, target.schema, config, layout) for piece in pieces)
    return _write((rows for reader in readers for rows in reader.encoded_rows()), target, config, layout)


def _write(rows: Iterable[EncodedRows], target: Target, config: dict[str, Any], layout: Layout) -> list[str]:
    folder = target.folder / target.split
    shards = write_chunks(rows, layout, lambda number: folder / _shard_name(number))
    if not shards:
        return []
    index = {"version": VERSION, "shards": [{**config, **_index_entry(shard)} for shard in shards]}
    (folder / INDEX).write_text(json.dumps(index, sort_keys=True))
    return [f"{target.split}/{name}" for name in (INDEX, *(shard.name for shard in shards))]


def open_mds(folder: Path, split: Split, schema: Schema) -> SplitReader:
    return _open(folder / split, schema, *_config_and_layout(schema))


def _open(folder: Path, schema: Schema, config: dict[str, Any], layout: Layout) -> ChunkReader:
    shards = _read_shards(folder / INDEX, config) if folder.exists() else []
    return ChunkReader(folder, shards, layout, schema)


def _config_and_layout(schema: Schema) -> tuple[dict[str, Any], Layout]:
    fields = tuple(sorted(make_fields(schema, schema.id_type), key=lambda field: field.name))
    config = {
        "version": VERSION,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": CHUNK_BYTES,
        "column_names": [field.name for field in fields],
        "column_encodings": [_encoding(field) for field in fields],
        "column_sizes": [_size(field) for field in fields],
    }
    header = json.dumps(config, sort_keys=True).encode()
    return config, Layout(
        fields, header, has_shapes=True, has_all_sizes=False, max_bytes=CHUNK_BYTES, limit_includes_table=True
    )


def _encoding(field: Field) -> str:
    return ENCODINGS.get(field.kind) or f"ndarray:{np.dtype(field.dtype).name}"


def _size(field: Field) -> int | None:
    return None if field.has_variable_size or field.dtype is None else field.dtype.itemsize


def _shard_name(number: int) -> str:
    return f"shard.{number:05}.mds"


def _index_entry(shard: Chunk) -> dict[str, Any]:
    """Return the entry of a shard in the index, without the configuration that all shards share."""
    raw = {"basename": shard.name, "bytes": shard.num_bytes, "hashes": {}}
    return {"samples": shard.num_rows, "raw_data": raw, "zip_data": None}


def _read_shards(path: Path, config: dict[str, Any]) -> list[Chunk]:
    match read_index(path):
        case {"version": 2, "shards": [*entries]}:
            return [_checked_shard(entry, number, config, path) for number, entry in enumerate(entries)]
    raise DatasetError(f"{str(path)!r} is not an index of MDS shards. Build the dataset again.")


def _checked_shard(entry: Any, number: int, config: dict[str, Any], path: Path) -> Chunk:
    """Check an entry of the index and return its shard.

    The entry must have the expected file name, so that it cannot point outside the folder.
    """
    match entry:
        case {"samples": int(num_rows), "raw_data": {"bytes": int(num_bytes)}}:
            shard = Chunk(_shard_name(number), num_rows, num_bytes)
            if entry == {**config, **_index_entry(shard)}:
                return shard
    raise DatasetError(
        f"{str(path)!r} is damaged: the entry of shard {number} does not match this dataset. Build the dataset again."
    )


MDS = Format(
    name="mds", write=write_mds, open=open_mds, has_own_writer=True, rows_per_task=rows_per_piece, join=join_mds
)
