"""A syntax tree -> the heads of what it defines: what code written from a description must keep to fit its callers.

    def area(width: float, height: float) -> float:
    class Shape(Base):
      def draw(self) -> None:

By fields that the grammars share, not by the names of their nodes: what has a body ends before it.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gristmill.shaping.variants.grammars import Parsed

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_SIGNATURES = 200
MAX_SIGNATURE_CHARACTERS = 300
MAX_DEPTH = 12
"""Of nodes: a method in a class in a namespace in a preprocessor block is at 8."""

NAMING = ("name", "declarator", "left", "type")
ENDING = ("body", "value", "right")
"""The fields where a head ends."""
WHOLE = frozenset(
    {
        "declaration",
        "enum_variant",
        "field_declaration",
        "function_signature",
        "function_signature_item",
        "method_declaration",
        "method_elem",
        "method_signature",
        "property_signature",
        "type_definition",
        "type_spec",
    }
)
"""Nodes that may have no such field, and are all head."""
RUNS = ("function", "method", "constructor", "lambda", "call", "closure", "for", "comprehension", "while")
"""Parts of the names of nodes within which all is local."""


def signatures_of(parsed: Parsed) -> list[str]:
    return list(islice(_heads(parsed.tree.root_node, parsed.text), MAX_SIGNATURES))


def _heads(node: "Node", text: bytes, depth: int = 0, indent: str = "") -> Iterator[str]:
    for child in node.named_children:
        runs = any(part in child.type for part in RUNS)
        end = None if runs and child.child_by_field_name("left") else _end_of_head(child)
        if end is not None:
            yield indent + _one_line(text[child.start_byte : end])
        # Of what has a head, the body alone: a table of a million numbers defines nothing.
        inside = child if end is None else child.child_by_field_name("body")
        if inside is not None and not runs and depth < MAX_DEPTH:
            yield from _heads(inside, text, depth + 1, indent if end is None else f"{indent}  ")


def _end_of_head(node: "Node") -> int | None:
    """None for what defines nothing."""
    if not any(node.child_by_field_name(field) for field in NAMING):
        return None
    ends = [child for field in ENDING if (child := node.child_by_field_name(field))]
    if not ends:
        return node.end_byte if node.type in WHOLE else None
    first = min(ends, key=lambda child: child.start_byte)
    body = first.child_by_field_name("body")  # `const area = (width, height) => {`
    return body.start_byte if body and "function" in first.type else first.start_byte


def _one_line(head: bytes) -> str:
    return " ".join(head.decode("utf-8", "replace").split())[:MAX_SIGNATURE_CHARACTERS].rstrip(" ={")
