"""Parse source text into a syntax tree with the tree-sitter grammar of its language.

The grammars are part of the extra gristmill[variants]. Each grammar is a self-contained wheel, so nothing is downloaded
at run time.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from gristmill.core.errors import MissingExtraError

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser, Query, Tree, TreeCursor


GRAMMARS = {
    "python": ("tree_sitter_python", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "jsx": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "c": ("tree_sitter_c", "language"),
    "c++": ("tree_sitter_cpp", "language"),
}
"""Package of each grammar, and name of the function that returns the grammar. The keys are languages in files.jsonl."""

GRAMMAR_PACKAGES = ("tree-sitter", *sorted({package.replace("_", "-") for package, _ in GRAMMARS.values()}))


class Parsed(NamedTuple):
    """A source text with its syntax tree."""

    language: str
    """A key of GRAMMARS."""
    text: bytes
    tree: "Tree"

    @property
    def num_errors(self) -> int:
        """Number of syntax errors: places that the grammar cannot parse, and missing tokens."""
        root = self.tree.root_node
        return sum(map(len, captures(self, ERROR_QUERY).values())) if root.has_error else 0


ERROR_QUERY = "(ERROR) @error (MISSING) @missing"


def is_parsable(language: str) -> bool:
    return language in GRAMMARS


def parse(text: bytes, language: str) -> Parsed:
    """Parse a text. Syntax errors become error nodes in the tree."""
    return Parsed(language, text, _parser(language).parse(text))


def captures(parsed: Parsed, query: str) -> dict[str, list["Node"]]:
    """Return the nodes that a query captures, keyed by capture name, in no particular order."""
    from tree_sitter import QueryCursor  # noqa: PLC0415 - an extra

    return QueryCursor(_query(parsed.language, query)).captures(parsed.tree.root_node)


def require_grammars() -> None:
    """Raise MissingExtraError if any grammar is not installed.

    All grammars are required, because the languages of the sources are still unknown when this function is called.
    """
    for language in GRAMMARS:
        _language(language)


@cache
def _language(language: str) -> "Language":
    package, function = GRAMMARS[language]
    try:
        from tree_sitter import Language  # noqa: PLC0415 - an extra

        return Language(getattr(import_module(package), function)())
    except ImportError as error:
        raise MissingExtraError(f"parsing {language} needs {error.name}: pip install 'gristmill[variants]'.") from None


@cache
def _parser(language: str) -> "Parser":
    from tree_sitter import Parser  # noqa: PLC0415 - an extra

    return Parser(_language(language))


@cache
def _query(language: str, query: str) -> "Query":
    from tree_sitter import Query  # noqa: PLC0415 - an extra

    return Query(_language(language), query)


# Trees that are too slow to query: the time of tree-sitter's query cursor grows quadratically with depth and width.

MAX_DEPTH = 10_000
"""Maximum depth of a tree. Code written by people has a depth below 1,000."""

MAX_ERROR_WIDTH = 10_000
"""Maximum number of children of an error node."""

NODE_STEP = 5_000


def is_hard_to_query(parsed: Parsed) -> bool:
    """Return True if the tree is too deep to query, or has an error node with too many children.

    Only every NODE_STEPth node is inspected. An error node with more than MAX_ERROR_WIDTH children is always found,
    because the node has more than NODE_STEP consecutive descendants. A depth of MAX_DEPTH + NODE_STEP is always found,
    because at least NODE_STEP consecutive nodes are then deeper than MAX_DEPTH. A smaller depth may be missed.
    """
    cursor = parsed.tree.walk()
    for index in range(NODE_STEP, parsed.tree.root_node.descendant_count, NODE_STEP):
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
