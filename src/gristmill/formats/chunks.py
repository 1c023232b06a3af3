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
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import orjson

from gristmill.core.columns import COLUMNS, IDS, MASK, Kind
from gristmill.core.errors import DatasetError, OutputError
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain, read_plain
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, Values, WindowBatch, joined, natural, rebatched, stored
from gristmill.windows.cut import Indices

CHUNK_BYTES = 1 << 26
"""A file ends before the row that would make it larger, as with both libraries by default."""
ROWS_AT_ONCE = 2048
NUMBER_BYTES = 8
COUNT = np.dtype("<u4")
NUMBERS_TYPES: dict[str, np.dtype[Any]] = {"int32": np.dtype("<i4"), "int8": np.dtype("u1")}
"""By the type in COLUMNS: LitData has none for int8, and no such column is negative."""
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
    return (Field(IDS, Kind.NUMBERS, np.dtype(id_type).newbyteorder("<")), *map(_field, schema.others))


def _field(name: str) -> Field:
    kind = COLUMNS[name].kind
    dtype = NUMBERS_TYPES[COLUMNS[name].dtype] if kind is Kind.NUMBERS else NUMBER_TYPES.get(kind)
    return Field(name, kind, dtype)


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


def _encoded_column(column: Values, field: Field, layout: Layout) -> list[bytes]:
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


# Reads what chunks writes, without either library: files are mapped, and rows taken apart a column at a time.

MAX_INDEX_BYTES = 1 << 28
"""Of half a million files, 32 TB."""

Bytes = npt.NDArray[np.uint8]


