"""`format`: the same program with another indent, other quotes and other blank lines.

Levels of indent are kept, and so is what a line stands in beyond them. Python's blocks are their indents, so every line
of a block has to come out at the same column: those at which blocks begin are known from the tree and are always
levels. All else is only looks.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple, TypeVar

from gristmill.core.seeded_random import Dice
from gristmill.variants.edits import (
    COMMENTS,
    HAS_CONTINUATIONS,
    HAS_PREPROCESSOR,
    STRINGS,
    Span,
    long_tokens,
    may_be_rewritten,
)
from gristmill.variants.grammars import Parsed, captures

# The lines of a text, and which of them begin inside a token.

FREE, IN_COMMENT, FROZEN = range(3)
"""What may change of a line: all of its blanks, its indent, nothing."""

RUST_DOCUMENTATION = (b"/**", b"/*!")
"""To Rust an attribute, whose value is every byte of it."""


class Lines(NamedTuple):
    texts: list[bytes]
    """Without line feeds, with carriage returns."""
    kinds: bytearray
    """One of FREE, IN_COMMENT, FROZEN for each."""

    def starts(self) -> list[int]:
        """Of each line in the text, and the end."""
        return [0, *accumulate(len(text) + 1 for text in self.texts)]

    def with_text(self, text: bytes) -> "Lines":
        """One with as many bytes in as many lines."""
        return Lines(text.split(b"\n"), self.kinds)


def lines_of(parsed: Parsed) -> Lines:
    texts = parsed.text.split(b"\n")
    kinds = bytearray(len(texts))
    lines = Lines(texts, kinds)
    starts = lines.starts()
    for span in long_tokens(parsed, COMMENTS[parsed.language]):
        is_documentation = parsed.language == "rust" and parsed.text.startswith(RUST_DOCUMENTATION, span.start)
        _mark(kinds, starts, span, FROZEN if is_documentation else IN_COMMENT)
    for span in long_tokens(parsed, STRINGS[parsed.language]):
        _mark(kinds, starts, span, FROZEN)
    if parsed.language in HAS_CONTINUATIONS:
        _mark_continuations(texts, kinds, FROZEN if parsed.language in HAS_PREPROCESSOR else IN_COMMENT)
    return lines


def _mark(kinds: bytearray, starts: list[int], span: Span, kind: int) -> None:
    """The lines that begin inside: the last byte of a span may be its line feed."""
    first, last = bisect_right(starts, span.start), bisect_right(starts, span.end - 1)
    kinds[first:last] = bytes([kind]) * (last - first)


def _mark_continuations(texts: list[bytes], kinds: bytearray, kind: int) -> None:
    for row, text in enumerate(texts[:-1], start=1):
        if b"\\" in text[-3:] and text.rstrip().endswith(b"\\"):
            kinds[row] = max(kind, kinds[row])


# Fewer blank lines, or more: never none where there was one, nor one where there was none.

CLOSING = (b"}", b")", b"]")
BLANK_STARTS = (b" ", b"\t")


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
    return run.start > 0 and following.strip() != b"" and not following.startswith(BLANK_STARTS + CLOSING)


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


# 'x' for "x" and the other way round, in the languages where both mean the same.

QUOTES = (b"'", b'"')

_SCRIPT = "(string) @string"
QUERIES = {
    "python": "(string) @string",
    "typescript": _SCRIPT,
    **dict.fromkeys(("javascript", "jsx", "tsx"), f"{_SCRIPT} (jsx_attribute) @attribute"),
}

SIMPLE = re.compile(rb"""[A-Za-z]{0,2}(['"])[^'"\\\r\n]*\1""")


def find_quotes(parsed: Parsed) -> dict[bytes, list[int]]:
    """By the quote that could come there: the places of the others."""
    places: dict[bytes, list[int]] = {quote: [] for quote in QUOTES}
    if parsed.language not in QUERIES:
        return places
    text, reach = parsed.text, 0
    found = captures(parsed, QUERIES[parsed.language])
    ends_of_attributes = {node.end_byte for node in found.get("attribute", ())}  # quoted as in HTML
    for start, end in sorted((node.start_byte, node.end_byte) for node in found.get("string", ())):
        if start >= reach and end not in ends_of_attributes and not _touches_another(text, start, end):
            match = SIMPLE.fullmatch(text, start, end)
            if match:
                places[b"'" if match[1] == b'"' else b'"'] += (match.start(1), end - 1)
        reach = max(reach, end)
    return places


def quote_again(text: bytes, places: list[int], quote: bytes) -> bytes:
    changed = bytearray(text)
    for place in places:
        changed[place] = quote[0]
    return bytes(changed)


def _touches_another(text: bytes, start: int, end: int) -> bool:
    return text[start - 1 : start] in QUOTES or text[end : end + 1] in QUOTES


# The same tokens in another layout: deeper or flatter indents, the other quotes, more or fewer blank lines.

Choice = TypeVar("Choice")


class Layout(NamedTuple):
    unit: bytes | None
    quote: bytes | None
    spacing: Spacing | None


def lay_out_again(parsed: Parsed, dice: Dice) -> bytes | None:
    """None: the grammar does not understand all of the text, Python's indents are mixed, or nothing can change."""
    if parsed.tree.root_node.has_error or not may_be_rewritten(parsed):
        return None
    places = find_quotes(parsed)
    lines = lines_of(parsed)
    prefixes = prefixes_of(lines)
    if parsed.language == "python" and is_mixed(prefixes):
        return None
    indents = indents_of(parsed, lines, prefixes)
    units = [unit for unit in UNITS if unit != indents.unit] if indents else []
    layout = _drawn(units, [quote for quote in places if places[quote]], possible_spacings(lines), dice)
    if layout.quote:
        lines = lines.with_text(quote_again(parsed.text, places[layout.quote], layout.quote))
    if layout.unit and indents:
        lines = indent_again(lines, indents, layout.unit)
    texts = space_again(lines, layout.spacing) if layout.spacing else lines.texts
    return b"\n".join(texts) if any(layout) else None


def _drawn(units: list[bytes], quotes: list[bytes], spacings: list[Spacing], dice: Dice) -> Layout:
    """Something changes if anything can: where the dice leave all as it is, the first that can has to."""
    drawn = Layout(_one_or_none(units, dice), _one_or_none(quotes, dice), _one_or_none(spacings, dice))
    if any(drawn):
        return drawn
    if units:
        return drawn._replace(unit=dice.one_of(units))
    if quotes:
        return drawn._replace(quote=dice.one_of(quotes))
    return drawn._replace(spacing=dice.one_of(spacings)) if spacings else drawn


def _one_or_none(choices: Sequence[Choice], dice: Dice) -> Choice | None:
    return dice.one_of([None, *choices])
