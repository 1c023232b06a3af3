"""All data files, part by part over processes -> runs of windows, each whole again."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import zstandard

from gristmill.checks.documents import read_documents
from gristmill.checks.findings import Faults
from gristmill.checks.packs import PackedRows, PackRules, read_packed
from gristmill.checks.requirements import Settings
from gristmill.checks.rows import HEAD, Row, read_rows
from gristmill.checks.runs import GROUP, ROW, START, Run, joined, runs_of
from gristmill.checks.secrets import LOOK_AHEAD_BYTES, LOOK_BACK_BYTES, secrets_in
from gristmill.checks.spelling import Spelling, wrong_texts
from gristmill.checks.tokens import RowRules
from gristmill.checks.windows_by_file import Packed, PlacedRun, RepoKey, Rows, Segment
from gristmill.core.errors import DatasetError
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Split, VariantKind
from gristmill.core.schema import Schema
from gristmill.formats.content_digest import Content, line_digest, place_of, row_digest
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

# The `text` column: where a tokenizer does not give the text back, secrets are looked for in it, row by row.


class PartRules(NamedTuple):
    """All that a process must know to read a part of a data file."""

    rows: RowRules
    spelling: Spelling
    looks_for_secrets: bool
    """In the column; where the ids spell the text, that is looked at as a whole."""
    emails: bool
    pack: PackRules | None = None
    """Of rows that hold windows of several files."""

    def of_file(self, name: str) -> "PartRules":
        return self._replace(rows=self.rows._replace(file=name))


def _whose(row: Row) -> tuple[object, ...]:
    return tuple(map(row.fields.get, ("repo", "path", "repeat", "variant")))


def secrets_in_column(rows: Sequence[Row], rules: PartRules, faults: Faults) -> None:
    """What touches an edge of a window is judged in the window beside it, which shows more."""
    if not rules.looks_for_secrets:
        return
    for row, after in zip_longest(rows, rows[1:]):
        fields = row.fields
        if fields.get("fim"):  # the file's text in another order, which `fim` puts together
            continue
        is_last = after is not None and _whose(after) != _whose(row)
        text = fields["text"].encode()
        for kind, start, end in secrets_in(text, emails=rules.emails):
            is_at_end = not is_last and end >= len(text) - LOOK_AHEAD_BYTES
            if is_at_end or (fields["start"] and start < LOOK_BACK_BYTES):
                continue
            line = fields["lines"][0] + text.count(b"\n", 0, start)
            path = f"{fields['repo']}/{fields['path']}"
            faults.add("secrets", f"{kind} in line {line}", file=rules.rows.file, row=row.number, path=path)


# A data file in parts, each read by one process: byte ranges of a .jsonl, runs of frames of a .jsonl.zst.

# A .jsonl.zst as it must be: frames that fill the file up to their table, each one frame of the size and rows
# stated.

ROW_COUNT = struct.Struct("<I")


class StatedFrame(NamedTuple):
    start: int
    end: int
    num_bytes: int
    num_rows: int


def stated_frames(stream: BinaryIO) -> list[StatedFrame]:
    """What the table says, where it lies exactly behind the last frame; raises DatasetError."""
    size = stream.seek(0, 2)
    foot = _read(stream, size - SEEK_FOOT.size, SEEK_FOOT.size)
    count, flags, magic = SEEK_FOOT.unpack(foot)
    sizes_bytes, rows_bytes = count * SEEK_ENTRY.size, count * ROW_COUNT.size
    table_start = size - 2 * SKIPPABLE_HEAD.size - rows_bytes - sizes_bytes - SEEK_FOOT.size
    if (flags, magic) != (0, SEEKABLE_MAGIC) or table_start < 0:
        raise DatasetError("its table of frames is missing or cut short")
    table = _read(stream, table_start, size - table_start)
    sizes_start = 2 * SKIPPABLE_HEAD.size + rows_bytes
    heads = table[: SKIPPABLE_HEAD.size], table[sizes_start - SKIPPABLE_HEAD.size : sizes_start]
    if heads != (
        SKIPPABLE_HEAD.pack(SKIPPABLE_ROWS, rows_bytes),
        SKIPPABLE_HEAD.pack(SKIPPABLE_SEEK_TABLE, sizes_bytes + SEEK_FOOT.size),
    ):
        raise DatasetError("its table of frames is none")
    rows = ROW_COUNT.iter_unpack(table[SKIPPABLE_HEAD.size : SKIPPABLE_HEAD.size + rows_bytes])
    sizes = list(SEEK_ENTRY.iter_unpack(table[sizes_start : sizes_start + sizes_bytes]))
    edges = [0, *accumulate(num_compressed for num_compressed, _ in sizes)]
    if edges[-1] != table_start:
        raise DatasetError(f"its table names {edges[-1]} bytes of frames, and {table_start} stand before it")
    places = zip(pairwise(edges), sizes, rows, strict=True)
    return [StatedFrame(start, end, num_bytes, num_rows) for (start, end), (_, num_bytes), (num_rows,) in places]


def unpacked(stream: BinaryIO, frame: StatedFrame, largest: int) -> bytes:
    """Raises DatasetError for anything but the one frame that the table states, of at most so many bytes."""
    if frame.num_bytes > largest:
        raise DatasetError(f"a frame of {counted(frame.num_bytes, 'byte')}")
    compressed = _read(stream, frame.start, frame.end - frame.start)
    try:
        # What a damaged head promises is not allocated.
        if not compressed.startswith(zstandard.FRAME_HEADER) or (
            zstandard.frame_content_size(compressed) != frame.num_bytes
        ):
            raise DatasetError("a frame is not of the size that the table of frames says")
        content = zstandard.ZstdDecompressor().decompress(compressed, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DatasetError(f"not one frame: {error}") from None
    num_rows = content.count(b"\n")
    if num_rows != frame.num_rows or not content.endswith(b"\n"):
        raise DatasetError(f"a frame of {counted(num_rows, 'whole row')}, the table says {frame.num_rows}")
    return content


def _read(stream: BinaryIO, start: int, num_bytes: int) -> bytes:
    if start < 0:
        raise DatasetError("its table of frames is missing or cut short")
    stream.seek(start)
    return stream.read(num_bytes)


PART_BYTES = 2 << 20
PART_ROWS = 1024
LINES_AT_ONCE = 64
"""Their ids stay in a core's cache: 64 are read faster than 32 or 256."""
LARGEST_ROW_BYTES = 32 << 20
"""Sixteen megabytes is the longest that a window can make; what goes on for longer is not read."""
LARGEST_DOCUMENT_BYTES = 1 << 30
"""As many as a frame may have."""
ROWS_IN_FRAME = 2
"""A frame is full at a quarter of a megabyte, and no longer than that and a row."""


