"""Rows as JSON Lines: one window a row, compact. The sizes of a document's rows are known before any is written.

A row is made of pieces: bytes that are the same in all rows, and others of which each row has its own. Both what lines
are made of and what they take go by the same pieces.

A file's ids are formatted once and the bytes sliced at the commas: at overlap 256, where every id appears twice, 1.4
times as fast as window by window (benchmarks/write.md).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
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
    DocumentRows,
    Filled,
    IdRanges,
    Pairs,
    Same,
    TextRanges,
    num_ids,
)
from gristmill.windows.cut import Indices, Windows

POWERS_OF_TEN = 10 ** np.arange(1, 19)
WIDTHS_KNOWN = 1 << 18
"""A table for the ids of nearly every vocabulary; larger ids are measured one by one."""


class Varying(Protocol):
    """A piece of which each row has its own."""

    def encoded(self) -> list[bytes]: ...
    def sizes(self) -> Indices:
        """Exactly `[len(piece) for piece in self.encoded()]`, at a fraction of the cost, if no number is negative."""
        ...


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

    def encoded(self) -> list[bytes]:
        content = _json_of(self.values)
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


# A document's rows, without a detour over a batch of windows.


def document_lines(rows: DocumentRows, schema: Schema) -> list[bytes]:
    """Each window's row, line feed included."""
    return _lines(_document_pieces(rows, schema), len(rows.windows))


def document_sizes(rows: DocumentRows, schema: Schema) -> Indices:
    """Exactly `[len(line) for line in document_lines(rows, schema)]`, at a fraction of the cost."""
    return _sizes(_document_pieces(rows, schema), len(rows.windows))


def num_row_bytes(rows: DocumentRows, schema: Schema) -> int:
    return int(document_sizes(rows, schema).sum())


def num_more_bytes(schema: Schema) -> int:
    """That each row takes beyond those of `schema.plain`, where a document's windows are shown once, as they are."""
    later = [name for name in schema.columns if COLUMNS[name].when in DECIDED_LATER]
    pieces = [piece for name in later for piece in (_key(name), *_pieces(name, FILLERS[name](_ONE_ROW), schema))]
    return int(_sizes(pieces, 1)[0])


_NONE = np.zeros(1, np.int64)
_ONE_ROW = DocumentRows("", "", "", _NONE[:0], _NONE[:0].astype(np.int32), Windows(_NONE, _NONE, _NONE, 0), None)


def _document_pieces(rows: DocumentRows, schema: Schema) -> Iterator[Piece]:
    yield b"{"
    for number, name in enumerate(schema.columns):
        yield _key(name, is_first=not number)
        if name == MASK:
            yield from (b"[", _Mask(num_ids(rows.windows, schema), schema.length), b"]")
        else:
            yield from _pieces(name, FILLERS[name](rows), schema)
    yield b"}\n"


def _pieces(name: str, filled: Filled, schema: Schema) -> Iterator[Piece]:
    if isinstance(filled, Same):
        yield orjson.dumps(filled.value)
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
    ids, windows = filled
    yield b"[" + b"".join(b"%d," % index for index in schema.prefix)
    yield _Ranges(ids, windows.starts, windows.ends)
    yield b"".join(b",%d" % index for index in schema.suffix)
    if schema.pad_id is not None:
        padding = COLUMNS[name].padding
        pad = schema.pad_id if padding is None else padding
        yield _Repeated(b",%d" % pad, schema.length - num_ids(windows, schema))
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
    parts: list[bytes | list[bytes]] = []
    for piece in pieces:
        if not isinstance(piece, bytes):
            parts.append(piece.encoded())
        elif parts and isinstance(parts[-1], bytes):
            parts[-1] += piece
        else:
            parts.append(piece)
    columns = (repeat(part, num_rows) if isinstance(part, bytes) else part for part in parts)
    return list(map(b"".join, zip(*columns, strict=True)))


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
