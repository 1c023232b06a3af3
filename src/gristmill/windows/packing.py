"""Windows of different lengths -> rows of one length, with as little left empty as can be.

Best fit, largest first: each window goes into the fullest row that still has room for it. Never more than 11/9 of the
fewest rows possible, and one (Johnson 1973); with the many short files of a code base hardly anything is left empty.
"""

from collections.abc import Sequence

import numpy as np

from gristmill.windows.cut import Indices


def best_fit(sizes: Sequence[int] | Indices, room: int) -> list[list[int]]:
    """Windows by number, row by row. Rows and what is in them go by number: the same windows, the same rows."""
    all_sizes = np.asarray(sizes, np.int64)
    if len(all_sizes) and not 1 <= int(all_sizes.min()) <= int(all_sizes.max()) <= room:
        raise ValueError(f"windows of {all_sizes.min()} to {all_sizes.max()} for rows of {room}")
    rows: list[list[int]] = []
    open_rows: dict[int, list[int]] = {}
    """By the room that is left in them."""
    rooms = 0
    """One bit for each room that some row has left: so the smallest that is enough is found at once."""
    order = np.argsort(-all_sizes, kind="stable")
    for window, size in zip(order.tolist(), all_sizes[order].tolist(), strict=True):
        enough = rooms >> size
        if enough:
            left = size + (enough & -enough).bit_length() - 1
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
