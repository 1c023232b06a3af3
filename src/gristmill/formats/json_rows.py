"""A batch of windows <-> JSON rows, in the bytes that the JSONL format has."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from gristmill.columns import IDS, KINDS, Kind, Schema
from gristmill.errors import DatasetError, OutputError
from gristmill.formats.batch import Column, Ragged, WindowBatch, natural, require_fitting, stored


def lines_of(batch: WindowBatch, schema: Schema) -> list[bytes]:
    """Each with its line feed."""
    rows = stored(batch, schema)
    columns = [_told(rows.columns[name], KINDS[name]) for name in schema.others]
    return [
        orjson.dumps(
            dict(zip(schema.columns, row, strict=True)), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        )
        for row in zip(rows.ids.rows(), *columns, strict=True)
    ]


def _told(column: Column, kind: Kind) -> Any:
    if kind is Kind.NUMBERS:
        return column.rows()
    return column.tolist() if isinstance(column, np.ndarray) else column


def batch_of_lines(lines: Sequence[bytes], schema: Schema) -> WindowBatch:
    """Rows as they are stored -> without padding."""
    try:
        rows = [orjson.loads(line) for line in lines]
        ids = Ragged.of([row[IDS] for row in rows])
        require_fitting(ids.values, schema.id_type)  # numpy 1 would wrap them
        ids = ids._replace(values=ids.values.astype(schema.id_type))
        columns = {name: column_of([row[name] for row in rows], KINDS[name]) for name in schema.others}
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, OverflowError, OutputError) as error:
        raise DatasetError(f"a row is damaged: {error!r}. Build the dataset again.") from None
    return natural(WindowBatch(ids, columns), schema)


def column_of(values: list[Any], kind: Kind) -> Column:
    """Row by row -> as a batch has it."""
    if kind is Kind.NUMBERS:
        return Ragged.of(values)
    if kind is Kind.NUMBER:
        return np.array(values, np.int64)
    return np.array(values, np.float64) if kind is Kind.FRACTION else values
