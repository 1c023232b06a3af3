"""Comments at the end of a line go above it; some that stand alone above a line go to its end."""

from bisect import bisect_left
from typing import NamedTuple

from gristmill.shaping.chance import Dice
from gristmill.shaping.variants.commenting.comments import Comments
from gristmill.shaping.variants.edits import Edit, Span
from gristmill.shaping.variants.grammars import Parsed
from gristmill.shaping.variants.long_tokens import COMMENTS, ELEMENTS, STRINGS, long_tokens

MAX_LINE_BYTES = 100
SHARE_PUT_BEHIND = 0.5
"""Of the comments above a line that would fit behind it: most people write them above."""

BLANKS = b" \t"
NOT_BELOW = (b"}", b")", b"]", b"@", b"#")
"""How a line begins that reads badly under a comment or in front of one: an end, a decorator, a directive."""


class Page(NamedTuple):
    parsed: Parsed
    comments: Comments
    token_starts: list[int]
    """Of the tokens with line feeds in them."""
    token_ends: list[int]
    loose: frozenset[int]

    def is_inside(self, position: int) -> bool:
        """Of a token that began before."""
        number = bisect_left(self.token_starts, position) - 1
        return number >= 0 and position < self.token_ends[number]


class Place(NamedTuple):
    """Of a comment that has its line, or the end of it, to itself."""

    span: Span
    line_start: int
    line_end: int
    """Without the line feed."""
    previous_end: int
    """Of the comment before it: 0 where there is none."""
    is_below_kept: bool
    """Whether that one may be about this line."""
    next_start: int
    """Of the comment after it, or the end of the text."""


def move_comments(parsed: Parsed, comments: Comments, dice: Dice) -> list[Edit]:
    language = parsed.language
    query = " ".join((STRINGS[language], COMMENTS[language], ELEMENTS.get(language, ""), "(ERROR) @token"))
    tokens = long_tokens(parsed, query) if comments.loose else []
    starts, ends = [token.start for token in tokens], [token.end for token in tokens]
    page = Page(parsed, comments, starts, ends, frozenset(comments.loose))
    return [edit for number in comments.loose for edit in _move(page, number, dice)]


def _move(page: Page, number: int, dice: Dice) -> list[Edit]:
    text = page.parsed.text
    place = _place(page, number)
    if place is None or page.is_inside(place.line_start):
        return []
    before = text[place.line_start : place.span.start]
    if before.strip(BLANKS):
        return _put_above(page, place, before)
    return _put_behind(page, place) if dice.fraction() < SHARE_PUT_BEHIND else []


def _place(page: Page, number: int) -> Place | None:
    """None: there is more than one comment on the line, or it ends on another one."""
    text, spans = page.parsed.text, page.comments.spans
    start, end = spans[number]
    previous_end = spans[number - 1].end if number else 0
    next_start = spans[number + 1].start if number + 1 < len(spans) else len(text)
    line_start = text.rfind(b"\n", previous_end, start) + 1
    line_end = text.find(b"\n", end, next_start)
    if line_end < 0 or (number and not line_start) or text[end:line_end].strip() or text.find(b"\n", start, end) >= 0:
        return None
    is_below_kept = number > 0 and number - 1 not in page.loose and not text[previous_end:line_start].strip()
    return Place(spans[number], line_start, line_end, previous_end, is_below_kept, next_start)


def _put_above(page: Page, place: Place, before: bytes) -> list[Edit]:
    """Not between a directive and its line, nor away from the comments that go on below."""
    text, (start, end) = page.parsed.text, place.span
    code = before.strip(BLANKS)
    goes_on_below = place.next_start < len(text) and not text[place.line_end : place.next_start].strip()
    if place.is_below_kept or goes_on_below or code.startswith(NOT_BELOW) or code.endswith(b"\\"):
        return []
    indent = before[: len(before) - len(before.lstrip(BLANKS))]
    line_feed = b"\r\n" if text[place.line_end - 1 : place.line_end] == b"\r" else b"\n"
    above = indent + text[start:end] + line_feed
    last = start - len(before) + len(before.rstrip(BLANKS))
    return [Edit(place.line_start, place.line_start, above), Edit(last, end, b"")]


def _put_behind(page: Page, place: Place) -> list[Edit]:
    """The line below is code from its first byte to its last, and as deep."""
    text, (start, end) = page.parsed.text, place.span
    next_end = text.find(b"\n", place.line_end + 1)
    line = text[place.line_end + 1 : next_end].rstrip() if next_end >= 0 else b""
    code = line.lstrip(BLANKS)
    if not code or code.startswith(NOT_BELOW) or code.endswith(b"\\") or place.next_start < next_end:
        return []
    if line[: len(line) - len(code)] != text[place.line_start : start] or page.is_inside(next_end + 1):
        return []
    if not text[place.previous_end : place.line_start].strip() or len(line) + end - start > MAX_LINE_BYTES:
        return []
    behind = b"  " + text[start:end]
    position = place.line_end + 1 + len(line)
    return [Edit(place.line_start, place.line_end + 1, b""), Edit(position, position, behind)]
