"""Trees that are nothing but depth: a query looks at all the parents of each node, so 1 MB of `(` would take hours."""

from typing import TYPE_CHECKING

from gristmill.shaping.variants.grammars import Parsed

if TYPE_CHECKING:
    from tree_sitter import TreeCursor

NUM_SAMPLES = 16
MAX_DEPTH = 500
"""Of a sampled node. Code written by people stays below 100."""
MAX_IN_ERROR = 2000
"""Nodes side by side where the grammar gave up: inside, each of them is the parent of those before it."""


def is_too_deep(parsed: Parsed) -> bool:
    """By a few nodes, evenly spread: some deep ones among many cost nothing, many do."""
    root = parsed.tree.root_node
    cursor = root.walk()
    for sample in range(NUM_SAMPLES):
        cursor.goto_descendant(root.descendant_count * sample // NUM_SAMPLES)
        if cursor.depth > MAX_DEPTH or (root.has_error and _is_in_long_error(cursor)):
            return True
    return False


def _is_in_long_error(cursor: "TreeCursor") -> bool:
    while cursor.node and not (cursor.node.is_error and cursor.node.child_count > MAX_IN_ERROR):
        if not cursor.goto_parent():
            return False
    return True
