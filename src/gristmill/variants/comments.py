"""Where the comments of a text are, and which of them nobody but people reads."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, islice
from typing import Any, NamedTuple

import re2

from gristmill.variants.edits import Span, goes_on
from gristmill.variants.grammars import Parsed, captures

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
HAS_CONTINUATIONS = {"python", "c", "c++"}
HAS_PREPROCESSOR = {"c", "c++"}
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