class Part(NamedTuple):
    path: Path
    start: int
    """Bytes of the file as it lies on disk."""
    end: int
    frames: tuple[StatedFrame, ...] | None
    """Where it is compressed."""
    split: Split
    stored: StoredSplit | None = None
    """In another format than JSONL: its rows from `start` to `end`."""


class PartRows(NamedTuple):
    num_rows: int
    num_bytes: int
    """Or rows, of another format than JSONL."""
    runs: list[Run]
    content: bytes
    """The digest of each row that could be read."""
    lines: bytes
    """Of each line, whatever it is."""
    faults: Faults
    """Their rows are counted from 1 in this part, as are those of the runs."""
    num_packed_ids: int = 0
    """In rows of several files' windows."""
    num_packed_ends: int = 0
    """End tokens in them, outside of the windows."""


def parts_of(path: Path, split: Split) -> list[Part]:
    """Raises OSError for a file that is not there, DatasetError for one whose frames are not as its table says."""
    with open_plain(path) as stream:
        if path.suffix != ".zst":
            size = stream.seek(0, 2)
            starts = range(0, size, PART_BYTES)
            return [Part(path, start, min(start + PART_BYTES, size), None, split) for start in starts]
        parts: list[Part] = []
        gathered: list[StatedFrame] = []
        for frame in stated_frames(stream):
            gathered.append(frame)
            if sum(one.num_bytes for one in gathered) >= PART_BYTES:
                parts.append(_frames_part(path, split, gathered))
                gathered = []
        return [*parts, _frames_part(path, split, gathered)] if gathered else parts


