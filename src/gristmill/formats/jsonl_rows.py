"""Rows as compact JSON lines. The size of each line can be computed without formatting the line.

A line consists of pieces: bytes that are the same in all rows, values that are the same in all rows of a document, and
values that differ from row to row. Lines and their sizes are computed from the same pieces.

The ids of consecutive documents are formatted once, and the result is sliced at the commas. With windows of 512 ids and
an overlap of 256, this is twice as fast as formatting each window with orjson (benchmarks/write.md).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import orjson

from gristmill.core.columns import COLUMNS, IDS, MASK, STEP_2_CONDITIONS, Kind
from gristmill.core.errors import OutputError
from gristmill.core.schema import Schema
from gristmill.formats.batch import ColumnValues, Ragged, WindowBatch, add_padding, remove_padding, require_ids_fit
from gristmill.formats.document_columns import (
    FILLERS,
    Choices,
    ColumnContent,
    IdRanges,
    Pairs,
    PerDocument,
    Rows,
    TextRanges,
    Tokens,
    num_ids,
)
from gristmill.windows.cut import Indices, Windows

POWERS_OF_TEN = 10 ** np.arange(1, 19)
WIDTH_TABLE_SIZE = 1 << 18
"""Number of ids in the table of widths (number of digits, plus one for a comma). Nearly every vocabulary is smaller."""


class VaryingPiece(Protocol):
    """Piece of a line that may differ from row to row."""

    def encode(self) -> Sequence[bytes | memoryview]: ...
    def sizes(self) -> Indices:
        """Return `[len(piece) for piece in self.encode()]`, faster than by encoding. Numbers must not be negative."""
        ...


class _PerDocument(NamedTuple):
    """Value that is the same in all rows of a document."""

    values: list[bytes]
    document_index: Indices

    def encode(self) -> list[bytes]:
        return [self.values[index] for index in self.document_index.tolist()]

    def sizes(self) -> Indices:
        return np.fromiter(map(len, self.values), np.int64, len(self.values))[self.document_index]


class _Choice(NamedTuple):
    """One of a few values in each row."""

    values: list[bytes]
    indices: Indices

    def encode(self) -> list[bytes]:
        return [self.values[index] for index in self.indices.tolist()]

    def sizes(self) -> Indices:
        return np.fromiter(map(len, self.values), np.int64, len(self.values))[self.indices]


class _Numbers(NamedTuple):
    """One number in each row."""

    values: npt.NDArray[Any]

    def encode(self) -> list[bytes]:
        return _to_json(self.values)[1:-1].split(b",") if len(self.values) else []

    def sizes(self) -> Indices:
        return _num_digits(self.values)


class _Ranges(NamedTuple):
    """Range of an array of numbers in each row, formatted as `12,345,6`."""

    values: npt.NDArray[Any]
    starts: Indices
    ends: Indices

    def encode(self) -> list[memoryview]:
        content = memoryview(_to_json(self.values))
        if self.values.dtype.kind == "u":
            edges = self._edges()
        else:  # numbers may be negative
            commas = np.flatnonzero(np.frombuffer(content, np.uint8) == ord(","))
            edges = np.concatenate(([0], commas, [len(content) - 1]))
        ranges = zip((edges[self.starts] + 1).tolist(), edges[self.ends].tolist(), strict=True)
        return [content[start:end] for start, end in ranges]

    def sizes(self) -> Indices:
        edges = self._edges()
        sizes: Indices = np.maximum(edges[self.ends] - edges[self.starts] - 1, 0)
        return sizes

    def _edges(self) -> Indices:
        """Return the offset in `[12,345,6]` of the bracket or comma before each number, and of the closing bracket."""
        edges = np.zeros(len(self.values) + 1, np.int64)
        np.cumsum(_widths(self.values), out=edges[1:])
        return edges


class _Repeated(NamedTuple):
    """The same bytes, repeated a number of times in each row."""

    content: bytes
    counts: Indices

    def encode(self) -> list[bytes]:
        return [self.content * count for count in self.counts.tolist()]

    def sizes(self) -> Indices:
        return len(self.content) * self.counts


class _AfterLast(NamedTuple):
    """The same bytes in all rows that end a document, and nothing in other rows."""

    content: bytes
    is_last: npt.NDArray[np.bool_]

    def encode(self) -> list[bytes]:
        return [self.content if is_last else b"" for is_last in self.is_last.tolist()]

    def sizes(self) -> Indices:
        return len(self.content) * self.is_last.astype(np.int64)


class _Mask(NamedTuple):
    """Attention mask of each row, formatted as `1,1,1,0,0`. All rows have the same length."""

    num_ids: Indices
    length: int

    def encode(self) -> list[bytes]:
        return [(b"1," * count + b"0," * (self.length - count))[:-1] for count in self.num_ids.tolist()]

    def sizes(self) -> Indices:
        return np.full(len(self.num_ids), 2 * self.length - 1)


class _Texts(NamedTuple):
    """Range of a text in each row, formatted as a JSON string."""

    ranges: TextRanges

    def encode(self) -> list[bytes]:
        return list(map(orjson.dumps, self.ranges.texts()))

    def sizes(self) -> Indices:
        utf8, starts, ends = self.ranges
        escaped = np.concatenate(([0], np.cumsum(_escaped_widths()[np.frombuffer(utf8, np.uint8)])))
        sizes: Indices = escaped[ends] - escaped[starts] + len(b'""')
        return sizes


class _Values(NamedTuple):
    """Any JSON value in each row."""

    values: Sequence[Any]

    def encode(self) -> list[bytes]:
        return list(map(orjson.dumps, self.values))

    def sizes(self) -> Indices:
        return np.fromiter(map(len, self.encode()), np.int64, len(self.values))


Piece = bytes | VaryingPiece


# Lines for the rows in a `Rows` record, formatted without making a batch first.


def row_lines(rows: Rows, schema: Schema) -> list[bytes]:
    """Format each row as a line with a line feed."""
    return _lines(_row_pieces(rows, schema), rows.num_rows)


def row_content(rows: Rows, schema: Schema) -> bytes:
    """Format all rows and concatenate the lines."""
    columns = _merge_columns(_row_pieces(rows, schema), rows.num_rows)
    return b"".join(chain.from_iterable(zip(*columns, strict=True)))


def row_sizes(rows: Rows, schema: Schema) -> Indices:
    """Return `[len(line) for line in row_lines(rows, schema)]` without formatting the lines."""
    return _sizes(_row_pieces(rows, schema), rows.num_rows)


def num_added_bytes(schema: Schema) -> int:
    """Return the number of bytes that the columns of step 2 (STEP_2_CONDITIONS) add to each row.

    The number is valid for rows with default values in these columns: weight 1, no repeat, no variant, and not
    rewritten for fill-in-the-middle.
    """
    later_columns = [name for name in schema.columns if COLUMNS[name].when in STEP_2_CONDITIONS]
    pieces = [
        piece for name in later_columns for piece in (_key(name), *_pieces(name, FILLERS[name](_ONE_ROW), schema))
    ]
    return int(_sizes(pieces, 1)[0])


class _PlainDocument(NamedTuple):
    repo: str = ""
    path: str = ""
    language: str = ""
    weight: float = 1.0
    variant: None = None


_ZERO = np.zeros(1, np.int64)
_ONE_ROW = Rows(
    documents=[_PlainDocument()],
    tokens=Tokens(_ZERO[:0], np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(2, np.int64)),
    document_index=_ZERO,
    windows=Windows(_ZERO, _ZERO, _ZERO, 0),
)


def _row_pieces(rows: Rows, schema: Schema) -> Iterator[Piece]:
    yield b"{"
    for number, name in enumerate(schema.columns):
        yield _key(name, is_first=not number)
        if name == MASK:
            yield from (b"[", _Mask(num_ids(rows, schema), schema.length), b"]")
        else:
            yield from _pieces(name, FILLERS[name](rows), schema)
    yield b"}\n"


def _pieces(name: str, content: ColumnContent, schema: Schema) -> Iterator[Piece]:
    if isinstance(content, PerDocument):
        yield _PerDocument(list(map(orjson.dumps, content.values)), content.document_index)
    elif isinstance(content, Choices):
        yield _Choice(list(map(orjson.dumps, content.values)), content.indices)
    elif isinstance(content, IdRanges):
        yield from _id_pieces(name, content, schema)
    elif isinstance(content, TextRanges):
        yield _Texts(content)
    elif isinstance(content, Pairs):
        yield from (b"[", _Numbers(content.first), b",", _Numbers(content.second), b"]")
    else:
        yield _Numbers(content)


def _id_pieces(name: str, content: IdRanges, schema: Schema) -> Iterator[Piece]:
    """Yield the pieces of a list of ids: special ids, a range of ids, special ids and padding.

    Example: `[0,` then `12,345` then `,2` then `,1,1` then `]`.
    """
    yield b"[" + b"".join(b"%d," % index for index in schema.prefix)
    yield _Ranges(content.ids, content.starts, content.ends)
    yield b"".join(b",%d" % index for index in schema.suffix)
    if schema.closing:
        yield _AfterLast(b"".join(b",%d" % index for index in schema.closing), content.is_last)
    if schema.pad_id is not None:
        padding = COLUMNS[name].padding
        pad = schema.pad_id if padding is None else padding
        yield _Repeated(b",%d" % pad, schema.length - content.num_ids(schema))
    yield b"]"


def _value_pieces(values: ColumnValues) -> Iterator[Piece]:
    """Yield the pieces of a column of a batch."""
    if isinstance(values, Ragged):
        first = values.offsets[0]
        flat = values.values[first : values.offsets[-1]]
        yield from (b"[", _Ranges(flat, values.offsets[:-1] - first, values.offsets[1:] - first), b"]")
    else:
        yield _Numbers(values) if isinstance(values, np.ndarray) else _Values(values)


@cache
def _key(name: str, *, is_first: bool = False) -> bytes:
    return b'%b"%b":' % (b"" if is_first else b",", name.encode())


def _lines(pieces: Iterable[Piece], num_rows: int) -> list[bytes]:
    return list(map(b"".join, zip(*_merge_columns(pieces, num_rows), strict=True)))


def _merge_columns(pieces: Iterable[Piece], num_rows: int) -> list[Iterable[bytes | memoryview]]:
    """Merge adjacent pieces of the same type, if it is one of MERGEABLE_TYPES, with the constant bytes around them.

    Return an iterable with one entry per row for each piece that remains.
    """
    groups: list[tuple[type, list[Any]]] = []
    for piece in pieces:
        kind = _merge_type(piece)
        last_kind = groups[-1][0] if groups else None
        if (kind is bytes and last_kind in MERGEABLE_TYPES) or (kind in MERGEABLE_TYPES and last_kind in (bytes, kind)):
            group = groups[-1][1]
            group.append(piece)
            groups[-1] = last_kind if kind is bytes and last_kind is not None else kind, group
        else:
            groups.append((kind, [piece]))
    return [_column(kind, group, num_rows) for kind, group in groups]


def _merge_type(piece: Piece) -> type:
    """Return the type by which pieces are merged. Floats are not merged because `%d` formats only integers."""
    is_integer = isinstance(piece, _Numbers) and piece.values.dtype.kind != "f"
    return type(piece) if is_integer or not isinstance(piece, _Numbers) else object


MERGEABLE_TYPES = (bytes, _PerDocument, _Numbers)


def _column(kind: type, pieces: Sequence[Any], num_rows: int) -> Iterable[bytes | memoryview]:
    if kind is bytes:
        return repeat(b"".join(pieces), num_rows)
    if kind is _PerDocument:
        (document_index, *_) = [piece.document_index for piece in pieces if not isinstance(piece, bytes)]
        parts = (repeat(piece) if isinstance(piece, bytes) else piece.values for piece in pieces)
        return _PerDocument(list(map(b"".join, zip(*parts, strict=False))), document_index).encode()
    if kind is _Numbers:
        template = b"".join(piece if isinstance(piece, bytes) else b"%d" for piece in pieces)
        numbers = [piece.values.tolist() for piece in pieces if not isinstance(piece, bytes)]
        return [template % row for row in zip(*numbers, strict=True)]
    encoded: Sequence[bytes | memoryview] = pieces[0].encode()
    return encoded


def _sizes(pieces: Iterable[Piece], num_rows: int) -> Indices:
    sizes, constant = np.zeros(num_rows, np.int64), 0
    numbers: list[Indices] = []
    for piece in pieces:
        if isinstance(piece, bytes):
            constant += len(piece)
        elif isinstance(piece, _Numbers):
            numbers.append(piece.values)
        else:
            sizes += piece.sizes()
    if numbers:  # all columns at once, because most documents have few rows
        sizes += _num_digits(np.concatenate(numbers)).reshape(len(numbers), -1).sum(axis=0)
    return sizes + constant


def _to_json(values: npt.NDArray[Any]) -> bytes:
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)


def _widths(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the number of digits of each id, plus one for a comma."""
    is_in_table = ids.dtype == np.uint16 or int(ids.max(initial=0)) < WIDTH_TABLE_SIZE
    return _width_table().take(ids) if is_in_table else _num_digits(ids) + 1


