"""`comments`: remove all or some comments, or move comments by one line. Comments that programs read are kept."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from heapq import merge
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import re2

from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.edits import (
    COMMENT_QUERIES,
    JSX_ELEMENT_QUERIES,
    LANGUAGES_WITH_CONTINUATIONS,
    LANGUAGES_WITH_PREPROCESSOR,
    STRING_QUERIES,
    Edit,
    Span,
    apply_edits,
    find_multiline_tokens,
    is_continuation_line,
    is_safe_to_rewrite,
)
from gristmill.variants.grammars import Parsed, captures, parse

if TYPE_CHECKING:
    from tree_sitter import Node


# Comments that must be kept, because compilers, checkers, test harnesses or lawyers read them.

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

_DIRECTIVES = {
    "python": (_LICENSE, _PYTHON),
    "rust": (_LICENSE, _SLASHES, _RUST),
    "go": (_LICENSE, _SLASHES, _GO),
    "java": (_LICENSE, _SLASHES, _JAVA),
    **dict.fromkeys(("javascript", "jsx", "typescript", "tsx"), (_LICENSE, _SLASHES, _SCRIPT)),
    **dict.fromkeys(("c", "c++"), (_LICENSE, _SLASHES, _C)),
}

LICENSE = re.compile(_LICENSE)

RUN_MARKERS = {"python": b"# /// ", "go": b"utput:"}
"""Markers of comments that programs read together with adjacent comments, keyed by language.

In Python, these comments are a script's requirements (PEP 723). In Go, they are the expected output of an example.
"""

CODE_COMMENT_MARKERS = {"go": b'"C"'}
"""Text that marks files in which all comments are kept, keyed by language.

In a Go file that imports "C", comments are C code.
"""


@cache
def directive_pattern(language: str) -> Any:
    """Return the pattern of comments that must be kept.

    RE2 applies the pattern to all comments at once, joined by line feeds. Python's `re` takes 10 us per comment.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # accepts bytes and returns byte offsets
    return re2.compile(rb"(?m)" + rb"|".join(_DIRECTIVES[language]), options)


ONE_COMMENT_TYPE = "(comment) @comment (ERROR) @unsure"
TWO_COMMENT_TYPES = "(line_comment) @comment (block_comment) @comment (ERROR) @unsure"
CAPTURE_QUERIES = {
    "python": ONE_COMMENT_TYPE + " (interpolation) @unsure",  # f"{x=}" prints the text between the braces
    "rust": TWO_COMMENT_TYPES,
    "java": TWO_COMMENT_TYPES,
}

CARRIAGE_RETURN = 0x0D
BRACE_COMMENT_LANGUAGES = {"javascript", "jsx", "typescript", "tsx"}
"""Languages in which a comment that is alone in braces is kept."""


class Comments(NamedTuple):
    """Comments of a text, and the indices of the comments that may change."""

    spans: list[Span]
    """Spans of all comments, in text order. A span does not include the line end after the comment."""
    changeable: list[int]
    """Indices into `spans` of the comments that may be removed or moved."""


def find_comments(parsed: Parsed) -> Comments:
    found = captures(parsed, CAPTURE_QUERIES.get(parsed.language, ONE_COMMENT_TYPE))
    spans = sorted(_comment_span(parsed.text, node.start_byte, node.end_byte) for node in found.get("comment", ()))
    if not spans or CODE_COMMENT_MARKERS.get(parsed.language, b"\0") in parsed.text:
        return Comments(spans, [])
    unsure = sorted(Span(node.start_byte, node.end_byte) for node in found.get("unsure", ()))
    kept = _find_overlapping(spans, unsure) | _find_kept_runs(parsed, spans) | _find_in_special_positions(parsed, spans)
    kept |= _find_directives(parsed, spans)
    return Comments(spans, [index for index in range(len(spans)) if index not in kept])


def _find_directives(parsed: Parsed, spans: list[Span]) -> set[int]:
    pieces = [parsed.text[start:end] for start, end in spans]
    starts = [0, *accumulate(len(piece) + 1 for piece in pieces)]
    found = directive_pattern(parsed.language).finditer(b"\n".join(pieces))
    return {bisect_right(starts, match.start()) - 1 for match in found}


