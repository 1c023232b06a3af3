"""Batches of rows, stored by column. Every format writes and reads such batches.

The ids of all rows are concatenated in one array, with special tokens and without padding, and an offset marks the
start of each row. Other columns with several numbers per row have the same layout. If rows are padded (--pad), a format
that stores padding calls `add_padding` before it writes a batch and `remove_padding` after it reads a batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from operator import eq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.columns import IDS, IGNORED_LABEL, LABELS, MASK, PER_ID, TEXT
from gristmill.core.errors import OutputError
from gristmill.core.schema import Schema
from gristmill.windows.cut import Indices


class Ragged(NamedTuple):
    """Rows of different lengths in one array. Row `n` is `values[offsets[n]:offsets[n + 1]]`."""

    values: npt.NDArray[Any]
    offsets: Indices

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], dtype: npt.DTypeLike = np.int64) -> "Ragged":
        offsets = np.cumsum([0, *map(len, rows)])
        return cls(np.fromiter(chain.from_iterable(rows), dtype, int(offsets[-1])), offsets)

    @property
    def sizes(self) -> Indices:
        return np.diff(self.offsets)

    def __getitem__(self, row: Any) -> Any:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def rows(self) -> Iterator[npt.NDArray[Any]]:
        return (self.values[start:end] for start, end in pairwise(self.offsets.tolist()))


ColumnValues = Any
"""Values of a column in all rows of a batch. `Kind` documents the type for each kind of column."""


class WindowBatch(NamedTuple):
    """Consecutive rows of a split."""

    ids: Ragged
    """Token ids with the dtype `Schema.id_type`. If rows are documents, no row has ids."""
    columns: dict[str, ColumnValues]
    """All other columns, in the order of the schema."""

    def __len__(self) -> int:
        return len(self.ids.offsets) - 1

    @classmethod
    def of_documents(cls, columns: dict[str, ColumnValues], schema: Schema) -> "WindowBatch":
        """Return a batch of rows without ids."""
        return cls(Ragged(np.zeros(0, schema.id_type), np.zeros(len(columns[TEXT]) + 1, np.int64)), columns)

    @property
    def has_ids(self) -> bool:
        """True if rows are windows of ids, False if each row is the text of a document."""
        return next(iter(self.columns), IDS) != TEXT

    @property
    def stored_columns(self) -> dict[str, ColumnValues]:
        """All columns, including the ids, in the order in which a row stores them."""
        return {IDS: self.ids, **self.columns} if self.has_ids else self.columns


def require_ids_fit(ids: npt.NDArray[Any], dtype: npt.DTypeLike) -> None:
    """Raise OutputError if an id does not fit in the dtype, because it would wrap around to a different id."""
    if len(ids) and (int(ids.max()) > np.iinfo(dtype).max or int(ids.min()) < 0):
        bad_id = int(ids.max()) if int(ids.min()) >= 0 else int(ids.min())
        raise OutputError(
            f"the id {bad_id} does not fit in {np.dtype(dtype).name}: it is not in the tokenizer's vocabulary. "
            "Check the dataset with gristmill check DIR."
        )


def add_padding(batch: WindowBatch, schema: Schema) -> WindowBatch:
    """Return the batch as it is stored, with padding and attention_mask, or unchanged if rows are not padded."""
    if schema.pad_id is None:
        return batch
    sizes = batch.ids.sizes
    is_content = np.arange(schema.length) < sizes[:, None]
    offsets = np.arange(len(batch) + 1) * schema.length
    columns = dict(batch.columns)
    for name in PER_ID.keys() & columns.keys():
        has_value = np.arange(schema.length) < columns[name].sizes[:, None]
        columns[name] = Ragged(_scatter(columns[name].values, has_value, PER_ID[name]), offsets)
    columns[MASK] = Ragged(is_content.ravel().astype(np.int64), offsets)
    ids = Ragged(_scatter(batch.ids.values, is_content, schema.pad_id), offsets)
    return WindowBatch(ids, {name: columns[name] for name in schema.columns_without_ids})


def _scatter(values: npt.NDArray[Any], mask: npt.NDArray[np.bool_], padding: int) -> npt.NDArray[Any]:
    padded = np.full(mask.shape, padding, values.dtype)
    padded[mask] = values
    return padded.ravel()


def remove_padding(batch: WindowBatch, schema: Schema) -> WindowBatch:
    """Remove padding and attention_mask.

    Raises ValueError if the padding differs from the padding that a build writes.
    """
    if schema.pad_id is None:
        return batch
    columns = {name: column for name, column in batch.columns.items() if name != MASK}
    mask = batch.columns[MASK].values.astype(np.bool_)
    if len(mask) != len(batch.ids.values):
        raise ValueError("the attention_mask and the ids of a row differ in length")
    for name in PER_ID.keys() & columns.keys():  # a window with noise may have more labels than ids
        has_value = columns[name].values != IGNORED_LABEL if name == LABELS else mask
        if len(has_value) != len(columns[name].values):
            raise ValueError(f"the {name} and the ids of a row differ in length")
        columns[name] = _select(columns[name], has_value)
    unpadded = WindowBatch(_select(batch.ids, mask), columns)
    padded = add_padding(unpadded, schema)
    if not all(
        _is_equal(padded.columns[name], batch.columns[name]) for name in {MASK, *PER_ID} & batch.columns.keys()
    ) or (not _is_equal(padded.ids, batch.ids)):
        raise ValueError("the padding of a row differs from the padding that a build writes")
    return unpadded


def _is_equal(one: Ragged, other: Ragged) -> bool:
    return np.array_equal(one.values, other.values) and np.array_equal(np.diff(one.offsets), np.diff(other.offsets))


def _select(column: Ragged, mask: npt.NDArray[np.bool_]) -> Ragged:
    return Ragged(column.values[mask], np.concatenate(([0], np.cumsum(mask)))[column.offsets])


def concat_batches(batches: Sequence[WindowBatch]) -> WindowBatch:
    """Concatenate batches in the given order."""
    first = batches[0]
    if len(batches) == 1:
        return first
    columns = {name: _concat_columns([batch.columns[name] for batch in batches]) for name in first.columns}
    return WindowBatch(_concat_columns([batch.ids for batch in batches]), columns)


def _concat_columns(parts: Sequence[ColumnValues]) -> ColumnValues:
    if isinstance(parts[0], Ragged):
        starts = np.cumsum([0, *(len(part.values) for part in parts)])
        offsets = [part.offsets[1:] - part.offsets[0] + first for part, first in zip(parts, starts, strict=False)]
        values = [part.values[part.offsets[0] : part.offsets[-1]] for part in parts]
        return Ragged(np.concatenate(values), np.concatenate([np.zeros(1, np.int64), *offsets]))
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return list(chain.from_iterable(parts))


def slice_batch(batch: WindowBatch, start: int, stop: int) -> WindowBatch:
    """Return the rows from `start` up to, but not including, `stop`."""
    columns = {name: _slice_column(column, start, stop) for name, column in batch.columns.items()}
    return WindowBatch(_slice_column(batch.ids, start, stop), columns)


def _slice_column(column: ColumnValues, start: int, stop: int) -> ColumnValues:
    if not isinstance(column, Ragged):
        return column[start:stop]
    offsets = column.offsets[start : stop + 1]
    return Ragged(column.values[offsets[0] : offsets[-1]], offsets - offsets[0])


DOCUMENT_COLUMNS = ("repo", "path", "variant", "variant_seed")
"""Columns that identify a document. They have the same values in all its rows."""


def equals_previous(batch: WindowBatch, names: Iterable[str] = DOCUMENT_COLUMNS) -> npt.NDArray[np.bool_]:
    """Return, for each row after the first, whether it equals the previous row in the columns `names`.

    Columns that the batch does not have are ignored.
    """
    is_equal = np.ones(max(len(batch) - 1, 0), np.bool_)
    for values in (batch.columns[name] for name in names if name in batch.columns):
        if isinstance(values, np.ndarray):
            is_equal &= values[1:] == values[:-1]
        else:
            is_equal &= np.fromiter(map(eq, values, islice(values, 1, None)), np.bool_, len(is_equal))
    return is_equal


def rebatch(batches: Iterable[WindowBatch], num_rows: int) -> Iterator[WindowBatch]:
    """Regroup rows into batches of `num_rows`. The last batch has the remaining rows."""
    pending: list[WindowBatch] = []
    num_pending = 0
    for batch in batches:
        if not len(batch):
            continue
        pending.append(batch)
        num_pending += len(batch)
        if num_pending < num_rows:
            continue
        merged = concat_batches(pending)
        num_full = num_pending - num_pending % num_rows
        for start in range(0, num_full, num_rows):
            yield slice_batch(merged, start, start + num_rows)
        num_pending -= num_full
        pending = [slice_batch(merged, num_full, len(merged))] if num_pending else []
    if pending:
        yield concat_batches(pending)
