"""Check `formats`: each format of the dataset contains exactly the rows that the manifest records.

The rows of the first format are checked one by one. They must have the recorded digest of split, path, start and ids
(for documents, of the text instead of the ids). All other formats must have the same values in every column. If
gristmill has its own writer for a format, the rows are also written again into a temporary folder, and the files are
compared. This finds data that is in no row, such as extra tokens in a token stream (npy, bin or megatron). Token
streams are also read by code that is independent of their writer, to check the positions of end tokens.
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
from gristmill.checks.runs import INDEPENDENT_KINDS
from gristmill.core.errors import DatasetError, GristmillError, MissingExtraError
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain, read_plain, require_plain
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.content_digest import ContentDigest, line_digest, row_digests
from gristmill.formats.format import get_format
from gristmill.formats.jsonl_rows import format_lines
from gristmill.formats.shares import Share, write_share
from gristmill.formats.stored_split import StoredSplit
from gristmill.pipeline.work_folder import temporary_folder
from gristmill.runners.local import LocalRunner

# Token streams (npy, bin, megatron), read without the code that writes them, to check the ids between the windows.

STREAMS = {"npy": (".npy", ".ends.npy"), "bin": (".bin", ".ends.npy"), "megatron": (".bin", ".idx")}
"""File name suffixes of the stream and of its index, keyed by format."""
MEGATRON_HEAD = struct.Struct("<9sQBQQ")
MEGATRON_TYPES: dict[int, np.dtype[Any]] = {8: np.dtype("<u2"), 4: np.dtype("<i4")}

Numbers = npt.NDArray[np.int64]


class _Stream(NamedTuple):
    """Token stream of one split, with the positions of its documents and rows."""

    ids: npt.NDArray[Any]
    ends: Numbers
    """Position in the stream after the last id of each document."""
    starts: Numbers
    """Position in the stream of the first id of each row."""
    stops: Numbers
    is_framed: list[bool]
    """For each row, True if the row has special ids at its edges, which are not in the stream."""
    sidecar: Path
    """File with all columns except the ids, one line per row."""

    def rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the index and columns of each row.

        Rows are read one at a time, because the columns of packed rows are as large as the ids.
        """
        num_rows = 0
        with open_plain(self.sidecar) as stream:
            for index, line in enumerate(stream):
                yield index, orjson.loads(line)
                num_rows += 1
        if num_rows != len(self.starts):
            raise ValueError(
                f"{self.sidecar.name} has {counted(num_rows, 'row')}, but the stream has {len(self.starts):,}"
            )


def find_stream_fault(folder: Path, manifest: Manifest, format_and_split: tuple[str, Split]) -> str | None:
    """Return the first fault in the token stream of a split, or None."""
    name, split = format_and_split
    if not manifest.splits[split].windows:
        return None
    is_packed, schema = "segments" in manifest.columns, Schema.of(manifest)
    try:
        # Raises if a file is missing or is not a regular file.
        StoredSplit(folder, name, split, schema, manifest.splits[split].windows).opened()
        stream = _open_stream(folder / name, name, split, np.dtype(schema.id_type).newbyteorder("<"))
        fault = _find_packed_fault(stream) if is_packed else _find_document_fault(stream)
        fault = fault or _find_gap_fault(stream, None if is_packed else manifest.tokenizer.end_id)
    except DatasetError as error:
        fault = str(error)
    except KeyError as error:
        fault = f"the stream cannot be read: {error} is missing"
    except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        fault = f"the stream cannot be read: {error}"
    return None if fault is None else f"{split}: {fault}"


def _open_stream(folder: Path, name: str, split: Split, kind: np.dtype[Any]) -> _Stream:
    stream, index = (folder / f"{split}{suffix}" for suffix in STREAMS[name])
    windows_path = folder / f"{split}.windows.npy"
    for path in (stream, index, windows_path):
        require_plain(path)
    if index.suffix == ".idx":
        kind, ends = _megatron_ends(read_plain(index))
    else:
        ends = np.load(index, allow_pickle=False)
    ids = np.load(stream, mmap_mode="r") if stream.suffix == ".npy" else np.memmap(stream, kind, "r")
    windows = np.load(windows_path, allow_pickle=False)
    starts, counts = windows["offset"].astype(np.int64), windows["count"].astype(np.int64)
    if not len(ends) or ends[-1] != len(ids):
        raise ValueError(
            f"the stream has {counted(len(ids), 'id')}, but its index ends at position {ends[-1] if len(ends) else 0}"
        )
    sidecar = folder / f"{split}.rows.jsonl"
    return _Stream(ids, ends, starts, starts + counts, (windows["frame"] > 0).tolist(), sidecar)


