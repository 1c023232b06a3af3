"""Where a file's windows must lie, from its row in files.jsonl and the settings alone (`windows`, `fresh`).

A stretch of 1,000 tokens, 510 a window, overlap 256: regular windows at 0 and 254, and the last, from 508 to the end.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gristmill.checking.runs import END, FIRST_LINE, FRESH, LAST_LINE, START, Table
from gristmill.config import WindowConfig
from gristmill.errors import DatasetError
from gristmill.records import Cut

MIN_STRETCH_TOKENS = 32
"""What is left between two cuts is shown only if it is as long."""

Range = tuple[int, int]


class Shape(NamedTuple):
    num_content: int
    stride: int
    tail: str
    min_fresh: int

    @classmethod
    def of(cls, config: WindowConfig, num_special: int) -> "Shape":
        num_content = config.length - num_special
        if num_content <= config.overlap:
            raise DatasetError(
                f"the manifest is damaged: no window of {config.length} with {num_special} special tokens overlaps the "
                f"next by {config.overlap}."
            )
        return cls(num_content, num_content - config.overlap, config.tail, config.min_fresh)


class Expected(NamedTuple):
    windows: list[Range]
    num_tail_tokens_dropped: int


class _Laid(NamedTuple):
    """A stretch: so many full windows, each a stride after the other, and the last, if it is not dropped."""

    start: int
    num_regular: int
    last: Range | None
    num_tail_tokens_dropped: int

    def inside(self, within: Range, shape: Shape) -> Iterator[Range]:
        """Those that lie wholly in this range."""
        begin, end = within
        number = max(0, -((self.start - begin) // shape.stride))
        while number < self.num_regular and self.start + number * shape.stride + shape.num_content <= end:
            start = self.start + number * shape.stride
            yield start, start + shape.num_content
            number += 1
        if self.last is not None and begin <= self.last[0] and self.last[1] <= end:
            yield self.last


def expected_windows(num_tokens: int, cuts: Sequence[Cut], shape: Shape, *, drops_touched: bool) -> Expected:
    """With `drops_touched` the windows of the whole file, less those that a cut reaches into."""
    edges = [0, *(edge for cut in cuts for edge in (cut.start, cut.end)), num_tokens]
    gaps = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
    if drops_touched or not cuts:
        whole = _lay((0, num_tokens), shape)
        windows = [window for gap in gaps for window in whole.inside(gap, shape)]
        return Expected(windows, whole.num_tail_tokens_dropped)
    laid = [(gap, _lay(gap, shape)) for gap in gaps if gap[1] - gap[0] >= MIN_STRETCH_TOKENS]
    windows = [window for gap, one in laid for window in one.inside(gap, shape)]
    return Expected(windows, sum(one.num_tail_tokens_dropped for _, one in laid))


def _lay(stretch: Range, shape: Shape) -> _Laid:
    start, end = stretch
    num_regular = max(0, -((shape.num_content - (end - start)) // shape.stride))
    if not num_regular:
        return _Laid(start, 0, (start, end), 0)
    shown_until = start + (num_regular - 1) * shape.stride + shape.num_content
    if shape.tail == "drop" and end - shown_until < shape.min_fresh:
        return _Laid(start, num_regular, None, end - shown_until)
    last_start = end - shape.num_content if shape.tail == "shift" else start + num_regular * shape.stride
    return _Laid(start, num_regular, (last_start, end), 0)


def most_tokens(num_windows: int, cuts: Sequence[Cut], shape: Shape) -> int:
    """A file of more tokens has more windows, whatever its cuts: what a damaged table says is not laid out."""
    left_out = 2 * shape.num_content + MIN_STRETCH_TOKENS + shape.min_fresh
    return num_windows * shape.num_content + sum(cut.end - cut.start for cut in cuts) + (len(cuts) + 1) * left_out


def first_difference(windows: Table, expected: Sequence[Range], shape: Shape) -> tuple[int, str] | None:
    """The first window that is not where it must be: its index and what is wrong."""
    found = windows[:, [START, END]]
    if len(found) == len(expected) and (found == np.array(expected, np.int64).reshape(-1, 2)).all():
        return None
    for index, (start, end) in enumerate(found.tolist()):
        if end - start > shape.num_content:
            return index, f"{end - start} tokens, and {shape.num_content} at most"
        if index == len(expected):
            return index, f"tokens {start} to {end}, after the last that there should be"
        if (start, end) != expected[index]:
            return index, f"tokens {start} to {end}, not {expected[index][0]} to {expected[index][1]}"
    return len(found) - 1, f"the last of {len(found)}, and there should be {len(expected)}"


def wrong_lines(windows: Table, num_lines: int) -> tuple[int, str] | None:
    first, last = windows[:, FIRST_LINE], windows[:, LAST_LINE]
    is_wrong = (first < 1) | (first > last) | (last > num_lines)
    is_wrong[1:] |= (first[1:] < first[:-1]) | (last[1:] < last[:-1])
    if not is_wrong.any():
        return None
    index = int(is_wrong.argmax())
    return index, f"lines {first[index]} to {last[index]} of {num_lines}, or before those of the window before"


def wrong_fresh(windows: Table) -> tuple[int, str] | None:
    starts, ends = windows[:, START], windows[:, END]
    shown_until = np.concatenate(([0], np.maximum.accumulate(ends)[:-1]))
    fresh = np.maximum(ends - np.maximum(starts, shown_until), 0)
    is_wrong = fresh != windows[:, FRESH]
    if not is_wrong.any():
        return None
    index = int(is_wrong.argmax())
    return index, f"fresh is {windows[index, FRESH]}, but {fresh[index]} of its tokens are"
