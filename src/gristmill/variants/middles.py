"""Choose the middle of a fill-in-the-middle example: the bytes that a model must write.

A piece is the part of a file in one window. Each piece gets its own middle.

    nodes = nodes_of(text, language)                                               # once per file
    middle = choose_middle(text, piece, nodes, shares, max_bytes, rng)             # once per piece

    syntax        a node of the syntax tree: a statement, a block, a body or arguments (AST-FIM, arXiv 2506.00204)
    lines         some complete lines
    characters    the characters between two random cuts (Bavarian et al. 2022)

One of the three methods is drawn by its share. If this method finds no middle in the piece, the next method in this
order is used. The kind of a middle records the method that was used and, for syntax, the kind of node.
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.records import MiddleKind, Range
from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.edits import COMMENT_QUERIES
from gristmill.variants.grammars import Parsed, captures, is_hard_to_query, parse

IntArray = npt.NDArray[np.int64]


class Middle(NamedTuple):
    start: int
    """Byte offset of the start in the file."""
    end: int
    """Byte offset of the end in the file. `start` and `end` are never inside a character."""
    kind: MiddleKind


class Shares(NamedTuple):
    """Relative frequencies of the three methods. They need not sum to 1, but at least one is above 0."""

    syntax: float
    lines: float
    characters: float


# Nodes of a syntax tree that may be a middle.

_SCRIPT = {
    MiddleKind.STATEMENT: """
        break_statement class_declaration continue_statement debugger_statement do_statement export_statement
        expression_statement for_in_statement for_statement function_declaration generator_function_declaration
        if_statement import_statement labeled_statement lexical_declaration method_definition return_statement
        switch_statement throw_statement try_statement variable_declaration while_statement with_statement
    """,
    MiddleKind.BLOCK: "statement_block switch_body",
    MiddleKind.BODY: """
        arrow_function class class_declaration class_static_block function_declaration function_expression
        generator_function generator_function_declaration method_definition
    """,
    MiddleKind.ARGUMENTS: "arguments",
}
_JAVASCRIPT = {**_SCRIPT, MiddleKind.STATEMENT: _SCRIPT[MiddleKind.STATEMENT] + " field_definition"}
_TYPESCRIPT = {
    **_SCRIPT,
    MiddleKind.STATEMENT: _SCRIPT[MiddleKind.STATEMENT]
    + """
        abstract_class_declaration ambient_declaration enum_declaration function_signature import_alias
        interface_declaration internal_module method_signature module property_signature public_field_definition
        type_alias_declaration
    """,
    MiddleKind.BODY: _SCRIPT[MiddleKind.BODY]
    + " abstract_class_declaration enum_declaration interface_declaration internal_module module",
}
_C = {
    MiddleKind.STATEMENT: """
        break_statement case_statement continue_statement declaration do_statement expression_statement
        field_declaration for_statement function_definition goto_statement if_statement labeled_statement
        return_statement switch_statement type_definition while_statement
    """,
    MiddleKind.BLOCK: "compound_statement",
    MiddleKind.BODY: "enum_specifier function_definition linkage_specification struct_specifier union_specifier",
    MiddleKind.ARGUMENTS: "argument_list",
}
NODE_TYPES = {
    "python": {
        MiddleKind.STATEMENT: """
            assert_statement break_statement class_definition continue_statement decorated_definition delete_statement
            exec_statement expression_statement for_statement function_definition future_import_statement
            global_statement if_statement import_from_statement import_statement match_statement nonlocal_statement
            pass_statement print_statement raise_statement return_statement try_statement type_alias_statement
            while_statement with_statement
        """,
        MiddleKind.BLOCK: "block",
        MiddleKind.BODY: "class_definition function_definition",
        MiddleKind.ARGUMENTS: "argument_list",
    },
    "rust": {
        MiddleKind.STATEMENT: """
            associated_type const_item enum_item expression_statement extern_crate_declaration field_declaration
            foreign_mod_item function_item function_signature_item impl_item let_declaration macro_definition mod_item
            static_item struct_item trait_item type_item union_item use_declaration
        """,
        MiddleKind.BLOCK: "block match_block",
        MiddleKind.BODY: """
            closure_expression enum_item foreign_mod_item function_item impl_item mod_item struct_item trait_item
            union_item
        """,
        MiddleKind.ARGUMENTS: "arguments",
    },
    "javascript": _JAVASCRIPT,
    "jsx": _JAVASCRIPT,
    "typescript": _TYPESCRIPT,
    "tsx": _TYPESCRIPT,
    "go": {
        MiddleKind.STATEMENT: """
            assignment_statement break_statement const_declaration continue_statement dec_statement defer_statement
            expression_statement expression_switch_statement fallthrough_statement field_declaration for_statement
            function_declaration go_statement goto_statement if_statement import_declaration inc_statement
            labeled_statement method_declaration return_statement select_statement send_statement
            short_var_declaration type_declaration type_switch_statement var_declaration
        """,
        MiddleKind.BLOCK: "block field_declaration_list",
        MiddleKind.BODY: "func_literal function_declaration method_declaration",
        MiddleKind.ARGUMENTS: "argument_list",
    },
    "java": {
        MiddleKind.STATEMENT: """
            annotation_type_declaration assert_statement break_statement class_declaration
            compact_constructor_declaration constant_declaration constructor_declaration continue_statement
            do_statement enhanced_for_statement enum_declaration explicit_constructor_invocation expression_statement
            field_declaration for_statement if_statement import_declaration interface_declaration labeled_statement
            local_variable_declaration method_declaration record_declaration return_statement static_initializer
            synchronized_statement throw_statement try_statement try_with_resources_statement while_statement
            yield_statement
        """,
        MiddleKind.BLOCK: "block switch_block",
        MiddleKind.BODY: """
            annotation_type_declaration class_declaration compact_constructor_declaration constructor_declaration
            enum_declaration interface_declaration lambda_expression method_declaration record_declaration
        """,
        MiddleKind.ARGUMENTS: "argument_list",
    },
    "c": _C,
    "c++": {
        **_C,
        MiddleKind.STATEMENT: _C[MiddleKind.STATEMENT]
        + """
            alias_declaration co_return_statement co_yield_statement concept_definition for_range_loop
            friend_declaration namespace_definition static_assert_declaration template_declaration throw_statement
            try_statement using_declaration
        """,
        MiddleKind.BODY: _C[MiddleKind.BODY] + " class_specifier lambda_expression namespace_definition",
    },
}
"""Node types of each kind, keyed by language. For BODY, these nodes have a field `body`, which is the middle."""
PATTERNS = {MiddleKind.BODY: "({} body: (_) @{})"}
DEFAULT_PATTERN = "({}) @{}"

SYNTAX_KINDS = (MiddleKind.BODY, MiddleKind.BLOCK, MiddleKind.ARGUMENTS, MiddleKind.STATEMENT)
"""Kinds of nodes by priority. If a body and its only statement cover the same bytes, the kind is BODY."""

MAX_PARSED_BYTES = 1 << 16
"""Maximum number of bytes to parse at once."""
UNINDENTED_STARTS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@#/_"
"""First bytes of the lines at which a long file is cut."""
MAX_NODES = 50_000
"""Maximum number of nodes per parsed text. If a text has more nodes, evenly spaced nodes are used."""
MAX_ERRORS_PER_NODE = 0.5
"""Maximum ratio of syntax errors to nodes. C code with macros is below it, a C++ header parsed as C above it."""
MIN_CONTENT_BYTES = 2
"""Minimum number of bytes in a middle that are not whitespace, brackets, commas, semicolons or comments."""
WHITESPACE = b" \t\n\r\v\f"
NON_CONTENT_BYTES = WHITESPACE + b"()[]{},;"


class Nodes(NamedTuple):
    """Nodes that may be a middle, sorted by start and end. No two nodes cover the same bytes."""

    starts: IntArray
    ends: IntArray
    kinds: npt.NDArray[np.uint8]
    """Indices into SYNTAX_KINDS."""


def nodes_of(text: bytes, language: str) -> Nodes:
    """Parse a file and find its nodes. A long file is parsed in sections that begin at unindented lines.

    Sections are needed because parsing a text full of errors takes quadratic time: 0.4 s for 32 KB, 29 s for 260 KB.
    """
    edges = _section_edges(text)
    found = [(start, find_nodes(parse(text[start:end], language))) for start, end in pairwise(edges)]
    return Nodes(
        np.concatenate([nodes.starts + start for start, nodes in found]),
        np.concatenate([nodes.ends + start for start, nodes in found]),
        np.concatenate([nodes.kinds for _, nodes in found]),
    )


def _section_edges(text: bytes) -> list[int]:
    edges = [0]
    while len(text) - edges[-1] > MAX_PARSED_BYTES:
        start, end = edges[-1], edges[-1] + MAX_PARSED_BYTES
        cut = max((text.rfind(b"\n" + bytes((byte,)), start + 1, end) for byte in UNINDENTED_STARTS), default=-1)
        edges.append(cut + 1 if cut > start else end)
    return [*edges, len(text)]


def find_nodes(parsed: Parsed) -> Nodes:
    """Find the nodes of a text that may be a middle, except nodes with a syntax error.

    Return no nodes if the text has too many errors or would take too long to query.
    """
    if is_hard_to_query(parsed):
        return _make_nodes([])
    found = captures(parsed, _query(parsed.language))
    nodes = _make_nodes(
        [
            (node.start_byte, node.end_byte, rank)
            for rank, kind in enumerate(SYNTAX_KINDS)
            for node in found.get(kind, ())
            if not node.has_error
        ]
    )
    if parsed.num_errors > MAX_ERRORS_PER_NODE * len(nodes.starts):
        return _make_nodes([])
    content = _count_content([(node.start_byte, node.end_byte) for node in found.get("token", ())], parsed.text)
    rows = np.flatnonzero(content[nodes.ends] - content[nodes.starts] >= MIN_CONTENT_BYTES)
    if len(rows) > MAX_NODES:
        rows = rows[np.arange(MAX_NODES) * len(rows) // MAX_NODES]
    return Nodes(nodes.starts[rows], nodes.ends[rows], nodes.kinds[rows])


@cache
def _query(language: str) -> str:
    patterns = [
        PATTERNS.get(kind, DEFAULT_PATTERN).format(node_type, kind)
        for kind, node_types in NODE_TYPES[language].items()
        for node_type in node_types.split()
    ]
    return " ".join((*patterns, COMMENT_QUERIES[language]))


def _make_nodes(found: list[tuple[int, int, int]]) -> Nodes:
    starts, ends, kinds = np.array(found, np.int64).reshape(-1, 3).T
    order = np.lexsort((kinds, ends, starts))
    starts, ends, kinds = starts[order], ends[order], kinds[order]
    is_new = np.ones(len(starts), bool)
    is_new[1:] = (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
    return Nodes(starts[is_new], ends[is_new], kinds[is_new].astype(np.uint8))


def _count_content(comments: list[Range], text: bytes) -> IntArray:
    """Return the number of content bytes before each byte of the text, and before its end.

    Content bytes are all bytes except NON_CONTENT_BYTES and the bytes of comments.
    """
    is_content = ~_is_in(np.frombuffer(text, np.uint8), NON_CONTENT_BYTES)
    for start, end in comments:
        is_content[start:end] = False
    return np.concatenate(([0], np.cumsum(is_content)))


def _is_in(octets: npt.NDArray[np.uint8], members: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, bool)
    table[list(members)] = True
    found: npt.NDArray[np.bool_] = table[octets]
    return found


# Middles of a piece. Each function in CHOOSERS returns None if it finds no middle in the piece.

NEWLINE = 0x0A


class _Piece(NamedTuple):
    text: bytes
    """Text of the complete file."""
    start: int
    end: int
    max_bytes: int
    nodes: Nodes | None

    @property
    def octets(self) -> npt.NDArray[np.uint8]:
        """Bytes of the piece, and the byte after the piece, if any."""
        return np.frombuffer(self.text, np.uint8)[self.start : self.end + 1]


def choose_middle(  # noqa: PLR0917 - all six are needed
    text: bytes, piece: Range, nodes: Nodes | None, shares: Shares, max_bytes: int, rng: SeededRandom
) -> Middle | None:
    """Draw a middle of a piece. The middle is neither the complete piece nor only whitespace.

    `text` must be UTF-8. `nodes` is None if the language has no grammar.

    Return None if no character of the piece can be a middle: all characters are whitespace or longer than max_bytes, or
    the piece has only one character.
    """
    start, end = piece
    if end - start < 2 or max_bytes < 1:  # noqa: PLR2004 - the middle and at least one more byte
        return None
    bounded_piece = _Piece(text, start, end, min(max_bytes, end - start - 1), nodes)
    for choose in CHOOSERS[_draw_index(shares, rng) :]:
        middle = choose(bounded_piece, rng)
        if middle is not None:
            return middle
    return None


def _draw_index(shares: Shares, rng: SeededRandom) -> int:
    """Draw an index into the shares, which is also an index into CHOOSERS."""
    drawn = rng.fraction() * sum(shares)
    if drawn < shares.syntax:
        return 0
    return 1 if drawn < shares.syntax + shares.lines else 2


def _choose_node(piece: _Piece, rng: SeededRandom) -> Middle | None:
    """Draw a kind, then a node of that kind. Without the first draw, most middles would be arguments or statements."""
    if piece.nodes is None:
        return None
    starts, ends, kinds = piece.nodes
    first, last = np.searchsorted(starts, (piece.start, piece.end))
    starts, ends, kinds = starts[first:last], ends[first:last], kinds[first:last]
    fits = (ends <= piece.end) & (ends - starts <= piece.max_bytes)
    counts = np.bincount(kinds[fits], minlength=len(SYNTAX_KINDS))
    if not counts.any():
        return None
    kind = rng.choice(np.flatnonzero(counts).tolist())
    row = rng.choice(np.flatnonzero(fits & (kinds == kind)).tolist())
    return Middle(int(starts[row]), int(ends[row]), SYNTAX_KINDS[kind])


def _choose_lines(piece: _Piece, rng: SeededRandom) -> Middle | None:
    """Draw the first line uniformly from the lines that are not blank, then draw the number of lines.

    The ranges 1, 2 to 3, 4 to 7 and so on are equally likely, up to the number of lines that fit.
    """
    boundaries = _line_boundaries(piece)
    is_content = ~_is_in(piece.octets, WHITESPACE)
    content = np.concatenate(([0], np.cumsum(is_content)))[boundaries - piece.start]
    firsts = np.flatnonzero((np.diff(boundaries) <= piece.max_bytes) & (np.diff(content) > 0))
    if not len(firsts):
        return None
    first = rng.choice(firsts.tolist())
    start = int(boundaries[first])
    max_lines = int(np.searchsorted(boundaries, start + piece.max_bytes, "right")) - 1 - first
    min_lines = 1 << rng.integer_below(max_lines.bit_length())
    num_lines = min_lines + rng.integer_below(min(min_lines, max_lines - min_lines + 1))
    return Middle(start, int(boundaries[first + num_lines]), MiddleKind.LINES)


def _line_boundaries(piece: _Piece) -> IntArray:
    """Return the starts of all lines that are completely in the piece, and the end of the last line."""
    text, start, end = piece.text, piece.start, piece.end
    boundaries = np.flatnonzero(piece.octets[: end - start] == NEWLINE) + start + 1
    if start == 0 or text[start - 1] == NEWLINE:
        boundaries = np.concatenate(([start], boundaries))
    if end == len(text) and text[end - 1 : end] != b"\n":
        boundaries = np.concatenate((boundaries, [end]))
    return boundaries


def _choose_characters(piece: _Piece, rng: SeededRandom) -> Middle | None:
    """Draw two cuts. If they are too far apart, move the second cut closer to the first.

    If there is only whitespace between the cuts, use the next character that is not whitespace. If no such character
    follows, use the last such character before the cuts.
    """
    boundaries = _character_boundaries(piece)
    if len(boundaries) == 0:
        return None
    first_cut, second_cut = rng.integer_below(len(boundaries)), rng.integer_below(len(boundaries))
    lowest = int(np.searchsorted(boundaries, boundaries[first_cut] - piece.max_bytes))
    highest = int(np.searchsorted(boundaries, boundaries[first_cut] + piece.max_bytes, "right")) - 1
    second_cut = min(max(second_cut, lowest), highest)
    first, last = min(first_cut, second_cut), max(first_cut, second_cut)
    if not piece.text[boundaries[first] : boundaries[last]].strip():
        is_content = ~_is_in(piece.octets[boundaries[:-1] - piece.start], WHITESPACE)
        characters = np.flatnonzero(is_content & (np.diff(boundaries) <= piece.max_bytes))
        if not len(characters):
            return None
        next_character = int(np.searchsorted(characters, first))
        first = int(characters[min(next_character, len(characters) - 1)])
        last = first + 1
    return Middle(int(boundaries[first]), int(boundaries[last]), MiddleKind.CHARACTERS)


def _character_boundaries(piece: _Piece) -> IntArray:
    """Return the starts of all characters that are completely in the piece, and the end of the last character."""
    boundaries = np.flatnonzero(piece.octets & 0xC0 != 0x80) + piece.start  # noqa: PLR2004 - bytes inside a character
    return np.append(boundaries, piece.end) if piece.end == len(piece.text) else boundaries


CHOOSERS: tuple[Callable[[_Piece, SeededRandom], Middle | None], ...] = (
    _choose_node,
    _choose_lines,
    _choose_characters,
)
"""Functions in the order of Shares. If a function finds no middle in a piece, the next function is tried."""