def read_index(path: Path) -> Any:
    """What an index.json says."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_INDEX_BYTES:
            raise DatasetError(f"{str(path)!r} is no index of a dataset. Build the dataset again.")
        return orjson.loads(read_plain(path))
    except (OSError, orjson.JSONDecodeError) as error:
        raise DatasetError(f"{str(path)!r} is damaged: {error}. Build the dataset again.") from None


class _Rows(NamedTuple):
    """The bytes of some rows, and where in them each has one of its fields."""

    content: bytes
    starts: Indices
    sizes: Indices

    def slices(self) -> list[bytes]:
        ends = (self.starts + self.sizes).tolist()
        return [self.content[start:end] for start, end in zip(self.starts.tolist(), ends, strict=True)]

    def numbers(self, skip: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """One of each field."""
        places = self.starts[:, None] + np.arange(skip, skip + dtype.itemsize)
        numbers: npt.NDArray[Any] = np.frombuffer(self.content, np.uint8)[places].view(dtype).ravel()
        return numbers


class ChunkReader:
    def __init__(self, folder: Path, chunks: Sequence[Chunk], layout: Layout, schema: Schema) -> None:
        self._folder, self._chunks, self._layout, self._schema = folder, chunks, layout, schema
        for chunk in chunks:
            self._require_size(chunk)
        self._first_rows = np.array([0, *accumulate(chunk.num_rows for chunk in chunks)])
        self._mapped: tuple[int, Bytes] | None = None

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def read(self, start: int, stop: int) -> WindowBatch:
        stop = min(stop, len(self))
        parts = []
        while start < stop:
            number = int(np.searchsorted(self._first_rows, start, "right")) - 1
            first, end = self._first_rows[number : number + 2].tolist()
            parts.append(self._read(number, start - first, min(stop, end) - first))
            start = end
        return natural(joined(parts or [self._batch(b"", np.zeros(1, np.int64), "")]), self._schema)

    def _read(self, number: int, start: int, stop: int) -> WindowBatch:
        name = self._chunks[number].name
        content = self._content(number)
        table = content[COUNT.itemsize * (start + 1) : COUNT.itemsize * (stop + 2)]
        offsets = table.view(COUNT).astype(np.int64)
        first = self._layout.rows_start(self._chunks[number].num_rows)
        if offsets[0] < first or offsets[-1] > len(content) or (np.diff(offsets) < 0).any():
            self._fail(name, "its rows are not where it says")
        return self._batch(content[offsets[0] : offsets[-1]].tobytes(), offsets - offsets[0], name)

    def _batch(self, content: bytes, edges: Indices, name: str) -> WindowBatch:
        try:
            columns = {
                field.name: _decoded(rows, field, self._layout)
                for field, rows in zip(self._layout.fields, self._located(content, edges), strict=True)
            }
        except ValueError as error:
            self._fail(name, str(error))
        ids = columns[IDS]
        if MASK in columns and not np.array_equal(columns[MASK].offsets, ids.offsets):
            self._fail(name, "an attention_mask is not as long as its ids")
        if len(ids.values) and int(ids.values.min()) < 0:
            self._fail(name, f"the id {ids.values.min()}")
        whole = Ragged(ids.values.astype(self._schema.id_type), ids.offsets)
        return WindowBatch(whole, {other: columns[other] for other in self._schema.others})

    def _located(self, content: bytes, edges: Indices) -> list[_Rows]:
        """For each field, where it is."""
        layout = self._layout
        fixed = {field.name: 0 if field.dtype is None else field.dtype.itemsize for field in layout.fields}
        head_bytes = COUNT.itemsize * len(layout.sized)
        if (np.diff(edges) < head_bytes).any():
            raise ValueError("a row is cut short")
        starts = edges[:-1]
        heads = _Rows(content, starts, np.full_like(starts, head_bytes))
        told = {
            field.name: heads.numbers(COUNT.itemsize * place, COUNT).astype(np.int64)
            for place, field in enumerate(layout.sized)
        }
        located = []
        starts = starts + head_bytes
        for field in layout.fields:
            sizes = told.get(field.name, np.full_like(starts, fixed[field.name]))
            located.append(_Rows(content, starts, sizes))
            starts = starts + sizes
        if not np.array_equal(starts, edges[1:]):
            raise ValueError("the fields of a row are not as long as the row")
        return located

    def _content(self, number: int) -> Bytes:
        """All of a file; the one last used is kept."""
        if self._mapped is None or self._mapped[0] != number:
            chunk, layout = self._chunks[number], self._layout
            self._require_size(chunk)
            try:
                with open_plain(self._folder / chunk.name) as stream:
                    content: Bytes = np.memmap(stream, np.uint8, "r")
            except OSError as error:
                self._fail(chunk.name, str(error.strerror))
            first = layout.rows_start(chunk.num_rows)
            if int(content[: COUNT.itemsize].view(COUNT)[0]) != chunk.num_rows:
                self._fail(chunk.name, "not as many rows as the index says")
            if content[first - len(layout.head) : first].tobytes() != layout.head:
                self._fail(chunk.name, "not the columns that the index says")
            self._mapped = (number, content)
        return self._mapped[1]

    def _require_size(self, chunk: Chunk) -> None:
        path = self._folder / chunk.name
        num_bytes = path.stat().st_size if path.is_file() else None
        if num_bytes != chunk.num_bytes:
            self._fail(chunk.name, "it is not there" if num_bytes is None else counted(num_bytes, "byte"))
        if chunk.num_rows < 1 or self._layout.rows_start(chunk.num_rows) > chunk.num_bytes:
            self._fail(chunk.name, f"{counted(chunk.num_rows, 'row')} cannot be in {counted(chunk.num_bytes, 'byte')}")

    def _fail(self, name: str, fault: str) -> NoReturn:
        raise DatasetError(f"{str(self._folder / name)!r} is damaged: {fault}. Build the dataset again.")


def _decoded(rows: _Rows, field: Field, layout: Layout) -> Values:
    if field.kind is Kind.TEXT:
        return [content.decode() for content in rows.slices()]
    if field.kind is Kind.OBJECTS:
        return [_objects(content) for content in rows.slices()]
    assert field.dtype is not None
    if field.kind is not Kind.NUMBERS:
        if (rows.sizes != field.dtype.itemsize).any():
            raise ValueError(f"a {field.name!r} is no number")
        return rows.numbers(0, field.dtype).astype(field.dtype.newbyteorder("="))
    if layout.has_shapes:
        rows = _without_shapes(rows, field, field.dtype)
    if (rows.sizes % field.dtype.itemsize).any():
        raise ValueError(f"a number in {field.name!r} is cut short")
    offsets = np.concatenate(([0], np.cumsum(rows.sizes // field.dtype.itemsize)))
    values = np.frombuffer(b"".join(rows.slices()), field.dtype)
    return Ragged(values if field.name == IDS else values.astype(np.int64), offsets)


def _without_shapes(rows: _Rows, field: Field, dtype: np.dtype[Any]) -> _Rows:
    """Each shape is read, and held against the bytes that are there."""
    skips = np.zeros_like(rows.sizes)
    if (rows.sizes > 1).all():
        kinds = rows.numbers(0, np.dtype("u1"))
        for power in range(3):
            width = 1 << power
            some = (kinds == (1 << 2 | power)) & (rows.sizes > width)
            those = _Rows(rows.content, rows.starts[some], rows.sizes[some])
            counts = those.numbers(1, np.dtype(f"<u{width}")).astype(np.int64)
            skips[some] = np.where(counts * dtype.itemsize == those.sizes - 1 - width, 1 + width, 0)
    if not skips.all():
        raise ValueError(f"a {field.name!r} has not the shape it says")
    return _Rows(rows.content, rows.starts + skips, rows.sizes - skips)


def _objects(content: bytes) -> list[dict[str, Any]]:
    objects = orjson.loads(content)
    if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
        raise ValueError("what is to be a list of JSON objects is none")
    return objects
