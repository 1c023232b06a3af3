"""Docstrings of Python that may go as comments do. A program can see a docstring, so most may not.

Stays: a module's (build tools read it), one of a class with bases or of anything decorated (which can look at it), one
with an example that doctest would run, and all of a file with a word in it that has to do with reading docstrings, such
as __doc__, argparse or pydantic. What goes beyond that is what `python -OO` takes away.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import re2

from gristmill.shaping.variants.edits import Edit, Span
from gristmill.shaping.variants.grammars import Parsed, captures
from gristmill.shaping.variants.plain_text import goes_on

if TYPE_CHECKING:
    from tree_sitter import Node

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
        for edit in _removal(parsed.text, body, Span(body.start_byte, ends[body.start_byte]))
    )


@cache
def _readers() -> Any:
    """RE2, which reads the text once for all the words."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(b"|".join(map(re.escape, READERS)), options)


def _removal(text: bytes, body: "Node", docstring: Span) -> Iterator[Edit]:
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
