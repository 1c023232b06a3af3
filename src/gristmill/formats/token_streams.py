"""`bin` and `npy`: each split as one stream of ids, as nanoGPT reads it, and the files that map rows to the stream.

    train.bin           ids of all documents as raw uint16 or uint32, each document followed by the end token;
                        with --pack, ids of all rows
    train.npy           the ids of train.bin with NumPy's header; replaces train.bin in the format `npy`
    train.ends.npy      end of each document in the stream, after its end token; with --pack, end of each row
    train.windows.npy   position of the ids of each row in the stream (WINDOW)
    train.rows.jsonl    all columns of each row except the ids
    train.stream.json   dtype, vocabulary size, end token, and the numbers of ids, documents and rows

A training run on the stream needs only np.memmap("train.bin", np.uint16, "r").
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
from gristmill.core.records import INDEPENDENT_WINDOW_KINDS, Split
from gristmill.core.schema import Schema
from gristmill.formats.arrays import (
    COPY_BUFFER_BYTES,
    ArrayFile,
    MakeHeader,
    damage_error,
    map_array,
    no_header,
    npy_header,
    write_array,
)
from gristmill.formats.batch import (
    DOCUMENT_COLUMNS,
    ColumnValues,
    Ragged,
    WindowBatch,
    concat_batches,
    equals_previous,
    require_ids_fit,
    slice_batch,
)
from gristmill.formats.format import Format, Target, name_rows, rows_per_piece
from gristmill.formats.jsonl import find_row_starts
from gristmill.formats.jsonl_rows import column_lines, make_column
from gristmill.windows.cut import Indices

# Columns other than ids, in a file of JSON lines beside the stream.

TYPES: dict[Kind, Any] = {
    Kind.TEXT: str,
    Kind.NUMBER: int,
    Kind.FRACTION: float,
    Kind.NUMBERS: list[int],
    Kind.OBJECTS: list[dict[str, Any]],
}


class Sidecar:
    """Reader of the columns other than ids, one JSON line per row. The first read finds the start of each line."""

    def __init__(self, path: Path, num_rows: int, schema: Schema) -> None:
        self._path, self._num_rows, self._names = path, num_rows, schema.batch_columns
        if not set(self._names) <= COLUMNS.keys():
            raise damage_error(
                path, f"the dataset has unknown columns: {', '.join(sorted(set(self._names) - COLUMNS.keys()))}"
            )
        self._map: mmap.mmap | None = None
        self._starts: Indices = np.zeros(1, np.int64)

    def read(self, start: int, stop: int) -> dict[str, ColumnValues]:
        try:
            rows = _decoder(self._names).decode_lines(self._lines(start, stop))
            columns = {name: make_column(list(map(attrgetter(name), rows)), COLUMNS[name].kind) for name in self._names}
        except OSError as error:
            raise damage_error(self._path, error.strerror or str(error)) from None
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise damage_error(self._path, f"cannot read {name_rows(start, stop)}: {error}") from None
        if len(rows) != stop - start:
            raise damage_error(self._path, f"it has {counted(len(rows), 'line')} for {name_rows(start, stop)}")
        return columns

    def _lines(self, start: int, stop: int) -> bytes:
        if start == stop:
            return b""
        if self._map is None:
            self._map, self._starts = self._map_lines()
        return self._map[int(self._starts[start]) : int(self._starts[stop])]

    def _map_lines(self) -> tuple[mmap.mmap, Indices]:
        with open_plain(self._path) as stream:
            if not os.fstat(stream.fileno()).st_size:
                raise damage_error(self._path, "the file is empty")
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        starts = find_row_starts(content)
        if int(starts[-1]) != len(content):
            raise damage_error(self._path, "its last line is incomplete")
        if len(starts) - 1 != self._num_rows:
            raise damage_error(
                self._path, f"it has {counted(len(starts) - 1, 'line')} for {counted(self._num_rows, 'row')}"
            )
        return content, starts


@cache
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    fields = [(name, TYPES[COLUMNS[name].kind]) for name in names]
    return msgspec.json.Decoder(msgspec.defstruct("Row", fields, forbid_unknown_fields=True, gc=False))


# Building a stream of ids from windows. Ids that windows of a document share are in the stream only once, and an end
# token follows each document.

WINDOW = np.dtype([("offset", "<i8"), ("count", "<i4"), ("frame", "u1")])
"""Record of a row: offset and number of its ids in the stream, and the kind of special ids around them."""
BARE, FRAMED, CLOSED = range(3)
"""Values of `frame`: no special ids, the special ids of a window, or those of the last window of a document."""


class StreamAddition(NamedTuple):
    """Content that some rows add to a stream."""

    content: bytes
    windows: npt.NDArray[Any]
    """WINDOW record of each row."""
    ends: Indices
    """Position in the stream after the end token of each document that these rows complete. The last document may still
    be open."""


class StreamBuilder:
    """Builder of a stream. Takes rows in batches, and a document may continue in the next batch."""

    def __init__(self, schema: Schema, dtype: npt.DTypeLike) -> None:
        """`dtype` is the dtype of ids in the stream."""
        self._schema, self._dtype = schema, np.dtype(dtype)
        self._end_ids = () if schema.end_id is None or schema.is_packed else (schema.end_id,)
        self._end = ids_to_bytes(self._end_ids, self._dtype)
        self._num_ids = 0
        self._last: WindowBatch | None = None
        """Last row, or None if the stream has no rows. The next row may continue its document."""

    def add(self, batch: WindowBatch) -> StreamAddition:
        """Add rows to the stream, and return the added content.

        A row that continues the document of the previous row adds only ids that the stream does not have yet. Any other
        row first ends the open document.
        """
        if not len(batch):
            return self._record(b"", np.zeros(0, WINDOW), np.zeros(0, np.int64))
        row_contents = _contents(batch, self._schema, self._dtype)
        starts, ends = row_contents.starts, row_contents.ends
        num_shared = _num_shared(batch, row_contents)
        is_open = self._last is not None
        if self._last is not None:
            pair = concat_batches([self._last, slice_batch(batch, 0, 1)])
            num_shared[0] = _num_shared(pair, _contents(pair, self._schema, self._dtype))[1]
        self._last = slice_batch(batch, len(batch) - 1, len(batch))
        is_ending = num_shared < 0
        is_ending[0] &= is_open
        num_shared = np.maximum(num_shared, 0)
        num_new = ends - starts - num_shared + is_ending * len(self._end_ids)
        stops = self._num_ids + np.cumsum(num_new)
        windows = np.zeros(len(batch), WINDOW)
        windows["offset"] = stops - (ends - starts)
        windows["count"] = ends - starts
        windows["frame"] = row_contents.frames
        parts = row_contents.slices(starts + num_shared, ends)
        for row in np.flatnonzero(is_ending).tolist():
            parts[row] = self._end + parts[row]
        return self._record(b"".join(parts), windows, (stops - num_new)[is_ending] + len(self._end_ids))

    def finish(self) -> StreamAddition:
        """End the last document, and return the added content."""
        is_open, self._last = self._last is not None, None
        ends = [self._num_ids + len(self._end_ids)] if is_open else []
        return self._record(self._end if is_open else b"", np.zeros(0, WINDOW), np.array(ends, np.int64))

    def _record(self, content: bytes, windows: npt.NDArray[Any], ends: Indices) -> StreamAddition:
        self._num_ids += len(content) // self._dtype.itemsize
        return StreamAddition(content, windows, ends)


class _Contents(NamedTuple):
    """Ids of some rows, without the special ids around each row."""

    raw: bytes
    starts: Indices
    """Index of the first id of each row."""
    ends: Indices
    frames: npt.NDArray[np.uint8]
    """Value of `frame` for each row."""
    width: int
    """Bytes per id."""

    def slices(self, starts: Indices, ends: Indices) -> list[bytes]:
        edges = zip((starts * self.width).tolist(), (ends * self.width).tolist(), strict=True)
        return [self.raw[start:end] for start, end in edges]


def _contents(rows: WindowBatch, schema: Schema, dtype: np.dtype[Any]) -> _Contents:
    ids = rows.ids
    longest = int(ids.sizes.max(initial=0))
    if longest > schema.length:
        raise OutputError(
            f"a row has {counted(longest, 'id')}, but windows have at most {schema.length}. Check the dataset with "
            "gristmill check DIR."
        )
    first, last = int(ids.offsets[0]), int(ids.offsets[-1])
    values = ids.values[first:last]
    require_ids_fit(values, dtype)
    frames = _frames(rows, schema)
    before, after = _num_special_ids(schema)
    starts = ids.offsets[:-1] - first + before[frames]
    ends = ids.offsets[1:] - first - after[frames]
    return _Contents(values.astype(dtype, copy=False).tobytes(), starts, ends, frames, dtype.itemsize)


def _num_shared(rows: WindowBatch, row_contents: _Contents) -> Indices:
    """Return, for each row, the number of its first ids that are also the last ids of the previous row.

    The number is -1 if a row does not continue the document of the previous row. Within a document, each row
    must end at or after the end of the previous row. All builds write such rows.
    """
    num_shared = np.full(len(rows), -1, np.int64)
    if not {"path", "start"} <= rows.columns.keys():
        return num_shared
    starts, ends = row_contents.starts, row_contents.ends
    start_distances = np.diff(rows.columns["start"])
    num_expected = (ends - starts)[:-1] - start_distances
    is_next = _continues_document(rows, row_contents.frames != BARE)
    is_next &= (start_distances >= 0) & (num_expected >= 0) & (num_expected <= (ends - starts)[1:])
    indices = np.flatnonzero(is_next)
    num_expected = num_expected[indices]
    row_starts = row_contents.slices(starts[indices + 1], starts[indices + 1] + num_expected)
    is_equal = np.fromiter(
        map(eq, row_contents.slices(ends[indices] - num_expected, ends[indices]), row_starts), np.bool_, len(row_starts)
    )
    num_shared[indices + 1] = np.where(is_equal, num_expected, -1)
    return num_shared


def _continues_document(rows: WindowBatch, is_framed: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return, for each row after the first, whether it may continue the document of the previous row."""
    columns = rows.columns
    is_separate = ~is_framed
    if "variant" in columns:
        is_separate |= np.fromiter(
            (variant in INDEPENDENT_WINDOW_KINDS for variant in columns["variant"]), np.bool_, len(rows)
        )
    if "fim" in columns:
        is_separate |= np.fromiter(map(bool, columns["fim"]), np.bool_, len(rows))
    is_continued: npt.NDArray[np.bool_] = ~(is_separate[1:] | is_separate[:-1])
    return is_continued & equals_previous(rows, (*DOCUMENT_COLUMNS, "repeat"))


