"""Compute the expected windows of a file from its row in files.jsonl and the settings (checks `windows` and `fresh`).

Example: a span of 1,000 tokens, cut into windows of 510 with an overlap of 256, has regular windows at 0 and 254, and a
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


def draw_numbers(num_windows: int, num_drawn: int, seed: int, key: tuple[str, str]) -> list[int]:
    """Return the numbers of the drawn windows in order: those with the smallest pseudo-random values."""
    seed_text = "\0".join((str(seed), *key)).encode()
    state = int.from_bytes(hashlib.blake2b(seed_text, digest_size=8).digest(), "little")
    numbers = [_mix(state + (number + 1) * 0x9E3779B97F4A7C15) for number in range(num_windows)]
    return sorted(sorted(range(num_windows), key=lambda number: (numbers[number], number))[:num_drawn])


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
        yield f"held out, but used {times} times"
    elif times > max_epochs:
        yield f"used {counted(times, 'time')}, but max_epochs is {max_epochs}"
    if file.split is not Split.TRAIN and file.weight != 1:
        yield f"held out, but has a weight of {file.weight:g}"


MIN_SPAN_TOKENS = 32
"""Minimum length of a span between two cuts. Shorter spans have no windows."""

MAX_WINDOWS = 1 << 20

Range = tuple[int, int]


class Draw(NamedTuple):
    """Drawn windows of a file: their number and the seed that selects them."""

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
                f"the manifest is damaged: a window of {config.length} with {counted(num_special, 'special token')} "
                f"is too short for an overlap of {config.overlap}."
            )
        return cls(num_content, num_content - config.num_overlap_tokens, config.tail, config.min_fresh)


ONE_WINDOW = Shape(1 << 60, 1 << 60, "keep", 1)
"""Shape in which each span is one window."""


class _SpanWindows(NamedTuple):
    """Windows of one span: full windows at each stride, and a last window unless it is dropped."""

    start: int
    num_regular: int
    last: Range | None
    num_tail_tokens_dropped: int

    def within(self, limits: Range, shape: Shape) -> Iterator[Range]:
        """Yield the windows that are completely inside a range."""
        begin, end = limits
        number = max(0, -((self.start - begin) // shape.stride))
        while number < self.num_regular and self.start + number * shape.stride + shape.num_content <= end:
            start = self.start + number * shape.stride
            yield start, start + shape.num_content
            number += 1
        if self.last is not None and begin <= self.last[0] and self.last[1] <= end:
            yield self.last


class Expected(NamedTuple):
    """Expected windows of a file."""

    spans: list[tuple[Range, _SpanWindows]]
    """Each range between cuts, with a series of windows. Only windows completely inside the range count."""
    shape: Shape
    num_tail_tokens_dropped: int
    omitted: frozenset[int] = frozenset()
    """Numbers of windows that are omitted."""

    def windows(self, max_windows: int) -> list[Range]:
        """Return the first windows. The limit matters for a damaged table, which may describe any number of windows."""
        candidates = (window for limits, one in self.spans for window in one.within(limits, self.shape))
        kept = (window for number, window in enumerate(candidates) if number not in self.omitted)
        return list(islice(kept, max_windows))


def expected_windows(num_tokens: int, cuts: Sequence[Cut], shape: Shape, *, drops_touched: bool) -> Expected:
    """Compute the windows of a file.

    With `drops_touched`, these are the windows of the complete file without those that overlap a cut.
    """
    edges = [0, *(edge for cut in cuts for edge in (cut.start, cut.end)), num_tokens]
    gaps = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
    if drops_touched or not cuts:
        complete = _cut_span((0, num_tokens), shape)
        return Expected([(gap, complete) for gap in gaps], shape, complete.num_tail_tokens_dropped)
    spans = [(gap, _cut_span(gap, shape)) for gap in gaps if gap[1] - gap[0] >= MIN_SPAN_TOKENS]
    return Expected(spans, shape, sum(one.num_tail_tokens_dropped for _, one in spans))


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


def find_position_fault(windows: Table, expected: Expected) -> tuple[int, str] | None:
    """Return the index of the first window at a wrong position and a fault message, or None."""
    found = windows[:, [START, END]]
    positions = expected.windows(len(found) + 1)
    if len(found) == len(positions) and (found == np.array(positions, np.int64).reshape(-1, 2)).all():
        return None
    for index, (start, end) in enumerate(found.tolist()):
        if end - start > expected.shape.num_content:
            return index, f"{counted(end - start, 'token')}, at most {expected.shape.num_content} allowed"
        if index == len(positions):
            return index, f"tokens {start} to {end}, after the last expected window"
        if (start, end) != positions[index]:
            return index, f"tokens {start} to {end}, expected {positions[index][0]} to {positions[index][1]}"
    return len(found) - 1, f"the last of {counted(len(found), 'window')}, but more are expected"


def find_draw_fault(windows: Table, expected: Expected, draw: Draw) -> tuple[int, str] | None:
    """Return the index of the first window that should not have been drawn and a fault message, or None."""
    if len(windows) != draw.num_windows:
        return 0, f"{counted(len(windows), 'window')} drawn, expected {draw.num_windows}"
    all_windows = expected.windows(MAX_WINDOWS)
    if len(all_windows) == MAX_WINDOWS:  # the table is damaged
        return 0, f"the file has {MAX_WINDOWS:,} or more windows"
    numbers = draw_numbers(len(all_windows), draw.num_windows, draw.seed, draw.key)
    for index, (window, number) in enumerate(zip(windows[:, [START, END]].tolist(), numbers, strict=False)):
        if tuple(window) != all_windows[number]:
            start, end = all_windows[number]
            return index, f"tokens {window[0]} to {window[1]}, but the seed draws {start} to {end}"
    return None


def find_span_fault(run: Run, num_tokens: int, cuts: Sequence[Cut]) -> tuple[int, str] | None:
    """Return a fault unless the windows, cut at any token, have all tokens between the cuts of a file exactly once."""
    expected = [one.last for _, one in expected_windows(num_tokens, cuts, ONE_WINDOW, drops_touched=False).spans]
    found = [(one.start, one.end) for one in run.spans]
    sizes = (run.windows[:, END] - run.windows[:, START]).sum()
    if found == expected and sizes == sum(end - start for start, end in found):
        return None
    return 0, f"spans are {found[:3]}, expected {expected[:3]} with each token once"


def find_line_fault(windows: Table, num_lines: int) -> tuple[int, str] | None:
    """Return the index of the first window whose lines are out of range or order and a fault message, or None."""
    first, last = windows[:, FIRST_LINE], windows[:, LAST_LINE]
    is_wrong = (first < 1) | (first > last) | (last > num_lines)
    is_wrong[1:] |= (first[1:] < first[:-1]) | (last[1:] < last[:-1])
    if not is_wrong.any():
        return None
    index = int(is_wrong.argmax())
    lines = f"lines {first[index]} to {last[index]} of {num_lines}"
    return index, f"{lines} are out of range, or before those of the previous window"


def find_fresh_fault(windows: Table, *, is_repeat: bool) -> tuple[int, str] | None:
    """Return the index of the first window with a wrong `fresh` and a fault message, or None.

    `is_repeat` is True if the windows repeat earlier ones, so that none of their tokens is fresh.
    """
    starts, ends = windows[:, START], windows[:, END]
    covered_until = np.concatenate(([0], np.maximum.accumulate(ends)[:-1]))
    fresh = np.maximum(ends - np.maximum(starts, covered_until), 0) * (not is_repeat)
    is_wrong = fresh != windows[:, FRESH]
    if not is_wrong.any():
        return None
    index = int(is_wrong.argmax())
    return index, f"fresh is {windows[index, FRESH]}, expected {fresh[index]}"
