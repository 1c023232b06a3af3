"""Rows as JSON Lines: one window a row, compact. The sizes of a document's rows are known before any is written.

A row is made of pieces: bytes that are the same in all rows, in all rows of a document, or of which each row has its
own. Both what lines are made of and what they take go by the same pieces.

The ids of a run of documents are formatted once and the bytes sliced at the commas: at overlap 256, where every id
appears twice, 1.4 times as fast as window by window (benchmarks/write.md).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, repeat
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import orjson

from gristmill.core.columns import COLUMNS, DECIDED_LATER, IDS, MASK, Kind
from gristmill.core.errors import DatasetError, OutputError
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, Values, WindowBatch, natural, require_fitting, stored
from gristmill.formats.document_columns import (
    FILLERS,
    Choices,
    Filled,
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
WIDTHS_KNOWN = 1 << 18
"""A table for the ids of nearly every vocabulary; larger ids are measured one by one."""


class Varying(Protocol):
    """A piece of which each row has its own."""

    def encoded(self) -> Sequence[bytes | memoryview]: ...
    def sizes(self) -> Indices:
        """Exactly `[len(piece) for piece in self.encoded()]`, at a fraction of the cost, if no number is negative."""
        ...


class _OfDocuments(NamedTuple):
    """The same in all rows of a document."""

    values: list[bytes]
    of: Indices

    def encoded(self) -> list[bytes]:
        return [self.values[number] for number in self.of.tolist()]

    def sizes(self) -> Indices:
        return np.fromiter(map(len, self.values), np.int64, len(self.values))[self.of]


class _Chosen(NamedTuple):
    """One of a few in each row."""

    values: list[bytes]
    numbers: Indices

    def encoded(self) -> list[bytes]:
        return [self.values[number] for number in self.numbers.tolist()]

    def sizes(self) -> Indices:
        return np.fromiter(map(len, self.values), np.int64, len(self.values))[self.numbers]


class _Numbers(NamedTuple):
    """One number a row."""

    values: npt.NDArray[Any]

    def encoded(self) -> list[bytes]:
        return _json_of(self.values)[1:-1].split(b",") if len(self.values) else []

    def sizes(self) -> Indices:
        return _num_digits(self.values)


class _Ranges(NamedTuple):
    """`12,345,6`: some of these numbers, one after the other."""

    values: npt.NDArray[Any]
    starts: Indices
    ends: Indices

    def encoded(self) -> list[memoryview]:
        content = memoryview(_json_of(self.values))
        if self.values.dtype.kind == "u":
            edges = self._edges()
        else:  # some may be negative
            commas = np.flatnonzero(np.frombuffer(content, np.uint8) == ord(","))
            edges = np.concatenate(([0], commas, [len(content) - 1]))
        ranges = zip((edges[self.starts] + 1).tolist(), edges[self.ends].tolist(), strict=True)
        return [content[at:to] for at, to in ranges]

    def sizes(self) -> Indices:
        edges = self._edges()
        sizes: Indices = np.maximum(edges[self.ends] - edges[self.starts] - 1, 0)
        return sizes

    def _edges(self) -> Indices:
        """Where in `[12,345,6]` the bracket and commas are before each number, and the bracket behind the last."""
        edges = np.zeros(len(self.values) + 1, np.int64)
        np.cumsum(_widths(self.values), out=edges[1:])
        return edges


class _Repeated(NamedTuple):
    """The same, several times."""

    content: bytes
    counts: Indices

    def encoded(self) -> list[bytes]:
        return [self.content * count for count in self.counts.tolist()]

    def sizes(self) -> Indices:
        return len(self.content) * self.counts


class _BehindLast(NamedTuple):
    """The same in some rows, nothing in others."""

    content: bytes
    are_last: npt.NDArray[np.bool_]

    def encoded(self) -> list[bytes]:
        return [self.content if is_last else b"" for is_last in self.are_last.tolist()]

    def sizes(self) -> Indices:
        return len(self.content) * self.are_last.astype(np.int64)


class _Mask(NamedTuple):
    """`1,1,1,0,0`, for so many ids in rows of one length."""

    num_ids: Indices
    length: int

    def encoded(self) -> list[bytes]:
        return [(b"1," * count + b"0," * (self.length - count))[:-1] for count in self.num_ids.tolist()]

    def sizes(self) -> Indices:
        return np.full(len(self.num_ids), 2 * self.length - 1)


class _Texts(NamedTuple):
    """A range of a text's bytes, as a JSON string."""

    ranges: TextRanges

    def encoded(self) -> list[bytes]:
        return list(map(orjson.dumps, self.ranges.texts()))

    def sizes(self) -> Indices:
        utf8, starts, ends = self.ranges
        escaped = np.concatenate(([0], np.cumsum(_escaped_widths()[np.frombuffer(utf8, np.uint8)])))
        sizes: Indices = escaped[ends] - escaped[starts] + len(b'""')
        return sizes


