"""Choice of the middle of a fill-in-the-middle example: the bytes of a piece that a model has to write.

    nodes = nodes_of(text, language)                                               # once per file
    middle = choose_middle(text, piece, nodes, shares, max_bytes, dice)            # once per piece

    syntax        a node of the tree: a statement, block, body or the arguments of a call (AST-FIM, arXiv 2506.00204)
    lines         some whole lines
    characters    what is between two cuts by chance (Bavarian et al. 2022)

The dice choose one of the three by its share. If the piece has none of that sort, the next one in this order is used:
syntax, lines, characters. The kind of a middle is the one that was used.
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.records import MiddleKind, Range
from gristmill.core.seeded_random import Dice
from gristmill.variants.edits import COMMENTS
from gristmill.variants.grammars import Parsed, captures, is_hard_to_query, parse

Numbers = npt.NDArray[np.int64]


class Middle(NamedTuple):
    start: int
    """First byte, in the text of the file."""
    end: int
    """First byte behind it. Both are between characters."""
    kind: MiddleKind


class Shares(NamedTuple):
    """Relative frequencies: 0 or more, one of them above 0. They need not sum to 1."""

    syntax: float
    lines: float
    characters: float


# Syntax trees -> the nodes that may be a middle.

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
"""By language: the types of nodes of each kind. For BODY, the types of those whose field `body` it is."""
PATTERNS = {MiddleKind.BODY: "({} body: (_) @{})"}
PATTERN = "({}) @{}"

SYNTAX = (MiddleKind.BODY, MiddleKind.BLOCK, MiddleKind.ARGUMENTS, MiddleKind.STATEMENT)
"""Bytes that are nodes of several kinds, like the only statement of a body, are of the first of them."""

PARSED_BYTES = 1 << 16
"""Bytes that are parsed at once."""
LINE_BEGINNINGS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@#/_"
"""First bytes of a line at which a long file is cut."""
MAX_NODES = 50_000
"""Per file: of more, this many that are spread evenly."""
MAX_ERRORS = 0.5
"""Syntax errors per node. Macros in C and C++ cause fewer; a header in C++ that is read as C has more."""
MIN_CONTENT = 2
"""Bytes that are no blanks, brackets, commas, semicolons or comments."""
BLANKS = b" \t\n\r\v\f"
NO_CONTENT = BLANKS + b"()[]{},;"


class Nodes(NamedTuple):
    """Those that may be a middle, by start and end. No two are the same bytes."""

    starts: Numbers
    ends: Numbers
    kinds: npt.NDArray[np.uint8]
    """Indices into SYNTAX."""


def nodes_of(text: bytes, language: str) -> Nodes:
    """Parse a file and find its nodes. A long file is parsed in pieces, each from a line that is not indented.

    tree-sitter takes time that grows with the square of a text full of errors: 0.4 s for 32 KB, 29 s for 260 KB.
    """
    edges = _piece_edges(text)
    found = [(start, find_nodes(parse(text[start:end], language))) for start, end in pairwise(edges)]
    return Nodes(
        np.concatenate([nodes.starts + start for start, nodes in found]),
        np.concatenate([nodes.ends + start for start, nodes in found]),
        np.concatenate([nodes.kinds for _, nodes in found]),
    )


def _piece_edges(text: bytes) -> list[int]:
    edges = [0]
    while len(text) - edges[-1] > PARSED_BYTES:
        start, end = edges[-1], edges[-1] + PARSED_BYTES
        at = max((text.rfind(b"\n" + bytes((one,)), start + 1, end) for one in LINE_BEGINNINGS), default=-1)
        edges.append(at + 1 if at > start else end)
    return [*edges, len(text)]


def find_nodes(parsed: Parsed) -> Nodes:
    """Find the nodes of a file, except those with a syntax error in them.

    None are found in a text with too many errors, or in one that would take too long to query.
    """
    if is_hard_to_query(parsed):
        return _nodes([])
    found = captures(parsed, _query(parsed.language))
    nodes = _nodes(
        [
            (node.start_byte, node.end_byte, rank)
            for rank, kind in enumerate(SYNTAX)
            for node in found.get(kind, ())
            if not node.has_error
        ]
    )
    if parsed.num_errors > MAX_ERRORS * len(nodes.starts):
        return _nodes([])
    content = _content([(node.start_byte, node.end_byte) for node in found.get("token", ())], parsed.text)
    rows = np.flatnonzero(content[nodes.ends] - content[nodes.starts] >= MIN_CONTENT)
    if len(rows) > MAX_NODES:
        rows = rows[np.arange(MAX_NODES) * len(rows) // MAX_NODES]
    return Nodes(nodes.starts[rows], nodes.ends[rows], nodes.kinds[rows])


@cache
def _query(language: str) -> str:
    patterns = [
        PATTERNS.get(kind, PATTERN).format(node_type, kind)
        for kind, node_types in NODE_TYPES[language].items()
        for node_type in node_types.split()
    ]
    return " ".join((*patterns, COMMENTS[language]))


def _nodes(found: list[tuple[int, int, int]]) -> Nodes:
    starts, ends, kinds = np.array(found, np.int64).reshape(-1, 3).T
    order = np.lexsort((kinds, ends, starts))
    starts, ends, kinds = starts[order], ends[order], kinds[order]
    is_new = np.ones(len(starts), bool)
    is_new[1:] = (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
    return Nodes(starts[is_new], ends[is_new], kinds[is_new].astype(np.uint8))


def _content(comments: list[Range], text: bytes) -> Numbers:
    """Bytes of content before each byte of the text, and before its end."""
    is_content = ~_is_any_of(np.frombuffer(text, np.uint8), NO_CONTENT)
    for start, end in comments:
        is_content[start:end] = False
    return np.concatenate(([0], np.cumsum(is_content)))


def _is_any_of(octets: npt.NDArray[np.uint8], some: bytes) -> npt.NDArray[np.bool_]:
    table = np.zeros(256, bool)
    table[list(some)] = True
    found: npt.NDArray[np.bool_] = table[octets]
    return found


# Pieces of a text -> their middles. Each of the three returns None if the piece has no middle of its sort.

NEWLINE = 0x0A


class _Piece(NamedTuple):
    text: bytes
    """The whole file's."""
    start: int
    end: int
    max_bytes: int
    nodes: Nodes | None

    @property
    def octets(self) -> npt.NDArray[np.uint8]:
        """One more than the piece has, if the text goes on."""
        return np.frombuffer(self.text, np.uint8)[self.start : self.end + 1]


