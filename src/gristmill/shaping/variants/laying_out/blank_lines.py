"""Fewer blank lines, or more: never none where there was one, nor one where there was none."""

from collections.abc import Iterator
from enum import Enum
from itertools import groupby

from gristmill.shaping.variants.laying_out.page_lines import FREE, Lines

CLOSING = (b"}", b")", b"]")
BLANKS = (b" ", b"\t")


class Spacing(Enum):
    TIGHT = "tight"
    """One blank line wherever there were several."""
    WIDE = "wide"
    """One more before what begins in the first column."""


def possible_spacings(lines: Lines) -> list[Spacing]:
    runs = [*_runs(lines)]
    is_looser = any(len(run) > 1 for run in runs)
    is_wider = any(_is_before_definition(lines, run) for run in runs)
    return [spacing for spacing, may_be in ((Spacing.TIGHT, is_looser), (Spacing.WIDE, is_wider)) if may_be]


def space_again(lines: Lines, spacing: Spacing) -> list[bytes]:
    texts: list[bytes] = []
    done = 0
    for run in _runs(lines):
        texts += lines.texts[done : run.start + 1]
        done = run.start + 1 if spacing is Spacing.WIDE else run.stop
        if spacing is Spacing.WIDE and _is_before_definition(lines, run):
            texts.append(lines.texts[run.start])
    return texts + lines.texts[done:]


def _runs(lines: Lines) -> Iterator[range]:
    """Of blank lines; what follows the last line feed is no line."""
    is_blank = [
        kind == FREE and not text.strip(b" \t\r") for text, kind in zip(lines.texts[:-1], lines.kinds, strict=False)
    ]
    row = 0
    for blank, group in groupby(is_blank):
        start, row = row, row + sum(1 for _ in group)
        if blank:
            yield range(start, row)


def _is_before_definition(lines: Lines, run: range) -> bool:
    following = lines.texts[run.stop]
    return run.start > 0 and following.strip() != b"" and not following.startswith(BLANKS + CLOSING)
