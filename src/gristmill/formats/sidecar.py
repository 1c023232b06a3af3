"""What rows tell beside their ids, as JSON Lines: for formats whose files hold ids alone."""

import mmap
import os
from functools import cache
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import orjson

from gristmill.columns import KINDS, Kind, Schema
from gristmill.formats.arrays import damaged
from gristmill.formats.batch import Column, Ragged, WindowBatch
from gristmill.formats.json_rows import column_of
from gristmill.formats.jsonl import row_starts
from gristmill.naming import counted
from gristmill.plainfile import open_plain
from gristmill.shaping.windows import Indices

TYPES: dict[Kind, Any] = {
    Kind.TEXT: str,
    Kind.NUMBER: int,
    Kind.FRACTION: float,
    Kind.NUMBERS: list[int],
    Kind.OBJECTS: list[dict[str, Any]],
}
FEW = 8
"""Numbers a row: up to there, lists of them are quicker to write than arrays."""


def sidecar_lines(batch: WindowBatch, schema: Schema) -> list[bytes]:
    """One for each row, with its line feed: all columns but the ids, without padding."""
    names = schema.natural
    columns = [_told(batch.columns[name]) for name in names]
    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    return [orjson.dumps(dict(zip(names, row, strict=True)), option=option) for row in zip(*columns, strict=True)]


def _told(column: Column) -> Any:
    if not isinstance(column, Ragged):
        return column.tolist() if isinstance(column, np.ndarray) else column
    if len(column.values) > FEW * (len(column.offsets) - 1):
        return list(column.rows())
    values, edges = column.values.tolist(), column.offsets.tolist()
    return [values[start:end] for start, end in pairwise(edges)]


class Sidecar:
    """Reads lines by number; where each begins is found when first needed."""

    def __init__(self, path: Path, num_rows: int, schema: Schema) -> None:
        self._path, self._num_rows, self._names = path, num_rows, schema.natural
        if not set(self._names) <= KINDS.keys():
            raise damaged(path, f"no columns {sorted(set(self._names) - KINDS.keys())} are known")
        self._map: mmap.mmap | None = None
        self._starts: Indices = np.zeros(1, np.int64)

    def read(self, start: int, stop: int) -> dict[str, Column]:
        try:
            rows = _decoder(self._names).decode_lines(self._lines(start, stop))
            columns = {name: column_of(list(map(attrgetter(name), rows)), KINDS[name]) for name in self._names}
        except OSError as error:
            raise damaged(self._path, error.strerror or str(error)) from None
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise damaged(self._path, f"in rows {start} to {stop}, {error}") from None
        if len(rows) != stop - start:
            raise damaged(self._path, f"{counted(len(rows), 'row')} of {start} to {stop}")
        return columns

    def _lines(self, start: int, stop: int) -> bytes:
        if start == stop:
            return b""
        if self._map is None:
            self._map, self._starts = self._mapped()
        return self._map[int(self._starts[start]) : int(self._starts[stop])]

    def _mapped(self) -> tuple[mmap.mmap, Indices]:
        with open_plain(self._path) as stream:
            if not os.fstat(stream.fileno()).st_size:
                raise damaged(self._path, "it is empty")
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        starts = row_starts(content)
        if len(starts) - 1 != self._num_rows or int(starts[-1]) != len(content):
            raise damaged(self._path, f"{counted(len(starts) - 1, 'whole line')} for {counted(self._num_rows, 'row')}")
        return content, starts


@cache
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    fields = [(name, TYPES[KINDS[name]]) for name in names]
    return msgspec.json.Decoder(msgspec.defstruct("Row", fields, forbid_unknown_fields=True, gc=False))