def choose_middle(  # noqa: PLR0917 - all six decide
    text: bytes, piece: Range, nodes: Nodes | None, shares: Shares, max_bytes: int, dice: Dice
) -> Middle | None:
    """Choose by chance a middle that is in the piece, is not all of it, and is not blank.

    `text` is UTF-8. `nodes` is None if the language has no grammar.

    Returns None if no character of the piece can be a middle: all are blank or longer than max_bytes, or there is
    only one.
    """
    start, end = piece
    if end - start < 2 or max_bytes < 1:  # noqa: PLR2004 - a middle and something beside it
        return None
    sought = _Piece(text, start, end, min(max_bytes, end - start - 1), nodes)
    for choose in CHOICES[_drawn(shares, dice) :]:
        middle = choose(sought, dice)
        if middle is not None:
            return middle
    return None


def _drawn(shares: Shares, dice: Dice) -> int:
    """Index into the shares, and into CHOICES."""
    place = dice.fraction() * sum(shares)
    if place < shares.syntax:
        return 0
    return 1 if place < shares.syntax + shares.lines else 2


def _by_syntax(piece: _Piece, dice: Dice) -> Middle | None:
    """First the kind, then a node of it: else most middles would be arguments and short statements."""
    if piece.nodes is None:
        return None
    starts, ends, kinds = piece.nodes
    first, last = np.searchsorted(starts, (piece.start, piece.end))
    starts, ends, kinds = starts[first:last], ends[first:last], kinds[first:last]
    fits = (ends <= piece.end) & (ends - starts <= piece.max_bytes)
    counts = np.bincount(kinds[fits], minlength=len(SYNTAX))
    if not counts.any():
        return None
    kind = dice.one_of(np.flatnonzero(counts).tolist())
    row = dice.one_of(np.flatnonzero(fits & (kinds == kind)).tolist())
    return Middle(int(starts[row]), int(ends[row]), SYNTAX[kind])


