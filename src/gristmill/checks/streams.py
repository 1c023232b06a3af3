"""Streams of tokens (npy, bin, megatron) read without the code that writes them: what stands between the windows.

Without packing, each file's tokens are there once, and one end token follows them. A packed row has its end tokens
inside (`checking.files.check_ends` is about those), and nothing stands between two rows.
"""

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from gristmill.checks.runs import BY_WINDOWS
from gristmill.core.columns import Schema
from gristmill.core.errors import DatasetError
from gristmill.core.manifest import Manifest
from gristmill.core.plain_files import open_plain, read_plain, require_plain
from gristmill.core.records import Split
from gristmill.formats.stored_split import StoredSplit

STREAMS = {"npy": (".npy", ".ends.npy"), "bin": (".bin", ".ends.npy"), "megatron": (".bin", ".idx")}
"""How the names of the stream and of its index end."""
INDEX_HEAD = struct.Struct("<9sQBQQ")
INDEX_TYPES: dict[int, np.dtype[Any]] = {8: np.dtype("<u2"), 4: np.dtype("<i4")}

Numbers = npt.NDArray[np.int64]


class _Stream(NamedTuple):
    ids: npt.NDArray[Any]
    ends: Numbers
    """End of each document in the stream."""
    starts: Numbers
    """Place of each row's first id in the stream."""
    stops: Numbers
    is_framed: list[bool]
    sidecar: Path
    """A line for each row, with its columns beside the ids."""

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield rows with their numbers, one at a time: packed ones are as large as their ids."""
        num_rows = 0
        with open_plain(self.sidecar) as stream:
            for number, line in enumerate(stream):
                yield number, orjson.loads(line)
                num_rows += 1
        if num_rows != len(self.starts):
            raise ValueError(f"{num_rows} rows beside {len(self.starts)} windows")


def stream_fault(folder: Path, manifest: Manifest, what: tuple[str, Split]) -> str | None:
    """The first thing that is wrong with a split's stream; None if nothing is."""
    name, split = what
    if not manifest.splits[split].windows:
        return None
    is_packed, schema = "segments" in manifest.columns, Schema.of(manifest)
    try:
        StoredSplit(folder, name, split, schema, manifest.splits[split].windows).require()  # ordinary files, all there
        stream = _read(folder / name, name, split, np.dtype(schema.id_type).newbyteorder("<"))
        fault = _wrong_packed(stream) if is_packed else _wrong_documents(stream)
        fault = fault or _wrong_between(stream, None if is_packed else manifest.tokenizer.end_id)
    except DatasetError as error:
        fault = str(error)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        fault = f"its stream cannot be read: {error}"
    return None if fault is None else f"{split}: {fault}"


def _read(folder: Path, name: str, split: Split, kind: np.dtype[Any]) -> _Stream:
    stream, index = (folder / f"{split}{suffix}" for suffix in STREAMS[name])
    places = folder / f"{split}.windows.npy"
    for path in (stream, index, places):
        require_plain(path)
    if index.suffix == ".idx":
        kind, ends = _megatron_ends(read_plain(index))
    else:
        ends = np.load(index, allow_pickle=False)
    ids = np.load(stream, mmap_mode="r") if stream.suffix == ".npy" else np.memmap(stream, kind, "r")
    windows = np.load(places, allow_pickle=False)
    starts, counts = windows["offset"].astype(np.int64), windows["count"].astype(np.int64)
    if not len(ends) or ends[-1] != len(ids):
        raise ValueError(f"{len(ids)} ids, and its index ends elsewhere")
    sidecar = folder / f"{split}.rows.jsonl"
    return _Stream(ids, ends, starts, starts + counts, (windows["is_framed"] == 1).tolist(), sidecar)


def _megatron_ends(content: bytes) -> tuple[np.dtype[Any], Numbers]:
    _, _, code, num_sequences, _ = INDEX_HEAD.unpack_from(content)
    sizes = np.frombuffer(content, "<i4", num_sequences, INDEX_HEAD.size).astype(np.int64)
    begins = np.frombuffer(content, "<i8", num_sequences, INDEX_HEAD.size + sizes.size * 4)
    kind = INDEX_TYPES[code]
    ends = np.cumsum(sizes)
    if (begins != (ends - sizes) * kind.itemsize).any():
        raise ValueError("sequences of its index that do not follow each other")
    return kind, ends


def _wrong_packed(stream: _Stream) -> str | None:
    """Each row is a document, with the ids that it was packed with and no other."""
    sizes = (stream.stops - stream.starts).tolist()
    for number, row in stream.rows():
        if sizes[number] != len(row["segment_ids"]):
            return f"row {number + 1} has {sizes[number]} ids in the stream, and {len(row['segment_ids'])} segment_ids"
    if not np.array_equal(stream.ends, stream.stops):
        return f"{len(stream.ends)} documents that do not end where its {len(stream.stops)} rows do"
    return None


def _wrong_documents(stream: _Stream) -> str | None:
    """Rows of a file that touch are of one document, all others of two."""
    documents = np.searchsorted(stream.ends, stream.starts, "right").tolist()
    sizes = (stream.stops - stream.starts).tolist()
    for (number, before), (_, after) in pairwise(stream.rows()):
        goes_on = stream.is_framed[number] and stream.is_framed[number + 1]
        goes_on &= _document_key(before) == _document_key(after) and before.get("variant") not in BY_WINDOWS
        goes_on &= before["start"] <= after["start"] <= before["start"] + sizes[number]
        if goes_on != (documents[number] == documents[number + 1]):
            what = "a document ends" if goes_on else "no document ends"
            where = "in the middle of" if goes_on else "behind"
            return f"{what} {where} {before['repo']}/{before['path']}, behind row {number + 1}"
    return None


def _document_key(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(map(row.get, ("repo", "path", "variant", "variant_seed", "repeat")))


def _wrong_between(stream: _Stream, end_id: int | None) -> str | None:
    """Outside of rows, the end token of each document stands, if there is such a token, and nothing else."""
    shown_until = np.concatenate(([0], np.maximum.accumulate(stream.stops)))
    gaps = np.concatenate((stream.starts, [len(stream.ids)])) - shown_until
    found = shown_until[gaps > 0]
    wanted = stream.ends - 1 if end_id is not None else stream.ends[:0]
    if (gaps > 1).any() or not np.array_equal(found, wanted):
        wrong = np.setxor1d(found, wanted)
        at = int(wrong[0]) if len(wrong) else int(shown_until[gaps > 1][0])
        return f"the id {int(stream.ids[at])} at {at} is in no row, or is no end of a document"
    is_wrong = stream.ids[found] != end_id
    if is_wrong.any():
        at = int(found[is_wrong.argmax()])
        return f"{int(stream.ids[at])} at {at}, where the end token {end_id} must stand"
    return None
