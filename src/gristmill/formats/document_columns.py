"""What the rows of documents are made from, and what FILLERS make of it: each column of the rows, once for all formats.

Everything is done for a run of documents at once: their ids are end to end in one array, and a row is a range of it.
`jsonl_rows` writes lines from that; all other formats are written from batches of windows, `batch_of_rows`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from gristmill.config.config import Config
from gristmill.core.columns import COLUMNS, IDS, LABELS, Kind
from gristmill.core.errors import ConfigError
from gristmill.core.records import FimForm, FimWindow, MiddleKind, PlacedDocument, Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, Values, WindowBatch
from gristmill.formats.content_digest import digests_of, place_in
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.window_frame import window_frame
from gristmill.windows.cut import Indices, Windows

ROWS_AT_ONCE = 1000


class DocumentText(NamedTuple):
    utf8: bytes
    starts: Indices
    """The byte at which each token begins, and the length at the end."""


class Tokens(NamedTuple):
    """The ids of some documents, end to end, and where their line feeds are."""

    ids: npt.NDArray[Any]
    edges: Indices
    """Where each document's ids begin, and the end."""
    newline_tokens: npt.NDArray[np.int32]
    """For each line feed, the last token of its document that begins before it."""
    newline_edges: Indices
    """Where each document's begin, and the end."""
    texts: Sequence[DocumentText] = ()
    """Of each document, where a column needs them."""
    clean_ids: Sequence[npt.NDArray[Any] | None] = ()
    """Of documents with noise in their ids; empty where there is none."""

    def lines_of(self, documents: Indices, positions: Indices) -> Indices:
        """The line, counted from 1, on which each of these tokens begins. `documents`: which one each is of."""
        numbers = np.repeat(np.arange(len(self.newline_edges) - 1), np.diff(self.newline_edges))
        places = (numbers << PLACE_BITS) + self.newline_tokens
        found = np.searchsorted(places, (documents << PLACE_BITS) + positions)
        lines: Indices = 1 + found - self.newline_edges[documents]
        return lines


PLACE_BITS = 32
"""More than any document has tokens."""


