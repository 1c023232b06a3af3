"""A file's ids -> windows: length, overlap and tail, by slicing the ids of the whole file.

510 content tokens a window (512 less two special ones), overlap 256, a file of 1,000 tokens, tail keep:

start   0 ├────────── 510 ──────────┤              fresh 510
start 254       ├────────── 510 ──────────┤        fresh 254
start 508             ├──────── 492 ────────┤      fresh 236
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.config.settings import WindowConfig
from gristmill.core.errors import ConfigError
from gristmill.core.names import counted
from gristmill.core.records import NO_LIMIT, Range

Indices = npt.NDArray[np.int64]

MIN_STRETCH_TOKENS = 32
NO_INDICES = np.zeros(0, np.int64)


class WindowShape(NamedTuple):
    """A WindowConfig for a tokenizer with so many special tokens."""

    num_content: int
    overlap: int
    tail: str
    min_fresh: int

    @classmethod
    def of(cls, config: WindowConfig, num_special: int) -> "WindowShape":
        """Raise ConfigError if no window has such a shape."""
        num_content = config.length - num_special
        if num_content < 1:
            raise ConfigError(
                f"window.length must be larger than the {counted(num_special, 'special token')} in each window, "
                f"got {config.length}. Try --window 512."
            )
        overlap = config.num_shared
        if overlap >= num_content:
            raise ConfigError(
                f"window.overlap must be smaller than window.length - {num_special} ({num_content}), "
                f"got {overlap}. Try --overlap {num_content // 2}."
            )
        return cls(num_content, overlap, config.tail, config.min_fresh)


WHOLE = WindowShape(NO_LIMIT, 0, "keep", 1)
"""A document, or what lies between two cuts of it, is one window."""


class Windows(NamedTuple):
    """Half-open ranges of token indices, and how many of each window's tokens no earlier one has shown."""

    starts: Indices
    ends: Indices
    fresh: Indices
    num_tail_tokens_dropped: int

    def __len__(self) -> int:
        return len(self.starts)

    def picked(self, numbers: Indices) -> "Windows":
        return Windows(self.starts[numbers], self.ends[numbers], self.fresh[numbers], 0)


class ManyWindows(NamedTuple):
    """The windows of several documents, one document behind the other; positions count from the document's start."""

    counts: Indices
    """Windows of each document."""
    windows: Windows
    num_tail_tokens_dropped: Indices
    """Of each document."""


def cut_all(num_tokens: Indices, shape: WindowShape) -> ManyWindows:
    """At least one window for each document; together they show every token, but for a dropped tail."""
    stride = shape.num_content - shape.overlap
    counts = np.maximum(1, -((shape.overlap - num_tokens) // stride))
    lasts = np.cumsum(counts) - 1
    numbers = counted_up(counts)
    starts = numbers * stride
    ends = np.minimum(starts + shape.num_content, np.repeat(num_tokens, counts))
    # All windows but the last are full, so the one before ends an overlap behind this one's start.
    fresh = ends - np.where(numbers, starts + shape.overlap, 0)
    tails = np.zeros(len(counts), np.int64)
    if shape.tail == "shift":
        is_shifted = counts > 1
        starts[lasts[is_shifted]] = num_tokens[is_shifted] - shape.num_content
    if shape.tail == "drop":
        is_dropped = (counts > 1) & (fresh[lasts] < shape.min_fresh)
        tails[is_dropped] = fresh[lasts[is_dropped]]
        starts, ends, fresh = (np.delete(column, lasts[is_dropped]) for column in (starts, ends, fresh))
        counts = counts - is_dropped
    return ManyWindows(counts, Windows(starts, ends, fresh, int(tails.sum())), tails)


def counted_up(counts: Indices) -> Indices:
    """`[3, 1, 2]` -> 0 1 2 0 0 1"""
    numbers: Indices = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers


def cut(num_tokens: int, shape: WindowShape) -> Windows:
    return cut_all(np.array([num_tokens]), shape).windows


def cut_without(num_tokens: int, ranges: Sequence[Range], shape: WindowShape) -> Windows:
    """Windows of what lies between these ranges, in stretches of 32 tokens and more."""
    stretches = np.array(stretches_of(num_tokens, ranges), np.int64).reshape(-1, 2)
    counts, windows, _ = cut_all(stretches[:, 1] - stretches[:, 0], shape)
    first = np.repeat(stretches[:, 0], counts)
    return Windows(windows.starts + first, windows.ends + first, windows.fresh, windows.num_tail_tokens_dropped)


def stretches_of(num_tokens: int, ranges: Sequence[Range]) -> list[Range]:
    """What lies between these ranges, and is long enough to be of use."""
    if not ranges:
        return [(0, num_tokens)]
    edges = zip((0, *(end for _, end in ranges)), (*(start for start, _ in ranges), num_tokens), strict=True)
    return [(start, end) for start, end in edges if end - start >= MIN_STRETCH_TOKENS]


def without_touched(windows: Windows, ranges: Sequence[Range]) -> Windows:
    """The windows that none of these ranges reaches into."""
    is_clean = np.ones(len(windows), np.bool_)
    for start, end in ranges:
        is_clean &= (windows.ends <= start) | (windows.starts >= end)
    return without(windows, np.flatnonzero(~is_clean))


def without(windows: Windows, numbers: Sequence[int] | Indices) -> Windows:
    gone = np.asarray(numbers, np.int64)
    starts, ends = np.delete(windows.starts, gone), np.delete(windows.ends, gone)
    shown = np.concatenate(([0], ends[:-1]))
    return Windows(starts, ends, ends - np.maximum(starts, shown), windows.num_tail_tokens_dropped)


def joined_windows(parts: Sequence[Windows]) -> Windows:
    return Windows(
        starts=np.concatenate([NO_INDICES, *(part.starts for part in parts)]),
        ends=np.concatenate([NO_INDICES, *(part.ends for part in parts)]),
        fresh=np.concatenate([NO_INDICES, *(part.fresh for part in parts)]),
        num_tail_tokens_dropped=sum(part.num_tail_tokens_dropped for part in parts),
    )


def lines_between(starts: Any, ends: Any, newline_tokens: npt.NDArray[np.int32]) -> tuple[Any, Any]:
    """The lines, counted from 1, on which the first and last token of each range begin; or of one range."""
    first = 1 + np.searchsorted(newline_tokens, starts, "left")
    last = 1 + np.searchsorted(newline_tokens, ends - 1, "left")
    return first, last
