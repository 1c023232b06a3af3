"""A data file in parts, each read by one process: byte ranges of a .jsonl, runs of frames of a .jsonl.zst."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import zstandard

from gristmill.checking.result import Faults
from gristmill.checking.rows import Row, read_rows
from gristmill.checking.runs import Run, runs_of
from gristmill.checking.spelling import Spelling, wrong_texts
from gristmill.checking.tokens import RowRules
from gristmill.errors import DatasetError
from gristmill.formats.zstd import read_table

PART_BYTES = 2 << 20
LINES_AT_ONCE = 64
"""Their ids stay in a core's cache: 64 are read faster than 32 or 256."""


class Part(NamedTuple):
    path: Path
    start: int
    """Bytes of the file as it lies on disk."""
    end: int
    frames: tuple[tuple[int, int], ...] | None
    """Compressed size and size of each, where it is compressed."""


class PartRows(NamedTuple):
    num_rows: int
    num_bytes: int
    runs: list[Run]
    faults: Faults
    """Their rows are counted from 1 in this part, as are those of the runs."""


def parts_of(path: Path) -> list[Part]:
    """Raises OSError for a file that is not there, DatasetError for one whose frames are not known."""
    if path.suffix != ".zst":
        size = path.stat().st_size
        return [Part(path, start, min(start + PART_BYTES, size), None) for start in range(0, size, PART_BYTES)]
    parts: list[Part] = []
    gathered, start = list[tuple[int, int]](), 0
    for frame in read_table(path):
        gathered.append((frame.num_compressed, frame.num_bytes))
        if sum(size for _, size in gathered) >= PART_BYTES:
            parts.append(_frames_part(path, start, gathered))
            gathered, start = [], parts[-1].end
    return [*parts, _frames_part(path, start, gathered)] if gathered else parts


def _frames_part(path: Path, start: int, frames: list[tuple[int, int]]) -> Part:
    return Part(path, start, start + sum(compressed for compressed, _ in frames), tuple(frames))


def read_part(rules: RowRules, spelling: Spelling, part: Part) -> PartRows:
    faults = Faults()
    try:
        lines = _lines(part)
    except (OSError, DatasetError, zstandard.ZstdError) as error:
        faults.add("schema", f"bytes {part.start} to {part.end} cannot be read: {error}", file=part.path.name)
        return PartRows(0, part.end - part.start, [], faults)
    rules = rules._replace(file=part.path.name)
    runs = runs_of(_rows(lines, rules, spelling, faults), rules.file, faults)
    return PartRows(len(lines), part.end - part.start, runs, faults)


def _rows(lines: list[bytes], rules: RowRules, spelling: Spelling, faults: Faults) -> Iterator[Row]:
    for at in range(0, len(lines), LINES_AT_ONCE):
        rows = read_rows(lines[at : at + LINES_AT_ONCE], at + 1, rules, faults)
        if "text" in rules.columns:
            wrong_texts(rows, rules.file, spelling, faults)
        yield from rows


def _lines(part: Part) -> list[bytes]:
    lines = _plain_lines(part) if part.frames is None else _unpacked_bytes(part, part.frames).split(b"\n")
    return lines if lines[-1] else lines[:-1]


def _plain_lines(part: Part) -> list[bytes]:
    """The lines that begin in this range, the last of them to its end."""
    with part.path.open("rb") as stream:
        if part.start:
            stream.seek(part.start - 1)
            stream.readline()
        lines = stream.read(max(0, part.end - stream.tell())).split(b"\n")
        lines[-1] += stream.readline().removesuffix(b"\n") if lines[-1] else b""
        return lines


def _unpacked_bytes(part: Part, frames: tuple[tuple[int, int], ...]) -> bytes:
    unpacked: list[bytes] = []
    with part.path.open("rb") as stream:
        stream.seek(part.start)
        for num_compressed, num_bytes in frames:
            compressed = stream.read(num_compressed)
            # What a damaged head promises is not allocated.
            if zstandard.frame_content_size(compressed) != num_bytes:
                raise DatasetError("a frame is not of the size that the table of frames says")
            unpacked.append(zstandard.ZstdDecompressor().decompress(compressed))
    return b"".join(unpacked)
