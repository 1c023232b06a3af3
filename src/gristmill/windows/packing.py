"""Pack windows of different lengths into rows of one length, with little empty space.

The method is best-fit decreasing: each window, largest first, goes into the fullest row that still has room for it. The
number of rows is at most 11/9 of the minimum plus one (Johnson 1973). With the many short files of a code base, hardly
any space is left empty.
"""

from collections.abc import Sequence

import numpy as np

from gristmill.windows.cut import Indices


def best_fit(sizes: Sequence[int] | Indices, room: int) -> list[list[int]]:
    """Return the numbers of the windows in each row. Equal sizes give equal rows, because both are sorted by number."""
    all_sizes = np.asarray(sizes, np.int64)
    if len(all_sizes) and not 1 <= int(all_sizes.min()) <= int(all_sizes.max()) <= room:
        raise ValueError(f"windows of {all_sizes.min()} to {all_sizes.max()} ids do not fit into rows of {room}")
    rows: list[list[int]] = []
    open_rows: dict[int, list[int]] = {}
    """Rows that are not full, keyed by the room left in them."""
    rooms = 0
    """One bit for each key of `open_rows`, to find the smallest sufficient room in one step."""
    order = np.argsort(-all_sizes, kind="stable")
    for window, size in zip(order.tolist(), all_sizes[order].tolist(), strict=True):
        sufficient_rooms = rooms >> size
        if sufficient_rooms:
            left = size + (sufficient_rooms & -sufficient_rooms).bit_length() - 1
            row = open_rows[left].pop()
            if not open_rows[left]:
                rooms ^= 1 << left
            rows[row].append(window)
        else:
            left, row = room, len(rows)
            rows.append([window])
        left -= size
        if left:
            open_rows.setdefault(left, []).append(row)
            rooms |= 1 << left
    return sorted(sorted(row) for row in rows)
