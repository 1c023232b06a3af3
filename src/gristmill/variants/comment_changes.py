"""Comments at the end of a line go above it; some that stand alone above a line go to its end."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import cache
from heapq import merge
from typing import TYPE_CHECKING, Any, NamedTuple

import re2

from gristmill.core.seeded_random import Dice
from gristmill.variants.comments import Comments, find_comments
from gristmill.variants.edits import (
    COMMENTS,
    ELEMENTS,
    STRINGS,
    Edit,
    Span,
    apply_edits,
    goes_on,
    long_tokens,
    may_be_rewritten,
)
from gristmill.variants.grammars import Parsed, captures, parse

if TYPE_CHECKING:
    from tree_sitter import Node


# Docstrings of Python that may go as comments do. A program can see a docstring, so most may not.

READERS = (
    *(b"__doc__", b"getdoc", b"doctest", b"docopt", b"docstring", b"pydoc", b"sphinx", b"add_newdoc", b"inspect"),
    *(b"argparse", b"optparse", b"click", b"typer", b"import fire", b"Cmd", b"plac", b"invoke", b"help("),
    *(b"yacc", b"import ply", b"def p_", b"def t_", b"zope", b"IPython", b"mcp", b"langchain", b"dspy"),
    *(b"pydantic", b"fastapi", b"graphene", b"strawberry", b"apispec", b"flasgger", b"restx"),
)
"""Anywhere in the file, as part of a longer word, too: to be sure is cheap."""

BODY = "body: (block . (expression_statement . (string) @docstring .)) @body"
QUERY = f"""
(function_definition {BODY})
(class_definition !superclasses {BODY})
(decorated_definition definition: (_ body: (block) @decorated))
"""


def strip_docstrings(parsed: Parsed) -> list[Edit]:
    """In the order of the text: the lines of each, or `pass` in its place where a body would be left with nothing."""
    if parsed.language != "python" or _readers().search(parsed.text):
        return []
    found = captures(parsed, QUERY)
    decorated = {node.start_byte for node in found.get("decorated", ())}
    ends = {node.start_byte: node.end_byte for node in found.get("docstring", ())}
    return sorted(
        edit
        for body in found.get("body", ())  # which starts as its docstring does
        if body.start_byte in ends and body.start_byte not in decorated
        for edit in _docstring_removal(parsed.text, body, Span(body.start_byte, ends[body.start_byte]))
    )


@cache
def _readers() -> Any:
    """RE2, which reads the text once for all the words."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(b"|".join(map(re.escape, READERS)), options)


def _docstring_removal(text: bytes, body: "Node", docstring: Span) -> Iterator[Edit]:
    start, end = docstring
    line_start, line_end = text.rfind(b"\n", 0, start) + 1, text.find(b"\n", end)
    following = _following(body)
    if b">>>" in text[start:end] or text[start] not in b"'\"rRuU" or goes_on(text, line_start):
        return
    if text[line_start:start].strip(b" \t") or line_end < 0 or text[end:line_end].strip():
        return
    if following is None:
        yield Edit(start, end, b"pass")
    elif following.type != "expression_statement":  # which could be a docstring in its turn
        yield Edit(line_start, line_end + 1, b"")


def _following(body: "Node") -> "Node | None":
    """The statement after the docstring."""
    second = body.named_child(1) if body.named_child_count > 1 else None
    if second is None or second.type != "comment":
        return second
    return next((child for child in body.named_children[1:] if child.type != "comment"), None)


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


# A comment goes, and the tokens around it stay apart: by a line feed where there was one, otherwise by a blank.


def remove(text: bytes, going: list[Span]) -> Iterator[Edit]:
    """Each is looked at only as far as the next one: one pass, however long the line."""
    spans = [Span(0, 0), *_joined(text, going), Span(len(text), len(text))]
    for number in range(1, len(spans) - 1):
        edit = _removal(text, spans[number], spans[number - 1].end, spans[number + 1].start)
        if edit:
            yield edit


