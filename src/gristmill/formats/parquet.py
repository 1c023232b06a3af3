"""Parquet files with typed columns, compressed with zstd. Ids are stored without dictionary encoding.

Dictionary indices are bit-packed, so the compressor no longer recognizes the ids that two adjacent windows share. With
an overlap of 256, dictionary encoding makes files 1.6 times as large (benchmarks/write.md). Byte stream split and delta
encoding also give larger files, and not every reader supports these encodings. Columns with few distinct values, such
as the path, are dictionary-encoded.
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
from gristmill.formats.arrow_tables import (
    batch_from_table,
    convert_errors,
    empty_batch,
    import_pyarrow,
    make_tables,
    require_columns,
)
from gristmill.formats.batch import WindowBatch, concat_batches
from gristmill.formats.format import Format, Target, find_files

NAME, SUFFIX = "Parquet", ".parquet"
ZSTD_LEVEL = 3
"""Level 3 gives slightly smaller files than level 1 and takes slightly longer."""


def write(batches: Iterable[WindowBatch], target: Target) -> list[str]:
    """Write one file of a split and return its name."""
    name = target.file_name(SUFFIX)
    unfinished = target.folder / f"{name}{UNFINISHED}"
    with unfinished.open("wb") as stream:
        _write_to(stream, batches, target.schema)
    os.replace(unfinished, target.folder / name)
    return [name]


def num_parquet_bytes(batches: Iterable[WindowBatch], schema: Schema) -> int:
    """Return the size of these rows as one Parquet file."""
    pa, _ = _import_parquet()
    sink = pa.BufferOutputStream()
    _write_to(sink, batches, schema)
    return int(sink.getvalue().size)


def _write_to(sink: Any, batches: Iterable[WindowBatch], schema: Schema) -> None:
    pa, parquet = _import_parquet()
    table_schema, tables = make_tables(pa, batches, schema)
    with parquet.ParquetWriter(sink, table_schema, **write_options(schema)) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=len(table))


def write_options(schema: Schema) -> dict[str, Any]:
    """Return the options of ParquetWriter.

    Readers that filter by path or start use statistics to skip row groups. Statistics of ids and long texts would be
    useless.
    """
    repetitive_columns = [name for name in schema.columns_without_ids if COLUMNS[name].has_few_values]
    number_columns = [name for name in schema.columns_without_ids if COLUMNS[name].kind in {Kind.NUMBER, Kind.FRACTION}]
    return {
        "compression": "zstd",
        "compression_level": ZSTD_LEVEL,
        "use_dictionary": repetitive_columns or False,
        "write_statistics": repetitive_columns + number_columns or False,
        "write_page_index": True,  # a row group of long windows has several pages, and a viewer needs only one
        "write_page_checksum": True,
    }


class _ParquetFile(NamedTuple):
    path: Path
    metadata: Any
    first_rows: list[int]
    """Index of the first row of each row group, followed by the number of rows in the file."""


class ParquetRows:
    """Reader of a split. Reads only row groups with requested rows. Keeps no file open, so that it can be pickled."""

    def __init__(self, folder: Path, split: Split, schema: Schema) -> None:
        self._schema = schema
        self._files = [_open_file(path, schema) for path in find_files(folder, split, SUFFIX)]
        self._first_rows = [0, *accumulate(file.first_rows[-1] for file in self._files)]

    def __len__(self) -> int:
        return self._first_rows[-1]

    def read(self, start: int, stop: int) -> WindowBatch:
        parts = [
            _read_rows(file, max(start - first, 0), min(stop - first, file.first_rows[-1]), self._schema)
            for file, first in zip(self._files, self._first_rows, strict=False)
            if first < stop and start < min(stop, first + file.first_rows[-1])
        ]
        return concat_batches(parts) if parts else empty_batch(import_pyarrow(NAME), self._schema)


def _open_file(path: Path, schema: Schema) -> _ParquetFile:
    pa, parquet = _import_parquet()
    with convert_errors(pa, path), parquet.ParquetFile(path) as file:
        require_columns(pa, file.schema_arrow, schema)
        counts = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
        if min(counts, default=0) < 0 or sum(counts) != file.metadata.num_rows:
            raise ValueError(
                f"its row groups have {counted(sum(counts), 'row')}, but its metadata records {file.metadata.num_rows}"
            )
        return _ParquetFile(path, file.metadata, [0, *accumulate(counts)])


def _read_rows(file: _ParquetFile, start: int, stop: int, schema: Schema) -> WindowBatch:
    pa, parquet = _import_parquet()
    groups = range(bisect_right(file.first_rows, start) - 1, bisect_left(file.first_rows, stop))
    options = {"metadata": file.metadata, "pre_buffer": False, "page_checksum_verification": True}
    with convert_errors(pa, file.path), parquet.ParquetFile(file.path, **options) as opened:
        table = opened.read_row_groups(groups, use_threads=False)
        if len(table) != file.first_rows[groups.stop] - file.first_rows[groups.start]:
            names = (
                f"row group {groups.start}" if len(groups) == 1 else f"row groups {groups.start} to {groups.stop - 1}"
            )
            raise ValueError(
                f"it has {counted(len(table), 'row')} in {names}, but its metadata records "
                f"{file.first_rows[groups.stop] - file.first_rows[groups.start]:,}"
            )
        return batch_from_table(table.slice(start - file.first_rows[groups.start], stop - start), schema)


def _import_parquet() -> tuple[Any, Any]:
    pa = import_pyarrow(NAME)
    from pyarrow import parquet  # noqa: PLC0415 - slow to import, and optional

    return pa, parquet


PARQUET = Format(name="parquet", write=write, open=ParquetRows, require=partial(import_pyarrow, NAME))
