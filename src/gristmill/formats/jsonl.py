"""JSON Lines as one format among others: rows come to it from any other, and go from it to any other.

A build does not write its rows by this: there each piece knows its place before it is written (jsonl).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from gristmill.core.columns import COLUMNS, IDS, Kind
from gristmill.core.errors import DatasetError, OutputError
from gristmill.core.partition import neighbours, steady_neighbours
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, Values, WindowBatch, natural, require_fitting, stored
from gristmill.formats.format import Format, Target, files_of
from gristmill.formats.jsonl_rows import JsonlFile
from gristmill.formats.zstd import Frame, ZstdJsonlFile, compress_rows, read_table, table_of

# A batch of windows <-> JSON rows, in the bytes that the JSONL format has.


def lines_of(batch: WindowBatch, schema: Schema) -> list[bytes]:
    """Each with its line feed."""
    rows = stored(batch, schema)
    columns = [_told(rows.columns[name], COLUMNS[name].kind) for name in schema.others]
    return [
        orjson.dumps(
            dict(zip(schema.columns, row, strict=True)), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        )
        for row in zip(rows.ids.rows(), *columns, strict=True)
    ]


def _told(column: Values, kind: Kind) -> Any:
    if kind is Kind.NUMBERS:
        return column.rows()
    return column.tolist() if isinstance(column, np.ndarray) else column


def batch_of_lines(lines: Sequence[bytes], schema: Schema) -> WindowBatch:
    """Rows as they are stored -> without padding."""
    try:
        rows = [orjson.loads(line) for line in lines]
        ids = Ragged.of([row[IDS] for row in rows])
        require_fitting(ids.values, schema.id_type)  # numpy 1 would wrap them
        ids = ids._replace(values=ids.values.astype(schema.id_type))
        columns = {name: column_of([row[name] for row in rows], COLUMNS[name].kind) for name in schema.others}
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, OverflowError, OutputError) as error:
        raise DatasetError(f"a row is damaged: {error!r}. Build the dataset again.") from None
    return natural(WindowBatch(ids, columns), schema)


def column_of(values: list[Any], kind: Kind) -> Values:
    """Row by row -> as a batch has it."""
    if kind is Kind.NUMBERS:
        return Ragged.of(values)
    if kind is Kind.NUMBER:
        return np.array(values, np.int64)
    return np.array(values, np.float64) if kind is Kind.FRACTION else values


SCAN_BYTES = 1 << 22
PIECE_BYTES = 1 << 20


def write_jsonl(batches: Iterable[WindowBatch], target: Target) -> list[str]:
    name = target.file_name(".jsonl" if target.compressed_at is None else ".jsonl.zst")
    with (target.folder / name).open("wb") as stream:
        if target.compressed_at is None:
            stream.writelines(line for batch in batches for line in lines_of(batch, target.schema))
        else:
            stream.writelines(_compressed(_pieces(batches, target.schema, target.compressed_at)))
    return [name]


def piece_bytes(shard_bytes: int) -> int:
    """Of rows that one task of a build formats and writes, at most; half of it on average.

    Memory per worker is a few times this. Larger ones compress a little better, and leave more to do after a change.
    """
    return min(PIECE_BYTES, shard_bytes)


class _Document(NamedTuple):
    name: str
    lines: list[bytes]

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.lines))


def _pieces(batches: Iterable[WindowBatch], schema: Schema, limit: int) -> Iterator[list[bytes]]:
    """As those of a build, whose edges go by documents; rows of several files are only counted."""
    if schema.is_packed:
        yield from neighbours((line for batch in batches for line in lines_of(batch, schema)), len, limit)
        return
    for piece in steady_neighbours(_documents(batches, schema), attrgetter("name"), attrgetter("num_bytes"), limit):
        yield [line for document in piece for line in document.lines]


def _documents(batches: Iterable[WindowBatch], schema: Schema) -> Iterator[_Document]:
    """Rows of one file, or of one variant of it, together."""
    rows = ((place, line) for batch in batches for place, line in _placed(batch, schema))
    for (_, path, _), own in groupby(rows, key=itemgetter(0)):
        yield _Document(path, [line for _, line in own])


def _placed(batch: WindowBatch, schema: Schema) -> Iterator[tuple[tuple[str, str, str], bytes]]:
    columns = batch.columns
    variants = columns.get("variant", [""] * len(batch))
    return zip(zip(columns["repo"], columns["path"], variants, strict=True), lines_of(batch, schema), strict=True)


def _compressed(pieces: Iterable[list[bytes]]) -> Iterator[bytes]:
    """Frame by frame, and the table of them."""
    frames: list[Frame] = []
    for piece in pieces:
        content, made = compress_rows(piece)
        frames += made
        yield content
    yield table_of(frames)


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
        with open_plain(path) as stream:
            num_rows = sum(some.count(b"\n") for some in iter(lambda: stream.read(SCAN_BYTES), b""))
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    return JsonlFile(path, num_rows)


JSONL = Format(name="jsonl", is_sharded=True, write=write_jsonl, open=JsonlReader)