def _joined(text: bytes, spans: list[Span]) -> list[Span]:
    """Those with only blanks between them are one."""
    joined: list[Span] = []
    for span in spans:
        if joined and not text[joined[-1].end : span.start].strip(BLANKS):
            joined[-1] = Span(joined[-1].start, span.end)
        else:
            joined.append(span)
    return joined


def _removal(text: bytes, span: Span, done: int, following: int) -> Edit | None:
    """None: with the comment gone, a backslash would end the line."""
    start, end = span
    line_start = max(done, text.rfind(b"\n", done, start) + 1)
    line_end = text.find(b"\n", end, following)
    before, after = text[line_start:start], text[end : following if line_end < 0 else line_end]
    is_first = not before.strip(BLANKS) and (line_start > done or not done)
    is_last = not after.strip() and (line_end >= 0 or following == len(text))
    if is_first and is_last:
        return Edit(line_start, len(text) if line_end < 0 else line_end + 1, b"")
    if is_first:
        return Edit(start, end + _num_blanks_first(after), b"")
    if is_last:
        return (
            None
            if before.rstrip().endswith(b"\\")
            else Edit(start - _num_blanks_last(before), end + _num_blanks_first(after), b"")
        )
    return Edit(start - _num_blanks_last(before), end + _num_blanks_first(after), _between(text[start:end]))


def _between(comment: bytes) -> bytes:
    if b"\n" not in comment:
        return b" "
    return b"\r\n" if b"\r\n" in comment else b"\n"


def _num_blanks_first(piece: bytes) -> int:
    return len(piece) - len(piece.lstrip(BLANKS))


def _num_blanks_last(piece: bytes) -> int:
    return len(piece) - len(piece.rstrip(BLANKS))


# Comments gone or elsewhere, and the program the same: all of them stripped, a part of them, or each moved by a
# line.

LOWEST_SHARE = 0.3
HIGHEST_SHARE = 0.8
"""How many of a file's comments go when a part of them goes: fewer is hardly another text, more is nearly all."""

Mode = Callable[[Parsed, Comments, Dice], list[Edit]]


def vary_comments(parsed: Parsed, dice: Dice) -> bytes | None:
    """None: the text has no comment that can go or move, or nothing but comments."""
    text = parsed.text
    if not may_be_rewritten(parsed) or _is_all_wrong(parsed):
        return None
    comments = find_comments(parsed)
    modes: list[Mode] = [_strip_all, _strip_some, move_comments]
    dice.shuffle(modes)
    for mode in modes:
        edits = mode(parsed, comments, dice)
        variant = _with_last_line_as(text, apply_edits(text, edits)) if edits else b""
        if variant.strip() and not _has_more_errors(variant, parsed):
            return variant
    return None


def _has_more_errors(variant: bytes, parsed: Parsed) -> bool:
    """Only what is wrong already can become worse: parsing it again would halve the speed of the rest."""
    if not parsed.tree.root_node.has_error:
        return False
    return parse(variant, parsed.language).num_errors > parsed.num_errors


def _is_all_wrong(parsed: Parsed) -> bool:
    """Python's grammar is at home in Python: what it does not understand is another language. C's is not."""
    return parsed.language == "python" and parsed.tree.root_node.has_error


def _with_last_line_as(text: bytes, variant: bytes) -> bytes:
    """The line before the last ends in a line feed: where the last one went, and had none, so does it."""
    return variant if text.endswith(b"\n") else variant.rstrip(b"\r\n")


def _strip_all(parsed: Parsed, comments: Comments, _: Dice) -> list[Edit]:
    going = remove(parsed.text, [comments.spans[number] for number in comments.loose])
    return list(merge(going, strip_docstrings(parsed)))


def _strip_some(parsed: Parsed, comments: Comments, dice: Dice) -> list[Edit]:
    share = LOWEST_SHARE + (HIGHEST_SHARE - LOWEST_SHARE) * dice.fraction()
    going = remove(parsed.text, [comments.spans[number] for number in comments.loose if dice.fraction() < share])
    return list(merge(going, [edit for edit in strip_docstrings(parsed) if dice.fraction() < share]))
