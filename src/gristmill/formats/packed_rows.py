"""Packed rows, which hold windows of several files, and the columns that describe these windows.

{"input_ids": [0, …, 2, 0, …, 2], "segment_ids": [1, …, 1, 2, …, 2], "position_ids": [0, 1, …, 0, 1, …],
 "segments": [{"path": "a.py", …, "start": 0, "fresh": 98, "at": 1, "length": 98}, {"path": "b.py", …}]}

Ids with the same value in `segment_ids` belong together, and attention must not cross to ids with a different value.
`position_ids` count from 0 for each value. An entry of `segments` has the columns that a row has without packing, and
the position of its tokens: `input_ids[at : at + length]`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.columns import COLUMNS, POSITION_IDS, SEGMENT_IDS, SEGMENT_POSITION_KEYS, SEGMENTS, Kind
from gristmill.formats.batch import Ragged, WindowBatch


class PackedPart(NamedTuple):
    """Part of a packed row: the ids of a window, if any, between special ids."""

    segment_id: int
    """Value of `segment_ids` for all ids of the part. The first value in a row is 1."""
    ids_before: tuple[int, ...]
    """Special ids before the window."""
    window: int | None
    """Index of the window in the batch, or None if the part has only special ids."""
    ids_after: tuple[int, ...]
    """Special ids after the window."""


def packed_batch(rows: Sequence[Sequence[PackedPart]], windows: WindowBatch) -> WindowBatch:
    """Build packed rows from a batch of windows without special tokens."""
    window_columns = _window_columns(windows)
    dtype = windows.ids.values.dtype
    pieces: list[npt.NDArray[Any]] = []
    sizes: list[int] = []
    part_segment_ids: list[int] = []
    row_sizes: list[int] = []
    segments: list[list[dict[str, Any]]] = []
    for row in rows:
        at, row_segments = 0, []
        for part in row:
            ids = windows.ids[part.window] if part.window is not None else _NO_IDS
            at += len(part.ids_before)
            if part.window is not None:
                row_segments.append(
                    {**window_columns[part.window], **dict(zip(SEGMENT_POSITION_KEYS, (at, len(ids)), strict=True))}
                )
            pieces += (np.array(part.ids_before, dtype), ids.astype(dtype, copy=False), np.array(part.ids_after, dtype))
            at += len(ids) + len(part.ids_after)
            sizes.append(len(part.ids_before) + len(ids) + len(part.ids_after))
            part_segment_ids.append(part.segment_id)
        segments.append(row_segments)
        row_sizes.append(at)
    offsets = np.cumsum([0, *row_sizes])
    segment_ids = np.repeat(np.array(part_segment_ids, np.int64), sizes)
    columns = {
        SEGMENT_IDS: Ragged(segment_ids, offsets),
        POSITION_IDS: Ragged(_positions(segment_ids, offsets), offsets),
        SEGMENTS: segments,
    }
    return WindowBatch(Ragged(np.concatenate(pieces), offsets), columns)


_NO_IDS = np.zeros(0, np.uint16)


def _positions(segment_ids: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the position of each id, from 0, among the adjacent ids of its row with the same segment id."""
    is_first = np.ones(len(segment_ids), np.bool_)
    is_first[1:] = segment_ids[1:] != segment_ids[:-1]
    is_first[offsets[:-1]] = True
    firsts = np.flatnonzero(is_first)
    return np.arange(len(segment_ids)) - np.repeat(firsts, np.diff(firsts, append=len(segment_ids)))


def _window_columns(windows: WindowBatch) -> list[dict[str, Any]]:
    """Return the column values of each window, without its ids."""
    columns = []
    for name, column in windows.columns.items():
        values = [one.tolist() for one in column.rows()] if COLUMNS[name].kind is Kind.NUMBERS else column
        columns.append(values.tolist() if isinstance(values, np.ndarray) else values)
    return [dict(zip(windows.columns, row, strict=True)) for row in zip(*columns, strict=True)]
