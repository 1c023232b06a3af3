"""Read the windows of rows: their metadata, and the positions of their tokens among the ids of the row.

read_row(dataset, "test", 12)          one row, by index
read_rows(dataset, Split.TRAIN)        all rows of a split
read_windows(dataset, Split.TRAIN)     the windows of all rows of a split, without ids
windows_of_file(dataset, split, key)   the windows of one file, without ids

A row of a dataset with --rows documents has no ids. read_row and read_rows tokenize its text.

read_rows reads 64 rows at a time. If these rows are formatted exactly as gristmill writes them, their ids are parsed as
digits, all at once. Rows in any other JSON formatting are decoded one by one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice, pairwise
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import orjson

from gristmill.core.columns import IGNORED_LABEL
from gristmill.core.digits import parse_numbers
from gristmill.core.errors import DatasetError
from gristmill.core.files_table import Count
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, shell_quote
from gristmill.core.records import INDEPENDENT_WINDOW_KINDS, MAX_VOCAB_SIZE, FileKey, VariantKind
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.frame import Frame
from gristmill.dataset.token_spans import Ids, TokenSpan, join_spans
from gristmill.tokenizers.tokenizer import tokenizer_for

HEAD = b'{"input_ids":['
ROWS_AT_ONCE = 64
"""The ids of 64 rows fit in the cache of a CPU core, as measured with `gristmill check`."""

_Id = Annotated[int, msgspec.Meta(ge=0, lt=MAX_VOCAB_SIZE)]
_Label = Annotated[int, msgspec.Meta(ge=IGNORED_LABEL, lt=MAX_VOCAB_SIZE)]


class TextKey(NamedTuple):
    """Key of a text: a file, or a variant of a file."""

    repo: str
    path: str
    variant: str = ""
    seed: int = 0

    @property
    def file(self) -> FileKey:
        return self.repo, self.path


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window of a text. Rows that gristmill did not build may lack any of the fields."""

    repo: str = ""
    path: str = ""
    language: str = ""
    lines: tuple[Count, Count] = (0, 0)
    start: Count = 0
    """Position of the window's first token in the text."""
    fresh: Count = 0
    """Number of tokens at the end of the window that no earlier window of the text contains."""
    repeat: Count = 0
    variant: str = ""
    variant_seed: int = 0
    fim: str = ""
    """Order of the fill-in-the-middle parts (`psm` or `spm`), or empty."""
    middle: str = ""
    middle_tokens: Count = 0
    at: Count = 0
    """Position of the window's first token among the ids of the row."""
    length: Count = 0
    """Number of tokens, without special tokens."""

    @property
    def end(self) -> int:
        """Position after the window's last token in the text."""
        return self.start + (self.fresh if self.fim else self.length)

    @property
    def is_altered(self) -> bool:
        """True if the ids of the window are not a span of the text, because of noise or fill-in-the-middle."""
        return bool(self.fim) or self.variant in INDEPENDENT_WINDOW_KINDS

    @property
    def file(self) -> FileKey:
        return self.repo, self.path

    @property
    def text_key(self) -> TextKey:
        return TextKey(self.repo, self.path, self.variant, self.variant_seed if self.variant else 0)


class RowWindows(NamedTuple):
    """Windows of a row, without their ids."""

    num_ids: int
    """Number of ids, with special tokens but without padding."""
    windows: list[Window]
    """One window, or all windows of a packed row."""


class DecodedRow(NamedTuple):
    """Ids and windows of a row."""

    ids: Ids
    """Ids with special tokens but without padding."""
    windows: list[Window]
    """One window, or all windows of a packed row."""
    ids_before_noise: Ids | None
    """Content ids of a noise variant before the noise. None for other rows."""

    def content(self, window: Window) -> Ids:
        return self.ids[window.at : window.at + window.length]

    def with_ids(self, window: Window) -> "WindowWithIds":
        return WindowWithIds(window, self.content(window))


class WindowWithIds(NamedTuple):
    """A window with its ids."""

    window: Window
    ids: Ids
    """Ids without the special tokens around them."""

    @property
    def span(self) -> TokenSpan:
        """The ids with their position in the text. Not valid if `window.is_altered`."""
        return TokenSpan(self.window.start, self.ids)


