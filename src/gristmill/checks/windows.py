"""Where a file's windows must lie, from its row in files.jsonl and the settings alone (`windows`, `fresh`).

A stretch of 1,000 tokens, 510 a window, overlap 256: regular windows at 0 and 254, and the last, from 508 to the end.
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

# Which windows of a file are drawn, by the seed alone; and how often a file may be shown.

BITS = (1 << 64) - 1


def drawn_numbers(num_windows: int, num_drawn: int, seed: int, key: tuple[str, str]) -> list[int]:
    """Those with the smallest numbers, in order."""
    named = "\0".join((str(seed), *key)).encode()
    state = int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little")
    numbers = [_mixed(state + (number + 1) * 0x9E3779B97F4A7C15) for number in range(num_windows)]
    return sorted(sorted(range(num_windows), key=lambda number: (numbers[number], number))[:num_drawn])


def _mixed(number: int) -> int:
    number &= BITS
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & BITS
    number = (number ^ number >> 27) * 0x94D049BB133111EB & BITS
    return number ^ number >> 31


def wrong_shares(file: KeptFile, max_epochs: int) -> Iterator[str]:
    """Held-out files are never shown twice, train files no more often than the settings say."""
    passes, num_drawn = file.draw or (1, 0)
    times = passes + (num_drawn > 0)
    if file.split is not Split.TRAIN and times > 1:
        yield f"held out, and shown {times} times"
    elif times > max_epochs:
        yield f"shown {counted(times, 'time')}, where max_epochs is {max_epochs}"
    if file.split is not Split.TRAIN and file.weight != 1:
        yield f"held out, with a weight of {file.weight:g}"


MIN_STRETCH_TOKENS = 32
"""What is left between two cuts is shown only if it is as long."""

MOST_WINDOWS = 1 << 20

Range = tuple[int, int]


class Drawn(NamedTuple):
    """Of a file's windows, so many by this seed."""

    num_windows: int
    seed: int
    key: tuple[str, str]


class Shape(NamedTuple):
    num_content: int
    stride: int
    tail: str
    min_fresh: int

    @classmethod
    def of(cls, config: WindowConfig, num_special: int) -> "Shape":
        num_content = config.length - num_special
        if num_content <= config.num_shared:
            raise DatasetError(
                f"the manifest is damaged: no window of {config.length} with {counted(num_special, 'special token')} "
                f"overlaps the next by {config.overlap}."
            )
        return cls(num_content, num_content - config.num_shared, config.tail, config.min_fresh)


WHOLE = Shape(1 << 60, 1 << 60, "keep", 1)
"""Each stretch is one window."""


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


class Expected(NamedTuple):
    """Where a file's windows lie: in each of these ranges, those of a stretch that are inside it."""

    laid: list[tuple[Range, _Laid]]
    shape: Shape
    num_tail_tokens_dropped: int
    left_out: frozenset[int] = frozenset()
    """By number."""

    def windows(self, at_most: int) -> list[Range]:
        """No more than that: what a damaged table says is not laid out."""
        every = (window for within, one in self.laid for window in one.inside(within, self.shape))
        shown = (window for number, window in enumerate(every) if number not in self.left_out)
        return list(islice(shown, at_most))


def expected_windows(num_tokens: int, cuts: Sequence[Cut], shape: Shape, *, drops_touched: bool) -> Expected:
    """With `drops_touched` the windows of the whole file, less those that a cut reaches into."""
    edges = [0, *(edge for cut in cuts for edge in (cut.start, cut.end)), num_tokens]
    gaps = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
    if drops_touched or not cuts:
        whole = _lay((0, num_tokens), shape)
        return Expected([(gap, whole) for gap in gaps], shape, whole.num_tail_tokens_dropped)
    laid = [(gap, _lay(gap, shape)) for gap in gaps if gap[1] - gap[0] >= MIN_STRETCH_TOKENS]
    return Expected(laid, shape, sum(one.num_tail_tokens_dropped for _, one in laid))


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


def first_difference(windows: Table, expected: Expected) -> tuple[int, str] | None:
    """The first window that is not where it must be: its index and what is wrong."""
    found = windows[:, [START, END]]
    places = expected.windows(len(found) + 1)
    if len(found) == len(places) and (found == np.array(places, np.int64).reshape(-1, 2)).all():
        return None
    for index, (start, end) in enumerate(found.tolist()):
        if end - start > expected.shape.num_content:
            return index, f"{counted(end - start, 'token')}, and {expected.shape.num_content} at most"
        if index == len(places):
            return index, f"tokens {start} to {end}, after the last that there should be"
        if (start, end) != places[index]:
            return index, f"tokens {start} to {end}, not {places[index][0]} to {places[index][1]}"
    return len(found) - 1, f"the last of {len(found)}, and there should be more"


def wrong_draw(windows: Table, expected: Expected, drawn: Drawn) -> tuple[int, str] | None:
    """The same where only some of them were drawn."""
    if len(windows) != drawn.num_windows:
        return 0, f"{counted(len(windows), 'window')} drawn, and {drawn.num_windows} should be"
    natural = expected.windows(MOST_WINDOWS)
    if len(natural) == MOST_WINDOWS:  # of a damaged table: it is not laid out
        return 0, f"a file of {MOST_WINDOWS:,} windows"
    numbers = drawn_numbers(len(natural), drawn.num_windows, drawn.seed, drawn.key)
    for index, (window, number) in enumerate(zip(windows[:, [START, END]].tolist(), numbers, strict=False)):
        if tuple(window) != natural[number]:
            return (
                index,
                f"tokens {window[0]} to {window[1]}, where {natural[number][0]} to {natural[number][1]} is drawn",
            )
    return None


def wrong_stretches(run: Run, num_tokens: int, cuts: Sequence[Cut]) -> tuple[int, str] | None:
    """Of a file that is cut anywhere: what lies between its cuts is shown, all of it and once."""
    wanted = [one.last for _, one in expected_windows(num_tokens, cuts, WHOLE, drops_touched=False).laid]
    found = [(one.start, one.end) for one in run.stretches]
    sizes = (run.windows[:, END] - run.windows[:, START]).sum()
    if found == wanted and sizes == sum(end - start for start, end in found):
        return None
    return 0, f"tokens {found[:3]} are shown, each once, and {wanted[:3]} should be"


def wrong_lines(windows: Table, num_lines: int) -> tuple[int, str] | None:
    first, last = windows[:, FIRST_LINE], windows[:, LAST_LINE]
    is_wrong = (first < 1) | (first > last) | (last > num_lines)
    is_wrong[1:] |= (first[1:] < first[:-1]) | (last[1:] < last[:-1])
    if not is_wrong.any():
        return None
    index = int(is_wrong.argmax())
    return index, f"lines {first[index]} to {last[index]} of {num_lines}, or before those of the window before"


def wrong_fresh(windows: Table, *, is_again: bool) -> tuple[int, str] | None:
    """`is_again`: the file has been shown before."""
    starts, ends = windows[:, START], windows[:, END]
    shown_until = np.concatenate(([0], np.maximum.accumulate(ends)[:-1]))
    fresh = np.maximum(ends - np.maximum(starts, shown_until), 0) * (not is_again)
    is_wrong = fresh != windows[:, FRESH]
    if not is_wrong.any():
        return None
    index = int(is_wrong.argmax())
    return index, f"fresh is {windows[index, FRESH]}, but {fresh[index]} of its tokens are"
