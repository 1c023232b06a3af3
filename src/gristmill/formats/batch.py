"""Windows by column: what every format is written from, and read back into.

Ids are flat, end to end, special tokens in and padding out, with an offset where each window begins. So are the other
columns with several numbers a row. Formats whose rows are padded (--pad) write `stored(batch)` and read it back with
`natural(batch)`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from operator import eq
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.columns import IDS, IGNORED_LABEL, LABELS, MASK, PER_ID, TEXT
from gristmill.core.errors import DatasetError, OutputError
from gristmill.core.schema import Schema
from gristmill.windows.cut import Indices


class Ragged(NamedTuple):
    """Row `n` has `values[offsets[n]:offsets[n + 1]]`."""

    values: npt.NDArray[Any]
    offsets: Indices

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], kind: npt.DTypeLike = np.int64) -> "Ragged":
        offsets = np.cumsum([0, *map(len, rows)])
        return cls(np.fromiter(chain.from_iterable(rows), kind, int(offsets[-1])), offsets)

    @property
    def sizes(self) -> Indices:
        return np.diff(self.offsets)

    def __getitem__(self, row: Any) -> Any:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def rows(self) -> Iterator[npt.NDArray[Any]]:
        return (self.values[start:end] for start, end in pairwise(self.offsets.tolist()))


Values = Any
"""A column's, of all rows of a batch: as its Kind says."""


class WindowBatch(NamedTuple):
    """Rows that follow each other in one split."""

    ids: Ragged
    """Ids of the schema's `id_type`; none for documents."""
    columns: dict[str, Values]
    """All others, in the order of the schema."""

    def __len__(self) -> int:
        return len(self.ids.offsets) - 1

    @classmethod
    def of_documents(cls, columns: dict[str, Values], schema: Schema) -> "WindowBatch":
        """Rows without ids."""
        return cls(Ragged(np.zeros(0, schema.id_type), np.zeros(len(columns[TEXT]) + 1, np.int64)), columns)

    @property
    def has_ids(self) -> bool:
        """Rows are windows of ids; else each is a document's text."""
        return next(iter(self.columns), IDS) != TEXT

    @property
    def stored_columns(self) -> dict[str, Values]:
        """All that rows have, in order."""
        return {IDS: self.ids, **self.columns} if self.has_ids else self.columns


def require_fitting(ids: npt.NDArray[Any], kind: npt.DTypeLike) -> None:
    """An id that the type cannot hold would come back as another one."""
    if len(ids) and (int(ids.max()) > np.iinfo(kind).max or int(ids.min()) < 0):
        wrong = int(ids.max()) if int(ids.min()) >= 0 else int(ids.min())
        raise OutputError(
            f"the id {wrong} does not fit {np.dtype(kind).name}: it is not of the tokenizer's vocabulary. "
            "Check the dataset with gristmill check."
        )


def stored(batch: WindowBatch, schema: Schema) -> WindowBatch:
    """With the padding that rows have, and their attention_mask; the same batch where they have none."""
    if schema.pad_id is None:
        return batch
    sizes = batch.ids.sizes
    is_content = np.arange(schema.length) < sizes[:, None]
    offsets = np.arange(len(batch) + 1) * schema.length
    columns = dict(batch.columns)
    for name in PER_ID.keys() & columns.keys():
        is_there = np.arange(schema.length) < columns[name].sizes[:, None]
        columns[name] = Ragged(_spread(columns[name].values, is_there, PER_ID[name]), offsets)
    columns[MASK] = Ragged(is_content.ravel().astype(np.int64), offsets)
    ids = Ragged(_spread(batch.ids.values, is_content, schema.pad_id), offsets)
    return WindowBatch(ids, {name: columns[name] for name in schema.others})


def _spread(values: npt.NDArray[Any], places: npt.NDArray[np.bool_], padding: int) -> npt.NDArray[Any]:
    spread = np.full(places.shape, padding, values.dtype)
    spread[places] = values
    return spread.ravel()


