"""Cut a file into windows by length, overlap and tail. Windows are slices of the ids of the complete file.

Example: a file of 1,000 tokens, 510 content tokens per window (512 minus two special tokens), overlap 256, tail keep:

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
from gristmill.core.records import NO_LIMIT, Range

Indices = npt.NDArray[np.int64]

MIN_SPAN_TOKENS = 32
NO_INDICES = np.zeros(0, np.int64)


class WindowShape(NamedTuple):
    """Sizes of windows, from a WindowConfig and the number of special tokens that a tokenizer adds."""

    num_content: int
    """Maximum number of tokens in a window, without special tokens."""
    overlap: int
    tail: str
    min_fresh: int

    @classmethod
    def of(cls, config: WindowConfig, num_special: int) -> "WindowShape":
        """Return the shape. Raise ConfigError if the special tokens or the overlap leave no room for content."""
        num_content = config.length - num_special
        if num_content < 1:
            raise ConfigError(
                f"window.length must be larger than the number of special tokens in each window ({num_special}), got "
                f"{config.length}. Try --window 512."
            )
        overlap = config.num_overlap_tokens
        if overlap >= num_content:
            raise ConfigError(
                f"window.overlap must be smaller than window.length - {num_special} ({num_content}), "
                f"got {overlap}. Try --overlap {num_content // 2}."
            )
        return cls(num_content, overlap, config.tail, config.min_fresh)


WHOLE_DOCUMENT = WindowShape(NO_LIMIT, 0, "keep", 1)
"""Shape for rows of documents: a document, or the text between two cuts, is one window."""


class Windows(NamedTuple):
    """Windows of a document, as half-open ranges of token indices."""

    starts: Indices
    ends: Indices
    fresh: Indices
    """Number of tokens in each window that are in no earlier window."""
    num_tail_tokens_dropped: int

    def __len__(self) -> int:
        return len(self.starts)

    def select(self, indices: Indices) -> "Windows":
        """Return the windows with these indices."""
        return Windows(self.starts[indices], self.ends[indices], self.fresh[indices], 0)


class ManyWindows(NamedTuple):
    """Windows of several documents, one document after another. Token indices start from 0 in each document."""

    counts: Indices
    """Number of windows of each document."""
    windows: Windows
    num_tail_tokens_dropped: Indices
    """Number of tail tokens dropped from each document."""


def cut_all(num_tokens: Indices, shape: WindowShape) -> ManyWindows:
    """Cut each document into one or more windows. They contain every token, except the tokens of dropped tails."""
    stride = shape.num_content - shape.overlap
    counts = np.maximum(1, -((shape.overlap - num_tokens) // stride))
    lasts = np.cumsum(counts) - 1
    indices = positions_in_groups(counts)
    starts = indices * stride
    ends = np.minimum(starts + shape.num_content, np.repeat(num_tokens, counts))
    # All windows but the last are full, so the previous window ends `overlap` tokens after the start of this one.
    fresh = ends - np.where(indices, starts + shape.overlap, 0)
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


def positions_in_groups(counts: Indices) -> Indices:
    """Return the position, from 0, of each item in its group: group sizes `[3, 1, 2]` -> 0 1 2 0 0 1."""
    positions: Indices = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return positions


def cut(num_tokens: int, shape: WindowShape) -> Windows:
    """Cut one document into windows."""
    return cut_all(np.array([num_tokens]), shape).windows


def cut_outside(num_tokens: int, ranges: Sequence[Range], shape: WindowShape) -> Windows:
    """Cut the parts of a document outside these ranges into windows. Parts of fewer than 32 tokens are left out."""
    spans = np.array(uncut_spans(num_tokens, ranges), np.int64).reshape(-1, 2)
    counts, windows, _ = cut_all(spans[:, 1] - spans[:, 0], shape)
    first = np.repeat(spans[:, 0], counts)
    return Windows(windows.starts + first, windows.ends + first, windows.fresh, windows.num_tail_tokens_dropped)


def uncut_spans(num_tokens: int, ranges: Sequence[Range]) -> list[Range]:
    """Return the spans of 32 or more tokens outside these ranges, or the complete document if there are no ranges."""
    if not ranges:
        return [(0, num_tokens)]
    edges = zip((0, *(end for _, end in ranges)), (*(start for start, _ in ranges), num_tokens), strict=True)
    return [(start, end) for start, end in edges if end - start >= MIN_SPAN_TOKENS]


def drop_touched_windows(windows: Windows, ranges: Sequence[Range]) -> Windows:
    """Return the windows that contain no token of these ranges."""
    is_clean = np.ones(len(windows), np.bool_)
    for start, end in ranges:
        is_clean &= (windows.ends <= start) | (windows.starts >= end)
    return drop_windows(windows, np.flatnonzero(~is_clean))


def drop_windows(windows: Windows, indices: Sequence[int] | Indices) -> Windows:
    """Return all windows but those with these indices, with updated numbers of fresh tokens."""
    indices = np.asarray(indices, np.int64)
    starts, ends = np.delete(windows.starts, indices), np.delete(windows.ends, indices)
    earlier_ends = np.concatenate(([0], ends[:-1]))
    return Windows(starts, ends, ends - np.maximum(starts, earlier_ends), windows.num_tail_tokens_dropped)


def concatenate_windows(parts: Sequence[Windows]) -> Windows:
    """Concatenate several Windows into one."""
    return Windows(
        starts=np.concatenate([NO_INDICES, *(part.starts for part in parts)]),
        ends=np.concatenate([NO_INDICES, *(part.ends for part in parts)]),
        fresh=np.concatenate([NO_INDICES, *(part.fresh for part in parts)]),
        num_tail_tokens_dropped=sum(part.num_tail_tokens_dropped for part in parts),
    )


def lines_between(starts: Any, ends: Any, newline_tokens: npt.NDArray[np.int32]) -> tuple[Any, Any]:
    """Return the lines, counted from 1, on which the first and last token of a range begin.

    `starts` and `ends` are arrays or single numbers.
    """
    first = 1 + np.searchsorted(newline_tokens, starts, "left")
    last = 1 + np.searchsorted(newline_tokens, ends - 1, "left")
    return first, last
