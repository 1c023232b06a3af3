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


class EncodedRows(NamedTuple):
    """Some rows as files have them, one behind the other."""

    content: memoryview
    sizes: Indices


class Digest(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...


def fields_of(schema: Schema, id_type: npt.DTypeLike) -> tuple[Field, ...]:
    """In the order of the schema."""
    return (Field(IDS, Kind.NUMBERS, np.dtype(id_type).newbyteorder("<")), *map(_field, schema.others))


def _field(name: str) -> Field:
    kind = COLUMNS[name].kind
    dtype = NUMBERS_TYPES[COLUMNS[name].dtype] if kind is Kind.NUMBERS else NUMBER_TYPES.get(kind)
    return Field(name, kind, dtype)


def write_chunks(
    rows: Iterable[EncodedRows], layout: Layout, path_of: Callable[[int], Path], digest: Digest | None = None
) -> list[Chunk]:
    """All rows -> the files they are in. Of the rows to come, no more are held than one file has."""
    chunks: list[Chunk] = []
    for contents, sizes in _filled(rows, layout):
        path = path_of(len(chunks))
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        offsets += layout.rows_start(len(sizes))
        if offsets[-1] > np.iinfo(COUNT).max:
            raise OutputError(
                f"a row takes {counted(int(sizes.max()), 'byte')}, {path.name!r} can have 4 GiB. Leave out --with-text."
            )
        table = np.concatenate(([len(sizes)], offsets)).astype(COUNT).tobytes()
        path.parent.mkdir(exist_ok=True)
        parts: list[bytes | memoryview] = [table, layout.head, *contents]
        with path.open("wb") as stream:
            stream.writelines(parts)
        if digest is not None:
            for part in parts:
                digest.update(part)
        chunks.append(Chunk(path.name, len(sizes), int(offsets[-1])))
    return chunks


def _filled(rows: Iterable[EncodedRows], layout: Layout) -> Iterator[tuple[list[memoryview], Indices]]:
    """For each file its rows, many in one piece, and the size of each."""
    limit = layout.max_bytes - (layout.rows_start(0) if layout.is_table_counted else 0)
    more = COUNT.itemsize if layout.is_table_counted else 0
    contents: list[memoryview] = []
    sizes: list[Indices] = []
    room = limit
    for content, row_sizes in rows:
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(row_sizes)))
        counted_ends = ends + more * np.arange(len(ends))
        start = 0
        while start < len(row_sizes):
            # A row that is larger than a file is to be has one for itself.
            stop = int(np.searchsorted(counted_ends, counted_ends[start] + room, "right")) - 1
            stop = max(stop, start + (not sizes))
            if stop > start:
                contents.append(content[ends[start] : ends[stop]])
                sizes.append(row_sizes[start:stop])
            room -= int(counted_ends[stop] - counted_ends[start])
            start = stop
            if start < len(row_sizes):
                yield contents, np.concatenate(sizes)
                contents, sizes, room = [], [], limit
    if sizes:
        yield contents, np.concatenate(sizes)


def encoded_batches(batches: Iterable[WindowBatch], schema: Schema, layout: Layout) -> Iterator[EncodedRows]:
    for batch in rebatched(batches, schema.num_rows_at_once(ROWS_AT_ONCE)):
        yield _encoded(stored(batch, schema), layout)


def _encoded(rows: WindowBatch, layout: Layout) -> EncodedRows:
    columns = {IDS: rows.ids, **rows.columns}
    fields = {field.name: _encoded_column(columns[field.name], field, layout) for field in layout.fields}
    told = np.stack([fields[field.name].sizes for field in layout.sized], axis=1).astype(COUNT)
    heads = _sliced(told.tobytes(), range(0, told.nbytes + 1, told.shape[1] * COUNT.itemsize))
    parts = chain.from_iterable(field.parts for field in fields.values())
    content = b"".join(chain.from_iterable(zip(heads, *parts, strict=True)))
    sizes = sum((field.sizes for field in fields.values()), np.full(len(rows), told.shape[1] * COUNT.itemsize))
    return EncodedRows(memoryview(content), sizes)


class _EncodedColumn(NamedTuple):
    parts: list[list[bytes]]
    """Each has one for each row; a row's field is these, one behind the other."""
    sizes: Indices


def _encoded_column(column: Values, field: Field, layout: Layout) -> _EncodedColumn:
    if field.kind in {Kind.TEXT, Kind.OBJECTS}:
        texts = column if field.kind is Kind.TEXT else map(json.dumps, column)
        own = [text.encode() for text in texts]
        return _EncodedColumn([own], np.fromiter(map(len, own), np.int64, len(own)))
    assert field.dtype is not None
    if field.kind is not Kind.NUMBERS:
        own = _sliced(column.astype(field.dtype).tobytes(), range(0, NUMBER_BYTES * len(column) + 1, NUMBER_BYTES))
        return _EncodedColumn([own], np.full(len(own), NUMBER_BYTES))
    return _encoded_numbers(column, field, field.dtype, layout)


def _encoded_numbers(column: Ragged, field: Field, dtype: np.dtype[Any], layout: Layout) -> _EncodedColumn:
    values = column.values.astype(dtype)
    if values.dtype != column.values.dtype and not np.array_equal(values, column.values):
        raise OutputError(f"a number in {field.name!r} does not fit {dtype.name}. Check the dataset: gristmill check.")
    own = _sliced(values.tobytes(), (column.offsets * dtype.itemsize).tolist())
    sizes = column.sizes * dtype.itemsize
    if not layout.has_shapes:
        return _EncodedColumn([own], sizes)
    shapes = [shape_of(count) for count in column.sizes.tolist()]
    return _EncodedColumn([shapes, own], sizes + np.fromiter(map(len, shapes), np.int64, len(shapes)))


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

    def encoded(self) -> Iterator[EncodedRows]:
        """All rows as they are, file by file."""
        for number, chunk in enumerate(self._chunks):
            offsets = self._offsets(number, 0, chunk.num_rows)
            yield EncodedRows(self._content(number)[offsets[0] : offsets[-1]].data, np.diff(offsets))

    def _read(self, number: int, start: int, stop: int) -> WindowBatch:
        offsets = self._offsets(number, start, stop)
        content = self._content(number)[offsets[0] : offsets[-1]].tobytes()
        return self._batch(content, offsets - offsets[0], self._chunks[number].name)

    def _offsets(self, number: int, start: int, stop: int) -> Indices:
        content, chunk = self._content(number), self._chunks[number]
        table = content[COUNT.itemsize * (start + 1) : COUNT.itemsize * (stop + 2)]
        offsets: Indices = table.view(COUNT).astype(np.int64)
        first = self._layout.rows_start(chunk.num_rows)
        if offsets[0] < first or offsets[-1] > len(content) or (np.diff(offsets) < 0).any():
            self._fail(chunk.name, "its rows are not where it says")
        return offsets

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
