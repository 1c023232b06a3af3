"""Source text -> a syntax tree, by the tree-sitter grammar of its language. An extra: gristmill[variants].

Each grammar is a wheel of its own that carries what it needs; nothing is fetched at run time.
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
"""By language, as files.jsonl names it: the package, and the function in it."""

GRAMMAR_PACKAGES = ("tree-sitter", *sorted({package.replace("_", "-") for package, _ in GRAMMARS.values()}))


class Parsed(NamedTuple):
    language: str
    """One of GRAMMARS."""
    text: bytes
    tree: "Tree"

    @property
    def num_errors(self) -> int:
        """Places that the grammar could make nothing of, or where it had to assume something."""
        root = self.tree.root_node
        return sum(map(len, captures(self, ERRORS).values())) if root.has_error else 0


ERRORS = "(ERROR) @error (MISSING) @missing"


def is_parsable(language: str) -> bool:
    return language in GRAMMARS


def parse(text: bytes, language: str) -> Parsed:
    """Whatever the text: what is wrong in it becomes errors in the tree."""
    return Parsed(language, text, _parser(language).parse(text))


def captures(parsed: Parsed, query: str) -> dict[str, list["Node"]]:
    """By the names in the query, in no order."""
    from tree_sitter import QueryCursor  # noqa: PLC0415 - an extra

    return QueryCursor(_query(parsed.language, query)).captures(parsed.tree.root_node)


def require_grammars() -> None:
    """Before any work is done: all of them, as nobody knows yet what the sources hold."""
    for language in GRAMMARS:
        _language(language)


@cache
def _language(language: str) -> "Language":
    package, function = GRAMMARS[language]
    try:
        from tree_sitter import Language  # noqa: PLC0415 - an extra

        return Language(getattr(import_module(package), function)())
    except ImportError as error:
        raise MissingExtraError(
            f"variants of {language} need {error.name}. Install it: pip install 'gristmill[variants]'"
        ) from None


@cache
def _parser(language: str) -> "Parser":
    from tree_sitter import Parser  # noqa: PLC0415 - an extra

    return Parser(_language(language))


@cache
def _query(language: str, query: str) -> "Query":
    from tree_sitter import Query  # noqa: PLC0415 - an extra

    return Query(_language(language), query)


# Trees that no query gets through: tree-sitter's cursor takes time that grows with the square of what it meets.

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
