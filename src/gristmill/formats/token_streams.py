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
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from operator import attrgetter, eq
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

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
from gristmill.formats.arrays import COPIED_BYTES, ArrayFile, Head, damaged, map_array, no_head, npy_head, write_array
from gristmill.formats.batch import DOCUMENT, Ragged, Values, WindowBatch, are_alike, between, joined, require_fitting
from gristmill.formats.format import Format, Target, rows_of_piece
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

WINDOW = np.dtype([("offset", "<i8"), ("count", "<i4"), ("frame", "u1")])
"""For each row: where its ids are in the stream, how many, and which special ids are around them."""
BARE, FRAMED, CLOSED = range(3)
"""Values of `frame`: no special ids; those around a window; those around the last window of a document."""


class Laid(NamedTuple):
    """What some rows add to a stream."""

    content: bytes
    windows: npt.NDArray[Any]
    """A WINDOW for each row."""
    ends: Indices
    """Of the documents that ended: where, end token included. One more may be open."""


class StreamLaying:
    """Lays rows into a stream, batch by batch; a document may go on from one to the next."""

    def __init__(self, schema: Schema, kind: npt.DTypeLike) -> None:
        """`kind`: what ids are in the stream."""
        self._schema, self._kind = schema, np.dtype(kind)
        self._end_ids = () if schema.end_id is None or schema.is_packed else (schema.end_id,)
        self._end = bytes_of(self._end_ids, self._kind)
        self._num_ids = 0
        self._last: WindowBatch | None = None
        """The last row, if there was one: the next may go on from it."""

    def lay(self, batch: WindowBatch) -> Laid:
        """A row that goes on from the one before adds what that has not; any other ends a document, if one is open."""
        if not len(batch):
            return self._laid(b"", np.zeros(0, WINDOW), np.zeros(0, np.int64))
        contents = _contents(batch, self._schema, self._kind)
        starts, ends = contents.starts, contents.ends
        num_shared = _num_shared(batch, contents)
        is_open = self._last is not None
        if self._last is not None:
            pair = joined([self._last, between(batch, 0, 1)])
            num_shared[0] = _num_shared(pair, _contents(pair, self._schema, self._kind))[1]
        self._last = between(batch, len(batch) - 1, len(batch))
        is_ending = num_shared < 0
        is_ending[0] &= is_open
        num_shared = np.maximum(num_shared, 0)
        num_new = ends - starts - num_shared + is_ending * len(self._end_ids)
        stops = self._num_ids + np.cumsum(num_new)
        windows = np.zeros(len(batch), WINDOW)
        windows["offset"] = stops - (ends - starts)
        windows["count"] = ends - starts
        windows["frame"] = contents.frames
        parts = contents.between(starts + num_shared, ends)
        for row in np.flatnonzero(is_ending).tolist():
            parts[row] = self._end + parts[row]
        return self._laid(b"".join(parts), windows, (stops - num_new)[is_ending] + len(self._end_ids))

    def finish(self) -> Laid:
        """Ends the last document."""
        is_open, self._last = self._last is not None, None
        ends = [self._num_ids + len(self._end_ids)] if is_open else []
        return self._laid(self._end if is_open else b"", np.zeros(0, WINDOW), np.array(ends, np.int64))

    def _laid(self, content: bytes, windows: npt.NDArray[Any], ends: Indices) -> Laid:
        self._num_ids += len(content) // self._kind.itemsize
        return Laid(content, windows, ends)


class _Contents(NamedTuple):
    """The ids of some rows without the special ones around them."""

    raw: bytes
    starts: Indices
    """Of each row, in ids."""
    ends: Indices
    frames: npt.NDArray[np.uint8]
    """Which special ids each row has around it."""
    width: int
    """Bytes of an id."""

    def between(self, starts: Indices, ends: Indices) -> list[bytes]:
        edges = zip((starts * self.width).tolist(), (ends * self.width).tolist(), strict=True)
        return [self.raw[start:end] for start, end in edges]


def _contents(rows: WindowBatch, schema: Schema, kind: np.dtype[Any]) -> _Contents:
    ids = rows.ids
    longest = int(ids.sizes.max(initial=0))
    if longest > schema.length:
        raise OutputError(
            f"a row has {counted(longest, 'id')}, and windows have {schema.length} at most: it is not of "
            "this dataset. Check the dataset with gristmill check."
        )
    first, last = int(ids.offsets[0]), int(ids.offsets[-1])
    values = ids.values[first:last]
    require_fitting(values, kind)
    frames = _frames(rows, schema)
    before, behind = _nums_around(schema)
    starts = ids.offsets[:-1] - first + before[frames]
    ends = ids.offsets[1:] - first - behind[frames]
    return _Contents(values.astype(kind, copy=False).tobytes(), starts, ends, frames, kind.itemsize)