@cache
def _width_table() -> npt.NDArray[np.uint8]:
    return (_num_digits(np.arange(WIDTH_TABLE_SIZE)) + 1).astype(np.uint8)


def _num_digits(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return 1 + np.searchsorted(POWERS_OF_TEN, numbers, "right")


@cache
def _escaped_widths() -> npt.NDArray[np.int64]:
    """Return, for each of the 256 byte values, the number of bytes that it takes in a JSON string."""
    ascii_widths = [len(orjson.dumps(chr(code))) - 2 for code in range(0x80)]
    return np.array(ascii_widths + [1] * 0x80, np.int64)


# Conversion between batches and JSON lines. The lines have the same bytes as those of `row_lines`.


def format_lines(batch: WindowBatch, schema: Schema) -> list[bytes]:
    """Format each row of a batch as a line with padding and a line feed, as in a JSONL file."""
    return column_lines(add_padding(batch, schema).stored_columns, len(batch))


def column_lines(columns: Mapping[str, ColumnValues], num_rows: int) -> list[bytes]:
    """Format a line for each row, with the columns in the order of `columns`."""
    return _lines(_batch_pieces(columns), num_rows)


def _batch_pieces(columns: Mapping[str, ColumnValues]) -> Iterator[Piece]:
    yield b"{"
    for number, (name, values) in enumerate(columns.items()):
        yield _key(name, is_first=not number)
        yield from _value_pieces(values)
    yield b"}\n"


def parse_lines(lines: Sequence[bytes], schema: Schema) -> WindowBatch:
    """Parse stored rows and remove their padding. Raises ValueError if a row is damaged."""
    try:
        rows = [orjson.loads(line) for line in lines]
    except orjson.JSONDecodeError as error:
        raise ValueError(f"a row is not valid JSON ({error})") from None
    columns = {name: _parsed_column(rows, name) for name in schema.columns_without_ids}
    if not schema.has_ids:
        return WindowBatch.of_documents(columns, schema)
    ids: Ragged = _parsed_column(rows, IDS)
    try:
        require_ids_fit(ids.values, schema.id_type)  # in NumPy 1, astype would wrap large ids around
    except OutputError:
        raise ValueError(f"a row has an id outside the vocabulary, whose size is {schema.vocab_size:,}") from None
    ids = ids._replace(values=ids.values.astype(schema.id_type))
    return remove_padding(WindowBatch(ids, columns), schema)


def _parsed_column(rows: Sequence[Any], name: str) -> ColumnValues:
    try:
        return make_column([row[name] for row in rows], COLUMNS[name].kind)
    except LookupError:
        raise ValueError(f"a row has no {name}") from None
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"the column {name} of a row has a value of the wrong type") from None


def make_column(values: list[Any], kind: Kind) -> ColumnValues:
    """Convert the values of a column to the type that `Kind` documents for a batch."""
    if kind is Kind.NUMBERS:
        return Ragged.of(values)
    if kind is Kind.NUMBER:
        return np.array(values, np.int64)
    return np.array(values, np.float64) if kind is Kind.FRACTION else values
