"""Reader and writer for the binary layout that MDS and LitData share: files with a table of row offsets.

    file: [number of rows][start of each row, and end of the last row][header][row][row] …        numbers are uint32
    row:  [sizes of some or all fields][field][field] …

The writer encodes each column for many rows at once, and joins slices of the results. This is several times as fast as
the writers of the two libraries (benchmarks/formats.md).
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
from gristmill.formats.batch import (
    ColumnValues,
    Ragged,
    WindowBatch,
    add_padding,
    concat_batches,
    rebatch,
    remove_padding,
)
from gristmill.windows.cut import Indices

CHUNK_BYTES = 1 << 26
"""Maximum size of a file. Both libraries have this default. A row that does not fit is written to the next file."""
ROWS_AT_ONCE = 2048
NUMBER_BYTES = 8
COUNT_TYPE = np.dtype("<u4")
NUMBERS_TYPES: dict[str, np.dtype[Any]] = {"int32": np.dtype("<i4"), "int8": np.dtype("u1")}
"""Stored type for each list type in COLUMNS. LitData has no int8, so int8 columns, which have no negative values, are
stored as uint8."""
NUMBER_TYPES: dict[Kind, np.dtype[Any]] = {Kind.NUMBER: np.dtype("<i8"), Kind.FRACTION: np.dtype("<f8")}


class Field(NamedTuple):
    """Stored form of a column."""

    name: str
    kind: Kind
    dtype: np.dtype[Any] | None
    """Type of the stored numbers, or None for text and JSON."""

    @property
    def has_variable_size(self) -> bool:
        """True if the size of the field may differ from row to row."""
        return self.kind not in {Kind.NUMBER, Kind.FRACTION}


class Layout(NamedTuple):
    """Layout of the files of a format."""

    fields: tuple[Field, ...]
    """Fields of a row, in the order in which they are stored."""
    header: bytes
    """Bytes between the table of row offsets and the rows, the same in every file."""
    has_shapes: bool
    """True if the shape of a list of numbers is stored before the numbers (MDS), False if no shapes are stored."""
    has_all_sizes: bool
    """True if a row stores the sizes of all fields (LitData), False if it stores only those of variable-size fields."""
    max_bytes: int
    """Maximum size of a file. A single row that is larger gets its own file."""
    limit_includes_table: bool
    """True if `max_bytes` includes the header and the table of row offsets, False if it includes only the rows."""

    @property
    def sized_fields(self) -> tuple[Field, ...]:
        """Fields whose size is stored in each row."""
        return self.fields if self.has_all_sizes else tuple(field for field in self.fields if field.has_variable_size)

    def rows_start(self, num_rows: int) -> int:
        """Return the offset of the first row in a file of `num_rows` rows."""
        return COUNT_TYPE.itemsize * (num_rows + 2) + len(self.header)


class Chunk(NamedTuple):
    """One file of a split."""

    name: str
    num_rows: int
    num_bytes: int


class EncodedRows(NamedTuple):
    """Encoded rows, concatenated."""

    content: memoryview
    sizes: Indices
    """Size of each row in bytes."""


class Digest(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...


def make_fields(schema: Schema, id_type: npt.DTypeLike) -> tuple[Field, ...]:
    """Return a field for each column, in the order of the schema."""
    return (
        Field(IDS, Kind.NUMBERS, np.dtype(id_type).newbyteorder("<")),
        *map(_make_field, schema.columns_without_ids),
    )


def _make_field(name: str) -> Field:
    kind = COLUMNS[name].kind
    dtype = NUMBERS_TYPES[COLUMNS[name].dtype] if kind is Kind.NUMBERS else NUMBER_TYPES.get(kind)
    return Field(name, kind, dtype)


def write_chunks(
    rows: Iterable[EncodedRows], layout: Layout, make_path: Callable[[int], Path], digest: Digest | None = None
) -> list[Chunk]:
    """Write rows to files and return a Chunk for each file. Rows are held in memory until their file is complete."""
    chunks: list[Chunk] = []
    for contents, sizes in _group_by_file(rows, layout):
        path = make_path(len(chunks))
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        offsets += layout.rows_start(len(sizes))
        if offsets[-1] > np.iinfo(COUNT_TYPE).max:
            raise OutputError(
                f"a row takes {counted(int(sizes.max()), 'byte')}, but the file {path.name!r} is limited to 4 GiB. "
                "Build the dataset without --with-text."
            )
        table = np.concatenate(([len(sizes)], offsets)).astype(COUNT_TYPE).tobytes()
        path.parent.mkdir(exist_ok=True)
        parts: list[bytes | memoryview] = [table, layout.header, *contents]
        with path.open("wb") as stream:
            stream.writelines(parts)
        if digest is not None:
            for part in parts:
                digest.update(part)
        chunks.append(Chunk(path.name, len(sizes), int(offsets[-1])))
    return chunks


def _group_by_file(rows: Iterable[EncodedRows], layout: Layout) -> Iterator[tuple[list[memoryview], Indices]]:
    """Yield, for each file, its content as a list of byte strings, and the sizes of its rows."""
    limit = layout.max_bytes - (layout.rows_start(0) if layout.limit_includes_table else 0)
    row_overhead = COUNT_TYPE.itemsize if layout.limit_includes_table else 0
    contents: list[memoryview] = []
    sizes: list[Indices] = []
    bytes_left = limit
    for content, row_sizes in rows:
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(row_sizes)))
        charged_ends = ends + row_overhead * np.arange(len(ends))
        start = 0
        while start < len(row_sizes):
            # A single row that exceeds the limit gets its own file.
            stop = int(np.searchsorted(charged_ends, charged_ends[start] + bytes_left, "right")) - 1
            stop = max(stop, start + (not sizes))
            if stop > start:
                contents.append(content[ends[start] : ends[stop]])
                sizes.append(row_sizes[start:stop])
            bytes_left -= int(charged_ends[stop] - charged_ends[start])
            start = stop
            if start < len(row_sizes):
                yield contents, np.concatenate(sizes)
                contents, sizes, bytes_left = [], [], limit
    if sizes:
        yield contents, np.concatenate(sizes)


def encode_batches(batches: Iterable[WindowBatch], schema: Schema, layout: Layout) -> Iterator[EncodedRows]:
    for batch in rebatch(batches, schema.num_rows_at_once(ROWS_AT_ONCE)):
        yield _encode_rows(add_padding(batch, schema), layout)


def _encode_rows(rows: WindowBatch, layout: Layout) -> EncodedRows:
    columns = {IDS: rows.ids, **rows.columns}
    fields = {field.name: _encode_column(columns[field.name], field, layout) for field in layout.fields}
    stored_sizes = np.stack([fields[field.name].sizes for field in layout.sized_fields], axis=1).astype(COUNT_TYPE)
    headers = _slice_bytes(
        stored_sizes.tobytes(), range(0, stored_sizes.nbytes + 1, stored_sizes.shape[1] * COUNT_TYPE.itemsize)
    )
    parts = chain.from_iterable(field.parts for field in fields.values())
    content = b"".join(chain.from_iterable(zip(headers, *parts, strict=True)))
    sizes = sum(
        (field.sizes for field in fields.values()), np.full(len(rows), stored_sizes.shape[1] * COUNT_TYPE.itemsize)
    )
    return EncodedRows(memoryview(content), sizes)


class _EncodedColumn(NamedTuple):
    parts: list[list[bytes]]
    """One or more lists with one entry per row. The entries of a row, concatenated, are the encoded field."""
    sizes: Indices


def _encode_column(column: ColumnValues, field: Field, layout: Layout) -> _EncodedColumn:
    if field.kind in {Kind.TEXT, Kind.OBJECTS}:
        texts = column if field.kind is Kind.TEXT else map(json.dumps, column)
        encoded = [text.encode() for text in texts]
        return _EncodedColumn([encoded], np.fromiter(map(len, encoded), np.int64, len(encoded)))
    assert field.dtype is not None
    if field.kind is not Kind.NUMBERS:
        encoded = _slice_bytes(
            column.astype(field.dtype).tobytes(), range(0, NUMBER_BYTES * len(column) + 1, NUMBER_BYTES)
        )
        return _EncodedColumn([encoded], np.full(len(encoded), NUMBER_BYTES))
    return _encode_numbers(column, field, field.dtype, layout)


def _encode_numbers(column: Ragged, field: Field, dtype: np.dtype[Any], layout: Layout) -> _EncodedColumn:
    values = column.values.astype(dtype)
    if values.dtype != column.values.dtype and not np.array_equal(values, column.values):
        raise OutputError(
            f"a number in {field.name!r} does not fit in {dtype.name}. Check the dataset with gristmill check DIR."
        )
    encoded = _slice_bytes(values.tobytes(), (column.offsets * dtype.itemsize).tolist())
    sizes = column.sizes * dtype.itemsize
    if not layout.has_shapes:
        return _EncodedColumn([encoded], sizes)
    shapes = [encode_shape(count) for count in column.sizes.tolist()]
    return _EncodedColumn([shapes, encoded], sizes + np.fromiter(map(len, shapes), np.int64, len(shapes)))


@cache
def encode_shape(count: int) -> bytes:
    """Encode the shape of a one-dimensional array as MDS does.

    The first byte is `1 << 2 | power`, where 1 is the number of dimensions. The length of the array follows, as an
    integer of `2**power` bytes.
    """
    power = 0 if count < 1 << 8 else 1 if count < 1 << 16 else 2
    return bytes([1 << 2 | power]) + count.to_bytes(1 << power, "little")


def _slice_bytes(content: bytes, edges: Sequence[int]) -> list[bytes]:
    return [content[start:end] for start, end in pairwise(edges)]


# The reader uses neither mosaicml-streaming nor litdata. It memory-maps files and decodes rows column by column.

MAX_INDEX_BYTES = 1 << 28
"""Maximum size of index.json. Enough for half a million files, or 32 TB."""

Bytes = npt.NDArray[np.uint8]


def read_index(path: Path) -> Any:
    """Parse an index.json. Raises DatasetError if it is missing, too large or not valid JSON."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_INDEX_BYTES:
            raise DatasetError(
                f"{str(path)!r} is missing or larger than {counted(MAX_INDEX_BYTES, 'byte')}. Build the dataset again."
            )
        return orjson.loads(read_plain(path))
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror or error}.") from None
    except orjson.JSONDecodeError as error:
        raise DatasetError(f"{str(path)!r} is damaged: {error}. Build the dataset again.") from None


