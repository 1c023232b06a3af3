"""Rows in binary files of limited size, each with a table of where its rows are: what MDS and LitData have in common.

    [number of rows][where each row starts, and where the last ends][head][row][row] …        all uint32
    a row: [sizes of its fields][field][field] …

Every field of a row is a slice of bytes that were made for many rows at once, and rows are joined, not built one by
one: several times as fast as the libraries' own writers (benchmarks/formats.md).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from gristmill.columns import IDS, KINDS, LABELS, MASK, Kind, Schema
from gristmill.errors import OutputError
from gristmill.formats.batch import Column, Ragged, WindowBatch, rebatched, stored
from gristmill.naming import counted

CHUNK_BYTES = 1 << 26
"""A file ends before the row that would make it larger, as with both libraries by default."""
ROWS_AT_ONCE = 2048
NUMBER_BYTES = 8
COUNT = np.dtype("<u4")
INT32_COLUMNS = ("lines", LABELS, "segment_ids", "position_ids")
NUMBERS_TYPES: dict[str, np.dtype[Any]] = {**dict.fromkeys(INT32_COLUMNS, np.dtype("<i4")), MASK: np.dtype("u1")}
NUMBER_TYPES: dict[Kind, np.dtype[Any]] = {Kind.NUMBER: np.dtype("<i8"), Kind.FRACTION: np.dtype("<f8")}


class Field(NamedTuple):
    """A column as it is stored."""

    name: str
    kind: Kind
    dtype: np.dtype[Any] | None
    """Of its numbers; None: a text, or JSON."""

    @property
    def has_own_size(self) -> bool:
        """Rows differ in it."""
        return self.kind not in {Kind.NUMBER, Kind.FRACTION}


class Layout(NamedTuple):
    fields: tuple[Field, ...]
    """In the order in which rows have them."""
    head: bytes
    """The same in every file."""
    has_shapes: bool
    """Numbers tell how many they are (MDS); else their size does."""
    has_all_sizes: bool
    """Rows tell the sizes of all fields (LitData), not only of those in which they differ."""
    max_bytes: int
    """In a file, unless it has a single row."""
    is_table_counted: bool
    """Towards that limit; else rows alone."""

    @property
    def sized(self) -> tuple[Field, ...]:
        """Those whose size rows tell."""
        return self.fields if self.has_all_sizes else tuple(field for field in self.fields if field.has_own_size)

    def rows_start(self, num_rows: int) -> int:
        return COUNT.itemsize * (num_rows + 2) + len(self.head)


class Chunk(NamedTuple):
    name: str
    num_rows: int
    num_bytes: int


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def fields_of(schema: Schema, id_type: npt.DTypeLike) -> tuple[Field, ...]:
    """In the order of the schema."""
    others = (
        Field(name, KINDS[name], NUMBERS_TYPES.get(name, NUMBER_TYPES.get(KINDS[name]))) for name in schema.others
    )
    return (Field(IDS, Kind.NUMBERS, np.dtype(id_type).newbyteorder("<")), *others)


def write_chunks(
    batches: Iterable[WindowBatch],
    schema: Schema,
    layout: Layout,
    path_of: Callable[[int], Path],
    digest: Digest | None = None,
) -> list[Chunk]:
    """All rows -> the files they are in. Of the rows to come, no more are held than one file has."""
    chunks: list[Chunk] = []
    for rows, sizes in _filled(batches, schema, layout):
        path = path_of(len(chunks))
        first = layout.rows_start(len(sizes))
        offsets = list(accumulate(sizes, initial=first))
        if offsets[-1] > np.iinfo(COUNT).max:
            raise OutputError(
                f"a row takes {counted(max(sizes), 'byte')}, {path.name!r} can have 4 GiB. Leave out --with-text."
            )
        parts = [np.array([len(sizes), *offsets], COUNT).tobytes(), layout.head, *rows]
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as stream:
            stream.writelines(parts)
        if digest is not None:
            for part in parts:
                digest.update(part)
        chunks.append(Chunk(path.name, len(sizes), offsets[-1]))
    return chunks


def _filled(batches: Iterable[WindowBatch], schema: Schema, layout: Layout) -> Iterator[tuple[list[bytes], list[int]]]:
    """For each file its rows, many in one piece, and the size of each."""
    limit = layout.max_bytes - (layout.rows_start(0) if layout.is_table_counted else 0)
    more = COUNT.itemsize if layout.is_table_counted else 0
    rows: list[bytes] = []
    sizes: list[int] = []
    room = limit
    for batch in rebatched(batches, schema.num_rows_at_once(ROWS_AT_ONCE)):
        pieces, row_sizes = encoded(stored(batch, schema), layout)
        per_row = len(pieces) // len(batch)
        ends = np.cumsum(row_sizes + more)
        start = 0
        while start < len(batch):
            taken = int(ends[start - 1]) if start else 0
            # A row that is larger than a file is to be has one for itself.
            stop = max(int(np.searchsorted(ends, taken + room, "right")), start + (not sizes))
            rows.append(b"".join(pieces[start * per_row : stop * per_row]))
            sizes += row_sizes[start:stop].tolist()
            room -= int(ends[stop - 1]) - taken if stop > start else 0
            start = stop
            if start < len(batch):
                yield rows, sizes
                rows, sizes, room = [], [], limit
    if sizes:
        yield rows, sizes


def encoded(rows: WindowBatch, layout: Layout) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """The bytes of all rows in pieces, as many for each, and how many bytes each row has."""
    columns = {IDS: rows.ids, **rows.columns}
    pieces = {field.name: _encoded_column(columns[field.name], field, layout) for field in layout.fields}
    sizes = {name: np.fromiter(map(len, column), np.int64, len(rows)) for name, column in pieces.items()}
    told = np.stack([sizes[field.name] for field in layout.sized], axis=1).astype(COUNT)
    heads = _sliced(told.tobytes(), range(0, told.nbytes + 1, told.shape[1] * COUNT.itemsize))
    total = sum(sizes.values(), np.full(len(rows), told.shape[1] * COUNT.itemsize))
    return list(chain.from_iterable(zip(heads, *pieces.values(), strict=True))), total


def _encoded_column(column: Column, field: Field, layout: Layout) -> list[bytes]:
    if field.kind is Kind.TEXT:
        return [text.encode() for text in column]
    if field.kind is Kind.OBJECTS:
        return [json.dumps(objects).encode() for objects in column]
    assert field.dtype is not None
    if field.kind is not Kind.NUMBERS:
        return _sliced(column.astype(field.dtype).tobytes(), range(0, NUMBER_BYTES * len(column) + 1, NUMBER_BYTES))
    return _encoded_numbers(column, field, field.dtype, layout)


def _encoded_numbers(column: Ragged, field: Field, dtype: np.dtype[Any], layout: Layout) -> list[bytes]:
    values = column.values.astype(dtype)
    if values.dtype != column.values.dtype and not np.array_equal(values, column.values):
        raise OutputError(f"a number in {field.name!r} does not fit {dtype.name}. Check the dataset: gristmill check.")
    slices = _sliced(values.tobytes(), (column.offsets * dtype.itemsize).tolist())
    if not layout.has_shapes:
        return slices
    return [shape_of(count) + own for count, own in zip(column.sizes.tolist(), slices, strict=True)]


@cache
def shape_of(count: int) -> bytes:
    """One dimension, the width of its length (as a power of two) in the two lowest bits; and the length."""
    power = 0 if count < 1 << 8 else 1 if count < 1 << 16 else 2
    return bytes([1 << 2 | power]) + count.to_bytes(1 << power, "little")


def _sliced(content: bytes, edges: Sequence[int]) -> list[bytes]:
    return [content[start:end] for start, end in pairwise(edges)]