def join_windows(dataset: Dataset, parts: Iterable[WindowWithIds]) -> list[TokenSpan] | None:
    """Join windows of one file, in any order and with repeats.

    Return None if overlapping windows have different ids at the same position. If any window is rewritten for
    fill-in-the-middle, the parts of each window are put back in their original order, and the text is encoded again.
    """
    windows = list(parts)
    if not any(one.window.fim for one in windows):
        return join_spans(one.span for one in windows)
    originals = sorted((one for one in windows if not one.window.repeat), key=lambda one: one.window.start)
    spans: list[TokenSpan] = []
    for run in _group_contiguous(originals):
        start = run[0].window.start
        engine = dataset.tokenizer if not start else dataset.continuing_tokenizer
        try:
            text = b"".join(_decode_window(dataset, one) for one in run).decode()
        except (LookupError, ValueError):
            problem = (
                f"rows of {run[0].window.path!r} are damaged: they have an unknown id, or bytes that are not UTF-8"
            )
            raise DatasetError(f"{problem}. {_check_advice(dataset)}") from None
        spans.append(TokenSpan(start, engine.encode(text).ids.astype(np.uint32)))
    return spans


def _group_contiguous(ordered: Sequence[WindowWithIds]) -> Iterator[list[WindowWithIds]]:
    """Group windows that follow each other without a gap."""
    run: list[WindowWithIds] = []
    for one in ordered:
        if run and one.window.start != run[-1].window.end:
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _encode_with_sentinels(dataset: Dataset, text: bytes) -> Ids:
    """Encode a document rewritten for fill-in-the-middle.

    Each part is encoded separately. Each sentinel, a special token before a part, is encoded as one token.
    """
    tokenizer, frame = dataset.continuing_tokenizer, dataset.fim_frame
    token_texts = tokenizer.definition.added_texts
    parts: list[Ids] = []
    for sentinel in (frame.prefix, frame.suffix, frame.middle, *(() if frame.end is None else (frame.end,))):
        if sentinel not in token_texts:
            raise DatasetError(
                f"the tokenizer of {str(dataset.folder)!r} is damaged: it has no text for the fill-in-the-middle token "
                f"{sentinel}. Build the dataset again."
            )
        before, _, text = text.partition(token_texts[sentinel].encode())
        parts += [tokenizer.encode(before).ids, np.array([sentinel], np.uint32)]
    return np.concatenate([*parts, tokenizer.encode(text).ids]).astype(np.uint32)


def _decode_window(dataset: Dataset, part: WindowWithIds) -> bytes:
    window, ids = part
    if not window.fim:
        return (dataset.continuing_tokenizer if window.start else dataset.tokenizer).decode(ids)
    frame = dataset.fim_frame
    positions = [np.flatnonzero(ids == one).tolist() for one in (frame.prefix, frame.suffix, frame.middle)]
    if [len(one) for one in positions] != [1, 1, 1]:
        counts = "{}, {} and {}".format(*map(len, positions))
        raise DatasetError(
            f"a row of {window.path!r} is damaged: it has {counts} fill-in-the-middle tokens for prefix, suffix and "
            "middle, expected one each. Build the dataset again."
        )
    (_,), (at,), (to,) = positions
    end = len(ids) - (frame.end is not None and ids[-1] == frame.end)
    return b"".join(map(dataset.continuing_tokenizer.decode, (ids[1:at], ids[to + 1 : end], ids[at + 1 : to])))


# Stored rows. The rows of a build have all fields that are required here. Rows from other tools may lack some.


class _BuiltWindow(Window, frozen=True, kw_only=True):
    repo: str
    path: str
    lines: tuple[Count, Count]
    start: Count
    fresh: Count


class _Segment(_BuiltWindow, frozen=True, kw_only=True):
    at: Count
    length: Count


class _PackedRow(msgspec.Struct, frozen=True, kw_only=True):
    input_ids: list[_Id] = []
    attention_mask: msgspec.Raw = msgspec.Raw(b"")
    labels: list[_Label] | None = None
    segments: list[_Segment]


class _BuiltRow(_BuiltWindow, frozen=True, kw_only=True):
    input_ids: list[_Id] = []
    attention_mask: msgspec.Raw = msgspec.Raw(b"")
    labels: list[_Label] | None = None
    segments: None = None


class _ForeignRow(Window, frozen=True, kw_only=True):
    input_ids: list[_Id] = []
    attention_mask: msgspec.Raw = msgspec.Raw(b"")
    labels: list[_Label] | None = None
    segments: None = None


class _DocumentRow(Window, frozen=True, kw_only=True):
    body: str = msgspec.field(name="text")
    repo: str
    path: str
    lines: tuple[Count, Count]
    start: Count
    tokens: Count

    @property
    def window(self) -> Window:
        return self.with_length(self.tokens)

    def with_length(self, length: int) -> Window:
        """Return the window with `length` tokens. A part of a file may have different tokens if it is encoded alone."""
        fresh = self.tokens if self.fim else length
        return _make_window(self, 0, length, fresh=0 if self.repeat else fresh)


