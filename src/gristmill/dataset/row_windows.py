"""A row -> its windows: what it says of each, and where their tokens are among its ids.

read_row(dataset, "test", 12)          one row, by its number
read_rows(dataset, Split.TRAIN)        all of a split, in order
read_windows(dataset, Split.TRAIN)     the same without ids, which are only counted
windows_of_file(dataset, split, key)   the same for one file

A row that is a document has no ids: its text is tokenized, or its `tokens` are counted.
In order, ids are parsed as digits, many rows at once, where rows are written the way gristmill writes them; other
spellings of the same JSON are taken row by row.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice, pairwise
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import orjson

from gristmill.core.columns import IGNORED_LABEL
from gristmill.core.digits import numbers_in
from gristmill.core.errors import DatasetError
from gristmill.core.files_table import Count
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.records import BY_THEMSELVES, LARGEST_VOCABULARY, FileKey, VariantKind
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.frame import Frame
from gristmill.dataset.stretches import Ids, Stretch, join
from gristmill.tokenizers.tokenizer import tokenizer_for

HEAD = b'{"input_ids":['
ROWS_AT_ONCE = 64
"""As `gristmill check` has measured: their ids stay in a core's cache."""

_Id = Annotated[int, msgspec.Meta(ge=0, lt=LARGEST_VOCABULARY)]
_Label = Annotated[int, msgspec.Meta(ge=IGNORED_LABEL, lt=LARGEST_VOCABULARY)]


class TextKey(NamedTuple):
    """A file, or a variant of it: a text of its own."""

    repo: str
    path: str
    variant: str = ""
    seed: int = 0

    @property
    def file(self) -> FileKey:
        return self.repo, self.path


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that no build has made may say less of it."""

    repo: str = ""
    path: str = ""
    language: str = ""
    lines: tuple[Count, Count] = (0, 0)
    start: Count = 0
    """Its first token, among the text's."""
    fresh: Count = 0
    """So many of its tokens, at its end, are not in the window before it."""
    repeat: Count = 0
    variant: str = ""
    variant_seed: int = 0
    fim: str = ""
    """Order of the parts of fill in the middle; empty without it."""
    middle: str = ""
    middle_tokens: Count = 0
    at: Count = 0
    """Where its tokens begin among the row's ids."""
    length: Count = 0
    """So many tokens, without special ones."""

    @property
    def end(self) -> int:
        """Place of its last token among the text's, and one."""
        return self.start + (self.fresh if self.fim else self.length)

    @property
    def is_alone(self) -> bool:
        """Its ids are not a stretch of the text: they have noise in them, or the middle comes last."""
        return bool(self.fim) or self.variant in BY_THEMSELVES

    @property
    def file(self) -> FileKey:
        return self.repo, self.path

    @property
    def text(self) -> TextKey:
        return TextKey(self.repo, self.path, self.variant, self.variant_seed if self.variant else 0)


class RowWindows(NamedTuple):
    num_ids: int
    """With special tokens, without padding."""
    windows: list[Window]
    """One, or those that share the row."""


class ReadRow(NamedTuple):
    ids: Ids
    """With special tokens, without padding."""
    windows: list[Window]
    """One, or those that share the row."""
    clean: Ids | None
    """What a window with noise shows without it; None where there is none."""

    def content(self, window: Window) -> Ids:
        return self.ids[window.at : window.at + window.length]

    def shown(self, window: Window) -> "ShownWindow":
        return ShownWindow(window, self.content(window))


class ShownWindow(NamedTuple):
    window: Window
    ids: Ids
    """Without special tokens around them."""

    @property
    def stretch(self) -> Stretch:
        """The ids at their place, for a window that is not alone."""
        return Stretch(self.window.start, self.ids)


def join_windows(dataset: Dataset, shown: Iterable[ShownWindow]) -> list[Stretch] | None:
    """Join windows of one file, in any order, repeated or not. None if two contradict each other.

    Windows of fill in the middle are put together again and encoded.
    """
    windows = list(shown)
    if not any(one.window.fim for one in windows):
        return join(one.stretch for one in windows)
    firsts = sorted((one for one in windows if not one.window.repeat), key=lambda one: one.window.start)
    stretches: list[Stretch] = []
    for run in _without_gaps(firsts):
        start = run[0].window.start
        engine = dataset.tokenizer if not start else dataset.continuing
        try:
            text = b"".join(_text_of(dataset, one) for one in run).decode()
        except (LookupError, ValueError) as error:  # ids that no token has, or bytes that are no text
            what = f"rows of {run[0].window.path} are damaged: {error!r}"
            raise DatasetError(f"{what}. Run `gristmill check` for details.") from None
        stretches.append(Stretch(start, engine.encode(text).ids.astype(np.uint32)))
    return stretches


