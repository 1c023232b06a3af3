"""Column values of the rows of consecutive documents, computed by the same functions for all formats.

The ids of all documents are concatenated in one array, and a row is a range of this array. FILLERS has the function
that computes each column. Without --pack, `jsonl_rows` formats JSON lines directly from the results of these functions.
Packed rows and all other formats are made from the batches that `batch_from_rows` returns.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from gristmill.config.config import Config
from gristmill.core.columns import COLUMNS, IDS, LABELS, TEXT, Kind
from gristmill.core.errors import ConfigError
from gristmill.core.records import NO_LIMIT, FimForm, FimWindow, MiddleKind, PlacedDocument, Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import ColumnValues, Ragged, WindowBatch
from gristmill.formats.content_digest import document_key, hash_rows
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.window_frame import window_frame
from gristmill.windows.cut import Indices, Windows

ROWS_AT_ONCE = 1000


class DocumentText(NamedTuple):
    """Text of a document, and the position of each token in it."""

    utf8: bytes
    starts: Indices
    """Byte offset of each token, followed by the length of the text."""


class Tokens(NamedTuple):
    """Concatenated ids of some documents, and the positions of their line feeds."""

    ids: npt.NDArray[Any]
    edges: Indices
    """Offset of each document in `ids`, followed by the number of ids."""
    newline_tokens: npt.NDArray[np.int32]
    """For each line feed, the index of the last token that begins at or before the line feed. In each document, the
    index of the first token is 0. The index is -1 if no token begins at or before the line feed."""
    newline_edges: Indices
    """Offset of each document in `newline_tokens`, followed by the number of line feeds."""
    texts: Sequence[DocumentText] = ()
    """Text of each document. Empty if no column needs it."""
    clean_ids: Sequence[npt.NDArray[Any] | None] = ()
    """Ids of each document before noise was added, or None for a document without noise. Empty if no document has
    noise."""

    def line_numbers(self, documents: Indices, positions: Indices) -> Indices:
        """Return the number, from 1, of the line on which each token begins.

        `documents` has the index of each token's document, and `positions` the index of each token in its document.
        """
        numbers = np.repeat(np.arange(len(self.newline_edges) - 1), np.diff(self.newline_edges))
        keys = (numbers << POSITION_BITS) + self.newline_tokens
        found = np.searchsorted(keys, (documents << POSITION_BITS) + positions)
        lines: Indices = 1 + found - self.newline_edges[documents]
        return lines


POSITION_BITS = 32
"""Number of bits for the index of a token in its document."""


class RowDocument(Protocol):
    """Properties of a document that all its rows have. Step 1 passes a Document, later steps a PlacedDocument."""

    @property
    def repo(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def language(self) -> str: ...


class PerDocument(NamedTuple):
    """Column with the same value in all rows of a document."""

    values: Sequence[Any]
    """One value per document."""
    document_index: Indices
    """Index of each row's document in `values`."""


class Choices(NamedTuple):
    """Column with one of a few values in each row."""

    values: Sequence[Any]
    indices: Indices
    """Index of each row's value in `values`."""


FORMS: tuple[str, ...] = ("", *FimForm)
MIDDLES: tuple[str, ...] = ("", *MiddleKind)


class FimColumns(NamedTuple):
    """Fill-in-the-middle columns of some rows."""

    forms: Indices
    """Index of each row's form in FORMS."""
    middles: Indices
    """Index of each row's kind of middle in MIDDLES."""
    num_middle_tokens: Indices

    @classmethod
    def of(cls, windows: Sequence[FimWindow | None]) -> "FimColumns":
        """Collect the columns from the window of each row, or from None if the document of the row is not rewritten."""
        numbers = [
            (0, 0, 0)
            if one is None
            else (FORMS.index(one.form or ""), MIDDLES.index(one.middle or ""), one.num_middle_tokens)
            for one in windows
        ]
        return cls(*np.array(numbers, np.int64).reshape(-1, 3).T)

    def select(self, indices: Indices) -> "FimColumns":
        return FimColumns(*(column[indices] for column in self))


