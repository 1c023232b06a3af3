"""`format`: change the indent, the quotes and the blank lines of a program, but not its meaning.

A line keeps its indent level, and any further spaces, which align the line. In Python, indents define the
blocks, so all lines of a block must begin at the same column. The columns at which blocks begin are read from the
syntax tree and always count as levels. In other languages, indents have no meaning.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple, TypeVar

from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.edits import (
    COMMENT_QUERIES,
    LANGUAGES_WITH_CONTINUATIONS,
    LANGUAGES_WITH_PREPROCESSOR,
    STRING_QUERIES,
    Span,
    find_multiline_tokens,
    is_safe_to_rewrite,
)
from gristmill.variants.grammars import Parsed, captures

# Lines of a text, and the changes that are allowed in each line.

FREE, INDENT_ONLY, FROZEN = range(3)
"""Whitespace of a line that may change: all whitespace, only the indent, or none."""

RUST_DOCUMENTATION = (b"/**", b"/*!")
"""Beginnings of Rust's documentation comments. Every byte of such a comment is part of the documentation."""


class Lines(NamedTuple):
    """Lines of a text, and the changes that are allowed in each line."""

    texts: list[bytes]
    """Lines without their line feeds, but with carriage returns."""
    kinds: bytearray
    """FREE, INDENT_ONLY or FROZEN for each line."""

    def starts(self) -> list[int]:
        """Return the offset of each line, followed by the length of the text plus 1."""
        return [0, *accumulate(len(text) + 1 for text in self.texts)]

    def with_text(self, text: bytes) -> "Lines":
        """Return the lines of a changed text whose line ends have the same offsets."""
        return Lines(text.split(b"\n"), self.kinds)


def split_lines(parsed: Parsed) -> Lines:
    texts = parsed.text.split(b"\n")
    kinds = bytearray(len(texts))
    lines = Lines(texts, kinds)
    starts = lines.starts()
    for span in find_multiline_tokens(parsed, COMMENT_QUERIES[parsed.language]):
        is_documentation = parsed.language == "rust" and parsed.text.startswith(RUST_DOCUMENTATION, span.start)
        _mark_span(kinds, starts, span, FROZEN if is_documentation else INDENT_ONLY)
    for span in find_multiline_tokens(parsed, STRING_QUERIES[parsed.language]):
        _mark_span(kinds, starts, span, FROZEN)
    if parsed.language in LANGUAGES_WITH_CONTINUATIONS:
        _mark_continuations(texts, kinds, FROZEN if parsed.language in LANGUAGES_WITH_PREPROCESSOR else INDENT_ONLY)
    return lines


def _mark_span(kinds: bytearray, starts: list[int], span: Span, kind: int) -> None:
    """Mark the lines that begin inside a span. A span that ends in a line feed does not include the next line."""
    first, last = bisect_right(starts, span.start), bisect_right(starts, span.end - 1)
    kinds[first:last] = bytes([kind]) * (last - first)


def _mark_continuations(texts: list[bytes], kinds: bytearray, kind: int) -> None:
    for row, text in enumerate(texts[:-1], start=1):
        if b"\\" in text[-3:] and text.rstrip().endswith(b"\\"):
            kinds[row] = max(kind, kinds[row])


# Blank lines. The length of a run of blank lines changes, but no run appears or disappears.

CLOSING = (b"}", b")", b"]")
INDENT_STARTS = (b" ", b"\t")


class Spacing(Enum):
    TIGHT = "tight"
    """Each run of blank lines becomes one blank line."""
    WIDE = "wide"
    """Each run of blank lines before an unindented line gets one more blank line."""


def possible_spacings(lines: Lines) -> list[Spacing]:
    runs = [*_blank_runs(lines)]
    can_tighten = any(len(run) > 1 for run in runs)
    can_widen = any(_is_before_definition(lines, run) for run in runs)
    return [
        spacing for spacing, is_possible in ((Spacing.TIGHT, can_tighten), (Spacing.WIDE, can_widen)) if is_possible
    ]


def apply_spacing(lines: Lines, spacing: Spacing) -> list[bytes]:
    texts: list[bytes] = []
    copied_until = 0
    for run in _blank_runs(lines):
        texts += lines.texts[copied_until : run.start + 1]
        copied_until = run.start + 1 if spacing is Spacing.WIDE else run.stop
        if spacing is Spacing.WIDE and _is_before_definition(lines, run):
            texts.append(lines.texts[run.start])
    return texts + lines.texts[copied_until:]


def _blank_runs(lines: Lines) -> Iterator[range]:
    """Yield the line numbers of each run of blank lines. The empty text after the last line feed is not a line."""
    is_blank = [
        kind == FREE and not text.strip(b" \t\r") for text, kind in zip(lines.texts[:-1], lines.kinds, strict=False)
    ]
    row = 0
    for blank, group in groupby(is_blank):
        start, row = row, row + sum(1 for _ in group)
        if blank:
            yield range(start, row)


