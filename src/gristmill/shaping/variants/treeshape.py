"""Trees that no query gets through: tree-sitter's cursor takes time that grows with the square of what it meets.

Past 65,535 levels, as in a sum of 100,000 terms; and in an error with tens of thousands of tokens, as in a line of
nothing but brackets: 3 s for 50,000 of them. What the grammar understands may be as wide as it likes.
"""

from typing import TYPE_CHECKING

from gristmill.shaping.variants.grammars import Parsed

if TYPE_CHECKING:
    from tree_sitter import TreeCursor

MAX_DEPTH = 10_000
"""What people write stays below 1,000."""

MAX_ERROR_WIDTH = 10_000
STEP = 5_000


def is_hard_to_query(parsed: Parsed) -> bool:
    """Looks at every STEPth node, and finds all that is over a limit by STEP.

    A path has at least STEP nodes in a row between the levels MAX_DEPTH and MAX_DEPTH + STEP, and a wide error has all
    its tokens: no step gets past them.
    """
    cursor = parsed.tree.walk()
    for index in range(STEP, parsed.tree.root_node.descendant_count, STEP):
        cursor.goto_descendant(index)
        if cursor.depth > MAX_DEPTH or (parsed.tree.root_node.has_error and _is_in_wide_error(cursor)):
            return True
    return False


def _is_in_wide_error(cursor: "TreeCursor") -> bool:
    while cursor.goto_parent():
        node = cursor.node
        if node is not None and node.is_error and node.child_count > MAX_ERROR_WIDTH:
            return True
    return False