def _megatron_ends(content: bytes) -> tuple[np.dtype[Any], Numbers]:
    _, _, code, num_sequences, _ = MEGATRON_HEAD.unpack_from(content)
    if code not in MEGATRON_TYPES:
        raise ValueError(f"the index has the unknown type code {code}")
    sizes = np.frombuffer(content, "<i4", num_sequences, MEGATRON_HEAD.size).astype(np.int64)
    starts = np.frombuffer(content, "<i8", num_sequences, MEGATRON_HEAD.size + sizes.size * 4)
    kind = MEGATRON_TYPES[code]
    ends = np.cumsum(sizes)
    if (starts != (ends - sizes) * kind.itemsize).any():
        raise ValueError("the sequences in the index are not contiguous")
    return kind, ends


def _find_packed_fault(stream: _Stream) -> str | None:
    """Return a fault if a row is not exactly one document, or has a different number of ids than `segment_ids`."""
    sizes = (stream.stops - stream.starts).tolist()
    for number, row in stream.rows():
        if sizes[number] != len(row["segment_ids"]):
            return f"row {number + 1} has {sizes[number]} ids in the stream, but {len(row['segment_ids'])} segment_ids"
    if not np.array_equal(stream.ends, stream.stops):
        return (
            f"the documents of the index do not end where the rows end: {counted(len(stream.ends), 'document')}, "
            f"{counted(len(stream.stops), 'row')}"
        )
    return None


def _find_document_fault(stream: _Stream) -> str | None:
    """Compare each row with the next row, and return the first fault or None.

    Two rows must be in one document if the second continues the first in a file, and otherwise in different documents.
    """
    documents = np.searchsorted(stream.ends, stream.starts, "right").tolist()
    sizes = (stream.stops - stream.starts).tolist()
    for (number, before), (_, after) in pairwise(stream.rows()):
        is_same_document = stream.is_framed[number] and stream.is_framed[number + 1]
        is_same_document &= (
            _document_key(before) == _document_key(after) and before.get("variant") not in INDEPENDENT_KINDS
        )
        is_same_document &= not (before.get("fim") or after.get("fim"))
        is_same_document &= before["start"] <= after["start"] <= before["start"] + sizes[number]
        if is_same_document != (documents[number] == documents[number + 1]):
            event = "a document ends" if is_same_document else "no document ends"
            where = "in the middle of" if is_same_document else "after"
            return f"{event} {where} {before['repo']}/{before['path']}, at row {number + 1}"
    return None


def _document_key(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(map(row.get, ("repo", "path", "variant", "variant_seed", "repeat")))


def _find_gap_fault(stream: _Stream, end_id: int | None) -> str | None:
    """Return a fault if the ids outside of rows are not exactly the end tokens of documents.

    `end_id` is None if all ids must be in rows: in packed rows, or if documents have no end token.
    """
    covered_until = np.concatenate(([0], np.maximum.accumulate(stream.stops)))
    gaps = np.concatenate((stream.starts, [len(stream.ids)])) - covered_until
    found = covered_until[gaps > 0]
    expected = stream.ends - 1 if end_id is not None else stream.ends[:0]
    if (gaps > 1).any() or not np.array_equal(found, expected):
        mismatches = np.setxor1d(found, expected)
        at = int(mismatches[0]) if len(mismatches) else int(covered_until[gaps > 1][0])
        return f"the id {int(stream.ids[at])} at position {at} is outside of all rows, or an end token is missing there"
    is_wrong = stream.ids[found] != end_id
    if is_wrong.any():
        at = int(found[is_wrong.argmax()])
        return f"the id at position {at} is {int(stream.ids[at])}, expected the end token {end_id}"
    return None


CHECK = "formats"
ROWS_AT_ONCE = 4096
ROW_CHECKS = frozenset({"schema", "ids", "special_tokens", "windows"})
"""Checks that discard invalid rows. After a fault in one of these checks, the digest of the rows is incomplete."""


class RowDigests(NamedTuple):
    """Digests of the format whose rows were checked one by one."""

    content_sha256: str
    lines_sha256: str


class _RowRange(NamedTuple):
    stored: StoredSplit
    start: int
    stop: int


class _Digests(NamedTuple):
    rows: bytes
    lines: bytes


def check_formats(
    settings: Settings, first: RowDigests, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]
) -> Verdict:
    """Compare every format of the dataset with the manifest and with the first format."""
    folder, manifest = settings.folder, settings.manifest
    names, are_rows_intact = manifest.formats, not ROW_CHECKS & faults.counts.keys()
    if first.content_sha256 != manifest.content_sha256 and are_rows_intact:
        faults.add(CHECK, f"{names[0]}: the {manifest.row_unit}s do not match content_sha256 in the manifest")
    skipped = []
    for name in names:
        try:
            if name != names[0]:
                for message in _compare_format(settings, name, first if are_rows_intact else None, runner, advance):
                    faults.add(CHECK, f"{name}: {message}")
            searches = [_find_rewrite_fault] if get_format(name).has_own_writer else []
            searches += [find_stream_fault] if name in STREAMS else []
            for find_fault in searches:
                found = runner.map(partial(find_fault, folder, manifest), [(name, split) for split in Split])
                for message in filter(None, found):
                    faults.add(CHECK, f"{name}: {message}")
        except MissingExtraError as error:
            skipped.append(f"{name} was not checked: {error}")
        except (OSError, DatasetError) as error:
            faults.add(CHECK, f"{name}: {error}")
    num_windows = sum(facts.windows for facts in manifest.splits.values())
    summary = f"{', '.join(names)}: {counted(num_windows, manifest.row_unit)}{' in each' if len(names) > 1 else ''}"
    return Verdict("; ".join((summary, *skipped)), "reported" if skipped else "ok")