def _num_shared(rows: WindowBatch, contents: _Contents) -> Indices:
    """Ids that each row begins with, and the one before it ends with; -1: it is of another document.

    A window that ends before the last one does would have to look further back. No build makes such.
    """
    num_shared = np.full(len(rows), -1, np.int64)
    if not {"path", "start"} <= rows.columns.keys():
        return num_shared
    starts, ends = contents.starts, contents.ends
    before = np.diff(rows.columns["start"])
    wanted = (ends - starts)[:-1] - before
    is_next = _are_of_one_document(rows, contents.frames != BARE)
    is_next &= (before >= 0) & (wanted >= 0) & (wanted <= (ends - starts)[1:])
    numbers = np.flatnonzero(is_next)
    wanted = wanted[numbers]
    ours = contents.between(starts[numbers + 1], starts[numbers + 1] + wanted)
    is_equal = np.fromiter(map(eq, contents.between(ends[numbers] - wanted, ends[numbers]), ours), np.bool_, len(ours))
    num_shared[numbers + 1] = np.where(is_equal, wanted, -1)
    return num_shared


def _are_of_one_document(rows: WindowBatch, is_framed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """For each row but the first: with the one before it."""
    columns = rows.columns
    is_alone = ~is_framed
    if "variant" in columns:
        is_alone |= np.fromiter((variant in BY_THEMSELVES for variant in columns["variant"]), np.bool_, len(rows))
    if "fim" in columns:
        is_alone |= np.fromiter(map(bool, columns["fim"]), np.bool_, len(rows))
    are_of_one: npt.NDArray[np.bool_] = ~(is_alone[1:] | is_alone[:-1])
    return are_of_one & are_alike(rows, (*DOCUMENT, "repeat"))


def bytes_of(ids: Sequence[int], kind: npt.DTypeLike) -> bytes:
    """Some ids as they are in a stream; OutputError where they cannot be."""
    values = np.array(ids, object)  # of any size: an id is not to wrap before it is looked at
    require_fitting(values, kind)
    return values.astype(kind).tobytes()


def _behind(schema: Schema) -> tuple[tuple[int, ...], ...]:
    """Special ids behind a row, by its frame."""
    return (), schema.suffix, (*schema.suffix, *schema.closing)


def _nums_around(schema: Schema) -> tuple[Indices, Indices]:
    """Numbers of special ids before and behind a row, by its frame."""
    num_before = len(schema.prefix)
    return np.array([0, num_before, num_before]), np.array(list(map(len, _behind(schema))))


def _frames(batch: WindowBatch, schema: Schema) -> npt.NDArray[np.uint8]:
    """Which special ids each row has around it. A row with windows of several files counts as bare."""
    frames = np.zeros(len(batch), np.uint8)
    if SEGMENTS in batch.columns:
        return frames
    for frame in (FRAMED, CLOSED) if schema.closing else (FRAMED,):
        frames[_have_around(batch, schema.prefix, _behind(schema)[frame])] = frame
    return frames


def _have_around(batch: WindowBatch, prefix: Sequence[int], behind: Sequence[int]) -> npt.NDArray[np.bool_]:
    values, offsets = batch.ids.values, batch.ids.offsets
    have: npt.NDArray[np.bool_] = batch.ids.sizes >= len(prefix) + len(behind)
    rows = np.flatnonzero(have)
    for number, one in enumerate(prefix):
        have[rows] &= values[offsets[rows] + number] == one
    for number, one in enumerate(reversed(behind), 1):
        have[rows] &= values[offsets[rows + 1] - number] == one
    return have


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
    read_index: Callable[[Path, np.dtype[Any]], Indices]
    """Where all of them end."""


class _Growing(NamedTuple):
    """The files of a split, as they are written."""

    stream: ArrayFile
    windows: ArrayFile
    rows: BinaryIO
    ends: list[Indices]

    def append(self, laid: Laid) -> None:
        self.stream.append(laid.content)
        self.windows.append(laid.windows.tobytes())
        self.ends.append(laid.ends)


@contextmanager
def _growing(names: Sequence[str], target: Target, files: StreamFiles) -> Iterator[_Growing]:
    """`names`: as `_names` has them. The index and the facts are written at the end."""
    kind = files.kind(target.schema)
    stream_path, index_path, windows_path, rows_path, facts_path = (target.folder / name for name in names)
    with (
        ArrayFile(stream_path, kind, files.head) as stream,
        ArrayFile(windows_path, WINDOW) as windows,
        rows_path.open("wb") as rows,
    ):
        growing = _Growing(stream, windows, rows, [np.zeros(0, np.int64)])
        yield growing
    ends = np.concatenate(growing.ends)
    files.write_index(index_path, ends, kind)
    counts = {"num_ids": len(stream), "num_documents": len(ends), "num_windows": len(windows)}
    facts_path.write_bytes(_facts(target.schema, kind, counts))


def _names(target: Target, files: StreamFiles) -> list[str]:
    suffixes = (files.stream_suffix, files.index_suffix, WINDOWS, ROWS, FACTS)
    return [target.file_name(suffix) for suffix in suffixes]


def write_stream(batches: Iterable[WindowBatch], target: Target, *, files: StreamFiles) -> list[str]:
    schema, names = target.schema, _names(target, files)
    laying = StreamLaying(schema, files.kind(schema))
    with _growing(names, target, files) as growing:
        for batch in batches:
            growing.append(laying.lay(batch))
            lines = column_lines({name: batch.columns[name] for name in schema.natural}, len(batch))
            growing.rows.write(b"".join(lines))
        growing.append(laying.finish())
    return names


def join_streams(pieces: Iterable[Path], target: Target, *, files: StreamFiles) -> list[str]:
    """Documents begin and end in one piece: behind the others, only what says where they are is another."""
    kind, names = files.kind(target.schema), _names(target, files)
    with _growing(names, target, files) as growing:
        for piece in pieces:
            stream_path, index_path, windows_path, rows_path, _ = (piece / name for name in names)
            num_before = len(growing.stream)
            growing.stream.append_file(stream_path)
            windows = map_array(windows_path, WINDOW).copy()
            windows["offset"] += num_before
            growing.windows.append(windows.tobytes())
            growing.ends.append(files.read_index(index_path, kind) + num_before)
            with open_plain(rows_path) as rows:
                shutil.copyfileobj(rows, growing.rows, COPIED_BYTES)
    return names


def _facts(schema: Schema, kind: np.dtype[Any], counts: dict[str, int]) -> bytes:
    """For whoever trains on the stream; rows are read without."""
    facts = {
        "dtype": kind.name,
        "vocab_size": schema.vocab_size,
        "end_id": schema.end_id,
        "prefix": schema.prefix,
        "suffix": schema.suffix,
        "closing": schema.closing,
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
            self._prefix = bytes_of(schema.prefix, self._kind)
            self._behind = [bytes_of(ids, self._kind) for ids in _behind(schema)]
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
        before, behind = _nums_around(self._schema)
        frames = np.minimum(windows["frame"], CLOSED)
        sizes: Indices = windows["count"] + before[frames] + behind[frames]
        return sizes

    def _require_possible(self, windows: npt.NDArray[Any]) -> None:
        counts, offsets = windows["count"].astype(np.int64), windows["offset"]
        is_wrong = (counts < 0) | (windows["frame"] > CLOSED) | (self._sizes(windows) > self._schema.length)
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
        edges = (windows["frame"].tolist(), starts.tolist(), ends.tolist())
        for frame, start, end in zip(*edges, strict=True):
            parts += (self._prefix, content[start:end], self._behind[frame]) if frame else (content[start:end],)
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


def _read_ends(path: Path, _kind: np.dtype[Any]) -> Indices:
    return map_array(path, "<i8")


def _last_end(path: Path, kind: np.dtype[Any]) -> int:
    ends = _read_ends(path, kind)
    return int(ends[-1]) if len(ends) else 0


def stream_format(name: str, files: StreamFiles) -> Format:
    return Format(
        name=name,
        write=partial(write_stream, files=files),
        open=partial(StreamSplit, files=files),
        is_all_ours=True,
        rows_per_task=rows_of_piece,
        join=partial(join_streams, files=files),
    )


BIN = stream_format("bin", StreamFiles(".bin", ENDS, no_head, id_kind, _write_ends, _last_end, _read_ends))
NPY = stream_format("npy", StreamFiles(".npy", ENDS, npy_head, id_kind, _write_ends, _last_end, _read_ends))
