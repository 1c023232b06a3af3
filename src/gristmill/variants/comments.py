"""`comments`: comments stripped, some of them, or each moved by a line, where nobody but people reads them."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from heapq import merge
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import re2

from gristmill.core.seeded_random import Dice
from gristmill.variants.edits import (
    COMMENTS,
    ELEMENTS,
    HAS_CONTINUATIONS,
    HAS_PREPROCESSOR,
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


# Comments that are comments only in form: compilers, checkers, test harnesses and lawyers read them.

_LICENSE = rb"(?i:copyright|SPDX-|licen[cs]ed? under|\(c\) ?[12]\d\d\d|\xc2\xa9)"

_PYTHON = (
    rb"^#!|^#.*coding[:=]|^# (?:///|%%|-\*-)|^#%%|#:?\s*(?i:type:|noqa|nosec|nopep8|pragma|pylint|pyright|pytype|pyre-|"
    rb"mypy|ruff|flake8|fmt:|yapf|isort|black:|autopep8|doctest|cython:|distutils:|vim?:|noinspection|nosonar|skipcq)"
)
_SLASHES = (
    rb"(?i:nolint|nosonar|noinspection|coverity|lcov_excl|gcov|clang-format|\bformat(?:ter)?:? ?off|"
    rb"-\*-|\bvim?:|@generated|code generated|expected-(?:error|warning|note|no-))|\bRUN:|\bCHECK[-:]"
)
_SCRIPT = (
    rb"^//[#@]|^///\s*<|^/\*[!:#@]|(?i:webpack|eslint|jshint|jslint|tslint|prettier|biome-|istanbul|[cv]8 ignore|"
    rb"^/\*\s*globals? |^/\*\s*exported |sourcemapping|sourceurl)|"
    rb"@(?:ts-|jsx|flow|noflow|format|babel|jest|vitest|license|preserve|cc_on|vite-|deno-|__|swc|refresh)|__PURE__"
)
_GO = rb"^//(?:[a-z0-9]+:\S|line |export |extern |sys|nolint)|^/\*line |^//\s*\+build|#cgo"
_RUST = rb"^//[/!@~]|^/\*[*!]|rustfmt|clippy|ignore-tidy"
_JAVA = rb"\\u|@deprecated|@formatter|CHECKSTYLE|PMD|\$NON-NLS|\$FALL|(?i:fall.?thr)"
_C = rb"\\[ \t\r]*(?:\n|$)|\?\?/|(?i:fall.?thr)|^/[/*][@$]|IWYU|dg-|\bNOT ?REACHED|@suppress|splint"

_FAMILIES = {
    "python": (_LICENSE, _PYTHON),
    "rust": (_LICENSE, _SLASHES, _RUST),
    "go": (_LICENSE, _SLASHES, _GO),
    "java": (_LICENSE, _SLASHES, _JAVA),
    **dict.fromkeys(("javascript", "jsx", "typescript", "tsx"), (_LICENSE, _SLASHES, _SCRIPT)),
    **dict.fromkeys(("c", "c++"), (_LICENSE, _SLASHES, _C)),
}

LICENSE = re.compile(_LICENSE)

OF_A_RUN = {"python": b"# /// ", "go": b"utput:"}
"""Read together with the comments around it: a script's requirements (PEP 723), and what an example has to print."""

ALL_OF_A_FILE = {"go": b'"C"'}
"""Where this is imported, comments are C."""


