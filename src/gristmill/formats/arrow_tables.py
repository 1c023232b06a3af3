"""Conversion between batches of rows and Arrow tables, for the formats that pyarrow writes.

List columns have the smallest sufficient integer type. For ids, this type depends on the vocabulary size. For other
lists, COLUMNS defines the type. A column with one integer per row is an int64.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill.core.columns import COLUMNS, IDS, MASK, SEGMENT_POSITION_KEYS, SEGMENTS, Kind
from gristmill.core.errors import DatasetError, MissingExtraError, OutputError
from gristmill.core.output_formats import FORMATS
from gristmill.core.plain_files import require_plain
from gristmill.core.schema import Schema
from gristmill.formats.batch import (
    ColumnValues,
    Ragged,
    WindowBatch,
    add_padding,
    rebatch,
    remove_padding,
    require_ids_fit,
)

ROWS_AT_ONCE = 1000
"""Maximum number of rows in a row group or record batch. A reader loads all rows of a group to get one row.

`datasets` also uses 1000. Groups of long windows have fewer rows, so that their ids take at most 16 MB. The Hub's
viewer rejects row groups of 286 MiB or more and is faster with small row groups, but each row group adds several
hundred bytes per column to the file footer."""
SEGMENT_KINDS = {
    **{name: column.kind for name, column in COLUMNS.items() if column.is_per_window},
    **dict.fromkeys(SEGMENT_POSITION_KEYS, Kind.NUMBER),
}

ArrowSchema = Any
Table = Any


def import_pyarrow(format_name: str) -> Any:
    """Import the optional dependency pyarrow. Raises MissingExtraError with the install command if it is missing."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and optional
    except ImportError:
        extra = FORMATS[format_name.lower()].extra
        raise MissingExtraError(f"{format_name} needs pyarrow: pip install 'gristmill[{extra}]'.") from None
    return pa


def make_tables(pa: Any, batches: Iterable[WindowBatch], schema: Schema) -> tuple[ArrowSchema, Iterator[Table]]:
    """Return an Arrow schema and an iterator of tables with this schema, each with up to ROWS_AT_ONCE rows."""
    groups = rebatch(batches, schema.num_rows_at_once(ROWS_AT_ONCE))
    first = list(islice(groups, 1))
    table_schema = arrow_schema(pa, schema, schema.segment_columns or _segment_keys(first))
    return table_schema, (_make_table(pa, group, schema, table_schema) for group in chain(first, groups))


def arrow_schema(pa: Any, schema: Schema, segment_keys: Sequence[str] = ()) -> ArrowSchema:
    """Return the Arrow schema of stored rows.

    `segment_keys` are the fields of each segment. A segment describes one window in a packed row.
    """
    id_type = pa.from_numpy_dtype(schema.id_type)
    others = {
        name: _arrow_type(pa, name, COLUMNS[name].kind) for name in schema.columns_without_ids if name != SEGMENTS
    }
    if SEGMENTS in schema.columns_without_ids:
        fields = [(key, _arrow_type(pa, key, SEGMENT_KINDS[key])) for key in segment_keys]
        others[SEGMENTS] = pa.list_(pa.struct(fields))
    ids = [(IDS, pa.list_(id_type))] if schema.has_ids else []
    return pa.schema([*ids, *((name, others[name]) for name in schema.columns_without_ids)])


def _arrow_type(pa: Any, name: str, kind: Kind) -> Any:
    if kind is Kind.NUMBERS:
        return pa.list_(pa.type_for_alias(COLUMNS[name].dtype))
    return {Kind.TEXT: pa.string(), Kind.NUMBER: pa.int64(), Kind.FRACTION: pa.float64()}[kind]


def _segment_keys(first: Sequence[WindowBatch]) -> tuple[str, ...]:
    """Return the keys of the first segment. All other segments must have the same keys.

    If there is no segment, return three keys, because Parquet cannot store a struct without fields.
    """
    segments = chain.from_iterable(row for batch in first for row in batch.columns.get(SEGMENTS, ()))
    keys = tuple(next(segments, ("repo", "path", "start")))
    if unknown := [key for key in keys if key not in SEGMENT_KINDS]:
        raise OutputError(
            f"a segment has unknown keys: {', '.join(unknown)}. Check the dataset with gristmill check DIR."
        )
    return keys


def _make_table(pa: Any, batch: WindowBatch, schema: Schema, table_schema: ArrowSchema) -> Table:
    require_ids_fit(batch.ids.values, schema.id_type)
    columns = add_padding(batch, schema).stored_columns
    return pa.table([_make_array(pa, field, columns[field.name]) for field in table_schema], schema=table_schema)


