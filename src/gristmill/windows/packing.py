"""Pack windows of different lengths into rows of one length, with little empty space.

The method is best-fit decreasing: the largest windows come first, and each window goes into the fullest row that still
has room for it. The number of rows is at most 11/9 of the minimum, plus a small constant (Johnson 1973). A code base
has many short files, so hardly any space stays empty.
"""

from collections.abc import Sequence

import numpy as np

from gristmill.windows.cut import Indices


def best_fit(sizes: Sequence[int] | Indices, room: int) -> list[list[int]]:
    """Return the ascending indices of the windows in each row. Rows are ordered by their first window."""
    all_sizes = np.asarray(sizes, np.int64)
    if len(all_sizes) and not 1 <= int(all_sizes.min()) <= int(all_sizes.max()) <= room:
        raise ValueError(f"windows of {all_sizes.min()} to {all_sizes.max()} ids do not fit into rows of {room}")
    rows: list[list[int]] = []
    open_rows: dict[int, list[int]] = {}
    """Indices of rows that are not full, keyed by the room left in the row."""
    rooms = 0
    """One bit for each key of `open_rows`, so that the smallest sufficient room is found in one step."""
    order = np.argsort(-all_sizes, kind="stable")
    for window, size in zip(order.tolist(), all_sizes[order].tolist(), strict=True):
        sufficient_rooms = rooms >> size
        if sufficient_rooms:
            room_left = size + (sufficient_rooms & -sufficient_rooms).bit_length() - 1
            row = open_rows[room_left].pop()
            if not open_rows[room_left]:
                rooms ^= 1 << room_left
            rows[row].append(window)
        else:
            room_left, row = room, len(rows)
            rows.append([window])
        room_left -= size
        if room_left:
            open_rows.setdefault(room_left, []).append(row)
            rooms |= 1 << room_left
    return sorted(sorted(row) for row in rows)