def _comment_span(text: bytes, start: int, end: int) -> Span:
    """Return the span of a comment without the carriage return that most grammars include."""
    return Span(start, end - 1 if text[end - 1] == CARRIAGE_RETURN else end)


def _find_overlapping(spans: list[Span], outer: list[Span]) -> set[int]:
    """Return the indices of the spans that overlap a span of `outer`. Both lists must be sorted."""
    overlapping: set[int] = set()
    remaining = iter(outer)
    outer_end, following = 0, next(remaining, None)
    for index, span in enumerate(spans):
        while following and following.start < span.end:
            outer_end, following = max(outer_end, following.end), next(remaining, None)
        if span.start < outer_end:
            overlapping.add(index)
    return overlapping


def _find_kept_runs(parsed: Parsed, spans: list[Span]) -> set[int]:
    """Return the indices of comments in kept runs: the first run if it has a license, and all runs with a marker."""
    text, marker = parsed.text, RUN_MARKERS.get(parsed.language)
    has_marker = marker is not None and marker in text
    kept: set[int] = set()
    for run in islice(_comment_runs(text, spans), None if has_marker else 1):
        run_text = text[spans[run.start].start : spans[run[-1]].end]
        if (run.start == 0 and LICENSE.search(run_text)) or (marker is not None and marker in run_text):
            kept.update(run)
    return kept


def _comment_runs(text: bytes, spans: list[Span]) -> Iterator[range]:
    """Yield runs of comments that have only whitespace between them."""
    start = 0
    for index in range(1, len(spans) + 1):
        if index == len(spans) or text[spans[index - 1].end : spans[index].start].strip():
            yield range(start, index)
            start = index


def _find_in_special_positions(parsed: Parsed, spans: list[Span]) -> set[int]:
    if parsed.language in LANGUAGES_WITH_CONTINUATIONS:
        return _find_on_continued_lines(parsed, spans)
    return _find_alone_in_braces(parsed.text, spans) if parsed.language in BRACE_COMMENT_LANGUAGES else set()


def _find_on_continued_lines(parsed: Parsed, spans: list[Span]) -> set[int]:
    """Return the indices of comments on lines that continue the previous line, and in preprocessor directives.

    If a continued line were removed, the backslash at the end of the line above would apply to the line below.
    """
    text, has_preprocessor = parsed.text, parsed.language in LANGUAGES_WITH_PREPROCESSOR
    kept: set[int] = set()
    is_special, last_end = False, 0
    for index, (start, end) in enumerate(spans):
        line_start = text.rfind(b"\n", last_end, start) + 1
        if line_start or not last_end:
            is_special = is_continuation_line(text, line_start) or (
                has_preprocessor and _is_preprocessor_line(text, line_start)
            )
        if is_special:
            kept.add(index)
        last_end = end
    return kept


def _is_preprocessor_line(text: bytes, line_start: int) -> bool:
    """Return True if the line is a preprocessor directive, which has its own syntax."""
    return text[line_start : line_start + 200].lstrip()[:2].startswith((b"#", b"%:", b"??"))


def _find_alone_in_braces(text: bytes, spans: list[Span]) -> set[int]:
    """Return the indices of comments that are alone in braces.

    Examples are {/* in JSX */} and function () {/* a text that toString() reads */}.
    """
    kept: set[int] = set()
    for index, (start, end) in enumerate(spans):
        before = text[max(0, start - 100) : start].rstrip()
        if before.endswith(b"{") and text[end : end + 100].lstrip().startswith(b"}"):
            kept.add(index)
    return kept


# Python docstrings that can be removed like comments. Most docstrings are kept, because a program can read them.

DOCSTRING_READERS = (
    *(b"__doc__", b"getdoc", b"doctest", b"docopt", b"docstring", b"pydoc", b"sphinx", b"add_newdoc", b"inspect"),
    *(b"argparse", b"optparse", b"click", b"typer", b"import fire", b"Cmd", b"plac", b"invoke", b"help("),
    *(b"yacc", b"import ply", b"def p_", b"def t_", b"zope", b"IPython", b"mcp", b"langchain", b"dspy"),
    *(b"pydantic", b"fastapi", b"graphene", b"strawberry", b"apispec", b"flasgger", b"restx"),
)
"""Words that suggest that a file reads docstrings. To be safe, they are also searched inside longer words."""