class Rows(NamedTuple):
    """Rows of some documents, before their columns are computed."""

    documents: Sequence[RowDocument]
    tokens: Tokens
    """Tokens of all documents."""
    document_index: Indices
    """Index of each row's document in `documents`."""
    windows: Windows
    """Range of each row in the ids of its document."""
    file_windows: Windows | None = None
    """Range of each row in the tokens of its file, or None if `windows` has the same ranges."""
    repeats: Indices | None = None
    """For each row, the number of earlier rows with the same window. None if no two rows have the same window."""
    ends_document: npt.NDArray[np.bool_] | None = None
    """True for rows that end their document. If None, these are the rows whose window ends where the document ends."""
    fim: FimColumns | None = None
    """Fill-in-the-middle columns, or None if no document is rewritten for fill-in-the-middle."""
    num_tail_tokens_dropped: Indices = np.zeros(0, np.int64)
    """Number of tail tokens that were dropped from each document."""

    @property
    def num_rows(self) -> int:
        return len(self.document_index)

    @property
    def source_windows(self) -> Windows:
        """Range of each row in the tokens of its file, which the columns `start`, `lines` and `fresh` describe."""
        return self.windows if self.file_windows is None else self.file_windows

    @property
    def is_last(self) -> npt.NDArray[np.bool_]:
        """True for rows that end their document."""
        if self.ends_document is not None:
            return self.ends_document
        last: npt.NDArray[np.bool_] = self.windows.ends == np.diff(self.tokens.edges)[self.document_index]
        return last

    def from_documents(self, values: Sequence[Any]) -> PerDocument:
        return PerDocument(values, self.document_index)

    def sum_per_document(self, numbers: Indices) -> Indices:
        """Return, for each document, the sum of `numbers` over its rows. `numbers` has one number per row."""
        return np.bincount(self.document_index, numbers, len(self.documents)).astype(np.int64)

    def select(self, indices: Indices) -> "Rows":
        """Return the rows with these indices, in the given order."""
        return self._replace(
            document_index=self.document_index[indices],
            windows=self.windows.select(indices),
            file_windows=None if self.file_windows is None else self.file_windows.select(indices),
            repeats=None if self.repeats is None else self.repeats[indices],
            ends_document=None if self.ends_document is None else self.ends_document[indices],
            fim=None if self.fim is None else self.fim.select(indices),
        )


def window_schema(config: Config, definition: Definition, vocab_size: int) -> Schema:
    """Return the schema of rows that are not packed.

    Raises ConfigError if rows are padded and the tokenizer has no padding token.
    """
    if config.output.pad and definition.pad_id is None:
        raise ConfigError(
            f"the tokenizer {definition.name!r} has no padding token. Leave out --pad and let the trainer pad rows."
        )
    frame = window_frame(config.window, definition)
    if config.has_documents:
        frame = frame._replace(prefix=(), suffix=(), closing=())
    return Schema(
        columns=config.window_columns,
        length=NO_LIMIT if config.has_documents else config.window.length,
        vocab_size=vocab_size,
        prefix=frame.prefix,
        suffix=frame.suffix,
        closing=frame.closing,
        pad_id=definition.pad_id if config.output.pad else None,
        end_id=frame.end_id,
    )


# Content of each column.


class IdRanges(NamedTuple):
    """Column with a range of ids in each row. Special ids are added before and after each range."""

    ids: npt.NDArray[Any]
    starts: Indices
    ends: Indices
    is_last: npt.NDArray[np.bool_]
    """True for rows that end their document."""

    def num_ids(self, schema: Schema) -> Indices:
        """Return the number of ids in each row, with special ids and without padding."""
        num_around = len(schema.prefix) + len(schema.suffix)
        return self.ends - self.starts + num_around + self.is_last * len(schema.closing)


class TextRanges(NamedTuple):
    """Column with a range of a UTF-8 text in each row."""

    utf8: bytes
    starts: Indices
    ends: Indices

    def texts(self) -> list[str]:
        ranges = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [self.utf8[start:end].decode("utf-8") for start, end in ranges]


class Pairs(NamedTuple):
    """Column with two numbers in each row."""

    first: Indices
    second: Indices


ColumnContent = PerDocument | Choices | IdRanges | TextRanges | Pairs | Indices
"""Content of a column. An Indices array has one number per row."""


def _ids(rows: Rows) -> IdRanges:
    first = rows.tokens.edges[rows.document_index]
    return IdRanges(rows.tokens.ids, first + rows.windows.starts, first + rows.windows.ends, rows.is_last)


def _lines(rows: Rows) -> Pairs:
    source = rows.source_windows
    return Pairs(
        rows.tokens.line_numbers(rows.document_index, source.starts),
        rows.tokens.line_numbers(rows.document_index, source.ends - 1),
    )