_Row = _PackedRow | _BuiltRow | _ForeignRow


def read_row(dataset: Dataset, split: str, row: int) -> DecodedRow:
    """Read the row at the index `row`."""
    return next(_Decoder(dataset, split).rows([dataset[split].line(row)], row))


def read_rows(dataset: Dataset, split: str, advance: Callable[[int], None] = lambda _: None) -> Iterator[DecodedRow]:
    """Read all rows of a split in order. `advance` is called after each batch of up to 64 rows, with the batch size."""
    decoder, lines, first = _Decoder(dataset, split), dataset[split].lines(), 0
    while batch := list(islice(lines, ROWS_AT_ONCE)):
        yield from decoder.rows(batch, first)
        first += len(batch)
        advance(len(batch))


def read_windows(dataset: Dataset, split: str, lines: Iterable[bytes] | None = None) -> Iterator[RowWindows]:
    """Read the windows of all rows in order, without ids.

    `lines` are the stored rows of the split, if the caller has read them. By default, this function reads them.
    """
    decoder = _Decoder(dataset, split)
    return map(decoder.windows, dataset[split].lines() if lines is None else lines, count())


def windows_of_file(dataset: Dataset, split: str, file: FileKey) -> Iterator[tuple[int, RowWindows]]:
    """Yield (row index, windows of the file) for each row that contains windows of a file.

    Gristmill must have built the rows. Rows without windows of the file are not parsed.
    """
    repo, path = file
    names = b'"path":%b,"repo":%b,' % (orjson.dumps(path), orjson.dumps(repo))
    decoder = _Decoder(dataset, split)
    for number, line in enumerate(dataset[split].lines()):
        if names in line:
            num_ids, windows = decoder.windows(line, number)
            if file_windows := [window for window in windows if window.file == file]:
                yield number, RowWindows(num_ids, file_windows)