def ids_to_bytes(ids: Sequence[int], dtype: npt.DTypeLike) -> bytes:
    """Encode ids as they are stored in a stream. Raises OutputError if an id does not fit in the dtype."""
    values = np.array(ids, object)  # object: an id must not wrap around before it is checked
    require_ids_fit(values, dtype)
    return values.astype(dtype).tobytes()


def _suffixes_by_frame(schema: Schema) -> tuple[tuple[int, ...], ...]:
    """Return the special ids after a row for each value of `frame`."""
    return (), schema.suffix, (*schema.suffix, *schema.closing)


def _num_special_ids(schema: Schema) -> tuple[Indices, Indices]:
    """Return the numbers of special ids before and after a row for each value of `frame`."""
    num_before = len(schema.prefix)
    return np.array([0, num_before, num_before]), np.array(list(map(len, _suffixes_by_frame(schema))))


def _frames(batch: WindowBatch, schema: Schema) -> npt.NDArray[np.uint8]:
    """Return the value of `frame` for each row. It is BARE for packed rows."""
    frames = np.zeros(len(batch), np.uint8)
    if SEGMENTS in batch.columns:
        return frames
    for frame in (FRAMED, CLOSED) if schema.closing else (FRAMED,):
        frames[_has_special_ids(batch, schema.prefix, _suffixes_by_frame(schema)[frame])] = frame
    return frames


