"""Two texts -> their lines side by side: what differs, with a few lines around it."""

import html
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import NamedTuple

from gristmill.reporting.facts import DiffLine

CONTEXT = 3
MOST_LINES = 120
LONGEST_LINE = 400
"""Characters of a line that are shown."""
LEAD = 100
"""Characters before the first that differs, in lines that differ only further on."""
MOST_COMPARED = 1000
"""Lines of each text, from the first that differs: what takes difflib a second is not shown anyway."""

Lines = Sequence[str]
Opcode = tuple[str, int, int, int, int]


class Difference(NamedTuple):
    lines: list[DiffLine]
    num_left_out: int
    """Lines behind them."""


def side_by_side(left: str, right: str, most: int = MOST_LINES) -> Difference:
    old, new = _lines(left), _lines(right)
    opcodes, ends = _opcodes(old, new)
    lines = list(islice(_told(old, new, opcodes), most))
    shown = [max((number or 0) for number in numbers) for numbers in _numbers(lines)]
    if len(lines) < most and ends == (len(old), len(new)):
        return Difference(lines, 0)
    return Difference(lines, max(len(old) - shown[0], len(new) - shown[1]))


def size_of(lines: Sequence[DiffLine]) -> int:
    """About what they take in a page."""
    return sum(len(html.escape(f"{line.left}{line.right}").encode()) + LEAD for line in lines)


def _lines(text: str) -> list[str]:
    """By line feeds alone, as everything here counts lines."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _numbers(lines: Sequence[DiffLine]) -> tuple[list[int | None], list[int | None]]:
    return [0, *(line.left_number for line in lines)], [0, *(line.right_number for line in lines)]


def _opcodes(old: Lines, new: Lines) -> tuple[list[Opcode], tuple[int, int]]:
    """As difflib's, and the lines of both texts up to which they hold."""
    head = _num_same(old, new)
    tail = _num_same(old[head:][::-1], new[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    is_all = max(old_end, new_end) - head <= MOST_COMPARED
    if not is_all:
        old_end, new_end = min(old_end, head + MOST_COMPARED), min(new_end, head + MOST_COMPARED)
    matcher = SequenceMatcher(None, old[head:old_end], new[head:new_end])
    middle = [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in matcher.get_opcodes()]
    if is_all:
        ends = [("equal", old_end, len(old), new_end, len(new))]
        return [("equal", 0, head, 0, head), *middle, *ends], (len(old), len(new))
    # What comes after the last line that both have may well have its like further on.
    last = max((number for number, one in enumerate(middle, 1) if one[0] == "equal"), default=len(middle))
    return [("equal", 0, head, 0, head), *middle[:last]], (middle[last - 1][2], middle[last - 1][4])


def _num_same(old: Lines, new: Lines) -> int:
    pairs = zip(old, new, strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), min(len(old), len(new)))


def _told(old: Lines, new: Lines, opcodes: Sequence[Opcode]) -> Iterator[DiffLine]:
    opcodes = [one for one in opcodes if one[1] < one[2] or one[3] < one[4]]
    for number, (tag, old_start, old_end, new_start, new_end) in enumerate(opcodes):
        if tag == "equal":
            before = CONTEXT if number else 0
            after = CONTEXT if number < len(opcodes) - 1 else 0
            yield from _same(old, (old_start, old_end), new_start - old_start, before, after)
            continue
        num_pairs = min(old_end - old_start, new_end - new_start)
        for at in range(num_pairs):
            yield _changed(old[old_start + at], new[new_start + at], old_start + at + 1, new_start + at + 1)
        for at in range(old_start + num_pairs, old_end):
            yield DiffLine(kind="removed", left=_shortened(old[at]), left_number=at + 1)
        for at in range(new_start + num_pairs, new_end):
            yield DiffLine(kind="added", right=_shortened(new[at]), right_number=at + 1)


def _same(old: Lines, span: tuple[int, int], shift: int, before: int, after: int) -> Iterator[DiffLine]:
    """The first and the last of them, and how many are between."""
    start, end = span
    skipped = range(start + before, end - after)
    for at in range(start, end):
        if len(skipped) > 1 and at in skipped:
            if at == skipped.start:
                yield DiffLine(kind="skipped", num_skipped=len(skipped))
            continue
        text = _shortened(old[at])
        yield DiffLine(kind="same", left=text, right=text, left_number=at + 1, right_number=at + shift + 1)


def _changed(left: str, right: str, left_number: int, right_number: int) -> DiffLine:
    """Of two long lines, from a little before where they differ."""
    same = _num_same(left, right)
    start = same - LEAD if same > LONGEST_LINE - LEAD else 0
    return DiffLine(
        kind="changed",
        left=_shortened(left, start),
        right=_shortened(right, start),
        left_number=left_number,
        right_number=right_number,
    )


def _shortened(text: str, start: int = 0) -> str:
    rest = text[start : start + LONGEST_LINE]
    return f"{'…' if start else ''}{rest}{'…' if len(text) > start + LONGEST_LINE else ''}"
