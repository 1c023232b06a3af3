"""`bin` and `npy`: a split as one stream of tokens, as nanoGPT and its like read it; and what makes rows of it again.

    train.bin           the ids of all documents, each once, each followed by its end token: raw uint16 or uint32;
                        or train.npy, the same with NumPy's head
    train.ends.npy      where in the stream each document ends, its end token included; with --pack, each row
    train.windows.npy   of each row: where its ids are in the stream (streams.WINDOW)
    train.rows.jsonl    of each row: all columns but the ids
    train.stream.json   type of the ids, size of the vocabulary, end token; numbers of ids, documents and rows

np.memmap("train.bin", np.uint16, "r") is all that a training on the stream needs.
"""

import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from gristmill.core.columns import COLUMNS, SEGMENTS, Kind
from gristmill.core.errors import OutputError
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain
from gristmill.core.records import BY_THEMSELVES, Split
from gristmill.core.schema import Schema
from gristmill.formats.arrays import ArrayFile, Head, damaged, map_array, no_head, npy_head, write_array
from gristmill.formats.batch import Ragged, Values, WindowBatch, require_fitting
from gristmill.formats.format import Format, Target
from gristmill.formats.jsonl import row_starts
from gristmill.formats.jsonl_rows import column_lines, column_of
from gristmill.windows.cut import Indices

# What rows tell beside their ids, as JSON Lines: for formats whose files hold ids alone.

TYPES: dict[Kind, Any] = {
    Kind.TEXT: str,
    Kind.NUMBER: int,
    Kind.FRACTION: float,
    Kind.NUMBERS: list[int],
    Kind.OBJECTS: list[dict[str, Any]],
}


class Sidecar:
    """Reads lines by number; where each begins is found when first needed."""

    def __init__(self, path: Path, num_rows: int, schema: Schema) -> None:
        self._path, self._num_rows, self._names = path, num_rows, schema.natural
        if not set(self._names) <= COLUMNS.keys():
            raise damaged(path, f"no columns {sorted(set(self._names) - COLUMNS.keys())} are known")
        self._map: mmap.mmap | None = None
        self._starts: Indices = np.zeros(1, np.int64)

    def read(self, start: int, stop: int) -> dict[str, Values]:
        try:
            rows = _decoder(self._names).decode_lines(self._lines(start, stop))
            columns = {name: column_of(list(map(attrgetter(name), rows)), COLUMNS[name].kind) for name in self._names}
        except OSError as error:
            raise damaged(self._path, error.strerror or str(error)) from None
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise damaged(self._path, f"in rows {start} to {stop}, {error}") from None
        if len(rows) != stop - start:
            raise damaged(self._path, f"{counted(len(rows), 'row')} of {start} to {stop}")
        return columns

    def _lines(self, start: int, stop: int) -> bytes:
        if start == stop:
            return b""
        if self._map is None:
            self._map, self._starts = self._mapped()
        return self._map[int(self._starts[start]) : int(self._starts[stop])]

    def _mapped(self) -> tuple[mmap.mmap, Indices]:
        with open_plain(self._path) as stream:
            if not os.fstat(stream.fileno()).st_size:
                raise damaged(self._path, "it is empty")
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        starts = row_starts(content)
        if len(starts) - 1 != self._num_rows or int(starts[-1]) != len(content):
            raise damaged(self._path, f"{counted(len(starts) - 1, 'whole line')} for {counted(self._num_rows, 'row')}")
        return content, starts


@cache
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    fields = [(name, TYPES[COLUMNS[name].kind]) for name in names]
    return msgspec.json.Decoder(msgspec.defstruct("Row", fields, forbid_unknown_fields=True, gc=False))


# Windows -> one stream of tokens: what windows of a document share stands in it once, and behind each its end
# token.

WINDOW = np.dtype([("offset", "<i8"), ("count", "<i4"), ("is_framed", "u1")])
"""Of each row: where in the stream its ids are, how many, and whether the special ids go around them."""
PLACE = ("repo", "path", "variant", "variant_seed", "repeat")
"""What the windows of one document have in common, as far as rows tell it."""

Place = tuple[Any, ...]


class Laid(NamedTuple):
    """What some rows add to a stream."""

    content: bytes
    windows: npt.NDArray[Any]
    """A WINDOW for each row."""
    ends: Indices
    """Of the documents that ended: where, end token included. One more may be open."""