def _by_lines(piece: _Piece, dice: Dice) -> Middle | None:
    """Draw the first line uniformly among those that are not blank, then the power of two of how many there are.

    1, 2 to 3, 4 to 7 and so on are equally likely, up to as many as fit.
    """
    borders = _line_borders(piece)
    is_content = ~_is_any_of(piece.octets, BLANKS)
    content = np.concatenate(([0], np.cumsum(is_content)))[borders - piece.start]
    firsts = np.flatnonzero((np.diff(borders) <= piece.max_bytes) & (np.diff(content) > 0))
    if not len(firsts):
        return None
    first = dice.one_of(firsts.tolist())
    start = int(borders[first])
    most = int(np.searchsorted(borders, start + piece.max_bytes, "right")) - 1 - first
    at_least = 1 << dice.below(most.bit_length())
    count = at_least + dice.below(min(at_least, most - at_least + 1))
    return Middle(start, int(borders[first + count]), MiddleKind.LINES)


def _line_borders(piece: _Piece) -> Numbers:
    """Return the beginnings of all lines that are wholly in the piece, and the end of the last one."""
    text, start, end = piece.text, piece.start, piece.end
    borders = np.flatnonzero(piece.octets[: end - start] == NEWLINE) + start + 1
    if start == 0 or text[start - 1] == NEWLINE:
        borders = np.concatenate(([start], borders))
    if end == len(text) and text[end - 1 : end] != b"\n":
        borders = np.concatenate((borders, [end]))
    return borders


def _by_characters(piece: _Piece, dice: Dice) -> Middle | None:
    """Draw two cuts. If they are too far apart, the first one drawn stays, and the other comes nearer.

    If all between them is blank, the middle is the next character that is not, or else the last one before.
    """
    borders = _character_borders(piece)
    if len(borders) == 0:
        return None
    one, other = dice.below(len(borders)), dice.below(len(borders))
    nearest = int(np.searchsorted(borders, borders[one] - piece.max_bytes))
    farthest = int(np.searchsorted(borders, borders[one] + piece.max_bytes, "right")) - 1
    other = min(max(other, nearest), farthest)
    first, last = min(one, other), max(one, other)
    if not piece.text[borders[first] : borders[last]].strip():
        is_content = ~_is_any_of(piece.octets[borders[:-1] - piece.start], BLANKS)
        characters = np.flatnonzero(is_content & (np.diff(borders) <= piece.max_bytes))
        if not len(characters):
            return None
        following = int(np.searchsorted(characters, first))
        first = int(characters[min(following, len(characters) - 1)])
        last = first + 1
    return Middle(int(borders[first]), int(borders[last]), MiddleKind.CHARACTERS)


def _character_borders(piece: _Piece) -> Numbers:
    """Return the beginnings of all characters that are wholly in the piece, and the end of the last one."""
    borders = np.flatnonzero(piece.octets & 0xC0 != 0x80) + piece.start  # noqa: PLR2004 - bytes that continue one
    return np.append(borders, piece.end) if piece.end == len(piece.text) else borders


CHOICES: tuple[Callable[[_Piece, Dice], Middle | None], ...] = (_by_syntax, _by_lines, _by_characters)
"""In the order of Shares: if a piece has no middle of one sort, the next one is tried."""
