"""Which of many points are drawn: as many as a picture can show, with every peak among them."""

import math
from collections.abc import Sequence


def kept_indexes(columns: Sequence[Sequence[float]], most: int) -> list[int]:
    """Of equally long columns: first and last, and of each stretch the least and greatest in each column.

    A stretch with a gap (NaN) in it keeps that too. `most` is about how many are kept.
    """
    count = len(columns[0])
    if count <= most:
        return list(range(count))
    num_stretches = max(1, (most - 2) // (2 * len(columns)))
    kept = {0, count - 1}
    for number in range(num_stretches):
        stretch = range(count * number // num_stretches, count * (number + 1) // num_stretches)
        whole = [index for index in stretch if not any(math.isnan(column[index]) for column in columns)]
        if len(whole) < len(stretch):
            kept.add(next(index for index in stretch if any(math.isnan(column[index]) for column in columns)))
        for column in columns if whole else ():
            kept |= {min(whole, key=column.__getitem__), max(whole, key=column.__getitem__)}
    return sorted(kept)


def spread_indexes(count: int, most: int, shift: float = 0.0) -> list[int]:
    """Evenly many of so many, the last among them; `shift`, from 0 to 1, moves the others by that much of a stride."""
    if count <= most:
        return list(range(count))
    stride = (count - 1) / most
    return sorted({int(stride * (number + shift)) for number in range(most)} | {count - 1})