class ShownDocument(Protocol):
    """The facts that every row has about its document: a Document in step 1, a PlacedDocument later."""

    @property
    def repo(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def language(self) -> str: ...


class PerDocument(NamedTuple):
    """One value for each document, in all of its rows."""

    values: Sequence[Any]
    of: Indices


class Choices(NamedTuple):
    """One of a few values in each row."""

    values: Sequence[Any]
    numbers: Indices
    """Index into the values, for each row."""


FORMS: tuple[str, ...] = ("", *FimForm)
MIDDLES: tuple[str, ...] = ("", *MiddleKind)


class FimColumns(NamedTuple):
    """Fill in the middle, for each row."""

    forms: Indices
    """Index into FORMS."""
    middles: Indices
    """Index into MIDDLES."""
    num_middle_tokens: Indices

    @classmethod
    def of(cls, windows: Sequence[FimWindow | None]) -> "FimColumns":
        """`windows`: for each row; None for one of a document that is not rewritten."""
        numbers = [
            (0, 0, 0)
            if one is None
            else (FORMS.index(one.form or ""), MIDDLES.index(one.middle or ""), one.num_middle_tokens)
            for one in windows
        ]
        return cls(*np.array(numbers, np.int64).reshape(-1, 3).T)

    def picked(self, numbers: Indices) -> "FimColumns":
        return FimColumns(*(column[numbers] for column in self))


class Rows(NamedTuple):
    """All that the rows of some documents are made from."""

    documents: Sequence[ShownDocument]
    tokens: Tokens
    """Of these documents."""
    of: Indices
    """The number of each row's document."""
    windows: Windows
    """Each row's range of its document's ids."""
    places: Windows | None = None
    """Where each row is from in the file's tokens, if that is not where it is in the ids."""
    repeats: Indices | None = None
    """How often each window has been shown before; None: never."""
    closes: npt.NDArray[np.bool_] | None = None
    """Which rows end their document; None: those whose window ends with the document's ids."""
    fim: FimColumns | None = None
    """None: no document is rewritten for fill in the middle."""
    num_tail_tokens_dropped: Indices = np.zeros(0, np.int64)
    """Of each document."""

    @property
    def num_rows(self) -> int:
        return len(self.of)

    @property
    def told_windows(self) -> Windows:
        """Whose start and lines the rows tell."""
        return self.windows if self.places is None else self.places

    @property
    def are_last(self) -> npt.NDArray[np.bool_]:
        """Which rows end their document."""
        if self.closes is not None:
            return self.closes
        last: npt.NDArray[np.bool_] = self.windows.ends == np.diff(self.tokens.edges)[self.of]
        return last

    def filled(self, values: Sequence[Any]) -> PerDocument:
        return PerDocument(values, self.of)

    def per_document(self, numbers: Indices) -> Indices:
        """The sum over each document's rows."""
        return np.bincount(self.of, numbers, len(self.documents)).astype(np.int64)

    def picked(self, numbers: Indices) -> "Rows":
        """Some of the rows, in this order."""
        return self._replace(
            of=self.of[numbers],
            windows=self.windows.picked(numbers),
            places=None if self.places is None else self.places.picked(numbers),
            repeats=None if self.repeats is None else self.repeats[numbers],
            closes=None if self.closes is None else self.closes[numbers],
            fim=None if self.fim is None else self.fim.picked(numbers),
        )


def window_schema(config: Config, definition: Definition, vocab_size: int) -> Schema:
    """Of rows with one window each."""
    if config.output.pad and definition.pad_id is None:
        raise ConfigError(
            f"the tokenizer {definition.name!r} has no padding token. Leave out --pad: readers pad on request."
        )
    frame = window_frame(config.window, definition)
    return Schema(
        columns=config.window_columns,
        length=config.window.length,
        vocab_size=vocab_size,
        prefix=frame.prefix,
        suffix=frame.suffix,
        closing=frame.closing,
        pad_id=definition.pad_id if config.output.pad else None,
        end_id=frame.end_id,
    )


# Rows -> what each column holds in them.


class IdRanges(NamedTuple):
    """A range of ids for each row, which has the special ids around it."""

    ids: npt.NDArray[Any]
    starts: Indices
    ends: Indices
    are_last: npt.NDArray[np.bool_]
    """Rows that end their document."""

    def num_ids(self, schema: Schema) -> Indices:
        """Per row, with special ids, without padding."""
        num_around = len(schema.prefix) + len(schema.suffix)
        return self.ends - self.starts + num_around + self.are_last * len(schema.closing)


class TextRanges(NamedTuple):
    """A range of bytes for each row."""

    utf8: bytes
    starts: Indices
    ends: Indices

    def texts(self) -> list[str]:
        ranges = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [self.utf8[start:end].decode("utf-8") for start, end in ranges]


class Pairs(NamedTuple):
    """Two numbers for each row."""

    first: Indices
    second: Indices


Filled = PerDocument | Choices | IdRanges | TextRanges | Pairs | Indices
"""What a column holds in some rows. An array has a number for each row."""


def _ids(rows: Rows) -> IdRanges:
    first = rows.tokens.edges[rows.of]
    return IdRanges(rows.tokens.ids, first + rows.windows.starts, first + rows.windows.ends, rows.are_last)


def _lines(rows: Rows) -> Pairs:
    told = rows.told_windows
    return Pairs(rows.tokens.lines_of(rows.of, told.starts), rows.tokens.lines_of(rows.of, told.ends - 1))


def _labels(rows: Rows) -> IdRanges:
    """The ids themselves, but for documents with noise in them."""
    if not any(one is not None for one in rows.tokens.clean_ids):
        return _ids(rows)
    tokens, edges = rows.tokens, rows.tokens.edges.tolist()
    has_clean = np.array([one is not None for one in tokens.clean_ids])
    clean = [
        tokens.ids[edges[number] : edges[number + 1]] if one is None else one
        for number, one in enumerate(tokens.clean_ids)
    ]
    first = np.cumsum([0, *map(len, clean)])[rows.of]
    told, is_clean = rows.told_windows, has_clean[rows.of]
    starts = np.where(is_clean, told.starts, rows.windows.starts)
    ends = np.where(is_clean, told.ends, rows.windows.ends)
    return IdRanges(np.concatenate(clean), first + starts, first + ends, rows.are_last)


def _text(rows: Rows) -> TextRanges:
    """Of noise the text of the clean ids, of fill in the middle that of its own."""
    tokens, windows, told = rows.tokens, rows.windows, rows.told_windows
    is_clean = np.zeros(len(rows.documents), np.bool_)
    if tokens.clean_ids:
        is_clean[:] = [one is not None for one in tokens.clean_ids]
    is_told = is_clean[rows.of]
    first_bytes = np.cumsum([0, *(len(text.utf8) for text in tokens.texts)])
    first_starts = np.cumsum([0, *(len(text.starts) for text in tokens.texts)])
    own_starts = (text.starts + first for text, first in zip(tokens.texts, first_bytes, strict=False))
    starts = np.concatenate([np.zeros(0, np.int64), *own_starts])
    utf8 = b"".join(text.utf8 for text in tokens.texts)
    at = first_starts[rows.of]
    return TextRanges(
        utf8,
        _to_character(utf8, starts[at + np.where(is_told, told.starts, windows.starts)]),
        _to_character(utf8, starts[at + np.where(is_told, told.ends, windows.ends)]),
    )


def _to_character(utf8: bytes, offsets: Indices) -> Indices:
    """A character whose bytes two tokens share belongs to the first of them."""
    octets = np.frombuffer(utf8 + b"\0", np.uint8)
    for _ in range(3):  # a character has at most three bytes that continue it
        offsets = offsets + ((octets[offsets] & 0xC0) == 0x80)  # noqa: PLR2004
    return offsets


def _placed(rows: Rows) -> Sequence[PlacedDocument]:
    """For columns that step 2 decides."""
    return cast("Sequence[PlacedDocument]", rows.documents)


def _fim(rows: Rows) -> FimColumns:
    nothing = np.zeros(rows.num_rows, np.int64)
    return rows.fim or FimColumns(nothing, nothing, nothing)


FILLERS: dict[str, Callable[[Rows], Filled]] = {
    IDS: _ids,
    "path": lambda rows: rows.filled([one.path for one in rows.documents]),
    "repo": lambda rows: rows.filled([one.repo for one in rows.documents]),
    "language": lambda rows: rows.filled([one.language for one in rows.documents]),
    "lines": _lines,
    "start": lambda rows: rows.told_windows.starts,
    "fresh": lambda rows: rows.told_windows.fresh,
    "text": _text,
    "repeat": lambda rows: np.zeros(rows.num_rows, np.int64) if rows.repeats is None else rows.repeats,
    LABELS: _labels,
    "weight": lambda rows: rows.filled([one.weight for one in _placed(rows)]),
    # No null: readers that guess types choke on a first one.
    "variant": lambda rows: PerDocument(
        ["" if one.variant is None else one.variant.kind for one in _placed(rows)], rows.of
    ),
    "variant_seed": lambda rows: PerDocument(
        [0 if one.variant is None else one.variant.seed for one in _placed(rows)], rows.of
    ),
    "fim": lambda rows: Choices(FORMS, _fim(rows).forms),
    "middle": lambda rows: Choices(MIDDLES, _fim(rows).middles),
    "middle_tokens": lambda rows: _fim(rows).num_middle_tokens,
}
"""For each column of a window."""


def num_ids(rows: Rows, schema: Schema) -> Indices:
    """Per row, without padding."""
    return _ids(rows).num_ids(schema)


def num_emitted(rows: Rows, schema: Schema) -> Indices:
    """Per row, padding included."""
    return np.full(rows.num_rows, schema.length) if schema.pad_id is not None else num_ids(rows, schema)


def row_digests_of(rows: Rows, schema: Schema, split: Split) -> bytes:
    """What each row is known by, in whichever format (see content_digest)."""
    ids, starts, ends, are_last = _ids(rows)
    content = memoryview(ids.astype("<u4").tobytes())
    prefix, suffix, closed = _around(schema, "<u4")
    behind = [(closed if is_last else suffix).tobytes() for is_last in (False, True)]
    names = [place_in(split, one.repo, one.path) for one in rows.documents]
    places = rows.told_windows.starts.tolist()
    ranges = zip(rows.of.tolist(), places, (4 * starts).tolist(), (4 * ends).tolist(), are_last.tolist(), strict=True)
    before = prefix.tobytes()
    return digests_of(
        [(names[of], b"%d\0" % place, before, content[at:to], behind[is_last]) for of, place, at, to, is_last in ranges]
    )


def _around(schema: Schema, kind: npt.DTypeLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Special ids before a window, behind one, and behind the last of a document."""
    behind = (*schema.suffix, *schema.closing)
    return np.array(schema.prefix, kind), np.array(schema.suffix, kind), np.array(behind, kind)


def batch_of_rows(rows: Rows, schema: Schema) -> WindowBatch:
    """What `batch_of_lines` makes of their JSON rows."""
    ids = _joined_ids(_ids(rows), schema, schema.id_type)
    return WindowBatch(ids, {name: _column(name, FILLERS[name](rows), schema) for name in schema.natural})


def _column(name: str, filled: Filled, schema: Schema) -> Values:
    kind = COLUMNS[name].kind
    if isinstance(filled, IdRanges):
        return _joined_ids(filled, schema, np.int64)
    if isinstance(filled, Pairs):
        values = np.stack(filled, axis=1).ravel()
        return Ragged(values, np.arange(0, len(values) + 1, 2))
    if isinstance(filled, TextRanges):
        return filled.texts()
    if isinstance(filled, Choices):
        return [filled.values[number] for number in filled.numbers.tolist()]
    if isinstance(filled, PerDocument) and kind is Kind.TEXT:
        return [filled.values[number] for number in filled.of.tolist()]
    if isinstance(filled, PerDocument):
        return np.array(filled.values, np.int64 if kind is Kind.NUMBER else np.float64)[filled.of]
    return filled


def _joined_ids(ranges: IdRanges, schema: Schema, kind: npt.DTypeLike) -> Ragged:
    """Ranges of ids, with the special tokens around each."""
    prefix, suffix, closed = _around(schema, kind)
    ids = ranges.ids.astype(kind, copy=False)
    parts = [np.zeros(0, kind)]
    edges = zip(ranges.starts.tolist(), ranges.ends.tolist(), ranges.are_last.tolist(), strict=True)
    for start, end, is_last in edges:
        parts += [prefix, ids[start:end], closed if is_last else suffix]
    return Ragged(np.concatenate(parts), np.concatenate(([0], np.cumsum(ranges.num_ids(schema)))))