def _is_before_definition(lines: Lines, run: range) -> bool:
    next_line = lines.texts[run.stop]
    return run.start > 0 and next_line.strip() != b"" and not next_line.startswith(INDENT_STARTS + CLOSING)


TAB = b"\t"
INDENT_UNITS = (b"  ", b"    ", b"        ", TAB)
UNIT_WIDTHS = (2, 3, 4, 8)
"""Common widths of an indent level, in spaces."""
MAX_LEVEL_STEP = 2
"""Maximum step in levels from one line to the next. A line with a larger step is aligned with text above it."""
MIN_SHARE_ON_LEVELS = 0.5
"""Minimum share of indented lines that are on a level. If the share is smaller, the text has no consistent unit."""

SPACES_AND_TABS = b" \t"
FORM_FEED_INDENT = re.compile(rb"(?m)^[ \t]*\f[\f]*[ \t]+\S")
"""Form feed before an indent. After a form feed, Python counts columns from 0 again."""


class Indents(NamedTuple):
    unit: bytes
    """Indent of one level: a tab or spaces."""
    prefixes: list[bytes | None]
    """Indent of each line. None if the line is blank or must not change."""
    level_columns: frozenset[int]
    """Columns that are always levels, regardless of the lines above."""


def find_prefixes(lines: Lines) -> list[bytes | None]:
    return [
        None if kind == FROZEN or not text.strip() else text[: len(text) - len(text.lstrip(SPACES_AND_TABS))]
        for text, kind in zip(lines.texts, lines.kinds, strict=True)
    ]


def is_mixed(prefixes: list[bytes | None]) -> bool:
    """Return True if the indents contain both tabs and spaces."""
    seen = {*filter(None, prefixes)}
    return any(TAB in prefix for prefix in seen) and any(b" " in prefix for prefix in seen)


def find_indents(parsed: Parsed, lines: Lines, prefixes: list[bytes | None]) -> Indents | None:
    """Return the indents of a text, or None if there are no indents or no consistent unit."""
    if parsed.language == "python":
        return _python_indents(parsed, lines, prefixes)
    free = [prefix for prefix, kind in zip(prefixes, lines.kinds, strict=True) if prefix is not None and kind == FREE]
    unit = _tab_unit(free) if any(prefix.startswith(TAB) for prefix in free) else _space_unit([*map(len, free)])
    return Indents(unit, prefixes, frozenset()) if unit else None


def apply_indent(lines: Lines, indents: Indents, unit: bytes) -> Lines:
    texts: list[bytes] = []
    base = 0
    for text, kind, prefix in zip(lines.texts, lines.kinds, indents.prefixes, strict=True):
        if prefix is None:
            texts.append(text)
            continue
        levels, rest = _split_prefix(indents, prefix, base)
        texts.append(unit * levels + rest + text[len(prefix) :])
        if kind == FREE and not rest:
            base = levels
    return Lines(texts, lines.kinds)


def _split_prefix(indents: Indents, prefix: bytes, base: int) -> tuple[int, bytes]:
    """Split an indent into its number of levels and the spaces beyond them.

    `base` is the level of the last line above that has no spaces beyond its level.
    """
    if indents.unit == TAB:
        rest = prefix.lstrip(TAB)
        return len(prefix) - len(rest), rest
    levels, beyond = divmod(len(prefix), len(indents.unit))
    if len(prefix) in indents.level_columns or levels < base or (not beyond and levels <= base + MAX_LEVEL_STEP):
        return levels, b" " * beyond
    return base, b" " * (len(prefix) - base * len(indents.unit))


def _python_indents(parsed: Parsed, lines: Lines, prefixes: list[bytes | None]) -> Indents | None:
    columns = _block_columns(parsed, lines, prefixes)
    if not columns or FORM_FEED_INDENT.search(parsed.text):
        return None
    if any(TAB in prefix for prefix in prefixes if prefix):
        return Indents(TAB, prefixes, columns)
    width = min(columns)
    return None if any(column % width for column in columns) else Indents(b" " * width, prefixes, columns)


def _block_columns(parsed: Parsed, lines: Lines, prefixes: list[bytes | None]) -> frozenset[int]:
    """Return the columns at which blocks begin. Blocks that follow other code on their line are ignored."""
    starts = lines.starts()
    columns: set[int] = set()
    for node in captures(parsed, "(block) @block").get("block", ()):
        row = bisect_right(starts, node.start_byte) - 1
        prefix = prefixes[row]
        if prefix and len(prefix) == node.start_byte - starts[row]:
            columns.add(len(prefix))
    return frozenset(columns)