def _frames_part(path: Path, split: Split, frames: list[StatedFrame]) -> Part:
    return Part(path, frames[0].start, frames[-1].end, tuple(frames), split)


def stored_parts(stored: StoredSplit, split: Split) -> list[Part]:
    step = stored.schema.num_rows_at_once(PART_ROWS)
    starts = range(0, len(stored), step)
    return [Part(stored.path, start, min(start + step, len(stored)), None, split, stored) for start in starts]


def read_part(rules: PartRules, part: Part) -> PartRows:
    faults = Faults()
    try:
        largest = LARGEST_DOCUMENT_BYTES if rules.rows.has_documents else LARGEST_ROW_BYTES
        lines, has_open_end = _lines(part, largest)
    except (OSError, DatasetError) as error:
        what = "bytes" if part.stored is None else "rows"
        faults.add("schema", f"{what} {part.start} to {part.end} cannot be read: {error}", file=part.path.name)
        return PartRows(0, part.end - part.start, [], b"", b"", faults)
    rules = rules.of_file(part.path.name)
    digests: list[bytes] = []
    if has_open_end:
        faults.add("schema", "its last line has no end", file=part.path.name, row=len(lines))
    num_ids: list[int] = []
    num_ends = 0
    if rules.pack is None:
        rows = _digested(_rows(lines, rules, faults), part.split, rules.rows, digests)
        runs = runs_of(rows, rules.rows.file, faults)
    else:
        runs = []
        for read in _packed(lines, rules, rules.pack, faults):
            digests += [row_digest(part.split, row.place, np.array(row.ids, "<u4").tobytes()) for row in read.rows]
            num_ids += [row.num_ids for row in read.rows]
            num_ends += sum(row.num_ends for row in read.rows)
            runs += [run for row in read.windows for run in runs_of([row], rules.rows.file, faults)]
    content, of_lines = b"".join(digests), b"".join(map(line_digest, lines))
    return PartRows(len(lines), part.end - part.start, runs, content, of_lines, faults, sum(num_ids), num_ends)


def _packed(lines: list[bytes], rules: PartRules, pack: PackRules, faults: Faults) -> Iterator[PackedRows]:
    for at in range(0, len(lines), LINES_AT_ONCE):
        read = read_packed(lines[at : at + LINES_AT_ONCE], at + 1, pack, rules.rows, faults)
        _check_texts(read.windows, rules, faults)
        yield read


def _digested(rows: Iterable[Row], split: Split, rules: RowRules, digests: list[bytes]) -> Iterator[Row]:
    """The same rows, while the digest of each is noted."""
    around = (rules.prefix, rules.suffix, (*rules.suffix, *rules.closing))
    prefix, suffix, closed = (np.array(ids, "<u4").tobytes() for ids in around)
    for row in rows:
        place = place_of(row.fields["repo"], row.fields["path"], row.fields["start"])
        content = row.text
        if content is None:
            behind = closed if row.is_ended else suffix
            content = b"".join((prefix, row.ids.astype("<u4").tobytes(), behind))
        digests.append(row_digest(split, place, content))
        yield row