def _has_special_ids(batch: WindowBatch, prefix: Sequence[int], suffix: Sequence[int]) -> npt.NDArray[np.bool_]:
    values, offsets = batch.ids.values, batch.ids.offsets
    has_all: npt.NDArray[np.bool_] = batch.ids.sizes >= len(prefix) + len(suffix)
    rows = np.flatnonzero(has_all)
    for number, one in enumerate(prefix):
        has_all[rows] &= values[offsets[rows] + number] == one
    for number, one in enumerate(reversed(suffix), 1):
        has_all[rows] &= values[offsets[rows + 1] - number] == one
    return has_all


ENDS = ".ends.npy"
WINDOWS = ".windows.npy"
ROWS = ".rows.jsonl"
FACTS = ".stream.json"


class StreamFiles(NamedTuple):
    """Differences between the formats that store a stream."""

    stream_suffix: str
    index_suffix: str
    make_header: MakeHeader
    id_dtype: Callable[[Schema], np.dtype[Any]]
    """Returns the dtype of ids in the stream."""
    write_index: Callable[[Path, Indices, np.dtype[Any]], None]
    """Writes the index, given the ends of documents in the stream."""
    read_num_ids: Callable[[Path, np.dtype[Any]], int]
    """Returns the number of ids in the stream according to the index."""
    read_index: Callable[[Path, np.dtype[Any]], Indices]
    """Returns the ends of all documents in the stream."""


