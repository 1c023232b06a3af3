"""`formats`: each one that is there holds the windows that the manifest was written for, all of them and no others.

Of the first, whose rows are looked at one by one, the digest of split, path, start and ids. All others must tell the
same in every column; and where no other package has a say in a format's bytes, it is written once more from its own
rows, into a folder that goes away: so whatever no row shows is found too, as foreign tokens in a stream would be.
Streams of tokens are read a third time, without the code that writes them: end tokens stand where they must.
"""

import struct
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from gristmill.checks.findings import Faults, Verdict
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import BY_WINDOWS
from gristmill.core.errors import DatasetError, GristmillError, MissingExtraError
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain, read_plain, require_plain
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.content_digest import Content, line_digest, row_digests
from gristmill.formats.format import format_named
from gristmill.formats.jsonl_rows import lines_of
from gristmill.formats.shares import Share, write_share
from gristmill.formats.stored_split import StoredSplit
from gristmill.pipeline.work_folder import temporary_folder
from gristmill.runners.local import LocalRunner

# Streams of tokens (npy, bin, megatron) read without the code that writes them: what stands between the windows.

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
    return _Stream(ids, ends, starts, starts + counts, (windows["frame"] > 0).tolist(), sidecar)


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
        goes_on &= not (before.get("fim") or after.get("fim"))
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


CHECK = "formats"
ROWS_AT_ONCE = 4096
DAMAGED = frozenset({"schema", "ids", "special_tokens", "windows"})
"""Faults with which rows that were read are not those that are there."""


class First(NamedTuple):
    """What was found of the format whose rows were looked at."""

    content_sha256: str
    lines_sha256: str


class _Range(NamedTuple):
    stored: StoredSplit
    start: int
    stop: int


class _Digests(NamedTuple):
    rows: bytes
    lines: bytes


def check_formats(
    settings: Settings, first: First, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]
) -> Verdict:
    folder, manifest = settings.folder, settings.manifest
    names, is_sound = manifest.formats, not DAMAGED & faults.counts.keys()
    if first.content_sha256 != manifest.content_sha256 and is_sound:
        faults.add(CHECK, f"{names[0]}: its windows are not those of content_sha256 in the manifest")
    skipped = []
    for name in names:
        try:
            if name != names[0]:
                for what in _differences(settings, name, first if is_sound else None, runner, advance):
                    faults.add(CHECK, f"{name}: {what}")
            looks = [_written_again] if format_named(name).is_all_ours else []
            looks += [stream_fault] if name in STREAMS else []
            for look in looks:
                found = runner.map(partial(look, folder, manifest), [(name, split) for split in Split])
                for what in filter(None, found):
                    faults.add(CHECK, f"{name}: {what}")
        except MissingExtraError as error:
            skipped.append(f"{name} was not looked at: {error}")
        except (OSError, DatasetError) as error:
            faults.add(CHECK, f"{name}: {error}")
    num_windows = sum(facts.windows for facts in manifest.splits.values())
    summary = f"{', '.join(names)}: {counted(num_windows, 'window')}{' in each' if len(names) > 1 else ''}"
    return Verdict("; ".join((summary, *skipped)), "reported" if skipped else "ok")


def _differences(
    settings: Settings, name: str, first: First | None, runner: LocalRunner, advance: Callable[[int], None]
) -> Iterator[str]:
    """From the manifest; and, if that is known, from what the first format tells."""
    manifest = settings.manifest
    ranges = list(_ranges(settings.folder, manifest, name))
    content, lines = Content(), Content()
    for one, found in zip(ranges, runner.map(_digested, ranges), strict=True):
        if isinstance(found, Exception):
            raise found
        content.add(one.stored.split, found.rows)
        lines.add(one.stored.split, found.lines)
        advance(one.stop - one.start)
    if content.sha256() != manifest.content_sha256:
        yield "its windows are not those of content_sha256 in the manifest"
    elif first is not None and lines.sha256() != first.lines_sha256:
        yield f"its rows tell something else than those of {manifest.formats[0]}"


def _ranges(folder: Path, manifest: Manifest, name: str) -> Iterator[_Range]:
    schema = Schema.of(manifest)
    step = schema.num_rows_at_once(ROWS_AT_ONCE)
    for split, facts in manifest.splits.items():
        stored = StoredSplit(folder, name, split, schema, facts.windows).require()
        for start in range(0, facts.windows, step):
            yield _Range(stored, start, min(start + step, facts.windows))


def _digested(one: _Range) -> _Digests | Exception:
    try:
        batch = one.stored.read(one.start, one.stop)
        lines = b"".join(line_digest(line[:-1]) for line in lines_of(batch, one.stored.schema))
        return _Digests(row_digests(one.stored.split, batch), lines)
    except (OSError, DatasetError, MissingExtraError) as error:
        return error


def _written_again(folder: Path, manifest: Manifest, what: tuple[str, Split]) -> str | None:
    """What is not as its own rows give it."""
    name, split = what
    wanted = {file: facts.sha256 for file, facts in manifest.files.items() if (facts.format, facts.split) == what}
    share = Share(name, split, manifest.splits[split].windows)
    try:
        stored = StoredSplit(folder, name, split, Schema.of(manifest), manifest.splits[split].windows)
        with temporary_folder("gristmill-check-") as place:
            (place / name).mkdir()
            made = write_share(share, place, stored.schema, _batches(stored)).facts if share.num_rows else {}
        found = {file: facts.sha256 for file, facts in made.items()}
    except OSError as error:
        return f"{split} could not be written again in {tempfile.gettempdir()!r}: {error.strerror or error}"
    except GristmillError as error:
        return str(error)
    other = sorted(file for file in found.keys() | wanted.keys() if found.get(file) != wanted.get(file))
    return f"{other[0]} is not what its rows give: it holds something else beside them" if other else None


def _batches(stored: StoredSplit) -> Iterator[WindowBatch]:
    step = stored.schema.num_rows_at_once(ROWS_AT_ONCE)
    return (stored.read(start, min(start + step, len(stored))) for start in range(0, len(stored), step))
