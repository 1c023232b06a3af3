"""What the card could not do, done by the CPU and put into its place."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizing.tokenizer import Ids

Offsets = npt.NDArray[np.int64]


class Spliced(NamedTuple):
    ids: Ids
    offsets: Offsets


def splice(ids: Ids, offsets: Offsets, missing: Sequence[int], encode: Callable[[int], Ids]) -> Spliced:
    """Pieces by number -> with the ids of the missing ones, whatever there was in their place.

    ids a a x b, offsets 0 2 3 4, missing [1] -> a a y y b, offsets 0 2 4 5
    """
    if not len(missing):
        return Spliced(ids, offsets)
    parts, counts, done = list[Ids](), np.diff(offsets), 0
    for number in missing:
        found = encode(number).astype(ids.dtype)
        counts[number] = len(found)
        parts += [ids[offsets[done] : offsets[number]], found]
        done = number + 1
    parts.append(ids[offsets[done] :])
    return Spliced(np.concatenate(parts), np.concatenate(([0], np.cumsum(counts))))