class _OutputFiles(NamedTuple):
    """Open files of a split that is being written."""

    stream: ArrayFile
    windows: ArrayFile
    rows: BinaryIO
    ends: list[Indices]

    def append(self, addition: StreamAddition) -> None:
        self.stream.append(addition.content)
        self.windows.append(addition.windows.tobytes())
        self.ends.append(addition.ends)


@contextmanager
def _open_output(names: Sequence[str], target: Target, files: StreamFiles) -> Iterator[_OutputFiles]:
    """Open the files `names` for writing. The end of the `with` block writes the index and the facts."""
    dtype = files.id_dtype(target.schema)
    stream_path, index_path, windows_path, rows_path, facts_path = (target.folder / name for name in names)
    with (
        ArrayFile(stream_path, dtype, files.make_header) as stream,
        ArrayFile(windows_path, WINDOW) as windows,
        rows_path.open("wb") as rows,
    ):
        output = _OutputFiles(stream, windows, rows, [np.zeros(0, np.int64)])
        yield output
    ends = np.concatenate(output.ends)
    files.write_index(index_path, ends, dtype)
    counts = {"num_ids": len(stream), "num_documents": len(ends), "num_windows": len(windows)}
    facts_path.write_bytes(_encode_facts(target.schema, dtype, counts))


def _file_names(target: Target, files: StreamFiles) -> list[str]:
    suffixes = (files.stream_suffix, files.index_suffix, WINDOWS, ROWS, FACTS)
    return [target.file_name(suffix) for suffix in suffixes]


def write_stream(batches: Iterable[WindowBatch], target: Target, *, files: StreamFiles) -> list[str]:
    """Write a split and return the names of its files."""
    schema, names = target.schema, _file_names(target, files)
    builder = StreamBuilder(schema, files.id_dtype(schema))
    with _open_output(names, target, files) as output:
        for batch in batches:
            output.append(builder.add(batch))
            lines = column_lines({name: batch.columns[name] for name in schema.batch_columns}, len(batch))
            output.rows.write(b"".join(lines))
        output.append(builder.finish())
    return names


def join_streams(pieces: Iterable[Path], target: Target, *, files: StreamFiles) -> list[str]:
    """Join the pieces of a split, each written by one task.

    No document is in two pieces, so only offsets have to be adjusted.
    """
    dtype, names = files.id_dtype(target.schema), _file_names(target, files)
    with _open_output(names, target, files) as output:
        for piece in pieces:
            stream_path, index_path, windows_path, rows_path, _ = (piece / name for name in names)
            num_before = len(output.stream)
            output.stream.append_file(stream_path)
            windows = map_array(windows_path, WINDOW).copy()
            windows["offset"] += num_before
            output.windows.append(windows.tobytes())
            output.ends.append(files.read_index(index_path, dtype) + num_before)
            with open_plain(rows_path) as rows:
                shutil.copyfileobj(rows, output.rows, COPY_BUFFER_BYTES)
    return names


def _encode_facts(schema: Schema, dtype: np.dtype[Any], counts: dict[str, int]) -> bytes:
    """Encode the facts that a training run on the stream needs. The reader of rows does not need these facts."""
    facts = {
        "dtype": dtype.name,
        "vocab_size": schema.vocab_size,
        "end_id": schema.end_id,
        "prefix": schema.prefix,
        "suffix": schema.suffix,
        "closing": schema.closing,
        **counts,
    }
    return orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


