"""A file's ids -> windows: length, overlap and tail, by slicing the ids of the whole file.

510 content tokens a window (512 less two special ones), overlap 256, a file of 1,000 tokens, tail keep:

start   0 ├────────── 510 ──────────┤              fresh 510
start 254       ├────────── 510 ──────────┤        fresh 254
start 508             ├──────── 492 ────────┤      fresh 236
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.config import WindowConfig
from gristmill.errors import ConfigError

Indices = npt.NDArray[np.int64]


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
                f"window.length must be larger than the {num_special} special tokens in each window, "
                f"got {config.length}. Try --window 512."
            )
        if config.overlap >= num_content:
            raise ConfigError(
                f"window.overlap must be smaller than window.length - {num_special} ({num_content}), "
                f"got {config.overlap}. Try --overlap {num_content // 2}."
            )
        return cls(num_content, config.overlap, config.tail, config.min_fresh)


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


def lines_of(windows: Windows, newline_tokens: npt.NDArray[np.int32]) -> tuple[Indices, Indices]:
    """The lines, counted from 1, on which each window's first and last token begin."""
    first = 1 + np.searchsorted(newline_tokens, windows.starts, "left")
    last = 1 + np.searchsorted(newline_tokens, windows.ends - 1, "left")
    return first, last
