"""Windows <-> arrow tables, for the formats that pyarrow writes.

Types are those that a table of the same rows would be given, but as small as the values allow where there are many: ids
as the vocabulary has them, other numbers of a list as COLUMNS says. Whole numbers of a row are int64.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill.core.columns import COLUMNS, IDS, MASK, SEGMENT_PLACE, SEGMENTS, Kind
from gristmill.core.errors import DatasetError, MissingExtraError, OutputError
from gristmill.core.output_formats import FORMATS
from gristmill.core.plain_files import require_plain
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, Values, WindowBatch, natural, rebatched, require_fitting, stored

ROWS_AT_ONCE = 1000
"""In a row group or record batch: what a reader must take to see one row.

A thousand, as `datasets` has them; of long windows fewer, up to 16 MB of ids. The Hub's viewer refuses row groups of
286 MiB, and is the quicker the smaller they are; each costs some hundred bytes a column at the end of the file."""
SEGMENT_KINDS = {
    **{name: column.kind for name, column in COLUMNS.items() if column.is_of_window},
    **dict.fromkeys(SEGMENT_PLACE, Kind.NUMBER),
}

ArrowSchema = Any
Table = Any


def import_pyarrow(format_name: str) -> Any:
    """Raise with the install command if it is missing: it is an extra."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and not always there
    except ImportError:
        extra = FORMATS[format_name.lower()].extra
        raise MissingExtraError(f"{format_name} needs pyarrow: pip install 'gristmill[{extra}]'.") from None
    return pa


def tables_of(pa: Any, batches: Iterable[WindowBatch], schema: Schema) -> tuple[ArrowSchema, Iterator[Table]]:
    """Tables of as many rows at once, and what columns all of them have."""
    groups = rebatched(batches, schema.num_rows_at_once(ROWS_AT_ONCE))
    first = list(islice(groups, 1))
    kinds = arrow_schema(pa, schema, schema.segment_columns or _segment_keys(first))
    return kinds, (_table_of(pa, group, schema, kinds) for group in chain(first, groups))


def arrow_schema(pa: Any, schema: Schema, segment_keys: Sequence[str] = ()) -> ArrowSchema:
    id_type = pa.from_numpy_dtype(schema.id_type)
    others = {name: _type(pa, name, COLUMNS[name].kind) for name in schema.others if name != SEGMENTS}
    if SEGMENTS in schema.others:
        fields = [(key, _type(pa, key, SEGMENT_KINDS[key])) for key in segment_keys]
        others[SEGMENTS] = pa.list_(pa.struct(fields))
    ids = [(IDS, pa.list_(id_type))] if schema.has_ids else []
    return pa.schema([*ids, *((name, others[name]) for name in schema.others)])


def _type(pa: Any, name: str, kind: Kind) -> Any:
    if kind is Kind.NUMBERS:
        return pa.list_(pa.type_for_alias(COLUMNS[name].dtype))
    return {Kind.TEXT: pa.string(), Kind.NUMBER: pa.int64(), Kind.FRACTION: pa.float64()}[kind]


def _segment_keys(first: Sequence[WindowBatch]) -> tuple[str, ...]:
    """Those of the first segment, which all others must have. Parquet has no type for a thing without any."""
    segments = chain.from_iterable(row for batch in first for row in batch.columns.get(SEGMENTS, ()))
    keys = tuple(next(segments, ("repo", "path", "start")))
    if unknown := [key for key in keys if key not in SEGMENT_KINDS]:
        raise OutputError(f"a segment has {', '.join(unknown)}, for which there is no type in a table.")
    return keys


def _table_of(pa: Any, batch: WindowBatch, schema: Schema, kinds: ArrowSchema) -> Table:
    require_fitting(batch.ids.values, schema.id_type)
    columns = stored(batch, schema).stored_columns
    return pa.table([_array(pa, field, columns[field.name]) for field in kinds], schema=kinds)


def _array(pa: Any, field: Any, column: Values) -> Any:
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
        raise OutputError(f"column {field.name} holds what its type does not: {_one_line(error)}.") from None


def _require_keys(rows: Sequence[Sequence[dict[str, Any]]], keys: Sequence[str]) -> None:
    """A missing one would come back as null, and one too many not at all."""
    expected = set(keys)
    if any(one.keys() != expected for one in chain.from_iterable(rows)):
        raise OutputError(f"all segments must have the same keys as the first: {', '.join(keys)}.")


@contextmanager
def reading(pa: Any, path: Path) -> Iterator[None]:
    """Open the file, or those of a folder, within: what the library finds wrong becomes one line."""
    try:
        if path.exists() and not path.is_dir():
            require_plain(path)
        yield
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError, MemoryError) as error:
        raise DatasetError(f"{str(path)!r} is damaged: {_one_line(error)}. Build the dataset again.") from None


def _one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or repr(error)).rstrip(".")


def require_kinds(pa: Any, found: ArrowSchema, schema: Schema) -> None:
    """For within `reading`: ValueError where these are not the columns that were written."""
    keys: list[str] = []
    if SEGMENTS in found.names and pa.types.is_list(found.field(SEGMENTS).type):
        keys = [field.name for field in found.field(SEGMENTS).type.value_type]
    if not found.equals(arrow_schema(pa, schema, keys)):
        told = ", ".join(f"{field.name} {field.type}" for field in found)
        raise ValueError(f"its columns are not those of the dataset: {told}")


def batch_of(table: Table, schema: Schema) -> WindowBatch:
    """For within `reading`: a table whose kinds are right -> its rows, without padding."""
    columns = {name: _column(table.column(name), COLUMNS[name].kind) for name in schema.others}
    if not schema.has_ids:
        return WindowBatch.of_documents(columns, schema)
    ids = _ragged(table.column(IDS), schema.id_type)
    if MASK in columns and not np.array_equal(columns[MASK].offsets, ids.offsets):
        raise ValueError(f"{MASK} is not as long as {IDS}")
    return natural(WindowBatch(ids, columns), schema)


def no_rows(pa: Any, schema: Schema) -> WindowBatch:
    return batch_of(arrow_schema(pa, schema).empty_table(), schema)


def _ragged(column: Any, kind: npt.DTypeLike) -> Ragged:
    """Where there is one chunk, and it has the type, a view."""
    values, offsets, num_values = [], [np.zeros(1, np.int64)], 0
    for chunk in column.chunks:
        _require_no_nulls(chunk)
        ends = chunk.offsets.to_numpy().astype(np.int64)
        offsets.append(ends[1:] - ends[0] + num_values)
        values.append(chunk.values.to_numpy()[ends[0] : ends[-1]].astype(kind, copy=False))
        num_values += len(values[-1])
    flat = values[0] if len(values) == 1 else np.concatenate([np.zeros(0, kind), *values])
    return Ragged(flat, np.concatenate(offsets))


def _column(column: Any, kind: Kind) -> Values:
    if kind is Kind.NUMBERS:
        return _ragged(column, np.int64)
    _require_no_nulls(column)
    if kind in {Kind.NUMBER, Kind.FRACTION}:
        return column.to_numpy()
    rows: list[Any] = column.to_pylist()
    if kind is Kind.OBJECTS and any(None in one.values() for one in chain.from_iterable(rows)):
        raise ValueError("a segment has a value that is not there")
    return rows


def _require_no_nulls(column: Any) -> None:
    if column.null_count:
        raise ValueError("a row has a value that is not there")