class StreamSplit:
    """Reader that restores the rows of a split from the stream."""

    def __init__(self, folder: Path, split: Split, schema: Schema, *, files: StreamFiles) -> None:
        self._init_args = (folder, split, schema, files)
        target = Target(folder, split, schema)
        suffixes = (files.stream_suffix, files.index_suffix, WINDOWS, ROWS)
        stream, index, windows, rows = (folder / target.file_name(suffix) for suffix in suffixes)
        self._stream_path, self._windows_path = stream, windows
        self._schema, self._dtype = schema, files.id_dtype(schema)
        self._stream, self._windows = np.zeros(0, self._dtype), np.zeros(0, WINDOW)
        if any(path.exists() for path in (stream, index, windows, rows)):
            self._stream = map_array(stream, self._dtype, files.make_header)
            self._windows = map_array(windows, WINDOW)
            num_ids = files.read_num_ids(index, self._dtype)
            if num_ids != len(self._stream):
                raise damage_error(
                    stream, f"it has {counted(len(self._stream), 'id')}, but {index.name!r} records {num_ids:,}"
                )
        self._sidecar = Sidecar(rows, len(self._windows), schema)
        try:
            self._prefix = ids_to_bytes(schema.prefix, self._dtype)
            self._suffixes = [ids_to_bytes(ids, self._dtype) for ids in _suffixes_by_frame(schema)]
        except OutputError:
            raise damage_error(
                stream, f"its ids are {self._dtype.name}, and a special id does not fit in that type"
            ) from None

    def __len__(self) -> int:
        return len(self._windows)

    def read(self, start: int, stop: int) -> WindowBatch:
        start, stop, _ = slice(start, max(start, stop)).indices(len(self))
        windows = self._windows[start:stop]
        self._require_valid(windows, start)
        columns = self._sidecar.read(start, stop)
        return WindowBatch(self._ids(windows), columns)

    def _sizes(self, windows: npt.NDArray[Any]) -> Indices:
        """Return the number of ids in each row, including special ids."""
        before, after = _num_special_ids(self._schema)
        frames = np.minimum(windows["frame"], CLOSED)
        sizes: Indices = windows["count"] + before[frames] + after[frames]
        return sizes

    def _require_valid(self, windows: npt.NDArray[Any], first: int) -> None:
        """Raise DatasetError if a record is impossible. `first` is the index of the first row."""
        counts, offsets = windows["count"].astype(np.int64), windows["offset"]
        is_invalid = (counts < 0) | (windows["frame"] > CLOSED) | (self._sizes(windows) > self._schema.length)
        is_invalid |= (offsets < 0) | (offsets > len(self._stream) - counts)
        if is_invalid.any():
            index = int(is_invalid.argmax())
            offset, count, frame = windows[index].tolist()
            raise damage_error(
                self._windows_path,
                f"the record of row {first + index} (offset {offset}, count {count}, frame {frame}) is impossible in a "
                f"stream of {counted(len(self._stream), 'id')} with rows of at most {self._schema.length:,}",
            )

    def _ids(self, windows: npt.NDArray[Any]) -> Ragged:
        content = self._stream.view(np.uint8).data
        width = self._dtype.itemsize
        starts = windows["offset"] * width
        ends = starts + windows["count"].astype(np.int64) * width
        parts: list[bytes | memoryview] = []
        edges = (windows["frame"].tolist(), starts.tolist(), ends.tolist())
        for frame, start, end in zip(*edges, strict=True):
            parts += (self._prefix, content[start:end], self._suffixes[frame]) if frame else (content[start:end],)
        ids = np.frombuffer(bytearray().join(parts), self._dtype)
        if self._dtype.kind == "i" and ids.min(initial=0) < 0:
            raise damage_error(self._stream_path, "an id is negative")
        offsets = np.zeros(len(windows) + 1, np.int64)
        np.cumsum(self._sizes(windows), out=offsets[1:])
        return Ragged(ids.astype(self._schema.id_type, copy=False), offsets)

    def __getstate__(self) -> tuple[Path, Split, Schema, StreamFiles]:
        """Pickle only the arguments of the constructor, because a memory map cannot be pickled."""
        return self._init_args

    def __setstate__(self, state: tuple[Path, Split, Schema, StreamFiles]) -> None:
        folder, split, schema, files = state
        self.__init__(folder, split, schema, files=files)  # type: ignore[misc]


def id_dtype(schema: Schema) -> np.dtype[Any]:
    return np.dtype(schema.id_type).newbyteorder("<")


def _write_ends(path: Path, ends: Indices, _dtype: np.dtype[Any]) -> None:
    write_array(path, ends.astype("<i8", copy=False))


def _read_ends(path: Path, _dtype: np.dtype[Any]) -> Indices:
    return map_array(path, "<i8")


def _last_end(path: Path, dtype: np.dtype[Any]) -> int:
    ends = _read_ends(path, dtype)
    return int(ends[-1]) if len(ends) else 0


def stream_format(name: str, files: StreamFiles) -> Format:
    """Return a format that stores a stream of ids."""
    return Format(
        name=name,
        write=partial(write_stream, files=files),
        open=partial(StreamSplit, files=files),
        has_own_writer=True,
        rows_per_task=rows_per_piece,
        join=partial(join_streams, files=files),
    )


BIN = stream_format("bin", StreamFiles(".bin", ENDS, no_header, id_dtype, _write_ends, _last_end, _read_ends))
NPY = stream_format("npy", StreamFiles(".npy", ENDS, npy_header, id_dtype, _write_ends, _last_end, _read_ends))
