"""JSON Lines: one window a row, compact. Sizes are known before anything is written, so every row knows its place.

A file's ids are formatted once and the bytes sliced at the commas: at overlap 256, where every id appears twice, 1.4
times as fast as window by window (benchmarks/write.md).
"""

import mmap
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from gristmill.config.config import Config
from gristmill.core.columns import When, window_columns
from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.manifest import Edition, opened, reading
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Split, Variant
from gristmill.formats.content_digest import place_of, row_digest
from gristmill.tokenizers.definition import Definition
from gristmill.windows.cut import Indices, Windows, lines_of

IGNORED = b",-100"
"""In the place of padding among labels: what loss functions leave out."""
SCAN_BYTES = 1 << 24
POWERS_OF_TEN = 10 ** np.arange(1, 19)
WIDTHS_KNOWN = 1 << 18
"""A table for the ids of nearly every vocabulary; larger ids are measured one by one."""


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


class _Constants(NamedTuple):
    """What is the same in every row of a document: {"input_ids":[0, … ,2 … ],"path":…,"lines":[ … }"""

    head: bytes
    suffix: bytes
    names: bytes
    end: bytes
    """Columns behind all others."""


class RowFormat(NamedTuple):
    length: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    pad_id: int | None
    """None: rows are not padded."""
    with_text: bool
    with_repeat: bool = False
    with_weight: bool = False
    with_variant: bool = False
    with_labels: bool = False

    @classmethod
    def of(cls, config: Config, definition: Definition) -> "RowFormat":
        if config.output.pad and definition.pad_id is None:
            raise ConfigError(
                f"the tokenizer {definition.name!r} has no padding token. Leave out --pad: readers pad on request."
            )
        pad_id = definition.pad_id if config.output.pad else None
        sampling = config.sampling
        return cls(
            length=config.window.length,
            prefix=definition.template.prefix,
            suffix=definition.template.suffix,
            pad_id=pad_id,
            with_text=config.output.with_text,
            with_repeat=sampling.draws,
            with_weight=sampling.weights_only,
            with_variant=bool(config.variants.rates),
            with_labels=config.variants.have_labels,
        )

    @property
    def plain(self) -> "RowFormat":
        """Without the columns that say how often something is shown, and which variant."""
        return self._replace(with_repeat=False, with_weight=False, with_variant=False)

    @property
    def columns(self) -> list[str]:
        met = {
            When.ALWAYS: True,
            When.PAD: self.pad_id is not None,
            When.TEXT: self.with_text,
            When.DRAWN: self.with_repeat,
            When.NOISE: self.with_labels,
            When.WEIGHTS: self.with_weight,
            When.VARIANTS: self.with_variant,
        }
        return list(window_columns([when for when, is_met in met.items() if is_met]))

    @property
    def num_more_bytes(self) -> int:
        """That each row of a document takes beyond the plain ones, where its windows are shown once, as they are."""
        return len(self._end(1.0, None)) + (len(_repeat_column(0)) if self.with_repeat else 0)

    def num_ids(self, windows: Windows) -> Indices:
        """Per window, without padding."""
        return windows.ends - windows.starts + (len(self.prefix) + len(self.suffix))

    def num_emitted(self, windows: Windows) -> int:
        """Ids in all rows of these windows."""
        return self.length * len(windows) if self.pad_id is not None else int(self.num_ids(windows).sum())

    def num_row_bytes(self, rows: DocumentRows) -> int:
        return int(self.row_sizes(rows).sum())

    def row_sizes(self, rows: DocumentRows) -> Indices:
        """Exactly `[len(row) for row in self.format_rows(rows)]`, at a fraction of the cost."""
        windows, told = rows.windows, rows.told_windows
        constant = sum(map(len, self._constants(rows))) + len(_numbers(0, 0, 0, 0)) - 4 + len(b"}\n")
        at, to = _id_ranges(rows.ids, windows)
        numbers = np.concatenate((*lines_of(told, rows.newline_tokens), told.starts, told.fresh))
        sizes: Indices = to - at + constant + _num_digits(numbers).reshape(4, -1).sum(axis=0)
        if self.pad_id is not None:
            num_pads = self.length - self.num_ids(windows)
            sizes += num_pads * len(self._pads(1)) + len(self._mask(self.length))
        if self.with_text and rows.text is not None:
            starts, ends = text_ranges(rows.text, rows.text_windows)
            escaped = np.concatenate(([0], np.cumsum(_escaped_widths()[np.frombuffer(rows.text.utf8, np.uint8)])))
            sizes += escaped[ends] - escaped[starts] + len(_text_column(b""))
        if self.with_labels:
            sizes += self._label_sizes(rows.clean)
        if self.with_repeat:
            sizes += len(_repeat_column(0)) - 1 + (1 if rows.repeats is None else _num_digits(rows.repeats))
        return sizes

    def format_rows(self, rows: DocumentRows) -> list[bytes]:
        """Each window's row, line feed included."""
        windows = rows.windows
        all_ids = orjson.dumps(np.ascontiguousarray(rows.ids), option=orjson.OPT_SERIALIZE_NUMPY)
        head, suffix, names, end = self._constants(rows)
        end += b"}\n"
        id_ranges = _id_ranges(rows.ids, windows)
        told = rows.told_windows
        columns = (*id_ranges, *lines_of(told, rows.newline_tokens), told.starts, told.fresh)
        extras = self._extra_columns(rows)
        pads = [b""] * len(windows)
        if self.pad_id is not None:
            pads = [self._pads(self.length - count) for count in self.num_ids(windows).tolist()]
        return [
            b"".join((head, all_ids[at:to], suffix, pad, names, _numbers(first, last, start, fresh), extra, end))
            for at, to, first, last, start, fresh, pad, extra in zip(
                *(column.tolist() for column in columns), pads, extras, strict=True
            )
        ]

    def row_digests(self, rows: DocumentRows, split: Split) -> list[bytes]:
        """What each row is known by, in whichever format (see content)."""
        ids = rows.ids.astype("<u4").tobytes()
        prefix, suffix = (np.array(around, "<u4").tobytes() for around in (self.prefix, self.suffix))
        windows, places = rows.windows, rows.told_windows.starts.tolist()
        ranges = zip((4 * windows.starts).tolist(), (4 * windows.ends).tolist(), places, strict=True)
        return [
            row_digest(split, place_of(rows.repo, rows.path, place), b"".join((prefix, ids[start:end], suffix)))
            for start, end, place in ranges
        ]

    def _constants(self, rows: DocumentRows) -> _Constants:
        head, suffix = self._around()
        path, repo, language = map(orjson.dumps, (rows.path, rows.repo, rows.language))
        names = b'],"path":%b,"repo":%b,"language":%b,"lines":[' % (path, repo, language)
        return _Constants(b'{"input_ids":[' + head, suffix, names, self._end(rows.weight, rows.variant))

    def _end(self, weight: float, variant: Variant | None) -> bytes:
        """What is the same in all rows of a document. No null: readers that guess types choke on a first one."""
        end = b',"weight":%b' % orjson.dumps(weight) if self.with_weight else b""
        if not self.with_variant:
            return end
        kind, seed = (variant.kind, variant.seed) if variant is not None else ("", 0)
        return end + b',"variant":%b,"variant_seed":%b' % (orjson.dumps(kind), orjson.dumps(seed))

    def _extra_columns(self, rows: DocumentRows) -> list[bytes]:
        extras = [b""] * len(rows.windows)
        if self.pad_id is not None:
            extras = [self._mask(count) for count in self.num_ids(rows.windows).tolist()]
        if self.with_text and rows.text is not None:
            starts, ends = text_ranges(rows.text, rows.text_windows)
            texts = [rows.text.utf8[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            extras = [extra + _text_column(text) for extra, text in zip(extras, texts, strict=True)]
        if self.with_repeat:
            repeats = [0] * len(extras) if rows.repeats is None else rows.repeats.tolist()
            extras = [extra + _repeat_column(repeat) for extra, repeat in zip(extras, repeats, strict=True)]
        if self.with_labels:
            extras = [extra + own for extra, own in zip(extras, self._label_columns(rows.clean), strict=True)]
        return extras

    def _label_columns(self, labels: Labels) -> list[bytes]:
        """The clean ids with the special tokens around them, as in `input_ids`."""
        all_ids = orjson.dumps(np.ascontiguousarray(labels.ids), option=orjson.OPT_SERIALIZE_NUMPY)
        head, suffix = self._around()
        ranges = (edge.tolist() for edge in _id_ranges(labels.ids, labels.windows))
        pads = [IGNORED * count for count in self._num_label_pads(labels)]
        return [
            b',"labels":[%b%b%b%b]' % (head, all_ids[at:to], suffix, pad)
            for at, to, pad in zip(*ranges, pads, strict=True)
        ]

    def _label_sizes(self, labels: Labels) -> Indices:
        at, to = _id_ranges(labels.ids, labels.windows)
        sizes: Indices = to - at + (len(b',"labels":[]') + sum(map(len, self._around())))
        return sizes + np.array(self._num_label_pads(labels), np.int64) * len(IGNORED)

    def _num_label_pads(self, labels: Labels) -> list[int]:
        if self.pad_id is None:
            return [0] * len(labels.windows)
        return [self.length - count for count in self.num_ids(labels.windows).tolist()]

    def _around(self) -> tuple[bytes, bytes]:
        head = b"".join(b"%d," % index for index in self.prefix)
        return head, b"".join(b",%d" % index for index in self.suffix)

    def _pads(self, count: int) -> bytes:
        return b",%d" % (self.pad_id or 0) * count

    def _mask(self, num_ids: int) -> bytes:
        return _mask(num_ids, self.length)


def text_ranges(text: DocumentText, windows: Windows) -> tuple[Indices, Indices]:
    """The bytes of each window's text. A character whose bytes two tokens share belongs to the first of them."""
    utf8 = np.frombuffer(text.utf8 + b"\0", np.uint8)

    def to_character(offsets: Indices) -> Indices:
        for _ in range(3):  # a character has at most three bytes that continue it
            offsets = offsets + ((utf8[offsets] & 0xC0) == 0x80)  # noqa: PLR2004
        return offsets

    return to_character(text.starts[windows.starts]), to_character(text.starts[windows.ends])


def _id_ranges(ids: npt.NDArray[Any], windows: Windows) -> tuple[Indices, Indices]:
    """Where each window's ids lie in `[12,345,…]`, brackets and outer commas left out."""
    offsets = np.zeros(len(ids) + 1, np.int64)
    is_known = ids.dtype == np.uint16 or int(ids.max()) < WIDTHS_KNOWN
    np.cumsum(_id_widths().take(ids) if is_known else _num_digits(ids) + 1, out=offsets[1:])
    return offsets[windows.starts] + 1, offsets[windows.ends]


@cache
def _id_widths() -> npt.NDArray[np.uint8]:
    """Digits of each id, and its comma."""
    return (_num_digits(np.arange(WIDTHS_KNOWN)) + 1).astype(np.uint8)


def _num_digits(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return 1 + np.searchsorted(POWERS_OF_TEN, numbers, "right")


def _numbers(first: int, last: int, start: int, fresh: int) -> bytes:
    return b'%d,%d],"start":%d,"fresh":%d' % (first, last, start, fresh)


def _text_column(utf8: bytes) -> bytes:
    return b',"text":' + orjson.dumps(utf8.decode("utf-8"))


def _repeat_column(repeat: int) -> bytes:
    return b',"repeat":%d' % repeat


def _mask(num_ids: int, length: int) -> bytes:
    ones_and_zeros = b"1," * num_ids + b"0," * (length - num_ids)
    return b',"attention_mask":[%b]' % ones_and_zeros[:-1]


@cache
def _escaped_widths() -> npt.NDArray[np.int64]:
    """Bytes that each byte of a text takes inside a JSON string."""
    ascii_widths = [len(orjson.dumps(chr(code))) - 2 for code in range(0x80)]
    return np.array(ascii_widths + [1] * 0x80, np.int64)


class JsonlFile:
    """Reads rows of one file, in order or by number. Where rows begin is found once, when first needed."""

    def __init__(self, path: Path, num_rows: int, edition: Edition | None = None) -> None:
        """`edition`: the build it is of; no row of another in the same place is given."""
        self._path, self._num_rows, self._edition = path, num_rows, edition
        self._map: mmap.mmap | None = None
        self._starts: Indices | None = None

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[bytes]:
        num_rows = 0
        with opened(self._path, self._edition) as stream:
            for row in stream:
                num_rows += 1
                yield row
        self._expect(num_rows)

    def __getitem__(self, row: int) -> bytes:
        if self._map is None or self._starts is None:
            with reading(self._edition), self._content() as stream:
                if not os.fstat(stream.fileno()).st_size:
                    self._expect(0)
                content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            self._map = content
            self._starts = row_starts(self._map)
            self._expect(len(self._starts) - 1)
        start, end = self._starts[row : row + 2].tolist()
        return self._map[start:end]

    def _content(self) -> BinaryIO:
        return open_plain(self._path)

    def __getstate__(self) -> tuple[Path, int, Edition | None]:
        """A map cannot travel to another process; it is made again there."""
        return self._path, self._num_rows, self._edition

    def __setstate__(self, state: tuple[Path, int, Edition | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def _expect(self, found: int) -> None:
        if found != self._num_rows:
            raise DatasetError(
                f"{str(self._path)!r} is damaged: {counted(found, 'row')}, the manifest says {self._num_rows}."
            )


def row_starts(content: mmap.mmap) -> Indices:
    """And, at the end, where the file ends."""
    starts = [np.zeros(1, np.int64)]
    for offset in range(0, len(content), SCAN_BYTES):
        part = np.frombuffer(content[offset : offset + SCAN_BYTES], np.uint8)
        starts.append(np.flatnonzero(part == ord("\n")) + (offset + 1))
    return np.concatenate(starts)
