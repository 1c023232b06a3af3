"""Parquet: one window a row, typed columns, zstd. Ids are stored as they are, not by way of a dictionary.

A dictionary's numbers are packed to bits, so that the ids that two neighbouring windows share no longer look alike to
the compressor: with overlap 256 that takes 1.6 times the room (benchmarks/write.md). Byte stream split and delta
encoding take more room too, and not every reader has them. Names, which repeat, go by a dictionary.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.core.columns import COLUMNS, Kind
from gristmill.core.layout import UNFINISHED
from gristmill.core.names import counted
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.arrow_tables import batch_of, import_pyarrow, no_rows, reading, require_kinds, tables_of
from gristmill.formats.batch import WindowBatch, joined
from gristmill.formats.format import Format, Target, files_of

NAME, SUFFIX = "Parquet", ".parquet"
ZSTD_LEVEL = 3
"""Against 1: somewhat smaller files, in somewhat more time."""


def write(batches: Iterable[WindowBatch], target: Target) -> list[str]:
    name = target.file_name(SUFFIX)
    unfinished = target.folder / f"{name}{UNFINISHED}"
    with unfinished.open("wb") as stream:
        _write_to(stream, batches, target.schema)
    os.replace(unfinished, target.folder / name)
    return [name]


def num_parquet_bytes(batches: Iterable[WindowBatch], schema: Schema) -> int:
    """What these rows take as one file."""
    pa, _ = _import_parquet()
    sink = pa.BufferOutputStream()
    _write_to(sink, batches, schema)
    return int(sink.getvalue().size)


def _write_to(sink: Any, batches: Iterable[WindowBatch], schema: Schema) -> None:
    pa, parquet = _import_parquet()
    kinds, tables = tables_of(pa, batches, schema)
    with parquet.ParquetWriter(sink, kinds, **write_options(schema)) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=len(table))


def write_options(schema: Schema) -> dict[str, Any]:
    """Statistics let a reader skip row groups, by path or start; those of ids and long texts are of no use."""
    names = [name for name in schema.others if COLUMNS[name].has_few_values]
    numbers = [name for name in schema.others if COLUMNS[name].kind in {Kind.NUMBER, Kind.FRACTION}]
    return {
        "compression": "zstd",
        "compression_level": ZSTD_LEVEL,
        "use_dictionary": names or False,
        "write_statistics": names + numbers or False,
        "write_page_index": True,  # of long windows a row group has several pages, of which a viewer needs one
        "write_page_checksum": True,
    }


class _File(NamedTuple):
    path: Path
    metadata: Any
    first_rows: list[int]
    """Of its row groups, and how many rows it has."""


class ParquetRows:
    """Only the row groups that are asked for are read. No file stays open, so that it travels to other processes."""

    def __init__(self, folder: Path, split: Split, schema: Schema) -> None:
        self._schema = schema
        self._files = [_opened(path, schema) for path in files_of(folder, split, SUFFIX)]
        self._first_rows = [0, *accumulate(file.first_rows[-1] for file in self._files)]

    def __len__(self) -> int:
        return self._first_rows[-1]

    def read(self, start: int, stop: int) -> WindowBatch:
        parts = [
            _read(file, max(start - first, 0), min(stop - first, file.first_rows[-1]), self._schema)
            for file, first in zip(self._files, self._first_rows, strict=False)
            if first < stop and start < min(stop, first + file.first_rows[-1])
        ]
        return joined(parts) if parts else no_rows(import_pyarrow(NAME), self._schema)


def _opened(path: Path, schema: Schema) -> _File:
    pa, parquet = _import_parquet()
    with reading(pa, path), parquet.ParquetFile(path) as file:
        require_kinds(pa, file.schema_arrow, schema)
        counts = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
        if min(counts, default=0) < 0 or sum(counts) != file.metadata.num_rows:
            raise ValueError(f"row groups of {counted(sum(counts), 'row')} are not {file.metadata.num_rows}")
        return _File(path, file.metadata, [0, *accumulate(counts)])


def _read(file: _File, start: int, stop: int, schema: Schema) -> WindowBatch:
    pa, parquet = _import_parquet()
    groups = range(bisect_right(file.first_rows, start) - 1, bisect_left(file.first_rows, stop))
    options = {"metadata": file.metadata, "pre_buffer": False, "page_checksum_verification": True}
    with reading(pa, file.path), parquet.ParquetFile(file.path, **options) as opened:
        table = opened.read_row_groups(groups, use_threads=False)
        if len(table) != file.first_rows[groups.stop] - file.first_rows[groups.start]:
            raise ValueError(f"{counted(len(table), 'row')} in row groups {groups.start} to {groups.stop - 1}")
        return batch_of(table.slice(start - file.first_rows[groups.start], stop - start), schema)


def _import_parquet() -> tuple[Any, Any]:
    pa = import_pyarrow(NAME)
    from pyarrow import parquet  # noqa: PLC0415 - slow to import, and not always there

    return pa, parquet


PARQUET = Format(name="parquet", write=write, open=ParquetRows, require=partial(import_pyarrow, NAME))
