"""Compute the expected windows of a file from its row in files.jsonl and the settings (checks `windows` and `fresh`).

Example: a span of 1,000 tokens, cut into windows of 510 with an overlap of 256, has full windows at 0 and 254, and a
last window from 508 to the end.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from gristmill.checks.file_rows import KeptFile
from gristmill.checks.runs import END, FIRST_LINE, FRESH, LAST_LINE, START, Run, Table
from gristmill.config.settings import WindowConfig
from gristmill.core.errors import DatasetError
from gristmill.core.names import counted
from gristmill.core.records import Cut, Split

# The seed determines which windows of a file are drawn. The settings limit how often a file may be repeated.

MASK_64 = (1 << 64) - 1


def draw_window_indices(num_windows: int, num_drawn: int, seed: int, key: tuple[str, str]) -> list[int]:
    """Return the indices of the `num_drawn` windows with the smallest pseudo-random values, in ascending order."""
    seed_text = "\0".join((str(seed), *key)).encode()
    state = int.from_bytes(hashlib.blake2b(seed_text, digest_size=8).digest(), "little")
    random_values = [_mix(state + (index + 1) * 0x9E3779B97F4A7C15) for index in range(num_windows)]
    return sorted(sorted(range(num_windows), key=lambda index: (random_values[index], index))[:num_drawn])


def _mix(number: int) -> int:
    """Apply the finalizer of SplitMix64."""
    number &= MASK_64
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK_64
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK_64
    return number ^ number >> 31


def find_repeat_faults(file: KeptFile, max_epochs: int) -> Iterator[str]:
    """Yield a fault if a held-out file is repeated or weighted, or if a train file is used more often than allowed."""
    passes, num_drawn = file.draw or (1, 0)
    times = passes + (num_drawn > 0)
    if file.split is not Split.TRAIN and times > 1:
        yield f"the file is held out, but used {times} times"
    elif times > max_epochs:
        yield f"the file is used {counted(times, 'time')}, but max_epochs is {max_epochs}"
    if file.split is not Split.TRAIN and file.weight != 1:
        yield f"the file is held out, but has a weight of {file.weight:g}"


MIN_SPAN_TOKENS = 32
"""Minimum number of tokens in a span that remains after cuts. Shorter spans have no windows."""

MAX_WINDOWS = 1 << 20
MAX_RANGES_LISTED = 3

Range = tuple[int, int]


class Draw(NamedTuple):
    """Number of windows drawn from a file, with the seed and file key that determine which windows are drawn."""

    num_windows: int
    seed: int
    key: tuple[str, str]


class Shape(NamedTuple):
    """Window settings that determine the positions of windows."""

    num_content: int
    """Maximum number of tokens in a window, without special tokens."""
    stride: int
    tail: str
    min_fresh: int

    @classmethod
    def of(cls, config: WindowConfig, num_special: int) -> "Shape":
        num_content = config.length - num_special
        if num_content <= config.num_overlap_tokens:
            raise DatasetError(
                f"the manifest is damaged: a window of {config.length} ids, with {counted(num_special, 'special id')}, "
                f"is too short for an overlap of {config.overlap}. Build the dataset again."
            )
        return cls(num_content, num_content - config.num_overlap_tokens, config.tail, config.min_fresh)


ONE_WINDOW = Shape(1 << 60, 1 << 60, "keep", 1)
"""Shape with which each span becomes one window."""


class _SpanWindows(NamedTuple):
    """Windows of one span: full windows, one per stride, and a last window if --tail keeps it."""

    start: int
    num_regular: int
    last: Range | None
    num_tail_tokens_dropped: int

    def windows_within(self, limits: Range, shape: Shape) -> Iterator[Range]:
        """Yield the windows that are completely inside a range."""
        begin, end = limits
        index = max(0, -((self.start - begin) // shape.stride))
        while index < self.num_regular and self.start + index * shape.stride + shape.num_content <= end:
            start = self.start + index * shape.stride
            yield start, start + shape.num_content
            index += 1
        if self.last is not None and begin <= self.last[0] and self.last[1] <= end:
            yield self.last


class ExpectedWindows(NamedTuple):
    """Expected windows of a file."""

    spans: list[tuple[Range, _SpanWindows]]
    """Pairs of a range between cuts and a series of windows. Only windows completely inside the range are expected."""
    shape: Shape
    num_tail_tokens_dropped: int
    omitted_indices: frozenset[int] = frozenset()
    """Indices of windows that are not expected, because the build left them out."""

    def windows(self, max_windows: int) -> list[Range]:
        """Return at most `max_windows` windows. A damaged files.jsonl may describe any number of windows."""
        candidates = (window for limits, one in self.spans for window in one.windows_within(limits, self.shape))
        kept = (window for index, window in enumerate(candidates) if index not in self.omitted_indices)
        return list(islice(kept, max_windows))


def expected_windows(num_tokens: int, cuts: Sequence[Cut], shape: Shape, *, drops_touched: bool) -> ExpectedWindows:
    """Compute the windows of a file.

    With `drops_touched`, the complete file is cut into windows, and windows that overlap a cut are dropped.
    """
    edges = [0, *(edge for cut in cuts for edge in (cut.start, cut.end)), num_tokens]
    gaps = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
    if drops_touched or not cuts:
        complete = _cut_span((0, num_tokens), shape)
        return ExpectedWindows([(gap, complete) for gap in gaps], shape, complete.num_tail_tokens_dropped)
    spans = [(gap, _cut_span(gap, shape)) for gap in gaps if gap[1] - gap[0] >= MIN_SPAN_TOKENS]
    return ExpectedWindows(spans, shape, sum(one.num_tail_tokens_dropped for _, one in spans))


def _cut_span(span: Range, shape: Shape) -> _SpanWindows:
    start, end = span
    num_regular = max(0, -((shape.num_content - (end - start)) // shape.stride))
    if not num_regular:
        return _SpanWindows(start, 0, (start, end), 0)
    covered_until = start + (num_regular - 1) * shape.stride + shape.num_content
    if shape.tail == "drop" and end - covered_until < shape.min_fresh:
        return _SpanWindows(start, num_regular, None, end - covered_until)
    last_start = end - shape.num_content if shape.tail == "shift" else start + num_regular * shape.stride
    return _SpanWindows(start, num_regular, (last_start, end), 0)


def find_position_fault(windows: Table, expected: ExpectedWindows) -> tuple[int, str] | None:
    """Return (index, message) for the first window in the wrong position, or None."""
    found = windows[:, [START, END]]
    positions = expected.windows(len(found) + 1)
    if len(found) == len(positions) and (found == np.array(positions, np.int64).reshape(-1, 2)).all():
        return None
    for index, (start, end) in enumerate(found.tolist()):
        if end - start > expected.shape.num_content:
            return (
                index,
                f"the window has {counted(end - start, 'token')}, expected at most {expected.shape.num_content}",
            )
        if index == len(positions):
            return index, f"unexpected window with tokens {start} to {end}, after the last expected window"
        if (start, end) != positions[index]:
            return (
                index,
                f"the window has tokens {start} to {end}, expected {positions[index][0]} to {positions[index][1]}",
            )
    return len(found) - 1, f"the rows contain only {counted(len(found), 'window')}, but more are expected"


def find_draw_fault(windows: Table, expected: ExpectedWindows, draw: Draw) -> tuple[int, str] | None:
    """Return (index, message) if the windows differ from those that the seed draws, or None."""
    if len(windows) != draw.num_windows:
        return 0, f"{counted(len(windows), 'window')} drawn, expected {draw.num_windows}"
    all_windows = expected.windows(MAX_WINDOWS)
    if len(all_windows) == MAX_WINDOWS:  # files.jsonl is damaged
        return 0, f"the recorded tokens and cuts would give {MAX_WINDOWS:,} or more windows"
    drawn_indices = draw_window_indices(len(all_windows), draw.num_windows, draw.seed, draw.key)
    for index, (window, drawn_index) in enumerate(zip(windows[:, [START, END]].tolist(), drawn_indices, strict=False)):
        if tuple(window) != all_windows[drawn_index]:
            start, end = all_windows[drawn_index]
            return index, f"the window has tokens {window[0]} to {window[1]}, but the seed draws {start} to {end}"
    return None


def find_span_fault(run: Run, num_tokens: int, cuts: Sequence[Cut]) -> tuple[int, str] | None:
    """Return (0, message) if the windows do not contain each token between the cuts exactly once, or None."""
    expected = [one.last for _, one in expected_windows(num_tokens, cuts, ONE_WINDOW, drops_touched=False).spans]
    found = [(one.start, one.end) for one in run.spans]
    sizes = (run.windows[:, END] - run.windows[:, START]).sum()
    if found == expected and sizes == sum(end - start for start, end in found):
        return None
    expected_text, found_text = (
        ", ".join(f"{one[0]} to {one[1]}" for one in ranges[:MAX_RANGES_LISTED] if one is not None) or "none"
        for ranges in (expected, found)
    )
    count = counted(int(sizes), "token")
    return 0, f"expected the tokens {expected_text}, each in one window, but found {count} in the ranges {found_text}"


def find_line_fault(windows: Table, num_lines: int) -> tuple[int, str] | None:
    """Return (index, message) for the first window whose lines are out of range or out of order, or None."""
    first, last = windows[:, FIRST_LINE], windows[:, LAST_LINE]
    is_wrong = (first < 1) | (first > last) | (last > num_lines)
    is_wrong[1:] |= (first[1:] < first[:-1]) | (last[1:] < last[:-1])
    if not is_wrong.any():
        return None
    index = int(is_wrong.argmax())
    lines = f"lines {first[index]} to {last[index]} of {num_lines}"
    return index, f"{lines} are out of range, or before the lines of the previous window"


def find_fresh_fault(windows: Table, *, is_repeat: bool) -> tuple[int, str] | None:
    """Return (index, message) for the first window with a wrong `fresh`, or None.

    `fresh` is the number of tokens that no earlier window of the file contains.
    If `is_repeat` is True, the windows repeat earlier windows, so none of their tokens is fresh.
    """
    starts, ends = windows[:, START], windows[:, END]
    covered_until = np.concatenate(([0], np.maximum.accumulate(ends)[:-1]))
    fresh = np.maximum(ends - np.maximum(starts, covered_until), 0) * (not is_repeat)
    is_wrong = fresh != windows[:, FRESH]
    if not is_wrong.any():
        return None
    index = int(is_wrong.argmax())
    return index, f"fresh is {windows[index, FRESH]}, expected {fresh[index]}"