def _without_gaps(ordered: Sequence[ShownWindow]) -> Iterator[list[ShownWindow]]:
    run: list[ShownWindow] = []
    for one in ordered:
        if run and one.window.start != run[-1].window.end:
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _with_sentinels(dataset: Dataset, text: bytes) -> Ids:
    """The ids of a document that is rewritten for fill in the middle: sentinels are tokens, and parts are apart."""
    tokenizer, frame = dataset.continuing, dataset.fim_frame
    spelled = tokenizer.definition.added_texts
    parts: list[Ids] = []
    for sentinel in (frame.prefix, frame.suffix, frame.middle, *(() if frame.end is None else (frame.end,))):
        if sentinel not in spelled:
            raise DatasetError("a row of fill in the middle is damaged: its text cannot spell a sentinel.")
        before, _, text = text.partition(spelled[sentinel].encode())
        parts += [tokenizer.encode(before).ids, np.array([sentinel], np.uint32)]
    return np.concatenate([*parts, tokenizer.encode(text).ids]).astype(np.uint32)


def _text_of(dataset: Dataset, shown: ShownWindow) -> bytes:
    window, ids = shown
    if not window.fim:
        return (dataset.continuing if window.start else dataset.tokenizer).decode(ids)
    frame = dataset.fim_frame
    places = [np.flatnonzero(ids == one).tolist() for one in (frame.prefix, frame.suffix, frame.middle)]
    if [len(one) for one in places] != [1, 1, 1]:
        raise DatasetError(f"a row of {window.path} is damaged: it has not the sentinels of fill in the middle.")
    (_,), (at,), (to,) = places
    end = len(ids) - (frame.end is not None and ids[-1] == frame.end)
    return b"".join(map(dataset.continuing.decode, (ids[1:at], ids[to + 1 : end], ids[at + 1 : to])))


# What is stored, by who wrote it: a build says all of a window.


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
        """By its own tokens: a piece of a file may have other ones than there."""
        fresh = self.tokens if self.fim else length
        return _window(self, 0, length, fresh=0 if self.repeat else fresh)


_Row = _PackedRow | _BuiltRow | _ForeignRow


def read_row(dataset: Dataset, split: str, row: int) -> ReadRow:
    return next(_Decoder(dataset, split).rows([dataset[split].line(row)], row))


def read_rows(dataset: Dataset, split: str, advance: Callable[[int], None] = lambda _: None) -> Iterator[ReadRow]:
    """In order; `advance` hears of every few rows that are done."""
    decoder, lines, first = _Decoder(dataset, split), dataset[split].lines(), 0
    while batch := list(islice(lines, ROWS_AT_ONCE)):
        yield from decoder.rows(batch, first)
        first += len(batch)
        advance(len(batch))


def read_windows(dataset: Dataset, split: str, lines: Iterable[bytes] | None = None) -> Iterator[RowWindows]:
    """In order; `lines`: all rows of the split as they are stored, for who looks at these too."""
    decoder = _Decoder(dataset, split)
    return map(decoder.windows, dataset[split].lines() if lines is None else lines, count())


def windows_of_file(dataset: Dataset, split: str, file: FileKey) -> Iterator[tuple[int, RowWindows]]:
    """Rows in which a build has windows of a file, by number, with these windows alone; no other row is parsed."""
    repo, path = file
    names = b'"path":%b,"repo":%b,' % (orjson.dumps(path), orjson.dumps(repo))
    decoder = _Decoder(dataset, split)
    for number, line in enumerate(dataset[split].lines()):
        if names in line:
            num_ids, windows = decoder.windows(line, number)
            if own := [window for window in windows if window.file == file]:
                yield number, RowWindows(num_ids, own)


