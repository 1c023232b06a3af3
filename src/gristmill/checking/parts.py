"""A data file in parts, each read by one process: byte ranges of a .jsonl, runs of frames of a .jsonl.zst."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gristmill.checking.frames import StatedFrame, stated_frames, unpacked
from gristmill.checking.opening import open_plain
from gristmill.checking.result import Faults
from gristmill.checking.rows import HEAD, Row, read_rows
from gristmill.checking.runs import Run, runs_of
from gristmill.checking.spelling import wrong_texts
from gristmill.checking.textcolumn import PartRules, secrets_in_column
from gristmill.errors import DatasetError

PART_BYTES = 2 << 20
LINES_AT_ONCE = 64
"""Their ids stay in a core's cache: 64 are read faster than 32 or 256."""
LARGEST_ROW_BYTES = 32 << 20
"""Sixteen megabytes is the longest that a window can make; what goes on for longer is not read."""


class Part(NamedTuple):
    path: Path
    start: int
    """Bytes of the file as it lies on disk."""
    end: int
    frames: tuple[StatedFrame, ...] | None
    """Where it is compressed."""


class PartRows(NamedTuple):
    num_rows: int
    num_bytes: int
    runs: list[Run]
    faults: Faults
    """Their rows are counted from 1 in this part, as are those of the runs."""


def parts_of(path: Path) -> list[Part]:
    """Raises OSError for a file that is not there, DatasetError for one whose frames are not as its table says."""
    with open_plain(path) as stream:
        if path.suffix != ".zst":
            size = stream.seek(0, 2)
            return [Part(path, start, min(start + PART_BYTES, size), None) for start in range(0, size, PART_BYTES)]
        parts: list[Part] = []
        gathered: list[StatedFrame] = []
        for frame in stated_frames(stream):
            gathered.append(frame)
            if sum(one.num_bytes for one in gathered) >= PART_BYTES:
                parts.append(_frames_part(path, gathered))
                gathered = []
        return [*parts, _frames_part(path, gathered)] if gathered else parts


def _frames_part(path: Path, frames: list[StatedFrame]) -> Part:
    return Part(path, frames[0].start, frames[-1].end, tuple(frames))


def read_part(rules: PartRules, part: Part) -> PartRows:
    faults = Faults()
    try:
        lines, has_open_end = _lines(part)
    except (OSError, DatasetError) as error:
        faults.add("schema", f"bytes {part.start} to {part.end} cannot be read: {error}", file=part.path.name)
        return PartRows(0, part.end - part.start, [], faults)
    rules = rules.of_file(part.path.name)
    if has_open_end:
        faults.add("schema", "its last line has no end", file=part.path.name, row=len(lines))
    runs = runs_of(_rows(lines, rules, faults), rules.rows.file, faults)
    return PartRows(len(lines), part.end - part.start, runs, faults)


def _rows(lines: list[bytes], rules: PartRules, faults: Faults) -> Iterator[Row]:
    for at in range(0, len(lines), LINES_AT_ONCE):
        rows = read_rows(lines[at : at + LINES_AT_ONCE], at + 1, rules.rows, faults)
        if "text" in rules.rows.columns:
            wrong_texts(rows, rules.rows, rules.spelling, faults)
            secrets_in_column(rows, rules, faults)
        yield from rows


def _lines(part: Part) -> tuple[list[bytes], bool]:
    """And whether the last of them ends without a line feed, as none should.

    Raises DatasetError where most are too short to be rows: there may be millions.
    """
    has_open_end = False
    with open_plain(part.path) as stream:
        if part.frames is None:
            lines = _plain_content(stream, part).split(b"\n")
            has_open_end = bool(lines[-1])
            lines = lines if has_open_end else lines[:-1]
        else:
            lines = [line for frame in part.frames for line in _frame_lines(stream, frame)]
    if len(lines) * len(HEAD) > sum(map(len, lines)) + len(HEAD) * LINES_AT_ONCE:
        raise DatasetError(f"{len(lines)} lines that are no rows")
    return lines, has_open_end


def _plain_content(stream: BinaryIO, part: Part) -> bytes:
    """The lines that begin in this range, the last of them to its end."""
    if part.start:
        stream.seek(part.start - 1)
        _to_line_end(stream)
    content = stream.read(max(0, part.end - stream.tell()))
    return content + _to_line_end(stream) if content and not content.endswith(b"\n") else content


def _to_line_end(stream: BinaryIO) -> bytes:
    line = stream.readline(LARGEST_ROW_BYTES)
    if len(line) == LARGEST_ROW_BYTES:
        raise DatasetError(f"a line of more than {LARGEST_ROW_BYTES} bytes")
    return line


def _frame_lines(stream: BinaryIO, frame: StatedFrame) -> list[bytes]:
    content = unpacked(stream, frame)
    if frame.num_rows * len(HEAD) > len(content):
        raise DatasetError(f"a frame of {len(content)} bytes with {frame.num_rows} lines: these are no rows")
    return content.split(b"\n")[:-1]
