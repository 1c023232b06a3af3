"""Rows of several files' windows: what each tells of the windows in it, and where among its ids each is.

{"input_ids": [0, …, 2, 0, …, 2], "segment_ids": [1, …, 1, 2, …, 2], "position_ids": [0, 1, …, 0, 1, …],
 "segments": [{"path": "a.py", …, "start": 0, "fresh": 98, "at": 1, "length": 98}, {"path": "b.py", …}]}

`segment_ids` say which ids belong together: attention must not go from one to another. Positions begin anew with each.
A segment tells what a row tells without packing, and where its tokens are: `input_ids[at : at + length]`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.columns import COLUMNS, POSITION_IDS, SEGMENT_IDS, SEGMENT_PLACE, SEGMENTS, Kind
from gristmill.formats.batch import Ragged, WindowBatch


class Placed(NamedTuple):
    """Ids of a row: those of a window, or none, with special ones before and after."""

    group: int
    """Which ids of the row belong together: from 1."""
    before: tuple[int, ...]
    window: int | None
    """By its number among the windows of the batch."""
    after: tuple[int, ...]


def packed(rows: Sequence[Sequence[Placed]], windows: WindowBatch) -> WindowBatch:
    """`windows`: the content of each, without special tokens."""
    told = _told(windows)
    kind = windows.ids.values.dtype
    pieces: list[npt.NDArray[Any]] = []
    sizes: list[int] = []
    groups: list[int] = []
    row_sizes: list[int] = []
    segments: list[list[dict[str, Any]]] = []
    for row in rows:
        at, own = 0, []
        for place in row:
            ids = windows.ids[place.window] if place.window is not None else _NOTHING
            at += len(place.before)
            if place.window is not None:
                own.append({**told[place.window], **dict(zip(SEGMENT_PLACE, (at, len(ids)), strict=True))})
            pieces += (np.array(place.before, kind), ids.astype(kind, copy=False), np.array(place.after, kind))
            at += len(ids) + len(place.after)
            sizes.append(len(place.before) + len(ids) + len(place.after))
            groups.append(place.group)
        segments.append(own)
        row_sizes.append(at)
    offsets = np.cumsum([0, *row_sizes])
    segment_ids = np.repeat(np.array(groups, np.int64), sizes)
    columns = {
        SEGMENT_IDS: Ragged(segment_ids, offsets),
        POSITION_IDS: Ragged(_positions(segment_ids, offsets), offsets),
        SEGMENTS: segments,
    }
    return WindowBatch(Ragged(np.concatenate(pieces), offsets), columns)


_NOTHING = np.zeros(0, np.uint16)


def _positions(segment_ids: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """From 0 in each group of each row."""
    is_first = np.ones(len(segment_ids), np.bool_)
    is_first[1:] = segment_ids[1:] != segment_ids[:-1]
    is_first[offsets[:-1]] = True
    firsts = np.flatnonzero(is_first)
    return np.arange(len(segment_ids)) - np.repeat(firsts, np.diff(firsts, append=len(segment_ids)))


def _told(windows: WindowBatch) -> list[dict[str, Any]]:
    """Of each window, all but its ids."""
    columns = []
    for name, column in windows.columns.items():
        values = [one.tolist() for one in column.rows()] if COLUMNS[name].kind is Kind.NUMBERS else column
        columns.append(values.tolist() if isinstance(values, np.ndarray) else values)
    return [dict(zip(windows.columns, row, strict=True)) for row in zip(*columns, strict=True)]
