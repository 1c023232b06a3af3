"""Indents by another unit: the levels are kept, and so is what a line stands in beyond them.

Python's blocks are their indents, so every line of a block has to come out at the same column: those at which blocks
begin are known from the tree and are always levels. All else is only looks.
"""

import re
from bisect import bisect_right
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from gristmill.shaping.variants.grammars import Parsed, captures
from gristmill.shaping.variants.laying_out.page_lines import FREE, FROZEN, Lines

TAB = b"\t"
UNITS = (b"  ", b"    ", b"        ", TAB)
WIDTHS = (2, 3, 4, 8)
"""Of a level, in blanks, as people have it."""
MOST_LEVELS_AT_ONCE = 2
"""A line further in than this is aligned with something above it."""
SHARE_ON_LEVELS = 0.5
"""Of the indented lines: with fewer, there is no unit to speak of."""

BLANKS = b" \t"
COLUMN_RESET = re.compile(rb"(?m)^[ \t]*\f[\f]*[ \t]+\S")
"""After a form feed Python counts from the first column."""


class Indents(NamedTuple):
    unit: bytes
    """What a level is: a tab, or blanks."""
    prefixes: list[bytes | None]
    """What each line is indented by. None: it is blank, or may not change."""
    levels_at: frozenset[int]
    """Columns that are levels whatever stands above."""


def prefixes_of(lines: Lines) -> list[bytes | None]:
    return [
        None if kind == FROZEN or not text.strip() else text[: len(text) - len(text.lstrip(BLANKS))]
        for text, kind in zip(lines.texts, lines.kinds, strict=True)
    ]


def is_mixed(prefixes: list[bytes | None]) -> bool:
    """Tabs in some lines and blanks in others, or both in one."""
    seen = {*filter(None, prefixes)}
    return any(TAB in prefix for prefix in seen) and any(b" " in prefix for prefix in seen)


def indents_of(parsed: Parsed, lines: Lines, prefixes: list[bytes | None]) -> Indents | None:
    """None: there are none, or no unit to be found in them."""
    if parsed.language == "python":
        return _of_blocks(parsed, lines, prefixes)
    free = [prefix for prefix, kind in zip(prefixes, lines.kinds, strict=True) if prefix is not None and kind == FREE]
    unit = _tab(free) if any(prefix.startswith(TAB) for prefix in free) else _blanks([*map(len, free)])
    return Indents(unit, prefixes, frozenset()) if unit else None


def indent_again(lines: Lines, indents: Indents, unit: bytes) -> Lines:
    texts: list[bytes] = []
    base = 0
    for text, kind, prefix in zip(lines.texts, lines.kinds, indents.prefixes, strict=True):
        if prefix is None:
            texts.append(text)
            continue
        levels, rest = _levels(indents, prefix, base)
        texts.append(unit * levels + rest + text[len(prefix) :])
        if kind == FREE and not rest:
            base = levels
    return Lines(texts, lines.kinds)


def _levels(indents: Indents, prefix: bytes, base: int) -> tuple[int, bytes]:
    """And the blanks beyond them; base is the level of the last line that stood on one."""
    if indents.unit == TAB:
        rest = prefix.lstrip(TAB)
        return len(prefix) - len(rest), rest
    levels, beyond = divmod(len(prefix), len(indents.unit))
    if len(prefix) in indents.levels_at or levels < base or (not beyond and levels <= base + MOST_LEVELS_AT_ONCE):
        return levels, b" " * beyond
    return base, b" " * (len(prefix) - base * len(indents.unit))


def _of_blocks(parsed: Parsed, lines: Lines, prefixes: list[bytes | None]) -> Indents | None:
    columns = _block_columns(parsed, lines, prefixes)
    if not columns or COLUMN_RESET.search(parsed.text):
        return None
    if any(TAB in prefix for prefix in prefixes if prefix):
        return Indents(TAB, prefixes, columns)
    width = min(columns)
    return None if any(column % width for column in columns) else Indents(b" " * width, prefixes, columns)


def _block_columns(parsed: Parsed, lines: Lines, prefixes: list[bytes | None]) -> frozenset[int]:
    """Of those that begin on a line of their own."""
    starts = lines.starts()
    columns: set[int] = set()
    for node in captures(parsed, "(block) @block").get("block", ()):
        row = bisect_right(starts, node.start_byte) - 1
        prefix = prefixes[row]
        if prefix and len(prefix) == node.start_byte - starts[row]:
            columns.add(len(prefix))
    return frozenset(columns)


def _tab(prefixes: list[bytes]) -> bytes | None:
    """Blanks behind tabs align; one before them, or a line indented by blanks alone, is another unit."""
    is_odd = any(prefix.startswith(b"  ") or b" \t" in prefix for prefix in prefixes)
    return None if is_odd else TAB


def _blanks(widths: list[int]) -> bytes | None:
    steps = Counter(deeper - width for width, deeper in pairwise(widths) if deeper > width)
    unit = max(WIDTHS, key=lambda width: steps[width])
    indented = [width for width in widths if width]
    on_levels = sum(not width % unit for width in indented)
    return b" " * unit if steps[unit] and on_levels >= SHARE_ON_LEVELS * len(indented) else None
