"""`bin` and `npy`: a split as one stream of tokens, as nanoGPT and its like read it; and what makes rows of it again.

    train.bin           the ids of all documents, each once, each followed by its end token: raw uint16 or uint32;
                        or train.npy, the same with NumPy's head
    train.ends.npy      where in the stream each document ends, its end token included; with --pack, each row
    train.windows.npy   of each row: where its ids are in the stream (streams.WINDOW)
    train.rows.jsonl    of each row: all columns but the ids
    train.stream.json   type of the ids, size of the vocabulary, end token; numbers of ids, documents and rows

np.memmap("train.bin", np.uint16, "r") is all that a training on the stream needs.
"""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from gristmill.columns import Schema
from gristmill.errors import OutputError
from gristmill.formats.arrays import ArrayFile, Head, damaged, map_array, no_head, npy_head, write_array
from gristmill.formats.batch import Ragged, WindowBatch
from gristmill.formats.format import Format, Target
from gristmill.formats.sidecar import Sidecar, sidecar_lines
from gristmill.formats.stream_laying import WINDOW, StreamLaying, bytes_of
from gristmill.naming import counted
from gristmill.records import Split
from gristmill.shaping.windows import Indices

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
            rows.write(b"".join(sidecar_lines(batch, schema)))
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
