"""What a document's rows are made from, and what FILLERS make of it: each column of its windows, once for all formats.

`jsonl_rows` writes the rows from that at once; all other formats are written from batches of windows, `batches_of`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.config.config import Config
from gristmill.core.columns import COLUMNS, IDS, LABELS, Kind
from gristmill.core.errors import ConfigError
from gristmill.core.records import Split, Variant
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, Values, WindowBatch
from gristmill.formats.content_digest import place_of, row_digest
from gristmill.tokenizers.definition import Definition
from gristmill.windows.cut import Indices, Windows, lines_of

ROWS_AT_ONCE = 1000


class DocumentText(NamedTuple):
    utf8: bytes
    starts: Indices
    """The byte at which each token begins, and the length at the end."""


class Labels(NamedTuple):
    """What a model is to make of the ids: in each row, another range."""

    ids: npt.NDArray[Any]
    windows: Windows


class DocumentRows(NamedTuple):
    """All that a document's rows are made from."""

    repo: str
    path: str
    language: str
    ids: npt.NDArray[Any]
    newline_tokens: npt.NDArray[np.int32]
    windows: Windows
    text: DocumentText | None
    repeats: Indices | None = None
    """How often each window has been shown before; None: never."""
    weight: float = 1.0
    variant: Variant | None = None
    places: Windows | None = None
    """Where in the file's tokens each window is from, if that is not where it is in the ids."""
    labels: Labels | None = None
    """Where the ids are not clean themselves."""

    @property
    def clean(self) -> Labels:
        return Labels(self.ids, self.windows) if self.labels is None else self.labels

    @property
    def told_windows(self) -> Windows:
        """Whose start and lines the rows tell."""
        return self.windows if self.places is None else self.places

    @property
    def text_windows(self) -> Windows:
        """Windows of the texts in rows: of noise the clean ones, of fill in the middle those of its ids."""
        return self.told_windows if self.labels is not None else self.windows


def window_schema(config: Config, definition: Definition, vocab_size: int) -> Schema:
    """Of rows with one window each."""
    if config.output.pad and definition.pad_id is None:
        raise ConfigError(
            f"the tokenizer {definition.name!r} has no padding token. Leave out --pad: readers pad on request."
        )
    return Schema(
        columns=config.window_columns,
        length=config.window.length,
        vocab_size=vocab_size,
        prefix=definition.template.prefix,
        suffix=definition.template.suffix,
        pad_id=definition.pad_id if config.output.pad else None,
        end_id=definition.end_id,
    )


# A document's rows -> what each column holds in them.


class Same(NamedTuple):
    """One value, in every row."""

    value: Any


class IdRanges(NamedTuple):
    """A range of ids for each row, which has the special ids around it."""

    ids: npt.NDArray[Any]
    windows: Windows


class TextRanges(NamedTuple):
    """A range of a text's bytes for each row."""

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


Filled = Same | IdRanges | TextRanges | Pairs | Indices
"""What a column holds in the rows of a document. An array has a number for each row."""


def _text(rows: DocumentRows) -> TextRanges:
    assert rows.text is not None, "parts keep the text where a column needs it"
    return TextRanges(rows.text.utf8, *text_ranges(rows.text, rows.text_windows))


def text_ranges(text: DocumentText, windows: Windows) -> tuple[Indices, Indices]:
    """The bytes of each window's text. A character whose bytes two tokens share belongs to the first of them."""
    utf8 = np.frombuffer(text.utf8 + b"\0", np.uint8)

    def to_character(offsets: Indices) -> Indices:
        for _ in range(3):  # a character has at most three bytes that continue it
            offsets = offsets + ((utf8[offsets] & 0xC0) == 0x80)  # noqa: PLR2004
        return offsets

    return to_character(text.starts[windows.starts]), to_character(text.starts[windows.ends])


FILLERS: dict[str, Callable[[DocumentRows], Filled]] = {
    IDS: lambda rows: IdRanges(rows.ids, rows.windows),
    "path": lambda rows: Same(rows.path),
    "repo": lambda rows: Same(rows.repo),
    "language": lambda rows: Same(rows.language),
    "lines": lambda rows: Pairs(*lines_of(rows.told_windows, rows.newline_tokens)),
    "start": lambda rows: rows.told_windows.starts,
    "fresh": lambda rows: rows.told_windows.fresh,
    "text": _text,
    "repeat": lambda rows: Same(0) if rows.repeats is None else rows.repeats,
    LABELS: lambda rows: IdRanges(*rows.clean),
    "weight": lambda rows: Same(rows.weight),
    # No null: readers that guess types choke on a first one.
    "variant": lambda rows: Same("" if rows.variant is None else rows.variant.kind),
    "variant_seed": lambda rows: Same(0 if rows.variant is None else rows.variant.seed),
}
"""For each column of a window."""