def _rows(lines: list[bytes], rules: PartRules, faults: Faults) -> Iterator[Row]:
    for at in range(0, len(lines), LINES_AT_ONCE):
        some = lines[at : at + LINES_AT_ONCE]
        if rules.rows.has_documents:
            yield from read_documents(some, at + 1, rules.rows, rules.spelling, faults)
            continue
        rows = read_rows(some, at + 1, rules.rows, faults)
        _check_texts(rows, rules, faults)
        yield from rows


def _check_texts(rows: list[Row], rules: PartRules, faults: Faults) -> None:
    if "text" in rules.rows.columns:
        wrong_texts(rows, rules.rows, rules.spelling, faults)
        secrets_in_column(rows, rules, faults)


def _lines(part: Part, largest: int) -> tuple[list[bytes], bool]:
    """Return the lines, and whether the last one lacks its line feed. `largest`: the most bytes of a row.

    Raise DatasetError if most lines are too short to be rows: there may be millions.
    """
    has_open_end = False
    if part.stored is not None:
        return [line[:-1] for line in part.stored.lines(part.start, part.end)], False
    with open_plain(part.path) as stream:
        if part.frames is None:
            lines = _plain_content(stream, part, largest).split(b"\n")
            has_open_end = bool(lines[-1])
            lines = lines if has_open_end else lines[:-1]
        else:
            lines = [line for frame in part.frames for line in _frame_lines(stream, frame, largest)]
    if len(lines) * len(HEAD) > sum(map(len, lines)) + len(HEAD) * LINES_AT_ONCE:
        raise DatasetError(f"{counted(len(lines), 'line')}, and no rows")
    return lines, has_open_end


def _plain_content(stream: BinaryIO, part: Part, largest: int) -> bytes:
    """The lines that begin in this range, the last of them to its end."""
    if part.start:
        stream.seek(part.start - 1)
        _to_line_end(stream, largest)
    content = stream.read(max(0, part.end - stream.tell()))
    return content + _to_line_end(stream, largest) if content and not content.endswith(b"\n") else content


def _to_line_end(stream: BinaryIO, largest: int) -> bytes:
    line = stream.readline(largest)
    if len(line) == largest:
        raise DatasetError(f"a line of more than {largest} bytes")
    return line


def _frame_lines(stream: BinaryIO, frame: StatedFrame, largest: int) -> list[bytes]:
    content = unpacked(stream, frame, ROWS_IN_FRAME * largest)
    if frame.num_rows * len(HEAD) > len(content):
        raise DatasetError(
            f"a frame of {counted(len(content), 'byte')} with {counted(frame.num_rows, 'line')}: these are no rows"
        )
    return content.split(b"\n")[:-1]


class ReadRows(NamedTuple):
    rows: Rows
    content_sha256: str
    """Of those that could be read."""
    lines_sha256: str
    """Of all lines."""


class _DataFile(NamedTuple):
    name: str
    split: Split
    num_rows: int | None
    parts: list[Part]


def read_data_files(
    settings: Settings, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]
) -> ReadRows:
    files = list(_data_files(settings.folder, settings.manifest, faults))
    read = runner.map(partial(read_part, _part_rules(settings)), [part for file in files for part in file.parts])
    placed: list[PlacedRun] = []
    content, lines = Content(), Content()
    packed = {split: Packed(0, 0, 0) for split in Split}
    num_rows = 0
    for file in files:
        whole = _WholeFile(file.name, is_packed=settings.pack is not None)
        for _ in file.parts:
            part = next(read)
            whole.take(part, faults)
            content.add(file.split, part.content)
            lines.add(file.split, part.lines)
            packed[file.split] = packed[file.split].plus(part.num_rows, part.num_packed_ids, part.num_packed_ends)
            advance(part.num_bytes)
        if whole.num_rows != file.num_rows:
            faults.add(
                "digests", f"{counted(whole.num_rows, 'row')}, the manifest says {file.num_rows}", file=file.name
            )
        placed += [PlacedRun(run, file.name, file.split) for run in whole.runs]
        num_rows += whole.num_rows
    rows = Rows.of(placed, num_rows)
    if settings.pack is not None:
        layouts = _layouts(placed) if settings.is_by_repo else {}
        rows = Rows.of(_in_order(placed, faults), num_rows)._replace(packed=packed, layouts=layouts)
    return ReadRows(rows, content.sha256(), lines.sha256())


