"""Read the data files of one format in parallel parts, check their rows, and join the rows of each source file.

A part is a byte range of a .jsonl file, a sequence of frames (separately compressed blocks) of a .jsonl.zst file, or a
row range in another format. The joined rows of a source file are a run (module `runs`).
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import zstandard

from gristmill.checks.decoder import Decoder, check_text_column
from gristmill.checks.documents import read_documents
from gristmill.checks.findings import Faults
from gristmill.checks.packs import PackedRows, PackRules, read_packed
from gristmill.checks.requirements import Settings
from gristmill.checks.rows import HEAD, Row, read_rows
from gristmill.checks.runs import ROW, SEGMENT_ID, START, Run, group_into_runs, join_runs
from gristmill.checks.secrets import LOOKAHEAD_BYTES, LOOKBACK_BYTES, scan_for_secrets
from gristmill.checks.tokens import RowRules
from gristmill.checks.windows_by_file import PackedCounts, RepoKey, Rows, RunEntry, Segment
from gristmill.core.errors import DatasetError
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Split, VariantKind
from gristmill.core.schema import Schema
from gristmill.formats.content_digest import ContentDigest, line_digest, row_digest, window_key
from gristmill.formats.stored_split import StoredSplit
from gristmill.formats.zstd import (
    SEEK_ENTRY,
    SEEK_FOOT,
    SEEKABLE_MAGIC,
    SKIPPABLE_HEAD,
    SKIPPABLE_ROWS,
    SKIPPABLE_SEEK_TABLE,
)
from gristmill.runners.local import LocalRunner

# The `text` column is scanned for secrets row by row if the ids cannot be decoded to the text.


class PartRules(NamedTuple):
    """Everything that a worker needs to read a part of a data file."""

    rows: RowRules
    decoder: Decoder
    scans_secrets: bool
    """True if the `text` column of windows is scanned for secrets.

    If the ids decode to the text, the decoded text is scanned instead.
    """
    emails: bool
    pack: PackRules | None = None
    """Rules for packed rows, or None if each row is one window."""

    def for_file(self, name: str) -> "PartRules":
        return self._replace(rows=self.rows._replace(file=name))


def _run_fields(row: Row) -> tuple[object, ...]:
    return tuple(map(row.fields.get, ("repo", "path", "repeat", "variant")))


def check_secrets_in_column(rows: Sequence[Row], rules: PartRules, faults: Faults) -> None:
    """Add a fault for each secret in the `text` column.

    A match near an edge of a window is skipped if the file continues there, because a truncated name or value may match
    although the complete text does not.
    """
    if not rules.scans_secrets:
        return
    for row, next_row in zip_longest(rows, rows[1:]):
        fields = row.fields
        if fields.get("fim"):  # reordered text, which the check `fim` restores
            continue
        is_last = next_row is not None and _run_fields(next_row) != _run_fields(row)
        text = fields["text"].encode()
        for kind, start, end in scan_for_secrets(text, emails=rules.emails):
            is_at_end = not is_last and end >= len(text) - LOOKAHEAD_BYTES
            if is_at_end or (fields["start"] and start < LOOKBACK_BYTES):
                continue
            line = fields["lines"][0] + text.count(b"\n", 0, start)
            path = f"{fields['repo']}/{fields['path']}"
            faults.add("secrets", f"{kind} in line {line}", file=rules.rows.file, row=row.number, path=path)


# In a valid .jsonl.zst file, the frames fill the file up to the frame table, and each frame has the size and the
# number of rows that the table records.

ROW_COUNT = struct.Struct("<I")


class FrameEntry(NamedTuple):
    """Entry of the frame table: the byte range of a frame, its uncompressed size, and its number of rows."""

    start: int
    end: int
    num_bytes: int
    num_rows: int


def read_frame_table(stream: BinaryIO) -> list[FrameEntry]:
    """Read the frame table at the end of a .jsonl.zst file. Raises DatasetError if the table is damaged."""
    size = stream.seek(0, 2)
    foot = _read_bytes(stream, size - SEEK_FOOT.size, SEEK_FOOT.size)
    count, flags, magic = SEEK_FOOT.unpack(foot)
    sizes_bytes, rows_bytes = count * SEEK_ENTRY.size, count * ROW_COUNT.size
    table_start = size - 2 * SKIPPABLE_HEAD.size - rows_bytes - sizes_bytes - SEEK_FOOT.size
    if (flags, magic) != (0, SEEKABLE_MAGIC) or table_start < 0:
        raise DatasetError("the frame table is missing or truncated")
    table = _read_bytes(stream, table_start, size - table_start)
    sizes_start = 2 * SKIPPABLE_HEAD.size + rows_bytes
    heads = table[: SKIPPABLE_HEAD.size], table[sizes_start - SKIPPABLE_HEAD.size : sizes_start]
    if heads != (
        SKIPPABLE_HEAD.pack(SKIPPABLE_ROWS, rows_bytes),
        SKIPPABLE_HEAD.pack(SKIPPABLE_SEEK_TABLE, sizes_bytes + SEEK_FOOT.size),
    ):
        raise DatasetError("the frame table is damaged")
    rows = ROW_COUNT.iter_unpack(table[SKIPPABLE_HEAD.size : SKIPPABLE_HEAD.size + rows_bytes])
    sizes = list(SEEK_ENTRY.iter_unpack(table[sizes_start : sizes_start + sizes_bytes]))
    edges = [0, *accumulate(num_compressed for num_compressed, _ in sizes)]
    if edges[-1] != table_start:
        raise DatasetError(f"the frame table lists {edges[-1]} bytes of frames, but {table_start} bytes precede it")
    entries = zip(pairwise(edges), sizes, rows, strict=True)
    return [FrameEntry(start, end, num_bytes, num_rows) for (start, end), (_, num_bytes), (num_rows,) in entries]


def decompress_frame(stream: BinaryIO, frame: FrameEntry, max_bytes: int) -> bytes:
    """Decompress one frame. Raises DatasetError if the frame differs from its table entry or exceeds `max_bytes`."""
    if frame.num_bytes > max_bytes:
        raise DatasetError(f"a frame has {counted(frame.num_bytes, 'byte')}, more than the limit of {max_bytes}")
    compressed = _read_bytes(stream, frame.start, frame.end - frame.start)
    try:
        # The size is checked before decompressing, because a damaged header could request any amount of memory.
        if not compressed.startswith(zstandard.FRAME_HEADER) or (
            zstandard.frame_content_size(compressed) != frame.num_bytes
        ):
            raise DatasetError("the size of a frame differs from the frame table")
        content = zstandard.ZstdDecompressor().decompress(compressed, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DatasetError(f"the bytes of an entry in the frame table are not exactly one frame: {error}") from None
    num_rows = content.count(b"\n")
    if num_rows != frame.num_rows or not content.endswith(b"\n"):
        raise DatasetError(
            f"a frame has {counted(num_rows, 'complete row')}, but the frame table records {frame.num_rows}, "
            "or the frame ends within a row"
        )
    return content


def _read_bytes(stream: BinaryIO, start: int, num_bytes: int) -> bytes:
    if start < 0:
        raise DatasetError("the frame table is missing or truncated")
    stream.seek(start)
    return stream.read(num_bytes)


PART_BYTES = 2 << 20
PART_ROWS = 1024
LINES_AT_ONCE = 64
"""The ids of 64 lines fit into the cache of a core. 64 is faster than 32 and 256."""
MAX_ROW_BYTES = 32 << 20
"""Maximum length of a line if rows are windows. A part with a longer line is not read. A row with one window takes at
most 16 MB."""
MAX_DOCUMENT_BYTES = 1 << 30
"""Maximum length of a line if rows are documents. Equal to the maximum size of a frame in formats.zstd."""
MAX_ROWS_PER_FRAME = 2
"""Maximum size of a frame, in rows of maximum size. A frame ends with the row that reaches 0.25 MB."""


class Part(NamedTuple):
    """Part of a data file that one worker reads."""

    path: Path
    start: int
    """Offset of the part in the file on disk, or index of its first row if `stored` is set."""
    end: int
    frames: tuple[FrameEntry, ...] | None
    """Frames of the part, or None if the file is not compressed."""
    split: Split
    stored: StoredSplit | None = None
    """Split that is stored in a format other than JSONL, or None."""


class PartRows(NamedTuple):
    """Rows of one part of a data file, with their digests and faults."""

    num_rows: int
    size: int
    """Size of the part in bytes, or in rows for a format other than JSONL."""
    runs: list[Run]
    content: bytes
    """Concatenated digests of the valid rows."""
    lines: bytes
    """Concatenated digests of all lines."""
    faults: Faults
    """Faults in this part. In `faults` and `runs`, row numbers count from 1 in this part."""
    num_packed_ids: int = 0
    """Number of ids in packed rows."""
    num_packed_ends: int = 0
    """Number of end tokens in packed rows, outside of the windows."""


def split_file(path: Path, split: Split) -> list[Part]:
    """Divide a data file into parts.

    Raises OSError if the file cannot be read, and DatasetError if its frame table is damaged.
    """
    with open_plain(path) as stream:
        if path.suffix != ".zst":
            size = stream.seek(0, 2)
            starts = range(0, size, PART_BYTES)
            return [Part(path, start, min(start + PART_BYTES, size), None, split) for start in starts]
        parts: list[Part] = []
        batch: list[FrameEntry] = []
        for frame in read_frame_table(stream):
            batch.append(frame)
            if sum(one.num_bytes for one in batch) >= PART_BYTES:
                parts.append(_frames_part(path, split, batch))
                batch = []
        return [*parts, _frames_part(path, split, batch)] if batch else parts


def _frames_part(path: Path, split: Split, frames: list[FrameEntry]) -> Part:
    return Part(path, frames[0].start, frames[-1].end, tuple(frames), split)


def split_stored(stored: StoredSplit, split: Split) -> list[Part]:
    step = stored.schema.num_rows_at_once(PART_ROWS)
    starts = range(0, len(stored), step)
    return [Part(stored.path, start, min(start + step, len(stored)), None, split, stored) for start in starts]


def read_part(rules: PartRules, part: Part) -> PartRows:
    """Read and check the rows of one part."""
    faults = Faults()
    try:
        max_row_bytes = MAX_DOCUMENT_BYTES if rules.rows.has_documents else MAX_ROW_BYTES
        lines, has_open_end = _read_lines(part, max_row_bytes)
    except (OSError, DatasetError) as error:
        unit = "bytes" if part.stored is None else "rows"
        reason = error.strerror or error if isinstance(error, OSError) else error
        faults.add("schema", f"{unit} {part.start} to {part.end} cannot be read: {reason}", file=part.path.name)
        return PartRows(0, part.end - part.start, [], b"", b"", faults)
    rules = rules.for_file(part.path.name)
    digests: list[bytes] = []
    if has_open_end:
        faults.add("schema", "the last line does not end with a line feed", file=part.path.name, row=len(lines))
    num_ids: list[int] = []
    num_ends = 0
    if rules.pack is None:
        rows = _record_digests(_read_window_rows(lines, rules, faults), part.split, rules.rows, digests)
        runs = group_into_runs(rows, rules.rows.file, faults)
    else:
        runs = []
        for read in _read_packed_rows(lines, rules, rules.pack, faults):
            digests += [row_digest(part.split, row.positions, np.array(row.ids, "<u4").tobytes()) for row in read.rows]
            num_ids += [row.num_ids for row in read.rows]
            num_ends += sum(row.num_ends for row in read.rows)
            runs += [run for row in read.windows for run in group_into_runs([row], rules.rows.file, faults)]
    content, line_digests = b"".join(digests), b"".join(map(line_digest, lines))
    return PartRows(len(lines), part.end - part.start, runs, content, line_digests, faults, sum(num_ids), num_ends)


def _read_packed_rows(lines: list[bytes], rules: PartRules, pack: PackRules, faults: Faults) -> Iterator[PackedRows]:
    for at in range(0, len(lines), LINES_AT_ONCE):
        read = read_packed(lines[at : at + LINES_AT_ONCE], at + 1, pack, rules.rows, faults)
        _check_texts(read.windows, rules, faults)
        yield read


def _record_digests(rows: Iterable[Row], split: Split, rules: RowRules, digests: list[bytes]) -> Iterator[Row]:
    """Yield the rows unchanged, and append the digest of each row to `digests`."""
    special_ids = (rules.prefix, rules.suffix, (*rules.suffix, *rules.closing))
    prefix, suffix, closed = (np.array(ids, "<u4").tobytes() for ids in special_ids)
    for row in rows:
        position = window_key(row.fields["repo"], row.fields["path"], row.fields["start"])
        content = row.text
        if content is None:
            ending = closed if row.is_ended else suffix
            content = b"".join((prefix, row.ids.astype("<u4").tobytes(), ending))
        digests.append(row_digest(split, position, content))
        yield row


def _read_window_rows(lines: list[bytes], rules: PartRules, faults: Faults) -> Iterator[Row]:
    for at in range(0, len(lines), LINES_AT_ONCE):
        batch = lines[at : at + LINES_AT_ONCE]
        if rules.rows.has_documents:
            yield from read_documents(batch, at + 1, rules.rows, rules.decoder, faults)
            continue
        rows = read_rows(batch, at + 1, rules.rows, faults)
        _check_texts(rows, rules, faults)
        yield from rows


def _check_texts(rows: list[Row], rules: PartRules, faults: Faults) -> None:
    if "text" in rules.rows.columns:
        check_text_column(rows, rules.rows, rules.decoder, faults)
        check_secrets_in_column(rows, rules, faults)


def _read_lines(part: Part, max_row_bytes: int) -> tuple[list[bytes], bool]:
    """Return the lines of a part, and whether the last line lacks a line feed.

    Raises DatasetError if most lines are too short to be rows. A damaged file may have millions of such lines.
    """
    has_open_end = False
    if part.stored is not None:
        return [line[:-1] for line in part.stored.lines(part.start, part.end)], False
    with open_plain(part.path) as stream:
        if part.frames is None:
            lines = _plain_content(stream, part, max_row_bytes).split(b"\n")
            has_open_end = bool(lines[-1])
            lines = lines if has_open_end else lines[:-1]
        else:
            lines = [line for frame in part.frames for line in _frame_lines(stream, frame, max_row_bytes)]
    if len(lines) * len(HEAD) > sum(map(len, lines)) + len(HEAD) * LINES_AT_ONCE:
        raise DatasetError(f"most of {counted(len(lines), 'line')} are too short to be rows")
    return lines, has_open_end


def _plain_content(stream: BinaryIO, part: Part, max_row_bytes: int) -> bytes:
    """Read the lines that begin in the byte range of a part, including the end of the last line."""
    if part.start:
        stream.seek(part.start - 1)
        _read_to_line_end(stream, max_row_bytes)
    content = stream.read(max(0, part.end - stream.tell()))
    return content + _read_to_line_end(stream, max_row_bytes) if content and not content.endswith(b"\n") else content


def _read_to_line_end(stream: BinaryIO, max_row_bytes: int) -> bytes:
    line = stream.readline(max_row_bytes)
    if len(line) == max_row_bytes:
        raise DatasetError(f"a line has {max_row_bytes} bytes or more")
    return line


def _frame_lines(stream: BinaryIO, frame: FrameEntry, max_row_bytes: int) -> list[bytes]:
    content = decompress_frame(stream, frame, MAX_ROWS_PER_FRAME * max_row_bytes)
    if frame.num_rows * len(HEAD) > len(content):
        raise DatasetError(
            f"a frame of {counted(len(content), 'byte')} has {counted(frame.num_rows, 'line')}, "
            "which are too many for valid rows"
        )
    return content.split(b"\n")[:-1]


class RowsAndDigests(NamedTuple):
    """Rows of all data files, with their digests."""

    rows: Rows
    content_sha256: str
    """Digest of the valid rows."""
    lines_sha256: str
    """Digest of all lines."""


class _DataFile(NamedTuple):
    name: str
    split: Split
    num_rows: int | None
    parts: list[Part]


def read_data_files(
    settings: Settings, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]
) -> RowsAndDigests:
    """Read and check all JSONL files, or the files of the first format if there is no JSONL."""
    files = list(_data_files(settings.folder, settings.manifest, faults))
    parts = runner.map(partial(read_part, _part_rules(settings)), [part for file in files for part in file.parts])
    entries: list[RunEntry] = []
    content, lines = ContentDigest(), ContentDigest()
    packed = {split: PackedCounts(0, 0, 0) for split in Split}
    num_rows = 0
    for file in files:
        file_runs = _FileRuns(file.name, is_packed=settings.pack is not None)
        for _ in file.parts:
            part = next(parts)
            file_runs.add(part, faults)
            content.add(file.split, part.content)
            lines.add(file.split, part.lines)
            packed[file.split] = packed[file.split].plus(part.num_rows, part.num_packed_ids, part.num_packed_ends)
            advance(part.size)
        if file_runs.num_rows != file.num_rows:
            faults.add(
                "digests",
                f"the file has {counted(file_runs.num_rows, 'row')}, but the manifest records {file.num_rows}",
                file=file.name,
            )
        entries += [RunEntry(run, file.name, file.split) for run in file_runs.runs]
        num_rows += file_runs.num_rows
    rows = Rows.of(entries, num_rows)
    if settings.pack is not None:
        layouts = _segments_by_repo(entries) if settings.is_packed_by_repo else {}
        rows = Rows.of(_join_windows(entries, faults), num_rows)._replace(packed=packed, layouts=layouts)
    return RowsAndDigests(rows, content.sha256(), lines.sha256())


def _segments_by_repo(entries: list[RunEntry]) -> dict[RepoKey, list[Segment]]:
    """Return the segments (the parts of files in packed rows) of each repository in reading order.

    The last segments of a repository may share a row with other repositories. Such a row is stored before the other
    rows of the repository, so segments with a segment id above 1 are moved to the end.
    """
    layouts: dict[RepoKey, list[Segment]] = {}
    for one in sorted(entries, key=lambda one: one.run.windows[0, SEGMENT_ID] > 1):
        start, row, segment_id = one.run.windows[0, [START, ROW, SEGMENT_ID]].tolist()
        segment = Segment(one.run.key.path, start, one.file, row, segment_id)
        layouts.setdefault((one.split, one.run.key.repo), []).append(segment)
    return layouts


def _join_windows(entries: list[RunEntry], faults: Faults) -> list[RunEntry]:
    """Join runs with one window each, from packed rows, into one run per file, repeat and variant."""
    runs: list[RunEntry] = []
    for one in sorted(entries, key=_sort_key):
        last = runs[-1] if runs else None
        if last is not None and (last.split, last.run.key) == (one.split, one.run.key):
            runs[-1] = last._replace(run=join_runs(last.run, one.run, one.file, faults))
        else:
            runs.append(one)
    return runs


def _sort_key(entry: RunEntry) -> tuple[Any, ...]:
    key = entry.run.key
    variant = list(VariantKind).index(key.variant) if key.variant in list(VariantKind) else -1
    order = (key.repo, key.path, variant, key.repeat or 0, repr(key.seed), repr(key.weight))
    return (list(Split).index(entry.split), *order, int(entry.run.windows[0, START]))


def _part_rules(settings: Settings) -> PartRules:
    secrets = settings.secrets
    scans_text_column = secrets.action != "keep" and not settings.decoder.is_close
    return PartRules(settings.rules, settings.decoder, scans_text_column, secrets.emails, settings.pack)


def _data_files(folder: Path, manifest: Manifest, faults: Faults) -> Iterator[_DataFile]:
    if "jsonl" not in manifest.formats:
        yield from _stored_splits(folder, manifest, faults)
        return
    for name, facts in sorted(manifest.files.items()):
        if facts.split is None or facts.format != "jsonl":
            continue
        try:
            yield _DataFile(name, facts.split, facts.rows, split_file(folder / name, facts.split))
        except OSError:  # reported by the check `digests`
            continue
        except DatasetError as error:
            faults.add("schema", str(error), file=name)


def _stored_splits(folder: Path, manifest: Manifest, faults: Faults) -> Iterator[_DataFile]:
    """Yield the splits as stored in the first format of the dataset."""
    name = manifest.formats[0]
    for split, facts in manifest.splits.items():
        stored = StoredSplit(folder, name, split, Schema.of(manifest), facts.windows)
        try:
            yield _DataFile(f"{name}/{split}", split, facts.windows, split_stored(stored.opened(), split))
        except DatasetError as error:
            faults.add("schema", str(error), file=f"{name}/{split}")


class _FileRuns:
    """Runs of one data file, joined from its parts."""

    def __init__(self, name: str, *, is_packed: bool) -> None:
        self._name, self._is_packed = name, is_packed
        self.num_rows = 0
        self.runs: list[Run] = []

    def add(self, part: PartRows, faults: Faults) -> None:
        faults.merge(part.faults, self.num_rows)
        for index, run in enumerate(part.runs):
            run.windows[:, ROW] += self.num_rows
            continues_run = not self._is_packed and index == 0 and self.runs and self.runs[-1].key == run.key
            if continues_run:
                self.runs[-1] = join_runs(self.runs[-1], run, self._name, faults)
            else:
                self.runs.append(run)
        self.num_rows += part.num_rows