BODY = "body: (block . (expression_statement . (string) @docstring .)) @body"
DOCSTRINGS = f"""
(function_definition {BODY})
(class_definition !superclasses {BODY})
(decorated_definition definition: (_ body: (block) @decorated))
"""


def strip_docstrings(parsed: Parsed) -> list[Edit]:
    """Return edits that remove docstrings, in text order. A docstring that is the entire body becomes `pass`."""
    if parsed.language != "python" or _reader_pattern().search(parsed.text):
        return []
    found = captures(parsed, DOCSTRINGS)
    decorated = {node.start_byte for node in found.get("decorated", ())}
    ends = {node.start_byte: node.end_byte for node in found.get("docstring", ())}
    return sorted(
        edit
        for body in found.get("body", ())  # a body starts where its docstring starts
        if body.start_byte in ends and body.start_byte not in decorated
        for edit in _docstring_removal(parsed.text, body, Span(body.start_byte, ends[body.start_byte]))
    )


@cache
def _reader_pattern() -> Any:
    """Return an RE2 pattern, which searches for all words in one pass."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(b"|".join(map(re.escape, DOCSTRING_READERS)), options)


def _docstring_removal(text: bytes, body: "Node", docstring: Span) -> Iterator[Edit]:
    start, end = docstring
    line_start, line_end = text.rfind(b"\n", 0, start) + 1, text.find(b"\n", end)
    following = _statement_after_docstring(body)
    if b">>>" in text[start:end] or text[start] not in b"'\"rRuU" or is_continuation_line(text, line_start):
        return
    if text[line_start:start].strip(b" \t") or line_end < 0 or text[end:line_end].strip():
        return
    if following is None:
        yield Edit(start, end, b"pass")
    elif following.type != "expression_statement":  # a string in its place would become the docstring
        yield Edit(line_start, line_end + 1, b"")


def _statement_after_docstring(body: "Node") -> "Node | None":
    """Return the statement after the docstring, or None if there is none."""
    second = body.named_child(1) if body.named_child_count > 1 else None
    if second is None or second.type != "comment":
        return second
    return next((child for child in body.named_children[1:] if child.type != "comment"), None)


# Moving: a comment at the end of a line moves above the line, and some comments above a line move to its end.

MAX_LINE_BYTES = 100
LINE_END_SHARE = 0.5
"""Share of the comments above a line that move to the end of the line, if they fit.