def _tab_unit(prefixes: list[bytes]) -> bytes | None:
    """Return a tab, or None if some indents have a different unit.

    Spaces after tabs are alignment. An indent with two spaces at its start, or with a space before a tab, has a
    different unit.
    """
    has_other_unit = any(prefix.startswith(b"  ") or b" \t" in prefix for prefix in prefixes)
    return None if has_other_unit else TAB


def _space_unit(widths: list[int]) -> bytes | None:
    steps = Counter(deeper - width for width, deeper in pairwise(widths) if deeper > width)
    unit = max(UNIT_WIDTHS, key=lambda width: steps[width])
    indented = [width for width in widths if width]
    num_on_levels = sum(not width % unit for width in indented)
    return b" " * unit if steps[unit] and num_on_levels >= MIN_SHARE_ON_LEVELS * len(indented) else None


# Quotes: 'x' becomes "x" and vice versa, in the languages where both quotes mean the same.

QUOTES = (b"'", b'"')

_SCRIPT = "(string) @string"
QUOTE_QUERIES = {
    "python": "(string) @string",
    "typescript": _SCRIPT,
    **dict.fromkeys(("javascript", "jsx", "tsx"), f"{_SCRIPT} (jsx_attribute) @attribute"),
}

SIMPLE_STRING = re.compile(rb"""[A-Za-z]{0,2}(['"])[^'"\\\r\n]*\1""")


def find_quotes(parsed: Parsed) -> dict[bytes, list[int]]:
    """Return the positions of the quotes that can be replaced, keyed by the new quote."""
    positions: dict[bytes, list[int]] = {quote: [] for quote in QUOTES}
    if parsed.language not in QUOTE_QUERIES:
        return positions
    text, last_end = parsed.text, 0
    found = captures(parsed, QUOTE_QUERIES[parsed.language])
    # The quotes of attributes in JSX are kept, because attributes follow the rules of HTML.
    attribute_ends = {node.end_byte for node in found.get("attribute", ())}
    for start, end in sorted((node.start_byte, node.end_byte) for node in found.get("string", ())):
        if start >= last_end and end not in attribute_ends and not _adjoins_quote(text, start, end):
            match = SIMPLE_STRING.fullmatch(text, start, end)
            if match:
                positions[b"'" if match[1] == b'"' else b'"'] += (match.start(1), end - 1)
        last_end = max(last_end, end)
    return positions


def replace_quotes(text: bytes, positions: list[int], quote: bytes) -> bytes:
    changed = bytearray(text)
    for position in positions:
        changed[position] = quote[0]
    return bytes(changed)


def _adjoins_quote(text: bytes, start: int, end: int) -> bool:
    return text[start - 1 : start] in QUOTES or text[end : end + 1] in QUOTES


# The variant: a different indent, different quotes, or more or fewer blank lines.

Choice = TypeVar("Choice")


class Layout(NamedTuple):
    """Properties to change. None leaves a property unchanged."""

    unit: bytes | None
    quote: bytes | None
    spacing: Spacing | None


def vary_layout(parsed: Parsed, rng: SeededRandom) -> bytes | None:
    """Return the text with a different layout.

    Return None if the text has syntax errors or is unsafe to rewrite, if Python code mixes tabs and spaces, or if
    nothing can change.
    """
    if parsed.tree.root_node.has_error or not is_safe_to_rewrite(parsed):
        return None
    positions = find_quotes(parsed)
    lines = split_lines(parsed)
    prefixes = find_prefixes(lines)
    if parsed.language == "python" and is_mixed(prefixes):
        return None
    indents = find_indents(parsed, lines, prefixes)
    units = [unit for unit in INDENT_UNITS if unit != indents.unit] if indents else []
    layout = _draw_layout(units, [quote for quote in positions if positions[quote]], possible_spacings(lines), rng)
    if layout.quote:
        lines = lines.with_text(replace_quotes(parsed.text, positions[layout.quote], layout.quote))
    if layout.unit and indents:
        lines = apply_indent(lines, indents, layout.unit)
    texts = apply_spacing(lines, layout.spacing) if layout.spacing else lines.texts
    return b"\n".join(texts) if any(layout) else None


def _draw_layout(units: list[bytes], quotes: list[bytes], spacings: list[Spacing], rng: SeededRandom) -> Layout:
    """Draw a layout. If all draws leave the text unchanged, change the first property that can change."""
    layout = Layout(_draw_or_none(units, rng), _draw_or_none(quotes, rng), _draw_or_none(spacings, rng))
    if any(layout):
        return layout
    if units:
        return layout._replace(unit=rng.choice(units))
    if quotes:
        return layout._replace(quote=rng.choice(quotes))
    return layout._replace(spacing=rng.choice(spacings)) if spacings else layout


def _draw_or_none(choices: Sequence[Choice], rng: SeededRandom) -> Choice | None:
    return rng.choice([None, *choices])
