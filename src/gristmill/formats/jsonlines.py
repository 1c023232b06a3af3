"""JSON Lines as one format among others: rows come to it from any other, and go from it to any other.

A build does not write its rows by this: there each piece knows its place before it is written (jsonl).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

from gristmill.errors import DatasetError
from gristmill.formats.batch import Schema, WindowBatch
from gristmill.formats.format import Format, Target, files_of
from gristmill.formats.json_rows import batch_of_lines, lines_of
from gristmill.formats.jsonl import JsonlFile
from gristmill.formats.zstd import FRAME_BYTES, Frame, ZstdJsonlFile, compress_rows, read_table, table_of
from gristmill.records import Split

SCAN_BYTES = 1 << 22


def write_jsonl(batches: Iterable[WindowBatch], target: Target) -> list[str]:
    name = target.file_name(".jsonl.zst" if target.is_compressed else ".jsonl")
    lines = (line for batch in batches for line in lines_of(batch, target.schema))
    with (target.folder / name).open("wb") as stream:
        stream.writelines(_compressed(lines) if target.is_compressed else lines)
    return [name]


def _compressed(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Frame by frame, and the table of them."""
    frames: list[Frame] = []
    for own in _frames(lines):
        content, made = compress_rows(own)
        frames += made
        yield content
    yield table_of(frames)


def _frames(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        gathered.append(line)
        size += len(line)
        if size >= FRAME_BYTES:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered


class JsonlReader:
    def __init__(self, folder: Path, split: Split, schema: Schema) -> None:
        self._schema = schema
        paths = files_of(folder, split, ".jsonl") or files_of(folder, split, ".jsonl.zst")
        self._files = [_opened(path) for path in paths]
        self._firsts = [0, *accumulate(map(len, self._files))]

    def __len__(self) -> int:
        return self._firsts[-1]

    def read(self, start: int, stop: int) -> WindowBatch:
        return batch_of_lines(list(self._lines(start, stop)), self._schema)

    def _lines(self, start: int, stop: int) -> Iterator[bytes]:
        for row in range(start, stop):
            number = bisect_right(self._firsts, row) - 1
            yield self._files[number][row - self._firsts[number]]


def _opened(path: Path) -> JsonlFile | ZstdJsonlFile:
    try:
        if path.suffix == ".zst":
            return ZstdJsonlFile(path, sum(frame.num_rows for frame in read_table(path)))
        with path.open("rb") as stream:
            num_rows = sum(some.count(b"\n") for some in iter(lambda: stream.read(SCAN_BYTES), b""))
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    return JsonlFile(path, num_rows)


JSONL = Format(name="jsonl", is_sharded=True, write=write_jsonl, open=JsonlReader)