def _labels(rows: Rows) -> IdRanges:
    """Return the ids as labels. The labels of a document with noise are its ids before noise was added."""
    if not any(one is not None for one in rows.tokens.clean_ids):
        return _ids(rows)
    tokens, edges = rows.tokens, rows.tokens.edges.tolist()
    has_clean_ids = np.array([one is not None for one in tokens.clean_ids])
    label_ids = [
        tokens.ids[edges[number] : edges[number + 1]] if one is None else one
        for number, one in enumerate(tokens.clean_ids)
    ]
    first = np.cumsum([0, *map(len, label_ids)])[rows.document_index]
    source, is_clean = rows.source_windows, has_clean_ids[rows.document_index]
    starts = np.where(is_clean, source.starts, rows.windows.starts)
    ends = np.where(is_clean, source.ends, rows.windows.ends)
    return IdRanges(np.concatenate(label_ids), first + starts, first + ends, rows.is_last)


def _text(rows: Rows) -> TextRanges:
    """Return the text of each row.

    Rows with noise have the text before noise was added. Fill-in-the-middle rows have the rewritten text.
    """
    tokens, windows, source = rows.tokens, rows.windows, rows.source_windows
    is_clean = np.zeros(len(rows.documents), np.bool_)
    if tokens.clean_ids:
        is_clean[:] = [one is not None for one in tokens.clean_ids]
    uses_source = is_clean[rows.document_index]
    first_bytes = np.cumsum([0, *(len(text.utf8) for text in tokens.texts)])
    first_starts = np.cumsum([0, *(len(text.starts) for text in tokens.texts)])
    shifted_starts = (text.starts + first for text, first in zip(tokens.texts, first_bytes, strict=False))
    starts = np.concatenate([np.zeros(0, np.int64), *shifted_starts])
    utf8 = b"".join(text.utf8 for text in tokens.texts)
    first_start = first_starts[rows.document_index]
    return TextRanges(
        utf8,
        _align_to_characters(utf8, starts[first_start + np.where(uses_source, source.starts, windows.starts)]),
        _align_to_characters(utf8, starts[first_start + np.where(uses_source, source.ends, windows.ends)]),
    )


def _align_to_characters(utf8: bytes, offsets: Indices) -> Indices:
    """Move each offset inside a character to the start of the next character.

    A character that two tokens share therefore belongs to the first of them.
    """
    octets = np.frombuffer(utf8 + b"\0", np.uint8)
    for _ in range(3):  # a character has at most three continuation bytes
        offsets = offsets + ((octets[offsets] & 0xC0) == 0x80)  # noqa: PLR2004
    return offsets


def _placed_documents(rows: Rows) -> Sequence[PlacedDocument]:
    """Return the documents as PlacedDocuments. Call this only for columns that step 2 fills (STEP_2_CONDITIONS)."""
    return cast("Sequence[PlacedDocument]", rows.documents)


def _num_file_tokens(rows: Rows) -> Indices:
    return rows.source_windows.ends - rows.source_windows.starts


def _fim(rows: Rows) -> FimColumns:
    zeros = np.zeros(rows.num_rows, np.int64)
    return rows.fim or FimColumns(zeros, zeros, zeros)


FILLERS: dict[str, Callable[[Rows], ColumnContent]] = {
    IDS: _ids,
    "path": lambda rows: rows.from_documents([one.path for one in rows.documents]),
    "repo": lambda rows: rows.from_documents([one.repo for one in rows.documents]),
    "language": lambda rows: rows.from_documents([one.language for one in rows.documents]),
    "lines": _lines,
    "start": lambda rows: rows.source_windows.starts,
    "tokens": _num_file_tokens,
    "fresh": lambda rows: rows.source_windows.fresh,
    TEXT: _text,
    "repeat": lambda rows: np.zeros(rows.num_rows, np.int64) if rows.repeats is None else rows.repeats,
    LABELS: _labels,
    "weight": lambda rows: rows.from_documents([one.weight for one in _placed_documents(rows)]),
    # `variant` is an empty string instead of null, because readers that infer types fail if the first value is null.
    "variant": lambda rows: PerDocument(
        ["" if one.variant is None else one.variant.kind for one in _placed_documents(rows)], rows.document_index
    ),
    "variant_seed": lambda rows: PerDocument(
        [0 if one.variant is None else one.variant.seed for one in _placed_documents(rows)], rows.document_index
    ),
    "fim": lambda rows: Choices(FORMS, _fim(rows).forms),
    "middle": lambda rows: Choices(MIDDLES, _fim(rows).middles),
    "middle_tokens": lambda rows: _fim(rows).num_middle_tokens,
}
"""Functions that compute the columns of a window, keyed by column name."""