@cache
def directives_of(language: str) -> Any:
    """RE2, over all comments at once, one to a line: Python's own engine takes 10 us for each."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes in, byte offsets out
    return re2.compile(rb"(?m)" + rb"|".join(_FAMILIES[language]), options)


ONE_KIND = "(comment) @comment (ERROR) @unsure"
TWO_KINDS = "(line_comment) @comment (block_comment) @comment (ERROR) @unsure"
QUERIES = {
    "python": ONE_KIND + " (interpolation) @unsure",  # f"{x=}" prints what stands between the braces
    "rust": TWO_KINDS,
    "java": TWO_KINDS,
}

CARRIAGE_RETURN = 0x0D
IN_BRACES = {"javascript", "jsx", "typescript", "tsx"}


class Comments(NamedTuple):
    spans: list[Span]
    """Of all of them, in the order of the text, without line ends."""
    loose: list[int]
    """Those of them that may go or move, by their place in spans."""


def find_comments(parsed: Parsed) -> Comments:
    found = captures(parsed, QUERIES.get(parsed.language, ONE_KIND))
    spans = sorted(_span(parsed.text, node.start_byte, node.end_byte) for node in found.get("comment", ()))
    if not spans or ALL_OF_A_FILE.get(parsed.language, b"\0") in parsed.text:
        return Comments(spans, [])
    unsure = sorted(Span(node.start_byte, node.end_byte) for node in found.get("unsure", ()))
    kept = _in_any(spans, unsure) | _of_kept_runs(parsed, spans) | _at_odd_places(parsed, spans)
    kept |= _with_directives(parsed, spans)
    return Comments(spans, [number for number in range(len(spans)) if number not in kept])


def _with_directives(parsed: Parsed, spans: list[Span]) -> set[int]:
    pieces = [parsed.text[start:end] for start, end in spans]
    starts = [0, *accumulate(len(piece) + 1 for piece in pieces)]
    found = directives_of(parsed.language).finditer(b"\n".join(pieces))
    return {bisect_right(starts, match.start()) - 1 for match in found}


def _span(text: bytes, start: int, end: int) -> Span:
    """To most grammars the carriage return before a line feed is a part of the comment."""
    return Span(start, end - 1 if text[end - 1] == CARRIAGE_RETURN else end)


def _in_any(spans: list[Span], outer: list[Span]) -> set[int]:
    """Both in order: one pass."""
    inside: set[int] = set()
    ahead = iter(outer)
    reach, following = 0, next(ahead, None)
    for number, span in enumerate(spans):
        while following and following.start < span.end:
            reach, following = max(reach, following.end), next(ahead, None)
        if span.start < reach:
            inside.add(number)
    return inside


def _of_kept_runs(parsed: Parsed, spans: list[Span]) -> set[int]:
    """The first comments where they are a licence, and those that are read together."""
    text, together = parsed.text, OF_A_RUN.get(parsed.language)
    reads_runs = together is not None and together in text
    kept: set[int] = set()
    for run in islice(_runs(text, spans), None if reads_runs else 1):
        whole = text[spans[run.start].start : spans[run[-1]].end]
        if (run.start == 0 and LICENSE.search(whole)) or (together is not None and together in whole):
            kept.update(run)
    return kept


def _runs(text: bytes, spans: list[Span]) -> Iterator[range]:
    """A run ends where something else than blanks and line feeds stands before the next comment."""
    start = 0
    for number in range(1, len(spans) + 1):
        if number == len(spans) or text[spans[number - 1].end : spans[number].start].strip():
            yield range(start, number)
            start = number


def _at_odd_places(parsed: Parsed, spans: list[Span]) -> set[int]:
    if parsed.language in HAS_CONTINUATIONS:
        return _on_continued_lines(parsed, spans)
    return _alone_in_braces(parsed.text, spans) if parsed.language in IN_BRACES else set()


def _on_continued_lines(parsed: Parsed, spans: list[Span]) -> set[int]:
    """With the line of a comment, a backslash before it would go on into the next one. C: in directives, too."""
    text, has_preprocessor = parsed.text, parsed.language in HAS_PREPROCESSOR
    kept: set[int] = set()
    is_odd, done = False, 0
    for number, (start, end) in enumerate(spans):
        line_start = text.rfind(b"\n", done, start) + 1
        if line_start or not done:
            is_odd = goes_on(text, line_start) or (has_preprocessor and _is_directive(text, line_start))
        if is_odd:
            kept.add(number)
        done = end
    return kept


def _is_directive(text: bytes, line_start: int) -> bool:
    """Of the preprocessor: the rest of the line is its own language."""
    return text[line_start : line_start + 200].lstrip()[:2].startswith((b"#", b"%:", b"??"))


def _alone_in_braces(text: bytes, spans: list[Span]) -> set[int]:
    """{/* in JSX */}, and function () {/* whose text is read by toString() */}."""
    kept: set[int] = set()
    for number, (start, end) in enumerate(spans):
        before = text[max(0, start - 100) : start].rstrip()
        if before.endswith(b"{") and text[end : end + 100].lstrip().startswith(b"}"):
            kept.add(number)
    return kept


# Docstrings of Python that may go as comments do. A program can see a docstring, so most may not.

READERS = (
    *(b"__doc__", b"getdoc", b"doctest", b"docopt", b"docstring", b"pydoc", b"sphinx", b"add_newdoc", b"inspect"),
    *(b"argparse", b"optparse", b"click", b"typer", b"import fire", b"Cmd", b"plac", b"invoke", b"help("),
    *(b"yacc", b"import ply", b"def p_", b"def t_", b"zope", b"IPython", b"mcp", b"langchain", b"dspy"),
    *(b"pydantic", b"fastapi", b"graphene", b"strawberry", b"apispec", b"flasgger", b"restx"),
)
"""Anywhere in the file, as part of a longer word, too: to be sure is cheap."""

BODY = "body: (block . (expression_statement . (string) @docstring .)) @body"
DOCSTRINGS = f"""
(function_definition {BODY})
(class_definition !superclasses {BODY})
(decorated_definition definition: (_ body: (block) @decorated))
"""


def strip_docstrings(parsed: Parsed) -> list[Edit]:
    """In the order of the text: the lines of each, or `pass` in its place where a body would be left with nothing."""
    if parsed.language != "python" or _readers().search(parsed.text):
        return []
    found = captures(parsed, DOCSTRINGS)
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


# Comments at the end of a line go above it; some that stand alone above a line go to its end.

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