The other comments stay, because most people write comments above a line.
"""

SPACES_AND_TABS = b" \t"
EXCLUDED_LINE_STARTS = (b"}", b")", b"]", b"@", b"#")
"""Starts of lines that a comment must not be moved to: closing brackets, decorators and directives."""


class CommentedText(NamedTuple):
    """A text with the positions of its comments and multi-line tokens."""

    parsed: Parsed
    comments: Comments
    token_starts: list[int]
    """Starts of the tokens that contain line feeds."""
    token_ends: list[int]
    changeable: frozenset[int]

    def is_inside(self, position: int) -> bool:
        """Return True if the position is inside a multi-line token, but not at the start of the token."""
        index = bisect_left(self.token_starts, position) - 1
        return index >= 0 and position < self.token_ends[index]


class CommentLocation(NamedTuple):
    """Location of a comment that is alone on its line or at the end of the line."""

    span: Span
    line_start: int
    line_end: int
    """Offset of the line feed."""
    previous_end: int
    """End of the previous comment, or 0."""
    is_below_kept: bool
    """True if the previous comment is kept and may refer to this line."""
    next_start: int
    """Start of the next comment, or the length of the text."""


def move_comments(parsed: Parsed, comments: Comments, rng: SeededRandom) -> list[Edit]:
    language = parsed.language
    query = " ".join(
        (STRING_QUERIES[language], COMMENT_QUERIES[language], JSX_ELEMENT_QUERIES.get(language, ""), "(ERROR) @token")
    )
    tokens = find_multiline_tokens(parsed, query) if comments.changeable else []
    starts, ends = [token.start for token in tokens], [token.end for token in tokens]
    source = CommentedText(parsed, comments, starts, ends, frozenset(comments.changeable))
    return [edit for index in comments.changeable for edit in _move(source, index, rng)]


def _move(source: CommentedText, index: int, rng: SeededRandom) -> list[Edit]:
    text = source.parsed.text
    location = _locate_comment(source, index)
    if location is None or source.is_inside(location.line_start):
        return []
    before = text[location.line_start : location.span.start]
    if before.strip(SPACES_AND_TABS):
        return _move_above(source, location, before)
    return _move_to_line_end(source, location) if rng.fraction() < LINE_END_SHARE else []


def _locate_comment(source: CommentedText, index: int) -> CommentLocation | None:
    """Return the location of a comment.

    Return None if the comment contains a line feed or is followed by code, or if the line has a second comment or no
    line feed.
    """
    text, spans = source.parsed.text, source.comments.spans
    start, end = spans[index]
    previous_end = spans[index - 1].end if index else 0
    next_start = spans[index + 1].start if index + 1 < len(spans) else len(text)
    line_start = text.rfind(b"\n", previous_end, start) + 1
    line_end = text.find(b"\n", end, next_start)
    if line_end < 0 or (index and not line_start) or text[end:line_end].strip() or text.find(b"\n", start, end) >= 0:
        return None
    is_below_kept = index > 0 and index - 1 not in source.changeable and not text[previous_end:line_start].strip()
    return CommentLocation(spans[index], line_start, line_end, previous_end, is_below_kept, next_start)


def _move_above(source: CommentedText, location: CommentLocation, before: bytes) -> list[Edit]:
    """Move a comment from the end of a line to a new line above.

    A comment is not moved if it would separate a directive from its line, or if comments below continue the comment.
    """
    text, (start, end) = source.parsed.text, location.span
    code = before.strip(SPACES_AND_TABS)
    continues_below = location.next_start < len(text) and not text[location.line_end : location.next_start].strip()
    if location.is_below_kept or continues_below or code.startswith(EXCLUDED_LINE_STARTS) or code.endswith(b"\\"):
        return []
    indent = before[: len(before) - len(before.lstrip(SPACES_AND_TABS))]
    line_feed = b"\r\n" if text[location.line_end - 1 : location.line_end] == b"\r" else b"\n"
    above = indent + text[start:end] + line_feed
    last = start - len(before) + len(before.rstrip(SPACES_AND_TABS))
    return [Edit(location.line_start, location.line_start, above), Edit(last, end, b"")]


def _move_to_line_end(source: CommentedText, location: CommentLocation) -> list[Edit]:
    """Move a comment to the end of the line below, if that line contains only code and has the same indent."""
    text, (start, end) = source.parsed.text, location.span
    next_end = text.find(b"\n", location.line_end + 1)
    line = text[location.line_end + 1 : next_end].rstrip() if next_end >= 0 else b""
    code = line.lstrip(SPACES_AND_TABS)
    if not code or code.startswith(EXCLUDED_LINE_STARTS) or code.endswith(b"\\") or location.next_start < next_end:
        return []
    if line[: len(line) - len(code)] != text[location.line_start : start] or source.is_inside(next_end + 1):
        return []
    if not text[location.previous_end : location.line_start].strip() or len(line) + end - start > MAX_LINE_BYTES:
        return []
    moved = b"  " + text[start:end]
    position = location.line_end + 1 + len(line)
    return [Edit(location.line_start, location.line_end + 1, b""), Edit(position, position, moved)]


# Removal: the tokens around a comment remain separated, by a line feed if the comment contains a line feed, and
# by a space otherwise.


def remove_comments(text: bytes, removed: list[Span]) -> Iterator[Edit]:
    """Yield the edits that remove comments, in linear time even if all comments are on one line."""
    spans = [Span(0, 0), *_join_adjacent(text, removed), Span(len(text), len(text))]
    for index in range(1, len(spans) - 1):
        edit = _remove_comment(text, spans[index], spans[index - 1].end, spans[index + 1].start)
        if edit:
            yield edit


def _join_adjacent(text: bytes, spans: list[Span]) -> list[Span]:
    """Join the spans that have only spaces or tabs between them."""
    merged: list[Span] = []
    for span in spans:
        if merged and not text[merged[-1].end : span.start].strip(SPACES_AND_TABS):
            merged[-1] = Span(merged[-1].start, span.end)
        else:
            merged.append(span)
    return merged


def _remove_comment(text: bytes, span: Span, previous_end: int, next_start: int) -> Edit | None:
    """Return the edit that removes a comment, or None if the line would then end in a backslash."""
    start, end = span
    line_start = max(previous_end, text.rfind(b"\n", previous_end, start) + 1)
    line_end = text.find(b"\n", end, next_start)
    before, after = text[line_start:start], text[end : next_start if line_end < 0 else line_end]
    is_first = not before.strip(SPACES_AND_TABS) and (line_start > previous_end or not previous_end)
    is_last = not after.strip() and (line_end >= 0 or next_start == len(text))
    if is_first and is_last:
        return Edit(line_start, len(text) if line_end < 0 else line_end + 1, b"")
    if is_first:
        return Edit(start, end + _num_leading_spaces(after), b"")
    if is_last:
        return (
            None
            if before.rstrip().endswith(b"\\")
            else Edit(start - _num_trailing_spaces(before), end + _num_leading_spaces(after), b"")
        )
    return Edit(start - _num_trailing_spaces(before), end + _num_leading_spaces(after), _separator(text[start:end]))


def _separator(comment: bytes) -> bytes:
    if b"\n" not in comment:
        return b" "
    return b"\r\n" if b"\r\n" in comment else b"\n"


def _num_leading_spaces(piece: bytes) -> int:
    return len(piece) - len(piece.lstrip(SPACES_AND_TABS))


def _num_trailing_spaces(piece: bytes) -> int:
    return len(piece) - len(piece.rstrip(SPACES_AND_TABS))


# The variant: all comments are removed, some are removed, or comments are moved by one line.

MIN_REMOVED_SHARE = 0.3
"""Minimum share of comments that _strip_some removes. With a smaller share, the text hardly changes."""
MAX_REMOVED_SHARE = 0.8
"""Maximum share of comments that _strip_some removes. With a larger share, nearly all are removed."""

Mode = Callable[[Parsed, Comments, SeededRandom], list[Edit]]


def vary_comments(parsed: Parsed, rng: SeededRandom) -> bytes | None:
    """Return the text with comments and docstrings removed, or with comments moved.

    Return None if the text is unsafe to rewrite, if nothing can be removed or moved, or if the text contains only
    comments.
    """
    text = parsed.text
    if not is_safe_to_rewrite(parsed) or _is_other_language(parsed):
        return None
    comments = find_comments(parsed)
    modes: list[Mode] = [_strip_all, _strip_some, move_comments]
    rng.shuffle(modes)
    for mode in modes:
        edits = mode(parsed, comments, rng)
        variant = _match_last_line_end(text, apply_edits(text, edits)) if edits else b""
        if variant.strip() and not _has_more_errors(variant, parsed):
            return variant
    return None


def _has_more_errors(variant: bytes, parsed: Parsed) -> bool:
    """Return True if the variant has more syntax errors than the text.

    A text without errors gets no errors, so its variants are not parsed. Parsing all variants would halve the speed.
    """
    if not parsed.tree.root_node.has_error:
        return False
    return parse(variant, parsed.language).num_errors > parsed.num_errors


def _is_other_language(parsed: Parsed) -> bool:
    """Return True if a Python text has syntax errors.

    Python's grammar covers all of Python, so such a text is not Python. C's grammar does not cover all of
    C, so a C text with errors may still be C.
    """
    return parsed.language == "python" and parsed.tree.root_node.has_error


def _match_last_line_end(text: bytes, variant: bytes) -> bytes:
    """Remove the line end of the variant's last line if the original text has none.

    If the last line was removed, the line before it is now the last line and still ends in a line feed.
    """
    return variant if text.endswith(b"\n") else variant.rstrip(b"\r\n")


def _strip_all(parsed: Parsed, comments: Comments, _: SeededRandom) -> list[Edit]:
    removed = remove_comments(parsed.text, [comments.spans[index] for index in comments.changeable])
    return list(merge(removed, strip_docstrings(parsed)))


def _strip_some(parsed: Parsed, comments: Comments, rng: SeededRandom) -> list[Edit]:
    share = MIN_REMOVED_SHARE + (MAX_REMOVED_SHARE - MIN_REMOVED_SHARE) * rng.fraction()
    removed = remove_comments(
        parsed.text, [comments.spans[index] for index in comments.changeable if rng.fraction() < share]
    )
    return list(merge(removed, [edit for edit in strip_docstrings(parsed) if rng.fraction() < share]))