class _Values(NamedTuple):
    """Texts or objects, as they are."""

    values: Sequence[Any]

    def encoded(self) -> list[bytes]:
        return list(map(orjson.dumps, self.values))

    def sizes(self) -> Indices:
        return np.fromiter(map(len, self.encoded()), np.int64, len(self.values))


Piece = bytes | Varying


# Rows of documents, without a detour over a batch of windows.


def row_lines(rows: Rows, schema: Schema) -> list[bytes]:
    """Each row, line feed included."""
    return _lines(_row_pieces(rows, schema), rows.num_rows)


def row_content(rows: Rows, schema: Schema) -> bytes:
    """All rows, one after the other."""
    columns = _columns(_row_pieces(rows, schema), rows.num_rows)
    return b"".join(chain.from_iterable(zip(*columns, strict=True)))


def row_sizes(rows: Rows, schema: Schema) -> Indices:
    """Exactly `[len(line) for line in row_lines(rows, schema)]`, at a fraction of the cost."""
    return _sizes(_row_pieces(rows, schema), rows.num_rows)


def num_more_bytes(schema: Schema) -> int:
    """That each row takes beyond those of `schema.plain`, where a document's windows are shown once, as they are."""
    later = [name for name in schema.columns if COLUMNS[name].when in DECIDED_LATER]
    pieces = [piece for name in later for piece in (_key(name), *_pieces(name, FILLERS[name](_ONE_ROW), schema))]
    return int(_sizes(pieces, 1)[0])


class _PlainDocument(NamedTuple):
    repo: str = ""
    path: str = ""
    language: str = ""
    weight: float = 1.0
    variant: None = None


_NONE = np.zeros(1, np.int64)
_ONE_ROW = Rows(
    documents=[_PlainDocument()],
    tokens=Tokens(_NONE[:0], np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(2, np.int64)),
    of=_NONE,
    windows=Windows(_NONE, _NONE, _NONE, 0),
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


def _pieces(name: str, filled: Filled, schema: Schema) -> Iterator[Piece]:
    if isinstance(filled, PerDocument):
        yield _OfDocuments(list(map(orjson.dumps, filled.values)), filled.of)
    elif isinstance(filled, Choices):
        yield _Chosen(list(map(orjson.dumps, filled.values)), filled.numbers)
    elif isinstance(filled, IdRanges):
        yield from _id_pieces(name, filled, schema)
    elif isinstance(filled, TextRanges):
        yield _Texts(filled)
    elif isinstance(filled, Pairs):
        yield from (b"[", _Numbers(filled.first), b",", _Numbers(filled.second), b"]")
    else:
        yield _Numbers(filled)


def _id_pieces(name: str, filled: IdRanges, schema: Schema) -> Iterator[Piece]:
    """`[0,` 12,345 `,2` ,1,1 `]`: the special ids around each range, and padding."""
    yield b"[" + b"".join(b"%d," % index for index in schema.prefix)
    yield _Ranges(filled.ids, filled.starts, filled.ends)
    yield b"".join(b",%d" % index for index in schema.suffix)
    if schema.closing:
        yield _BehindLast(b"".join(b",%d" % index for index in schema.closing), filled.are_last)
    if schema.pad_id is not None:
        padding = COLUMNS[name].padding
        pad = schema.pad_id if padding is None else padding
        yield _Repeated(b",%d" % pad, schema.length - filled.num_ids(schema))
    yield b"]"


def _value_pieces(values: Values) -> Iterator[Piece]:
    """Of a column as a batch has it."""
    if isinstance(values, Ragged):
        first = values.offsets[0]
        own = values.values[first : values.offsets[-1]]
        yield from (b"[", _Ranges(own, values.offsets[:-1] - first, values.offsets[1:] - first), b"]")
    else:
        yield _Numbers(values) if isinstance(values, np.ndarray) else _Values(values)


@cache
def _key(name: str, *, is_first: bool = False) -> bytes:
    return b'%b"%b":' % (b"" if is_first else b",", name.encode())


def _lines(pieces: Iterable[Piece], num_rows: int) -> list[bytes]:
    return list(map(b"".join, zip(*_columns(pieces, num_rows), strict=True)))


def _columns(pieces: Iterable[Piece], num_rows: int) -> list[Iterable[bytes | memoryview]]:
    """What each row has of its own, from as few pieces as can be: neighbours of a kind become one."""
    groups: list[tuple[type, list[Any]]] = []
    for piece in pieces:
        kind = _kind_of(piece)
        last_kind = groups[-1][0] if groups else None
        if (kind is bytes and last_kind in MERGED) or (kind in MERGED and last_kind in (bytes, kind)):
            own = groups[-1][1]
            own.append(piece)
            groups[-1] = last_kind if kind is bytes and last_kind is not None else kind, own
        else:
            groups.append((kind, [piece]))
    return [_column(kind, own, num_rows) for kind, own in groups]


def _kind_of(piece: Piece) -> type:
    """Fractions are not written as whole numbers are."""
    is_whole = isinstance(piece, _Numbers) and piece.values.dtype.kind != "f"
    return type(piece) if is_whole or not isinstance(piece, _Numbers) else object


MERGED = (bytes, _OfDocuments, _Numbers)


def _column(kind: type, pieces: Sequence[Any], num_rows: int) -> Iterable[bytes | memoryview]:
    if kind is bytes:
        return repeat(b"".join(pieces), num_rows)
    if kind is _OfDocuments:
        (of, *_) = [piece.of for piece in pieces if not isinstance(piece, bytes)]
        parts = (repeat(piece) if isinstance(piece, bytes) else piece.values for piece in pieces)
        return _OfDocuments(list(map(b"".join, zip(*parts, strict=False))), of).encoded()
    if kind is _Numbers:
        template = b"".join(piece if isinstance(piece, bytes) else b"%d" for piece in pieces)
        numbers = [piece.values.tolist() for piece in pieces if not isinstance(piece, bytes)]
        return [template % row for row in zip(*numbers, strict=True)]
    encoded: Sequence[bytes | memoryview] = pieces[0].encoded()
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
    if numbers:  # of all columns at once: most documents have few rows
        sizes += _num_digits(np.concatenate(numbers)).reshape(len(numbers), -1).sum(axis=0)
    return sizes + constant


def _json_of(values: npt.NDArray[Any]) -> bytes:
    return orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)


