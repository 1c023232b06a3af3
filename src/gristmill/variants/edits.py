"""Edits of byte ranges, queries for multi-line tokens, and a check that a text is safe to rewrite."""

from collections.abc import Iterable
from typing import NamedTuple

from gristmill.variants.grammars import Parsed, captures, is_hard_to_query


class Span(NamedTuple):
    start: int
    end: int


class Edit(NamedTuple):
    """Replacement of `text[start:end]`."""

    start: int
    end: int
    replacement: bytes


def apply_edits(text: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply edits, which must be in text order and must not overlap."""
    pieces: list[bytes] = []
    copied_until = 0
    for start, end, replacement in edits:
        pieces += (text[copied_until:start], replacement)
        copied_until = end
    pieces.append(text[copied_until:])
    return b"".join(pieces)


# Tokens that can contain line feeds, such as raw strings. If a line begins inside such a token, its indent is part of
# the token.

_QUOTED = "(string_literal) @token"
_RAW = "(raw_string_literal) @token"
_SCRIPT = "(string) @token (template_string) @token"
STRING_QUERIES = {
    "python": "(string) @token",
    "rust": f"{_QUOTED} {_RAW}",
    "go": _RAW,
    "java": _QUOTED,
    "c": _QUOTED,
    "c++": f"{_QUOTED} {_RAW}",
    **dict.fromkeys(("javascript", "jsx", "typescript", "tsx"), _SCRIPT),
}
"""Queries for the strings that can contain line feeds, keyed by language."""

_TWO_COMMENT_TYPES = dict.fromkeys(("rust", "java"), "(line_comment) @token (block_comment) @token")
COMMENT_QUERIES = {language: _TWO_COMMENT_TYPES.get(language, "(comment) @token") for language in STRING_QUERIES}
"""Queries for comments, keyed by language."""
JSX_ELEMENT_QUERIES = dict.fromkeys(
    ("javascript", "jsx", "tsx"), "(jsx_element) @token (jsx_self_closing_element) @token"
)
"""Queries for JSX elements, keyed by language. Between tags, // begins no comment."""


LANGUAGES_WITH_CONTINUATIONS = {"python", "c", "c++"}
"""Languages in which a line that ends in a backslash continues on the next line."""
LANGUAGES_WITH_PREPROCESSOR = {"c", "c++"}


def find_multiline_tokens(parsed: Parsed, query: str) -> list[Span]:
    """Return the captured tokens that contain a line feed, in text order. Tokens inside a returned token are left out.

    The function reads only byte offsets, because tree-sitter 0.26.0 crashes when the row or column of a node is read
    (tree-sitter issue 472).
    """
    nodes = captures(parsed, query).get("token", ())
    ranges = sorted((node.start_byte, -node.end_byte) for node in nodes)
    spans: list[Span] = []
    last_end = 0
    for start, negated_end in ranges:
        if -negated_end > last_end and parsed.text.find(b"\n", start, -negated_end) >= 0:
            last_end = -negated_end
            spans.append(Span(start, last_end))
    return spans


# Texts that are safe to rewrite: all parsers and compilers split them into the same lines, and the program does not
# read its own source.

AMBIGUOUS_LINE_ENDS = (b"\0", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""NUL, U+2028 and U+2029. Only some parsers and compilers treat them as the end of a line or of the text."""

SOURCE_INTROSPECTION_WORDS = {"python": (b"lineno", b"getsource", b"getcomments", b"linecache")}
"""Words that suggest that a program reads its own source lines, keyed by language."""

MAX_LOOKBACK_BYTES = 200
"""Number of bytes before a line that are searched for a backslash. If all are whitespace, a backslash is assumed."""


def is_safe_to_rewrite(parsed: Parsed) -> bool:
    """Return True if the text can be rewritten without changing its meaning.

    A text is not safe if it has a carriage return without a line feed. Such a carriage return ends a line in Python
    and JavaScript, but no grammar ends a comment there.
    """
    text = parsed.text
    if text.count(b"\r") != text.count(b"\r\n") or any(separator in text for separator in AMBIGUOUS_LINE_ENDS):
        return False
    return (
        _is_utf8(text)
        and not is_hard_to_query(parsed)
        and not any(word in text for word in SOURCE_INTROSPECTION_WORDS.get(parsed.language, ()))
    )


def is_continuation_line(text: bytes, line_start: int) -> bool:
    """Return True if the previous line ends in a backslash or in ??/, which C and C++ read as a backslash.

    Whitespace after the backslash is skipped, because some compilers ignore such whitespace.
    """
    before = text[max(0, line_start - MAX_LOOKBACK_BYTES) : max(0, line_start - 1)]
    line = before[before.rfind(b"\n") + 1 :].rstrip()
    is_all_whitespace = not line and len(before) == MAX_LOOKBACK_BYTES - 1 and b"\n" not in before
    return is_all_whitespace or line.endswith((b"\\", b"??/"))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
