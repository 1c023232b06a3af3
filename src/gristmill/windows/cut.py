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
from gristmill.core.records import Range

Indices = npt.NDArray[np.int64]

MIN_STRETCH_TOKENS = 32


class WindowShape(NamedTuple):
    """A WindowConfig for a tokenizer with so many special tokens."""

    num_content: int
    overlap: int
    tail: str
    min_fresh: int

    @classmethod
    def of(cls, config: WindowConfig, num_special: int) -> "WindowShape":
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


class Windows(NamedTuple):
    """Half-open ranges of token indices, and how many of each window's tokens no earlier one has shown."""

    starts: Indices
    ends: Indices
    fresh: Indices
    num_tail_tokens_dropped: int

    def __len__(self) -> int:
        return len(self.starts)


def cut(num_tokens: int, shape: WindowShape) -> Windows:
    """At least one window; together they show every token, but for a dropped tail."""
    stride = shape.num_content - shape.overlap
    num_windows = max(1, -((shape.overlap - num_tokens) // stride))
    starts = np.arange(num_windows, dtype=np.int64) * stride
    ends = np.minimum(starts + shape.num_content, num_tokens)
    fresh = ends.copy()
    fresh[1:] -= ends[:-1]
    if num_windows > 1 and shape.tail == "shift":
        starts[-1] = num_tokens - shape.num_content
    if num_windows > 1 and shape.tail == "drop" and fresh[-1] < shape.min_fresh:
        return Windows(starts[:-1], ends[:-1], fresh[:-1], int(fresh[-1]))
    return Windows(starts, ends, fresh, 0)


def cut_without(num_tokens: int, ranges: Sequence[Range], shape: WindowShape) -> Windows:
    """Windows of what lies between these ranges, in stretches of 32 tokens and more."""
    parts = [(start, cut(end - start, shape)) for start, end in stretches_of(num_tokens, ranges)]
    return Windows(
        starts=_joined([part.starts + start for start, part in parts]),
        ends=_joined([part.ends + start for start, part in parts]),
        fresh=_joined([part.fresh for _, part in parts]),
        num_tail_tokens_dropped=sum(part.num_tail_tokens_dropped for _, part in parts),
    )


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


def _joined(parts: list[Indices]) -> Indices:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def lines_of(windows: Windows, newline_tokens: npt.NDArray[np.int32]) -> tuple[Indices, Indices]:
    """The lines, counted from 1, on which each window's first and last token begin."""
    return lines_between(windows.starts, windows.ends, newline_tokens)


def lines_between(starts: Any, ends: Any, newline_tokens: npt.NDArray[np.int32]) -> tuple[Any, Any]:
    """The same for ranges of tokens, or for one."""
    first = 1 + np.searchsorted(newline_tokens, starts, "left")
    last = 1 + np.searchsorted(newline_tokens, ends - 1, "left")
    return first, last