class _FieldSlices(NamedTuple):
    """Positions of one field in a group of rows."""

    content: bytes
    starts: Indices
    sizes: Indices

    def slices(self) -> list[bytes]:
        ends = (self.starts + self.sizes).tolist()
        return [self.content[start:end] for start, end in zip(self.starts.tolist(), ends, strict=True)]

    def read_numbers(self, skip: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return one number per row, at `skip` bytes from the start of the field."""
        positions = self.starts[:, None] + np.arange(skip, skip + dtype.itemsize)
        numbers: npt.NDArray[Any] = np.frombuffer(self.content, np.uint8)[positions].view(dtype).ravel()
        return numbers


class ChunkReader:
    """Reader of a split. Memory-maps one file at a time, and keeps the map until it reads from another file."""

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
            index = int(np.searchsorted(self._first_rows, start, "right")) - 1
            first, end = self._first_rows[index : index + 2].tolist()
            parts.append(self._read(index, start - first, min(stop, end) - first))
            start = end
        try:
            return remove_padding(concat_batches(parts or [self._batch(b"", np.zeros(1, np.int64), "")]), self._schema)
        except ValueError as error:
            raise DatasetError(f"{str(self._folder)!r} is damaged: {error}. Build the dataset again.") from None

    def encoded_rows(self) -> Iterator[EncodedRows]:
        """Yield all rows without decoding them, file by file."""
        for index, chunk in enumerate(self._chunks):
            offsets = self._offsets(index, 0, chunk.num_rows)
            yield EncodedRows(self._content(index)[offsets[0] : offsets[-1]].data, np.diff(offsets))

    def _read(self, index: int, start: int, stop: int) -> WindowBatch:
        offsets = self._offsets(index, start, stop)
        content = self._content(index)[offsets[0] : offsets[-1]].tobytes()
        return self._batch(content, offsets - offsets[0], self._chunks[index].name)

    def _offsets(self, index: int, start: int, stop: int) -> Indices:
        content, chunk = self._content(index), self._chunks[index]
        table = content[COUNT_TYPE.itemsize * (start + 1) : COUNT_TYPE.itemsize * (stop + 2)]
        offsets: Indices = table.view(COUNT_TYPE).astype(np.int64)
        first = self._layout.rows_start(chunk.num_rows)
        if offsets[0] < first or offsets[-1] > len(content) or (np.diff(offsets) < 0).any():
            self._fail(chunk.name, "its table of row offsets is inconsistent")
        return offsets

    def _batch(self, content: bytes, edges: Indices, name: str) -> WindowBatch:
        try:
            columns = {
                field.name: _decode_field(rows, field, self._layout)
                for field, rows in zip(self._layout.fields, self._locate_fields(content, edges), strict=True)
            }
        except ValueError as error:
            self._fail(name, str(error))
        ids = columns[IDS]
        if MASK in columns and not np.array_equal(columns[MASK].offsets, ids.offsets):
            self._fail(name, "the attention_mask and the ids of a row differ in length")
        if len(ids.values) and int(ids.values.min()) < 0:
            self._fail(name, f"it has the negative id {ids.values.min()}")
        typed_ids = Ragged(ids.values.astype(self._schema.id_type), ids.offsets)
        return WindowBatch(typed_ids, {other: columns[other] for other in self._schema.columns_without_ids})

    def _locate_fields(self, content: bytes, edges: Indices) -> list[_FieldSlices]:
        """Return the position of each field in each row."""
        layout = self._layout
        fixed_sizes = {field.name: 0 if field.dtype is None else field.dtype.itemsize for field in layout.fields}
        header_bytes = COUNT_TYPE.itemsize * len(layout.sized_fields)
        if (np.diff(edges) < header_bytes).any():
            raise ValueError("a row is truncated")
        starts = edges[:-1]
        headers = _FieldSlices(content, starts, np.full_like(starts, header_bytes))
        stored_sizes = {
            field.name: headers.read_numbers(COUNT_TYPE.itemsize * position, COUNT_TYPE).astype(np.int64)
            for position, field in enumerate(layout.sized_fields)
        }
        field_slices = []
        starts = starts + header_bytes
        for field in layout.fields:
            sizes = stored_sizes.get(field.name, np.full_like(starts, fixed_sizes[field.name]))
            field_slices.append(_FieldSlices(content, starts, sizes))
            starts = starts + sizes
        if not np.array_equal(starts, edges[1:]):
            raise ValueError("the sizes of the fields of a row do not add up to the size of the row")
        return field_slices

    def _content(self, index: int) -> Bytes:
        """Return the content of a file as a memory map."""
        if self._mapped is None or self._mapped[0] != index:
            chunk, layout = self._chunks[index], self._layout
            self._require_size(chunk)
            try:
                with open_plain(self._folder / chunk.name) as stream:
                    content: Bytes = np.memmap(stream, np.uint8, "r")
            except OSError as error:
                self._fail(chunk.name, str(error.strerror))
            first = layout.rows_start(chunk.num_rows)
            if int(content[: COUNT_TYPE.itemsize].view(COUNT_TYPE)[0]) != chunk.num_rows:
                self._fail(chunk.name, "its number of rows differs from the number in index.json")
            if content[first - len(layout.header) : first].tobytes() != layout.header:
                self._fail(chunk.name, "its header does not match the columns of the dataset")
            self._mapped = (index, content)
        return self._mapped[1]

    def _require_size(self, chunk: Chunk) -> None:
        path = self._folder / chunk.name
        num_bytes = path.stat().st_size if path.is_file() else None
        if num_bytes != chunk.num_bytes:
            self._fail(
                chunk.name,
                "the file is missing"
                if num_bytes is None
                else f"it has {counted(num_bytes, 'byte')}, but index.json records {chunk.num_bytes:,}",
            )
        if chunk.num_rows < 1 or self._layout.rows_start(chunk.num_rows) > chunk.num_bytes:
            self._fail(
                chunk.name,
                f"index.json records {counted(chunk.num_rows, 'row')} in {counted(chunk.num_bytes, 'byte')}, "
                "which is impossible",
            )

    def _fail(self, name: str, fault: str) -> NoReturn:
        raise DatasetError(f"{str(self._folder / name)!r} is damaged: {fault}. Build the dataset again.")


def _decode_field(rows: _FieldSlices, field: Field, layout: Layout) -> ColumnValues:
    if field.kind in {Kind.TEXT, Kind.OBJECTS}:
        decode = bytes.decode if field.kind is Kind.TEXT else _decode_objects
        try:
            return [decode(content) for content in rows.slices()]
        except ValueError as error:  # such as invalid UTF-8
            raise ValueError(f"a value of {field.name!r} is invalid: {error}") from None
    assert field.dtype is not None
    if field.kind is not Kind.NUMBERS:
        if (rows.sizes != field.dtype.itemsize).any():
            raise ValueError(f"a value of {field.name!r} does not have the size of a number")
        return rows.read_numbers(0, field.dtype).astype(field.dtype.newbyteorder("="))
    if layout.has_shapes:
        rows = _strip_shapes(rows, field, field.dtype)
    if (rows.sizes % field.dtype.itemsize).any():
        raise ValueError(f"a number in {field.name!r} is truncated")
    offsets = np.concatenate(([0], np.cumsum(rows.sizes // field.dtype.itemsize)))
    values = np.frombuffer(b"".join(rows.slices()), field.dtype)
    return Ragged(values if field.name == IDS else values.astype(np.int64), offsets)


def _strip_shapes(rows: _FieldSlices, field: Field, dtype: np.dtype[Any]) -> _FieldSlices:
    """Return the positions of the lists of numbers, without the shapes before them.

    Raises ValueError if a shape does not match the size of its field.
    """
    shape_bytes = np.zeros_like(rows.sizes)
    if (rows.sizes > 1).all():
        kinds = rows.read_numbers(0, np.dtype("u1"))
        for power in range(3):
            width = 1 << power
            matches = (kinds == (1 << 2 | power)) & (rows.sizes > width)
            matching = _FieldSlices(rows.content, rows.starts[matches], rows.sizes[matches])
            counts = matching.read_numbers(1, np.dtype(f"<u{width}")).astype(np.int64)
            shape_bytes[matches] = np.where(counts * dtype.itemsize == matching.sizes - 1 - width, 1 + width, 0)
    if not shape_bytes.all():
        raise ValueError(f"a value of {field.name!r} does not match its shape")
    return _FieldSlices(rows.content, rows.starts + shape_bytes, rows.sizes - shape_bytes)


def _decode_objects(content: bytes) -> list[dict[str, Any]]:
    objects = orjson.loads(content)
    if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
        raise ValueError("it is not a list of JSON objects")
    return objects