class _Window(NamedTuple):
    place: Place | None
    """None: no other continues it."""
    start: int
    content: bytes


class StreamLaying:
    """Lays rows into a stream, batch by batch; a document may go on from one to the next."""

    def __init__(self, schema: Schema, kind: npt.DTypeLike) -> None:
        """`kind`: what ids are in the stream."""
        self._schema, self._kind = schema, np.dtype(kind)
        end_ids = [] if schema.end_id is None or schema.is_packed else [schema.end_id]
        self._end = bytes_of(end_ids, self._kind)
        self._num_bytes = 0
        self._last: _Window | None = None

    def lay(self, batch: WindowBatch) -> Laid:
        is_framed = _are_framed(batch, self._schema)
        content: list[bytes] = []
        offsets: list[int] = []
        ends: list[int] = []
        contents = self._contents(batch.ids, is_framed)
        for window in map(_Window, _places(batch, is_framed), _starts(batch), contents):
            num_shared = self._num_shared(window)
            if num_shared is None:
                if self._last is not None:
                    content.append(self._end)
                    ends.append(self._after(self._end))
                num_shared = 0
            offsets.append(self._num_bytes - num_shared)
            fresh = window.content[num_shared:]
            content.append(fresh)
            self._after(fresh)
            self._last = window
        windows = np.zeros(len(batch), WINDOW)
        windows["offset"] = np.array(offsets, np.int64) // self._kind.itemsize
        windows["count"] = batch.ids.sizes - is_framed * _num_around(self._schema)
        windows["is_framed"] = is_framed
        return Laid(b"".join(content), windows, np.array(ends, np.int64) // self._kind.itemsize)

    def finish(self) -> Laid:
        """Ends the last document."""
        content, ends = b"", []
        if self._last is not None:
            content = self._end
            ends = [self._after(content) // self._kind.itemsize]
            self._last = None
        return Laid(content, np.zeros(0, WINDOW), np.array(ends, np.int64))

    def _after(self, content: bytes) -> int:
        """How far the stream goes, with this at its end."""
        self._num_bytes += len(content)
        return self._num_bytes

    def _num_shared(self, window: _Window) -> int | None:
        """Bytes that the stream ends with, and the window begins with; None: it belongs to another document.

        A window that ends before the last one does would have to look further back. No build makes such.
        """
        last = self._last
        if last is None or window.place is None or window.place != last.place:
            return None
        before = (window.start - last.start) * self._kind.itemsize
        num_shared = len(last.content) - before
        if before < 0 or not 0 <= num_shared <= len(window.content):
            return None
        return num_shared if last.content[before:] == window.content[:num_shared] else None

    def _contents(self, ids: Ragged, is_framed: npt.NDArray[np.bool_]) -> list[bytes]:
        """Each row's ids as bytes, without the special ones around them."""
        longest = int(ids.sizes.max(initial=0))
        if longest > self._schema.length:
            raise OutputError(
                f"a row has {counted(longest, 'id')}, and windows have {self._schema.length} at most: it is not of "
                "this dataset. Check the dataset with gristmill check."
            )
        first, last = int(ids.offsets[0]), int(ids.offsets[-1])
        values = ids.values[first:last]
        require_fitting(values, self._kind)
        raw = values.astype(self._kind, copy=False).tobytes()
        starts = ids.offsets[:-1] - first + is_framed * len(self._schema.prefix)
        ends = ids.offsets[1:] - first - is_framed * len(self._schema.suffix)
        width = self._kind.itemsize
        return [raw[at:to] for at, to in zip((starts * width).tolist(), (ends * width).tolist(), strict=True)]


def bytes_of(ids: Sequence[int], kind: npt.DTypeLike) -> bytes:
    """Some ids as they are in a stream; OutputError where they cannot be."""
    values = np.array(ids, object)  # of any size: an id is not to wrap before it is looked at
    require_fitting(values, kind)
    return values.astype(kind).tobytes()


def _num_around(schema: Schema) -> int:
    return len(schema.prefix) + len(schema.suffix)


def _are_framed(batch: WindowBatch, schema: Schema) -> npt.NDArray[np.bool_]:
    """Which rows are one window between the special ids. A row of several files' windows is more than that."""
    if SEGMENTS in batch.columns:
        return np.zeros(len(batch), np.bool_)
    values, offsets, sizes = batch.ids.values, batch.ids.offsets, batch.ids.sizes
    is_framed: npt.NDArray[np.bool_] = sizes >= _num_around(schema)
    rows = np.flatnonzero(is_framed)
    for number, one in enumerate(schema.prefix):
        is_framed[rows] &= values[offsets[rows] + number] == one
    for number, one in enumerate(reversed(schema.suffix), 1):
        is_framed[rows] &= values[offsets[rows + 1] - number] == one
    return is_framed


def _places(batch: WindowBatch, is_framed: npt.NDArray[np.bool_]) -> list[Place | None]:
    columns = batch.columns
    if not {"path", "start"} <= columns.keys():
        return [None] * len(batch)
    told = (columns[name] for name in PLACE if name in columns)
    places = zip(*(column.tolist() if isinstance(column, np.ndarray) else column for column in told), strict=True)
    variants = columns.get("variant") or [""] * len(batch)
    return [
        place if framed and variant not in BY_THEMSELVES else None
        for place, variant, framed in zip(places, variants, is_framed.tolist(), strict=True)
    ]


def _starts(batch: WindowBatch) -> list[int]:
    return batch.columns["start"].tolist() if "start" in batch.columns else [0] * len(batch)


ENDS = ".ends.npy"
WINDOWS = ".windows.npy"
ROWS = ".rows.jsonl"
FACTS = ".stream.json"


class StreamFiles(NamedTuple):
    """In what the formats with a stream differ."""

    stream_suffix: str
    """How the names of its two files end."""
    index_suffix: str
    head: Head
    kind: Callable[[Schema], np.dtype[Any]]
    """Of the ids in the stream."""
    write_index: Callable[[Path, Indices, np.dtype[Any]], None]
    """From where documents end."""
    num_indexed: Callable[[Path, np.dtype[Any]], int]
    """Where the last of them ends."""


def write_stream(batches: Iterable[WindowBatch], target: Target, *, files: StreamFiles) -> list[str]:
    schema, kind = target.schema, files.kind(target.schema)
    suffixes = (files.stream_suffix, files.index_suffix, WINDOWS, ROWS, FACTS)
    names = {suffix: target.file_name(suffix) for suffix in suffixes}
    paths = {suffix: target.folder / name for suffix, name in names.items()}
    laying = StreamLaying(schema, kind)
    ends = []
    with (
        ArrayFile(paths[files.stream_suffix], kind, files.head) as stream,
        ArrayFile(paths[WINDOWS], WINDOW) as windows,
        paths[ROWS].open("wb") as rows,
    ):
        for batch in batches:
            laid = laying.lay(batch)
            stream.append(laid.content)
            windows.append(laid.windows.tobytes())
            ends.append(laid.ends)
            rows.writelines(column_lines({name: batch.columns[name] for name in schema.natural}, len(batch)))
        laid = laying.finish()
        stream.append(laid.content)
        ends.append(laid.ends)
    all_ends = np.concatenate(ends)
    files.write_index(paths[files.index_suffix], all_ends, kind)
    counts = {"num_ids": len(stream), "num_documents": len(all_ends), "num_windows": len(windows)}
    paths[FACTS].write_bytes(_facts(schema, kind, counts))
    return list(names.values())


def _facts(schema: Schema, kind: np.dtype[Any], counts: dict[str, int]) -> bytes:
    """For whoever trains on the stream; rows are read without."""
    facts = {
        "dtype": kind.name,
        "vocab_size": schema.vocab_size,
        "end_id": schema.end_id,
        "prefix": schema.prefix,
        "suffix": schema.suffix,
        **counts,
    }
    return orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


class StreamSplit:
    """A split's rows, out of its stream."""

    def __init__(self, folder: Path, split: Split, schema: Schema, *, files: StreamFiles) -> None:
        self._made_of = (folder, split, schema, files)
        target = Target(folder, split, schema)
        suffixes = (files.stream_suffix, files.index_suffix, WINDOWS, ROWS)
        stream, index, windows, rows = (folder / target.file_name(suffix) for suffix in suffixes)
        self._stream_path, self._windows_path = stream, windows
        self._schema, self._kind = schema, files.kind(schema)
        self._stream, self._windows = np.zeros(0, self._kind), np.zeros(0, WINDOW)
        if any(path.exists() for path in (stream, index, windows, rows)):
            self._stream = map_array(stream, self._kind, files.head)
            self._windows = map_array(windows, WINDOW)
            if files.num_indexed(index, self._kind) != len(self._stream):
                raise damaged(stream, f"{counted(len(self._stream), 'id')}, and {index.name!r} tells of more or less")
        self._sidecar = Sidecar(rows, len(self._windows), schema)
        try:
            self._prefix, self._suffix = (bytes_of(ids, self._kind) for ids in (schema.prefix, schema.suffix))
        except OutputError:
            raise damaged(stream, f"its ids are {self._kind.name}, and not all special ids can be") from None

    def __len__(self) -> int:
        return len(self._windows)

    def read(self, start: int, stop: int) -> WindowBatch:
        start, stop, _ = slice(start, max(start, stop)).indices(len(self))
        windows = self._windows[start:stop]
        self._require_possible(windows)
        columns = self._sidecar.read(start, stop)
        return WindowBatch(self._ids(windows), columns)

    def _sizes(self, windows: npt.NDArray[Any]) -> Indices:
        """Ids of each row, those around its content too."""
        num_around = len(self._schema.prefix) + len(self._schema.suffix)
        sizes: Indices = windows["count"] + windows["is_framed"].astype(np.int64) * num_around
        return sizes

    def _require_possible(self, windows: npt.NDArray[Any]) -> None:
        counts, offsets = windows["count"].astype(np.int64), windows["offset"]
        is_wrong = (counts < 0) | (windows["is_framed"] > 1) | (self._sizes(windows) > self._schema.length)
        is_wrong |= (offsets < 0) | (offsets > len(self._stream) - counts)
        if is_wrong.any():
            raise damaged(
                self._windows_path, f"{windows[is_wrong.argmax()]} is no place in {counted(len(self._stream), 'id')}"
            )

    def _ids(self, windows: npt.NDArray[Any]) -> Ragged:
        content = self._stream.view(np.uint8).data
        width = self._kind.itemsize
        starts = windows["offset"] * width
        ends = starts + windows["count"].astype(np.int64) * width
        parts: list[bytes | memoryview] = []
        edges = (windows["is_framed"].tolist(), starts.tolist(), ends.tolist())
        for is_framed, start, end in zip(*edges, strict=True):
            parts += (self._prefix, content[start:end], self._suffix) if is_framed else (content[start:end],)
        ids = np.frombuffer(bytearray().join(parts), self._kind)
        if self._kind.kind == "i" and ids.min(initial=0) < 0:
            raise damaged(self._stream_path, "an id is negative")
        offsets = np.zeros(len(windows) + 1, np.int64)
        np.cumsum(self._sizes(windows), out=offsets[1:])
        return Ragged(ids.astype(self._schema.id_type, copy=False), offsets)

    def __getstate__(self) -> tuple[Path, Split, Schema, StreamFiles]:
        """Maps cannot travel to another process; they are made again there."""
        return self._made_of

    def __setstate__(self, state: tuple[Path, Split, Schema, StreamFiles]) -> None:
        folder, split, schema, files = state
        self.__init__(folder, split, schema, files=files)  # type: ignore[misc]


def id_kind(schema: Schema) -> np.dtype[Any]:
    return np.dtype(schema.id_type).newbyteorder("<")


def _write_ends(path: Path, ends: Indices, _kind: np.dtype[Any]) -> None:
    write_array(path, ends.astype("<i8", copy=False))


def _last_end(path: Path, _kind: np.dtype[Any]) -> int:
    ends = map_array(path, "<i8")
    return int(ends[-1]) if len(ends) else 0


def stream_format(name: str, files: StreamFiles) -> Format:
    return Format(
        name=name,
        is_sharded=False,
        write=partial(write_stream, files=files),
        open=partial(StreamSplit, files=files),
        is_all_ours=True,
    )


BIN = stream_format("bin", StreamFiles(".bin", ENDS, no_head, id_kind, _write_ends, _last_end))
NPY = stream_format("npy", StreamFiles(".npy", ENDS, npy_head, id_kind, _write_ends, _last_end))