def _compare_format(
    settings: Settings, name: str, first: RowDigests | None, runner: LocalRunner, advance: Callable[[int], None]
) -> Iterator[str]:
    """Yield a fault if a format differs from the manifest, or from the digests of the first format (`first`)."""
    manifest = settings.manifest
    ranges = list(_row_ranges(settings.folder, manifest, name))
    content, lines = ContentDigest(), ContentDigest()
    for one, found in zip(ranges, runner.map(_digest_range, ranges), strict=True):
        if isinstance(found, Exception):
            raise found
        content.add(one.stored.split, found.rows)
        lines.add(one.stored.split, found.lines)
        advance(one.stop - one.start)
    if content.sha256() != manifest.content_sha256:
        yield f"the {manifest.row_unit}s do not match content_sha256 in the manifest"
    elif first is not None and lines.sha256() != first.lines_sha256:
        yield f"the rows differ from those of {manifest.formats[0]}"


def _row_ranges(folder: Path, manifest: Manifest, name: str) -> Iterator[_RowRange]:
    schema = Schema.of(manifest)
    step = schema.num_rows_at_once(ROWS_AT_ONCE)
    for split, facts in manifest.splits.items():
        stored = StoredSplit(folder, name, split, schema, facts.windows).opened()
        for start in range(0, facts.windows, step):
            yield _RowRange(stored, start, min(start + step, facts.windows))


def _digest_range(one: _RowRange) -> _Digests | Exception:
    try:
        batch = one.stored.read(one.start, one.stop)
        lines = b"".join(line_digest(line[:-1]) for line in format_lines(batch, one.stored.schema))
        return _Digests(row_digests(one.stored.split, batch), lines)
    except (OSError, DatasetError, MissingExtraError) as error:
        return error


def _find_rewrite_fault(folder: Path, manifest: Manifest, format_and_split: tuple[str, Split]) -> str | None:
    """Write a split again from its rows. Return a fault if the digest of a file differs from the manifest, or None."""
    name, split = format_and_split
    expected = {
        file: facts.sha256 for file, facts in manifest.files.items() if (facts.format, facts.split) == format_and_split
    }
    share = Share(name, split, manifest.splits[split].windows)
    try:
        stored = StoredSplit(folder, name, split, Schema.of(manifest), manifest.splits[split].windows)
        with temporary_folder("gristmill-check-") as scratch:
            (scratch / name).mkdir()
            written = write_share(share, scratch, stored.schema, _batches(stored)).facts if share.num_rows else {}
        found = {file: facts.sha256 for file, facts in written.items()}
    except OSError as error:
        return f"{split} could not be written again in {tempfile.gettempdir()!r}: {error.strerror or error}"
    except GristmillError as error:
        return str(error)
    differing = sorted(file for file in found.keys() | expected.keys() if found.get(file) != expected.get(file))
    return f"{differing[0]} differs from the file that gristmill writes from the same rows" if differing else None


def _batches(stored: StoredSplit) -> Iterator[WindowBatch]:
    step = stored.schema.num_rows_at_once(ROWS_AT_ONCE)
    return (stored.read(start, min(start + step, len(stored))) for start in range(0, len(stored), step))