def num_ids(windows: Windows, schema: Schema) -> Indices:
    """Per window, without padding."""
    return windows.ends - windows.starts + (len(schema.prefix) + len(schema.suffix))


def num_emitted(windows: Windows, schema: Schema) -> int:
    """Ids in all rows of these windows, padding included."""
    return schema.length * len(windows) if schema.pad_id is not None else int(num_ids(windows, schema).sum())


def document_digests(rows: DocumentRows, schema: Schema, split: Split) -> list[bytes]:
    """What each row is known by, in whichever format (see content_digest)."""
    ids = rows.ids.astype("<u4").tobytes()
    prefix, suffix = (np.array(around, "<u4").tobytes() for around in (schema.prefix, schema.suffix))
    windows, places = rows.windows, rows.told_windows.starts.tolist()
    ranges = zip((4 * windows.starts).tolist(), (4 * windows.ends).tolist(), places, strict=True)
    return [
        row_digest(split, place_of(rows.repo, rows.path, place), b"".join((prefix, ids[start:end], suffix)))
        for start, end, place in ranges
    ]


# Documents' rows -> batches of windows.


def batches_of(documents: Iterable[DocumentRows], schema: Schema) -> Iterator[WindowBatch]:
    """Of some thousand rows each: a document's rows stay together, so one with many makes a large one."""
    waiting: list[DocumentRows] = []
    num_waiting, most = 0, schema.num_rows_at_once(ROWS_AT_ONCE)
    for rows in documents:
        waiting.append(rows)
        num_waiting += len(rows.windows)
        if num_waiting >= most:
            yield batch_of_documents(waiting, schema)
            waiting, num_waiting = [], 0
    if num_waiting:
        yield batch_of_documents(waiting, schema)


def batch_of_documents(documents: Sequence[DocumentRows], schema: Schema) -> WindowBatch:
    """Those of one document behind those of the other; what `batch_of_lines` makes of their JSON rows."""
    ids = _ids([IdRanges(rows.ids, rows.windows) for rows in documents], schema, schema.id_type)
    return WindowBatch(ids, {name: _column(name, documents, schema) for name in schema.natural})


def _column(name: str, documents: Sequence[DocumentRows], schema: Schema) -> Values:
    filled = [FILLERS[name](rows) for rows in documents]
    kind = COLUMNS[name].kind
    if kind is Kind.NUMBERS:
        pairs = [np.stack(one, axis=1).ravel() for one in filled if isinstance(one, Pairs)]
        if not pairs:
            return _ids([one for one in filled if isinstance(one, IdRanges)], schema, np.int64)
        values = np.concatenate(pairs)
        return Ragged(values, np.arange(0, len(values) + 1, 2))
    counts = [len(rows.windows) for rows in documents]
    if kind is Kind.TEXT:
        return list(chain.from_iterable(map(_texts, filled, counts)))
    dtype = np.int64 if kind is Kind.NUMBER else np.float64
    numbers = (_numbers(one, count, dtype) for one, count in zip(filled, counts, strict=True))
    return np.concatenate([np.zeros(0, dtype), *numbers])


def _texts(filled: Filled, count: int) -> list[str]:
    if isinstance(filled, Same):
        return [filled.value] * count
    assert isinstance(filled, TextRanges)
    return filled.texts()


def _numbers(filled: Filled, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    if isinstance(filled, Same):
        return np.full(count, filled.value, dtype)
    assert isinstance(filled, np.ndarray)
    return filled


def _ids(ranges: Sequence[IdRanges], schema: Schema, kind: npt.DTypeLike) -> Ragged:
    """Ranges of ids, with the special tokens around each."""
    prefix, suffix = np.array(schema.prefix, kind), np.array(schema.suffix, kind)
    parts = [np.zeros(0, kind)]
    for all_ids, windows in ranges:
        ids = all_ids.astype(kind, copy=False)
        for start, end in zip(windows.starts.tolist(), windows.ends.tolist(), strict=True):
            parts += [prefix, ids[start:end], suffix]
    sizes = [num_ids(windows, schema) for _, windows in ranges]
    return Ragged(np.concatenate(parts), np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes])))