def num_ids(rows: Rows, schema: Schema) -> Indices:
    """Return the number of ids in each row, without padding."""
    return _ids(rows).num_ids(schema)


def emitted_tokens_per_row(rows: Rows, schema: Schema) -> Indices:
    """Return the number of tokens in each row, including padding. For a document, count the tokens of its text."""
    if not schema.has_ids:
        return _num_file_tokens(rows)
    return np.full(rows.num_rows, schema.length) if schema.pad_id is not None else num_ids(rows, schema)


def digest_rows(rows: Rows, schema: Schema, split: Split) -> bytes:
    """Return the concatenated row hashes, which are the same in every format (see content_digest)."""
    if not schema.has_ids:
        return _text_digests(rows, split)
    ids, starts, ends, is_last = _ids(rows)
    content = memoryview(ids.astype("<u4").tobytes())
    prefix, suffix, last_suffix = _special_ids(schema, "<u4")
    suffixes = [(last_suffix if is_last else suffix).tobytes() for is_last in (False, True)]
    keys = [document_key(split, one.repo, one.path) for one in rows.documents]
    first_tokens = rows.source_windows.starts.tolist()
    ranges = zip(
        rows.document_index.tolist(),
        first_tokens,
        (4 * starts).tolist(),
        (4 * ends).tolist(),
        is_last.tolist(),
        strict=True,
    )
    prefix_bytes = prefix.tobytes()
    return hash_rows(
        [
            (keys[document], b"%d\0" % first_token, prefix_bytes, content[start:end], suffixes[is_last])
            for document, first_token, start, end, is_last in ranges
        ]
    )


def _text_digests(rows: Rows, split: Split) -> bytes:
    utf8, starts, ends = _text(rows)
    content = memoryview(utf8)
    keys = [document_key(split, one.repo, one.path) for one in rows.documents]
    ranges = zip(
        rows.document_index.tolist(), rows.source_windows.starts.tolist(), starts.tolist(), ends.tolist(), strict=True
    )
    return hash_rows(
        [(keys[document], b"%d\0" % first_token, content[start:end]) for document, first_token, start, end in ranges]
    )


def _special_ids(schema: Schema, dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the special ids before each window, after each window, and after the last window of a document."""
    last_suffix = (*schema.suffix, *schema.closing)
    return np.array(schema.prefix, dtype), np.array(schema.suffix, dtype), np.array(last_suffix, dtype)


def batch_from_rows(rows: Rows, schema: Schema) -> WindowBatch:
    """Return the batch that `parse_lines` would return for the JSON lines of these rows."""
    columns = {name: _batch_column(name, FILLERS[name](rows), schema) for name in schema.batch_columns}
    if not schema.has_ids:
        return WindowBatch.of_documents(columns, schema)
    return WindowBatch(_add_special_ids(_ids(rows), schema, schema.id_type), columns)


def _batch_column(name: str, content: ColumnContent, schema: Schema) -> ColumnValues:
    kind = COLUMNS[name].kind
    if isinstance(content, IdRanges):
        return _add_special_ids(content, schema, np.int64)
    if isinstance(content, Pairs):
        values = np.stack(content, axis=1).ravel()
        return Ragged(values, np.arange(0, len(values) + 1, 2))
    if isinstance(content, TextRanges):
        return content.texts()
    if isinstance(content, Choices):
        return [content.values[index] for index in content.indices.tolist()]
    if isinstance(content, PerDocument) and kind is Kind.TEXT:
        return [content.values[index] for index in content.document_index.tolist()]
    if isinstance(content, PerDocument):
        return np.array(content.values, np.int64 if kind is Kind.NUMBER else np.float64)[content.document_index]
    return content


def _add_special_ids(ranges: IdRanges, schema: Schema, dtype: npt.DTypeLike) -> Ragged:
    """Concatenate ranges of ids, with special ids before and after each range."""
    prefix, suffix, last_suffix = _special_ids(schema, dtype)
    ids = ranges.ids.astype(dtype, copy=False)
    parts = [np.zeros(0, dtype)]
    edges = zip(ranges.starts.tolist(), ranges.ends.tolist(), ranges.is_last.tolist(), strict=True)
    for start, end, is_last in edges:
        parts += [prefix, ids[start:end], last_suffix if is_last else suffix]
    return Ragged(np.concatenate(parts), np.concatenate(([0], np.cumsum(ranges.num_ids(schema)))))