class _Decoder:
    """Decoder of the stored rows of one split."""

    def __init__(self, dataset: Dataset, split: str) -> None:
        self._dataset, self._split = dataset, split
        record = dataset.record
        kind: type[_Row] = _BuiltRow if isinstance(record, Manifest) else _ForeignRow
        self._json: msgspec.json.Decoder[_Row] = msgspec.json.Decoder(_PackedRow if record.packing else kind)
        self._documents = msgspec.json.Decoder(_DocumentRow) if record.has_documents else None
        self._length, self._vocab_size = record.window_length, record.tokenizer.vocab_size
        self._frame = Frame.of(record)

    def windows(self, line: bytes, number: int) -> RowWindows:
        rest = _strip_ids(line)
        try:
            if self._documents is not None:
                document = self._documents.decode(line)
                return RowWindows(document.tokens, [document.window])
            row = self._json.decode(rest or line)
            digits = line[len(HEAD) : line.index(b"]")] if rest else b",".join(b"%d" % one for one in row.input_ids)
            num_ids = _num_unpadded(row, _num_ids(digits))
            return RowWindows(num_ids, self._windows(row, num_ids, self._num_trailing(digits, num_ids)))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # invalid UTF-8 is a ValueError
            raise self._damage_error(number, error) from None

    def rows(self, lines: Sequence[bytes], first: int) -> Iterator[DecodedRow]:
        """Decode consecutive rows. `first` is the index of the first row."""
        if self._documents is not None:
            yield from self._tokenize(lines, first, self._documents)
            return
        parsed = _parse_ids(lines) if len(lines) > 1 else None
        for number, line in enumerate(lines):
            try:
                row = self._json.decode(line if parsed is None else _strip_ids(line) or b"")
                ids = np.array(row.input_ids, np.uint32) if parsed is None else parsed[number]
                read = self._decode(row, ids)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise self._damage_error(first + number, error) from None
            yield read

    def _tokenize(
        self, lines: Sequence[bytes], first: int, decoder: msgspec.json.Decoder[_DocumentRow]
    ) -> Iterator[DecodedRow]:
        tokenizer = self._dataset.tokenizer
        continuing = tokenizer_for(tokenizer.definition.without_prefix_space)
        for number, line in enumerate(lines, first):
            try:
                row = decoder.decode(line)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise self._damage_error(number, error) from None
            if row.fim:
                ids = _encode_with_sentinels(self._dataset, row.body.encode())
            else:
                ids = (continuing if row.start else tokenizer).encode(row.body).ids
            yield DecodedRow(ids, [row.with_length(len(ids))], None)

    def _decode(self, row: _Row, stored: Ids) -> DecodedRow:
        if len(stored) > self._length:
            raise ValueError(f"the row has {counted(len(stored), 'id')}, more than the window length of {self._length}")
        ids = stored[: _num_unpadded(row, len(stored))]
        if len(ids) and int(ids.max()) >= self._vocab_size:
            raise ValueError(f"the row has the id {ids.max()}, but the vocabulary size is {self._vocab_size:,}")
        windows = self._windows(row, len(ids), self._frame.num_trailing(ids))
        return DecodedRow(ids, windows, self._ids_before_noise(row.labels, windows))

    def _num_trailing(self, digits: bytes, num_ids: int) -> int:
        """Count the special ids after the content. `digits` is the text of the ids of the row, with padding."""
        num_closing = len(self._frame.closing)
        if not num_closing:
            return self._frame.num_suffix
        is_padded = _num_ids(digits) > num_ids
        ids = digits.split(b",", num_ids)[:num_ids] if is_padded else digits.rsplit(b",", num_closing)
        last = ids[-num_closing:]
        return self._frame.num_trailing([int(one) for one in last])

    def _ids_before_noise(self, labels: list[_Label] | None, windows: Sequence[Window]) -> Ids | None:
        if labels is None or not any(window.variant == VariantKind.NOISE for window in windows):
            return None
        clean_labels = [label for label in labels if label != IGNORED_LABEL]
        return np.array(
            clean_labels[self._frame.num_prefix : len(clean_labels) - self._frame.num_trailing(clean_labels)], np.uint32
        )

    def _windows(self, row: _Row, num_ids: int, num_trailing: int) -> list[Window]:
        if not isinstance(row, _PackedRow):
            length = num_ids - self._frame.num_prefix - num_trailing
            if length < 0:
                raise ValueError(
                    f"the row has {counted(num_ids, 'id')}, fewer than the special tokens around a window "
                    f"({self._frame.num_prefix + num_trailing})"
                )
            return [_make_window(row, self._frame.num_prefix, length)]
        end = 0
        for one in row.segments:
            if one.at < end or one.at + one.length > num_ids:
                raise ValueError(
                    f"a window of {counted(one.length, 'id')} at position {one.at} overlaps the previous window, or "
                    f"ends after the {counted(num_ids, 'id')} of the row"
                )
            end = one.at + one.length
        return list(row.segments)

    def _damage_error(self, number: int, error: Exception) -> DatasetError:
        problem = f"row {self._split}:{number} in {str(self._dataset.folder)!r} is damaged"
        return DatasetError(f"{problem}: {error}. {_check_advice(self._dataset)}")


def _check_advice(dataset: Dataset) -> str:
    return f"Run gristmill check {shell_quote(str(dataset.folder))} for details."


def _make_window(
    row: _BuiltRow | _ForeignRow | _DocumentRow, at: int, length: int, *, fresh: int | None = None
) -> Window:
    return Window(
        repo=row.repo,
        path=row.path,
        language=row.language,
        lines=row.lines,
        start=row.start,
        fresh=row.fresh if fresh is None else fresh,
        repeat=row.repeat,
        variant=row.variant,
        variant_seed=row.variant_seed,
        fim=row.fim,
        middle=row.middle,
        middle_tokens=row.middle_tokens,
        at=at,
        length=length,
    )


def _num_unpadded(row: _Row, num_ids: int) -> int:
    mask = bytes(row.attention_mask)
    return min(num_ids, mask.count(b"1")) if mask else num_ids


def _num_ids(digits: bytes) -> int:
    return digits.count(b",") + 1 if digits else 0


def _strip_ids(line: bytes) -> bytes | None:
    """Cut `{"input_ids":[1,2],"path":…}` to `{"path":…}`. Return None if the line is formatted differently."""
    end = line.find(b"],")
    return b"{" + line[end + 2 :] if line.startswith(HEAD) and end > 0 else None


def _parse_ids(lines: Sequence[bytes]) -> list[Ids] | None:
    """Parse the ids of all lines at once. Return None if gristmill would format a line differently."""
    if not all(line.startswith(HEAD) and line.find(b"],") > 0 for line in lines):
        return None
    parsed = parse_numbers([line[len(HEAD) : line.index(b"]")] for line in lines])
    if parsed is None:
        return None
    ids = parsed[0].astype(np.uint32)
    return [ids[first:end] for first, end in pairwise(parsed[1].tolist())]
