"""Tokens with line feeds in them, such as raw strings: the lines that begin inside one are a part of it."""

from gristmill.shaping.variants.edits import Span
from gristmill.shaping.variants.grammars import Parsed, captures

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