def _widths(ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Digits of each id, and its comma."""
    is_known = ids.dtype == np.uint16 or int(ids.max(initial=0)) < WIDTHS_KNOWN
    return _known_widths().take(ids) if is_known else _num_digits(ids) + 1


@cache
def _known_widths() -> npt.NDArray[np.uint8]:
    return (_num_digits(np.arange(WIDTHS_KNOWN)) + 1).astype(np.uint8)


def _num_digits(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return 1 + np.searchsorted(POWERS_OF_TEN, numbers, "right")


@cache
def _escaped_widths() -> npt.NDArray[np.int64]:
    """Bytes that each byte of a text takes inside a JSON string."""
    ascii_widths = [len(orjson.dumps(chr(code))) - 2 for code in range(0x80)]
    return np.array(ascii_widths + [1] * 0x80, np.int64)


# A batch of windows <-> JSON rows, in the same bytes.


def lines_of(batch: WindowBatch, schema: Schema) -> list[bytes]:
    """Each with its line feed, with the padding that rows have."""
    rows = stored(batch, schema)
    return column_lines({IDS: rows.ids, **rows.columns}, len(batch))


def column_lines(columns: Mapping[str, Values], num_rows: int) -> list[bytes]:
    """A line for each row, with these columns in their order."""
    return _lines(_batch_pieces(columns), num_rows)


def _batch_pieces(columns: Mapping[str, Values]) -> Iterator[Piece]:
    yield b"{"
    for number, (name, values) in enumerate(columns.items()):
        yield _key(name, is_first=not number)
        yield from _value_pieces(values)
    yield b"}\n"


def batch_of_lines(lines: Sequence[bytes], schema: Schema) -> WindowBatch:
    """Rows as they are stored -> without padding."""
    try:
        rows = [orjson.loads(line) for line in lines]
        ids = Ragged.of([row[IDS] for row in rows])
        require_fitting(ids.values, schema.id_type)  # numpy 1 would wrap them
        ids = ids._replace(values=ids.values.astype(schema.id_type))
        columns = {name: column_of([row[name] for row in rows], COLUMNS[name].kind) for name in schema.others}
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, OverflowError, OutputError) as error:
        raise DatasetError(f"a row is damaged: {error!r}. Build the dataset again.") from None
    return natural(WindowBatch(ids, columns), schema)


def column_of(values: list[Any], kind: Kind) -> Values:
    """Row by row -> as a batch has it."""
    if kind is Kind.NUMBERS:
        return Ragged.of(values)
    if kind is Kind.NUMBER:
        return np.array(values, np.int64)
    return np.array(values, np.float64) if kind is Kind.FRACTION else values