def _layouts(placed: list[PlacedRun]) -> dict[RepoKey, list[Segment]]:
    """Return each repository's segments in order. Its last row may be shared, and then stand before its other rows."""
    layouts: dict[RepoKey, list[Segment]] = {}
    for one in sorted(placed, key=lambda one: one.run.windows[0, GROUP] > 1):
        start, row, group = one.run.windows[0, [START, ROW, GROUP]].tolist()
        segment = Segment(one.run.key.path, start, one.file, row, group)
        layouts.setdefault((one.split, one.run.key.repo), []).append(segment)
    return layouts


def _in_order(placed: list[PlacedRun], faults: Faults) -> list[PlacedRun]:
    """Windows that were in rows with others, each a run -> the runs of their files."""
    runs: list[PlacedRun] = []
    for one in sorted(placed, key=_place):
        last = runs[-1] if runs else None
        if last is not None and (last.split, last.run.key) == (one.split, one.run.key):
            runs[-1] = last._replace(run=joined(last.run, one.run, one.file, faults))
        else:
            runs.append(one)
    return runs


def _place(placed: PlacedRun) -> tuple[Any, ...]:
    key = placed.run.key
    variant = list(VariantKind).index(key.variant) if key.variant in list(VariantKind) else -1
    order = (key.repo, key.path, variant, key.repeat or 0, repr(key.seed), repr(key.weight))
    return (list(Split).index(placed.split), *order, int(placed.run.windows[0, START]))


def _part_rules(settings: Settings) -> PartRules:
    secrets = settings.secrets
    is_needed = secrets.action != "keep" and not settings.spelling.is_close
    return PartRules(settings.rules, settings.spelling, is_needed, secrets.emails, settings.pack)


def _data_files(folder: Path, manifest: Manifest, faults: Faults) -> Iterator[_DataFile]:
    if "jsonl" not in manifest.formats:
        yield from _stored_splits(folder, manifest, faults)
        return
    for name, facts in sorted(manifest.files.items()):
        if facts.split is None or facts.format != "jsonl":
            continue
        try:
            yield _DataFile(name, facts.split, facts.rows, parts_of(folder / name, facts.split))
        except OSError:  # digests say so
            continue
        except DatasetError as error:
            faults.add("schema", str(error), file=name)


def _stored_splits(folder: Path, manifest: Manifest, faults: Faults) -> Iterator[_DataFile]:
    """In the first of its formats."""
    name = manifest.formats[0]
    for split, facts in manifest.splits.items():
        stored = StoredSplit(folder, name, split, Schema.of(manifest), facts.windows)
        try:
            yield _DataFile(f"{name}/{split}", split, facts.windows, stored_parts(stored.require(), split))
        except DatasetError as error:
            faults.add("schema", str(error), file=f"{name}/{split}")


class _WholeFile:
    def __init__(self, name: str, *, is_packed: bool) -> None:
        self._name, self._is_packed = name, is_packed
        self.num_rows = 0
        self.runs: list[Run] = []

    def take(self, part: PartRows, faults: Faults) -> None:
        faults.merge(part.faults, self.num_rows)
        for index, run in enumerate(part.runs):
            run.windows[:, ROW] += self.num_rows
            goes_on = not self._is_packed and index == 0 and self.runs and self.runs[-1].key == run.key
            if goes_on:
                self.runs[-1] = joined(self.runs[-1], run, self._name, faults)
            else:
                self.runs.append(run)
        self.num_rows += part.num_rows