def natural(batch: WindowBatch, schema: Schema) -> WindowBatch:
    """Without padding and attention_mask."""
    if schema.pad_id is None:
        return batch
    columns = {name: column for name, column in batch.columns.items() if name != MASK}
    mask = batch.columns[MASK].values.astype(np.bool_)
    if len(mask) != len(batch.ids.values):
        raise DatasetError("a row is damaged: its attention_mask has another length. Build the dataset again.")
    for name in PER_ID.keys() & columns.keys():  # of noise there may be more labels than ids
        is_there = columns[name].values != IGNORED_LABEL if name == LABELS else mask
        columns[name] = _masked(columns[name], is_there)
    bare = WindowBatch(_masked(batch.ids, mask), columns)
    again = stored(bare, schema)
    if not all(_same(again.columns[name], batch.columns[name]) for name in {MASK, *PER_ID} & batch.columns.keys()) or (
        not _same(again.ids, batch.ids)
    ):
        raise DatasetError("a row is damaged: it is padded otherwise than a build pads. Build the dataset again.")
    return bare


def _same(one: Ragged, other: Ragged) -> bool:
    return np.array_equal(one.values, other.values) and np.array_equal(np.diff(one.offsets), np.diff(other.offsets))


def _masked(column: Ragged, mask: npt.NDArray[np.bool_]) -> Ragged:
    return Ragged(column.values[mask], np.concatenate(([0], np.cumsum(mask)))[column.offsets])


def joined(batches: Sequence[WindowBatch]) -> WindowBatch:
    """One behind the other."""
    first = batches[0]
    if len(batches) == 1:
        return first
    columns = {name: _joined_values([batch.columns[name] for batch in batches]) for name in first.columns}
    return WindowBatch(_joined_values([batch.ids for batch in batches]), columns)


def _joined_values(parts: Sequence[Values]) -> Values:
    if isinstance(parts[0], Ragged):
        firsts = np.cumsum([0, *(len(part.values) for part in parts)])
        offsets = [part.offsets[1:] - part.offsets[0] + first for part, first in zip(parts, firsts, strict=False)]
        values = [part.values[part.offsets[0] : part.offsets[-1]] for part in parts]
        return Ragged(np.concatenate(values), np.concatenate([np.zeros(1, np.int64), *offsets]))
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return list(chain.from_iterable(parts))


def between(batch: WindowBatch, start: int, stop: int) -> WindowBatch:
    """Some of its rows."""
    columns = {name: _some_of(column, start, stop) for name, column in batch.columns.items()}
    return WindowBatch(_some_of(batch.ids, start, stop), columns)


def _some_of(column: Values, start: int, stop: int) -> Values:
    if not isinstance(column, Ragged):
        return column[start:stop]
    offsets = column.offsets[start : stop + 1]
    return Ragged(column.values[offsets[0] : offsets[-1]], offsets - offsets[0])


DOCUMENT = ("repo", "path", "variant", "variant_seed")
"""Rows of one document have the same values in these columns."""


def are_alike(batch: WindowBatch, names: Iterable[str] = DOCUMENT) -> npt.NDArray[np.bool_]:
    """For each row but the first: if it has in these columns what the one before it has. A column may be missing."""
    alike = np.ones(max(len(batch) - 1, 0), np.bool_)
    for values in (batch.columns[name] for name in names if name in batch.columns):
        if isinstance(values, np.ndarray):
            alike &= values[1:] == values[:-1]
        else:
            alike &= np.fromiter(map(eq, values, islice(values, 1, None)), np.bool_, len(alike))
    return alike


def rebatched(batches: Iterable[WindowBatch], num_rows: int) -> Iterator[WindowBatch]:
    """The same rows in batches of so many; the last has what is left."""
    waiting: list[WindowBatch] = []
    num_waiting = 0
    for batch in batches:
        if not len(batch):
            continue
        waiting.append(batch)
        num_waiting += len(batch)
        if num_waiting < num_rows:
            continue
        whole = joined(waiting)
        full = num_waiting - num_waiting % num_rows
        for start in range(0, full, num_rows):
            yield between(whole, start, start + num_rows)
        num_waiting -= full
        waiting = [between(whole, full, len(whole))] if num_waiting else []
    if waiting:
        yield joined(waiting)
