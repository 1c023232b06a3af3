"""Pieces of a text, in bytes, and what is put in their place."""

from collections.abc import Iterable
from typing import NamedTuple

from gristmill.variants.grammars import Parsed, captures, is_hard_to_query


class Span(NamedTuple):
    start: int
    end: int


class Edit(NamedTuple):
    start: int
    """Of what goes."""
    end: int
    new: bytes


def apply_edits(text: bytes, edits: Iterable[Edit]) -> bytes:
    """In one pass: they come in the order of the text and do not overlap."""
    pieces: list[bytes] = []
    done = 0
    for start, end, new in edits:
        pieces += (text[done:start], new)
        done = end
    pieces.append(text[done:])
    return b"".join(pieces)


# Tokens with line feeds in them, such as raw strings: the lines that begin inside one are a part of it.

_QUOTED = "(string_literal) @token"
_RAW = "(raw_string_literal) @token"
_SCRIPT = "(string) @token (template_string) @token"
STRINGS = {
    "python": "(string) @token",
    "rust": f"{_QUOTED} {_RAW}",
    "go": _RAW,
    "java": _QUOTED,
    "c": _QUOTED,
    "c++": f"{_QUOTED} {_RAW}",
    **dict.fromkeys(("javascript", "jsx", "typescript", "tsx"), _SCRIPT),
}
"""Those that can have line feeds in them."""

_KINDS = dict.fromkeys(("rust", "java"), "(line_comment) @token (block_comment) @token")
COMMENTS = {language: _KINDS.get(language, "(comment) @token") for language in STRINGS}
ELEMENTS = dict.fromkeys(("javascript", "jsx", "tsx"), "(jsx_element) @token (jsx_self_closing_element) @token")
"""Of JSX: what stands between them is text, // included."""


HAS_CONTINUATIONS = {"python", "c", "c++"}
"""A backslash ends a line that goes on in the next one."""
HAS_PREPROCESSOR = {"c", "c++"}


def long_tokens(parsed: Parsed, query: str) -> list[Span]:
    """In the order of the text; of those within each other the outermost.

    Rows are not asked for: tree-sitter 0.26.0 crashes on a node's points (its issue 472).
    """
    nodes = captures(parsed, query).get("token", ())
    found = sorted((node.start_byte, -node.end_byte) for node in nodes)
    long: list[Span] = []
    reach = 0
    for start, minus_end in found:
        if -minus_end > reach and parsed.text.find(b"\n", start, -minus_end) >= 0:
            reach = -minus_end
            long.append(Span(start, reach))
    return long


# Texts that may be written differently: everybody counts their lines alike, and they do not read themselves.

LINE_SEPARATORS = (b"\0", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""NUL, U+2028 and U+2029: what follows them is a new line or the end to some readers and not to others."""

READS_ITSELF = {"python": (b"lineno", b"getsource", b"getcomments", b"linecache")}
"""A program with one of these in it may see its own lines."""

FAR = 200
"""Bytes: a backslash with more blanks than this behind it is taken to be there."""


def may_be_rewritten(parsed: Parsed) -> bool:
    """Lone carriage returns end a line for Python and JavaScript, and a comment for no grammar."""
    text = parsed.text
    if text.count(b"\r") != text.count(b"\r\n") or any(separator in text for separator in LINE_SEPARATORS):
        return False
    return (
        _is_utf8(text)
        and not is_hard_to_query(parsed)
        and not any(word in text for word in READS_ITSELF.get(parsed.language, ()))
    )


def goes_on(text: bytes, line_start: int) -> bool:
    """Whether a backslash ended the line before: blanks behind it are none to some compilers."""
    before = text[max(0, line_start - FAR) : max(0, line_start - 1)]
    line = before[before.rfind(b"\n") + 1 :].rstrip()
    is_all_blanks = not line and len(before) == FAR - 1 and b"\n" not in before
    return is_all_blanks or line.endswith((b"\\", b"??/"))


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