class _Decoder:
    """Stored rows of one split -> what is in them."""

    def __init__(self, dataset: Dataset, split: str) -> None:
        self._dataset, self._split = dataset, split
        record = dataset.record
        kind: type[_Row] = _BuiltRow if isinstance(record, Manifest) else _ForeignRow
        self._json: msgspec.json.Decoder[_Row] = msgspec.json.Decoder(_PackedRow if record.packing else kind)
        self._documents = msgspec.json.Decoder(_DocumentRow) if record.has_documents else None
        self._length, self._vocab_size = record.window_length, record.tokenizer.vocab_size
        self._frame = Frame.of(record)

    def windows(self, line: bytes, number: int) -> RowWindows:
        rest = _without_ids(line)
        try:
            if self._documents is not None:
                document = self._documents.decode(line)
                return RowWindows(document.tokens, [document.window])
            row = self._json.decode(rest or line)
            digits = line[len(HEAD) : line.index(b"]")] if rest else b",".join(b"%d" % one for one in row.input_ids)
            num_ids = _num_unpadded(row, _num_ids(digits))
            return RowWindows(num_ids, self._windows(row, num_ids, self._num_behind(digits, num_ids)))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # not UTF-8 is a ValueError
            raise self._damage(number, error) from None

    def rows(self, lines: Sequence[bytes], first: int) -> Iterator[ReadRow]:
        """`first`: the number of the first of these."""
        if self._documents is not None:
            yield from self._tokenized(lines, first, self._documents)
            return
        parsed = _parsed_ids(lines) if len(lines) > 1 else None
        for number, line in enumerate(lines):
            try:
                row = self._json.decode(line if parsed is None else _without_ids(line) or b"")
                ids = np.array(row.input_ids, np.uint32) if parsed is None else parsed[number]
                read = self._read(row, ids)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise self._damage(first + number, error) from None
            yield read

    def _tokenized(
        self, lines: Sequence[bytes], first: int, decoder: msgspec.json.Decoder[_DocumentRow]
    ) -> Iterator[ReadRow]:
        tokenizer = self._dataset.tokenizer
        goes_on = tokenizer_for(tokenizer.definition.continuing)
        for number, line in enumerate(lines, first):
            try:
                row = decoder.decode(line)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise self._damage(number, error) from None
            if row.fim:
                ids = _with_sentinels(self._dataset, row.body.encode())
            else:
                ids = (goes_on if row.start else tokenizer).encode(row.body).ids
            yield ReadRow(ids, [row.with_length(len(ids))], None)

    def _read(self, row: _Row, stored: Ids) -> ReadRow:
        if len(stored) > self._length:
            raise ValueError(f"it has {counted(len(stored), 'id')}, and windows have at most {self._length}")
        ids = stored[: _num_unpadded(row, len(stored))]
        if len(ids) and int(ids.max()) >= self._vocab_size:
            raise ValueError(f"it has the id {ids.max()}, and the tokenizer has {self._vocab_size:,}")
        windows = self._windows(row, len(ids), self._frame.num_behind(ids))
        return ReadRow(ids, windows, self._clean(row.labels, windows))

    def _num_behind(self, digits: bytes, num_ids: int) -> int:
        """Special ids behind the content of a row whose ids are written so, padding included."""
        num_closing = len(self._frame.closing)
        if not num_closing:
            return self._frame.num_suffix
        is_padded = _num_ids(digits) > num_ids
        ids = digits.split(b",", num_ids)[:num_ids] if is_padded else digits.rsplit(b",", num_closing)
        last = ids[-num_closing:]
        return self._frame.num_behind([int(one) for one in last])

    def _clean(self, labels: list[_Label] | None, windows: Sequence[Window]) -> Ids | None:
        if labels is None or not any(window.variant == VariantKind.NOISE for window in windows):
            return None
        own = [label for label in labels if label != IGNORED_LABEL]
        return np.array(own[self._frame.num_prefix : len(own) - self._frame.num_behind(own)], np.uint32)

    def _windows(self, row: _Row, num_ids: int, num_behind: int) -> list[Window]:
        if not isinstance(row, _PackedRow):
            length = num_ids - self._frame.num_prefix - num_behind
            if length < 0:
                raise ValueError(f"it has {counted(num_ids, 'id')}, fewer than are special in a row")
            return [_window(row, self._frame.num_prefix, length)]
        end = 0
        for one in row.segments:
            if one.at < end or one.at + one.length > num_ids:
                raise ValueError(f"it has {counted(num_ids, 'id')}, and a window of {one.length} at {one.at}")
            end = one.at + one.length
        return list(row.segments)

    def _damage(self, number: int, error: Exception) -> DatasetError:
        place = f"row {self._split}:{number} is damaged, in {str(self._dataset.folder)!r}"
        return DatasetError(f"{place}: {error}. `gristmill check` tells more.")


def _window(row: _BuiltRow | _ForeignRow | _DocumentRow, at: int, length: int, *, fresh: int | None = None) -> Window:
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


def _without_ids(line: bytes) -> bytes | None:
    """`{"input_ids":[1,2],"path":…}` -> `{"path":…}`, if it is written just so."""
    end = line.find(b"],")
    return b"{" + line[end + 2 :] if line.startswith(HEAD) and end > 0 else None


def _parsed_ids(lines: Sequence[bytes]) -> list[Ids] | None:
    """None where one of them is written otherwise."""
    if not all(line.startswith(HEAD) and line.find(b"],") > 0 for line in lines):
        return None
    parsed = numbers_in([line[len(HEAD) : line.index(b"]")] for line in lines])
    if parsed is None:
        return None
    ids = parsed[0].astype(np.uint32)
    return [ids[first:end] for first, end in pairwise(parsed[1].tolist())]