def _make_array(pa: Any, field: Any, column: ColumnValues) -> Any:
    try:
        if isinstance(column, Ragged):
            values = pa.array(column.values).cast(field.type.value_type)
            return pa.ListArray.from_arrays(pa.array(column.offsets).cast(pa.int32()), values)
        if isinstance(column, np.ndarray):
            return pa.array(column).cast(field.type)
        if field.name == SEGMENTS:
            _require_keys(column, [one.name for one in field.type.value_type])
        return pa.array(column, field.type)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise OutputError(
            f"column {field.name} has a value that its type {field.type} cannot hold: {_one_line(error)}. "
            "Check the dataset with gristmill check DIR."
        ) from None


def _require_keys(rows: Sequence[Sequence[dict[str, Any]]], keys: Sequence[str]) -> None:
    """Raise OutputError if keys differ: a missing key would be read back as null, and an extra key would be lost."""
    expected = set(keys)
    if any(one.keys() != expected for one in chain.from_iterable(rows)):
        raise OutputError(
            f"a segment does not have exactly the keys {', '.join(keys)}. Check the dataset with gristmill check DIR."
        )


@contextmanager
def convert_errors(pa: Any, path: Path) -> Iterator[None]:
    """Convert errors that occur in the `with` block while `path` is read to a DatasetError with a one-line message.

    Also raise DatasetError if the path exists but is neither a folder nor a regular file.
    """
    try:
        if path.exists() and not path.is_dir():
            require_plain(path)
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, MemoryError) as error:
        raise DatasetError(f"{str(path)!r} is damaged: {_one_line(error)}. Build the dataset again.") from None


def _one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__).rstrip(".")


def require_columns(pa: Any, found: ArrowSchema, schema: Schema) -> None:
    """Raise ValueError if a file does not have the columns of the dataset. Call this inside `convert_errors`."""
    keys: list[str] = []
    if SEGMENTS in found.names and pa.types.is_list(found.field(SEGMENTS).type):
        keys = [field.name for field in found.field(SEGMENTS).type.value_type]
    if not found.equals(arrow_schema(pa, schema, keys)):
        columns = ", ".join(f"{field.name} {field.type}" for field in found)
        raise ValueError(f"its columns differ from those of the dataset (found {columns})")


def batch_from_table(table: Table, schema: Schema) -> WindowBatch:
    """Return the rows of a table that passed `require_columns`, without padding. Call this inside `convert_errors`."""
    columns = {name: _column_values(table.column(name), COLUMNS[name].kind) for name in schema.columns_without_ids}
    if not schema.has_ids:
        return WindowBatch.of_documents(columns, schema)
    ids = _ragged_column(table.column(IDS), schema.id_type)
    if MASK in columns and not np.array_equal(columns[MASK].offsets, ids.offsets):
        raise ValueError(f"{MASK} and {IDS} differ in length")
    return remove_padding(WindowBatch(ids, columns), schema)


def empty_batch(pa: Any, schema: Schema) -> WindowBatch:
    return batch_from_table(arrow_schema(pa, schema).empty_table(), schema)


def _ragged_column(column: Any, dtype: npt.DTypeLike) -> Ragged:
    """Convert a list column. The values are not copied if the column has a single chunk with this dtype."""
    values, offsets, num_values = [], [np.zeros(1, np.int64)], 0
    for chunk in column.chunks:
        _require_no_nulls(chunk)
        ends = chunk.offsets.to_numpy().astype(np.int64)
        offsets.append(ends[1:] - ends[0] + num_values)
        values.append(chunk.values.to_numpy()[ends[0] : ends[-1]].astype(dtype, copy=False))
        num_values += len(values[-1])
    flat = values[0] if len(values) == 1 else np.concatenate([np.zeros(0, dtype), *values])
    return Ragged(flat, np.concatenate(offsets))


def _column_values(column: Any, kind: Kind) -> ColumnValues:
    if kind is Kind.NUMBERS:
        return _ragged_column(column, np.int64)
    _require_no_nulls(column)
    if kind in {Kind.NUMBER, Kind.FRACTION}:
        return column.to_numpy()
    rows: list[Any] = column.to_pylist()
    if kind is Kind.OBJECTS and any(None in one.values() for one in chain.from_iterable(rows)):
        raise ValueError("a segment has a null value")
    return rows


def _require_no_nulls(column: Any) -> None:
    if column.null_count:
        raise ValueError("a row has a null value")
