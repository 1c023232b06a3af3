"""Middles are inside their piece, begin and end between characters, and are chosen by method in the given shares."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.core.records import MiddleKind
from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.grammars import GRAMMARS, parse
from gristmill.variants.middles import (
    MAX_NODES,
    MAX_PARSED_BYTES,
    NODE_TYPES,
    SYNTAX_KINDS,
    Middle,
    Shares,
    choose_middle,
    find_nodes,
    nodes_of,
)

BY_SYNTAX, BY_LINES, BY_CHARACTERS = Shares(1, 0, 0), Shares(0, 1, 0), Shares(0, 0, 1)
STATEMENT, BLOCK, BODY, ARGUMENTS = MiddleKind.STATEMENT, MiddleKind.BLOCK, MiddleKind.BODY, MiddleKind.ARGUMENTS

SCRIPT = """
function grind(corn) {
    // never much
    if (corn.weight > 10) { split(corn, "zwölf"); return 1; }
    const fine = corn.map(one => one.half(2.5));
    return fine;
}
class Mill { turn() { this.stones.forEach(function (stone) { stone.turn(90); }); } }
for (;;) {}
"""
TYPED = """
interface Corn { weight: number; name: string }
enum Grain { Wheat, Rye }
function grind(corn: Corn): number {
    if (corn.weight > 10) { split(corn, "zwölf"); }
    return corn.weight;
}
"""
SAMPLES = {
    "python": """
import os

class Mill:
    '''Grinds.'''

    def grind(self, corn):
        if corn.weight > 10:
            self.split(corn, "zwölf")
            return 1
        # never much
        return self.grind(corn.half(2.5))
""",
    "rust": """
use std::fmt;
struct Mill { stones: u8, name: String }
impl Mill {
    fn grind(&self, corn: Corn) -> u8 {
        if corn.weight > 10 { self.split(corn, "zwölf"); }
        let half = corn.half(2.5);
        match half { 1 => 2, _ => 3 }
    }
}
""",
    "javascript": SCRIPT,
    "jsx": SCRIPT + 'const page = <p title="mill">{SCRIPT.map(one => { return <b>{one}</b>; })}</p>;\n',
    "typescript": TYPED,
    "tsx": TYPED + 'const page = <p title="mill">{names.map(one => { return <b>{one}</b>; })}</p>;\n',
    "go": """
package mill

import "fmt"

type Mill struct { stones int; name string }

func (mill *Mill) Grind(corn Corn) int {
	if corn.Weight > 10 { fmt.Println(corn, "zwölf"); return 1 }
	half := corn.Half(2.5)
	return half
}
""",
    "java": """
import java.util.List;
class Mill {
    private int stones = 12;
    Mill(int stones) { this.stones = stones; }
    int grind(Corn corn) {
        if (corn.weight > 10) { split(corn, "zwölf"); return 1; }
        return grind(corn.half(2.5));
    }
}
""",
    "c": """
struct mill { int stones; char *name; };
int grind(struct mill *mill, int corn) {
    if (corn > 10) { split(mill, corn, "zwölf"); return 1; }
    int half = divide(corn, 2);
    for (;;) { }
    return half;
}
""",
    "c++": """
namespace mills {
class Mill { public: int stones; int grind(int corn) { return corn / stones; } };
template <typename T> int grind(T &mill, int corn) {
    if (corn > 10) { mill.split(corn, "zwölf"); return 1; }
    auto halve = [](int one) { return divide(one, 2); };
    for (auto one : mill.corns) { halve(one); }
    return halve(corn);
}
}
""",
}


def sample_text(language):
    return SAMPLES[language].encode()


def sample_nodes(language):
    return find_nodes(parse(sample_text(language), language))


def kinds_and_texts(text, nodes):
    """Return the middles as pairs of kind and text."""
    return [
        (SYNTAX_KINDS[kind], text[start:end].decode())
        for start, end, kind in zip(nodes.starts, nodes.ends, nodes.kinds, strict=True)
    ]


def list_all_nodes(parsed):
    nodes = [parsed.tree.root_node]
    for node in nodes:
        nodes.extend(node.children)
    return nodes


# Nodes of a file.


@pytest.mark.parametrize("language", GRAMMARS)
def test_every_node_type_exists_in_its_grammar(language):
    grammar = parse(b"", language).tree.language
    for kind, node_types in NODE_TYPES[language].items():
        names = node_types.split()
        assert len(names) == len(set(names)), kind
        assert all(grammar.id_for_node_kind(name, True) for name in names), kind


@pytest.mark.parametrize("language", GRAMMARS)
def test_every_language_has_middles_of_every_kind(language):
    parsed = parse(sample_text(language), language)
    assert not parsed.tree.root_node.has_error
    found = kinds_and_texts(parsed.text, find_nodes(parsed))
    assert {kind for kind, _ in found} == set(SYNTAX_KINDS)
    assert any(kind == ARGUMENTS and "zwölf" in middle for kind, middle in found)
    assert any(kind == BODY and "zwölf" in middle for kind, middle in found)
    assert any(kind == BLOCK and "zwölf" in middle for kind, middle in found)
    assert any(kind == STATEMENT and "zwölf" in middle for kind, middle in found)


@pytest.mark.parametrize("language", GRAMMARS)
def test_middles_are_nodes_of_their_kind(language):
    """Compare the middles with those found by a walk over the complete tree."""
    parsed = parse(sample_text(language), language)
    types = {kind: set(names.split()) for kind, names in NODE_TYPES[language].items()}
    expected = {}
    for node in list_all_nodes(parsed):
        kinds = {kind for kind, names in types.items() if kind != BODY and node.type in names}
        owner = node.parent
        if owner is not None and owner.type in types[BODY] and owner.child_by_field_name("body") == node:
            kinds.add(BODY)
        position = (node.start_byte, node.end_byte)
        expected[position] = expected.get(position, set()) | kinds
    nodes = find_nodes(parsed)
    for start, end, kind in zip(nodes.starts, nodes.ends, nodes.kinds, strict=True):
        kinds = expected.pop((int(start), int(end)))
        assert SYNTAX_KINDS[kind] == min(kinds, key=SYNTAX_KINDS.index)
    missing = [parsed.text[start:end] for (start, end), kinds in expected.items() if kinds]
    assert all(len(text.translate(None, b" \n\t(){};,")) < 2 or b"//" in text for text in missing), missing


def test_python_middles_exclude_indentation_and_last_newline():
    text = b"def grind(corn):\n    half = corn / 2\n    if half:\n        return half\n\n\nprint(grind(40))\n"
    assert kinds_and_texts(text, find_nodes(parse(text, "python"))) == [
        (STATEMENT, "def grind(corn):\n    half = corn / 2\n    if half:\n        return half"),
        (STATEMENT, "half = corn / 2"),
        (BODY, "half = corn / 2\n    if half:\n        return half"),
        (STATEMENT, "if half:\n        return half"),
        (BLOCK, "return half"),
        (STATEMENT, "print(grind(40))"),
        (ARGUMENTS, "(grind(40))"),
        (ARGUMENTS, "(40)"),
    ]


@pytest.mark.parametrize("language", GRAMMARS)
def test_no_middle_begins_or_ends_with_whitespace(language):
    for _, middle in kinds_and_texts(sample_text(language), sample_nodes(language)):
        assert middle == middle.strip()


def test_middles_without_content_are_left_out():
    text = b"function f() { /* nothing to do */ }\ng();\nh(1);\n;;\nif (on) { }\n"
    found = kinds_and_texts(text, find_nodes(parse(text, "javascript")))
    assert found == [
        (STATEMENT, "function f() { /* nothing to do */ }"),
        (STATEMENT, "h(1);"),
        (STATEMENT, "if (on) { }"),
    ]


def test_long_file_is_parsed_in_pieces_from_unindented_lines():
    text = sample_text("python") * 700
    assert len(text) > 2 * MAX_PARSED_BYTES
    expected, found = find_nodes(parse(text, "python")), nodes_of(text, "python")
    assert found.starts.tolist() == sorted(found.starts.tolist())
    assert set(kinds_and_texts(text, found)) == set(kinds_and_texts(text, expected))
    assert 0.9 < len(found.starts) / len(expected.starts) <= 1


def test_no_middle_contains_a_syntax_error():
    text = b"def f():\n    x = = 1\n" + b"def g(a):\n    return h(a, 12)\n" * 20
    nodes = find_nodes(parse(text, "python"))
    assert len(nodes.starts)
    assert not any("= =" in middle for _, middle in kinds_and_texts(text, nodes))


def test_text_with_many_errors_has_no_nodes():
    text = b"<p>To be (or not), that is: the question.</p>\n" * 20
    assert len(find_nodes(parse(text, "java")).starts) == 0


def test_too_many_nodes_are_reduced_evenly():
    text = b"ab = 1\n" * (MAX_NODES + 20_000)
    nodes = find_nodes(parse(text, "python"))
    assert len(nodes.starts) == MAX_NODES
    assert np.diff(nodes.starts).max() == 2 * len(b"ab = 1\n")
    assert len(text) - nodes.ends[-1] < 3 * len(b"ab = 1\n")


HOSTILE = {
    "deep brackets": b"x = " + b"[" * 50_000,
    "deep calls": b"f(aa, " * 9_000 + b"1" + b")" * 9_000,
    "deep blocks": b"{" * 9_000 + b"}" * 9_000,
    "deep functions": b"function f(){" * 5_000 + b"}" * 5_000,
    "deep ifs": b"if (aa) " * 9_000 + b"b;",
    "long chain": b"a" + b".b(cd)" * 20_000,
    "semicolons": b";" * 100_000,
    "zeros": b"\0" * 10_000,
    "nothing": b"",
    "no letter": b"\n \n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("language", ["python", "javascript", "c"])
def test_middles_of_hostile_texts_terminate(text, language):
    nodes = find_nodes(parse(text, language))
    assert len(nodes.starts) <= MAX_NODES
    middle = choose_middle(text, (0, len(text)), nodes, BY_SYNTAX, 1000, SeededRandom(0))
    assert (middle is None) == (not text.strip())


# Middle of a piece.

KINDS = {MiddleKind.LINES: BY_LINES, MiddleKind.CHARACTERS: BY_CHARACTERS}
PIECES = st.text(st.sampled_from("ab \n\tä€𝄞;(") | st.characters(codec="utf-8"), max_size=60).flatmap(
    lambda text: st.tuples(st.just(text), *[st.integers(0, len(text))] * 2)
)
SHARES = st.tuples(*[st.sampled_from((0, 0.5, 1, 3))] * 3).filter(any).map(lambda shares: Shares(*shares))


def character_boundaries(text):
    return {len(text[:index].encode()) for index in range(len(text) + 1)}


def assert_valid_middle(text, piece, max_bytes, middle):
    """Assert that a middle is valid. The offsets in `piece` and `middle` are in bytes."""
    assert piece[0] <= middle.start < middle.end <= piece[1]
    assert (middle.start, middle.end) != piece
    assert middle.end - middle.start <= max_bytes
    assert text.encode()[middle.start : middle.end].strip()
    assert {middle.start, middle.end} <= character_boundaries(text)


@given(
    cut=PIECES,
    shares=SHARES,
    max_bytes=st.integers(0, 80),
    seed=st.integers(0, 99),
    language=st.sampled_from(["c", "python", None]),
)
def test_middle_is_inside_its_piece(cut, shares, max_bytes, seed, language):
    text, *ends = cut
    piece = tuple(len(text[:end].encode()) for end in sorted(ends))
    encoded = text.encode()
    nodes = find_nodes(parse(encoded, language)) if language else None
    middle = choose_middle(encoded, piece, nodes, shares, max_bytes, SeededRandom(seed))
    limit = min(max_bytes, piece[1] - piece[0] - 1)
    characters = [one for one in encoded[slice(*piece)].decode() if one not in " \t\n\r\v\f"]
    if any(len(one.encode()) <= limit for one in characters):
        assert_valid_middle(text, piece, max_bytes, middle)
        assert middle == choose_middle(encoded, piece, nodes, shares, max_bytes, SeededRandom(seed))
    else:
        assert middle is None


@given(
    text=st.text("aä€𝄞\n", max_size=12),
    start=st.integers(0, 40),
    length=st.integers(0, 40),
    seed=st.integers(0, 9),
    shares=SHARES,
)
def test_middle_of_a_piece_cut_inside_a_character_has_complete_characters(text, start, length, seed, shares):
    encoded = text.encode()
    start = min(start, len(encoded))
    piece = (start, min(start + length, len(encoded)))
    middle = choose_middle(encoded, piece, None, shares, 100, SeededRandom(seed))
    if middle is not None:
        assert_valid_middle(text, piece, 100, middle)


@pytest.mark.parametrize("language", GRAMMARS)
@given(
    cuts=st.tuples(st.integers(0, 700), st.integers(0, 700)), max_bytes=st.integers(1, 300), seed=st.integers(0, 999)
)
def test_syntax_share_gives_a_fitting_node_if_any_exists(language, cuts, max_bytes, seed):
    """Compare the middle with all nodes of the file that fit."""
    text, nodes = sample_text(language), sample_nodes(language)
    start, end = sorted(min(cut, len(text)) for cut in cuts)
    fitting = {
        Middle(one, last, SYNTAX_KINDS[kind])
        for one, last, kind in zip(nodes.starts.tolist(), nodes.ends.tolist(), nodes.kinds.tolist(), strict=True)
        if start <= one and last <= end and last - one <= max_bytes and (one, last) != (start, end)
    }
    middle = choose_middle(text, (start, end), nodes, BY_SYNTAX, max_bytes, SeededRandom(seed))
    assert middle in fitting if fitting else middle is None or middle.kind in KINDS


def test_every_fitting_node_is_drawn_and_kinds_are_equally_likely():
    text, nodes = sample_text("python"), sample_nodes("python")
    drawn = Counter(
        choose_middle(text, (0, len(text)), nodes, BY_SYNTAX, 1000, SeededRandom(seed)) for seed in range(4000)
    )
    assert len(drawn) == len(nodes.starts)
    by_kind = Counter()
    for middle, count in drawn.items():
        by_kind[middle.kind] += count
    assert all(900 < by_kind[kind] < 1100 for kind in SYNTAX_KINDS)


@given(cut=PIECES, max_bytes=st.integers(1, 80), seed=st.integers(0, 99))
def test_lines_are_complete_lines_of_the_file(cut, max_bytes, seed):
    """Compare the middle with all runs of complete lines that fit."""
    text, *ends = cut
    start, end = (len(text[:end].encode()) for end in sorted(ends))
    encoded = text.encode()
    boundaries = [0]
    for line in encoded.split(b"\n"):
        boundaries.append(min(boundaries[-1] + len(line) + 1, len(encoded)))
    fitting = {
        (one, last)
        for one in boundaries
        for last in boundaries
        if start <= one < last <= end
        and last - one <= max_bytes
        and (one, last) != (start, end)
        and encoded[one:last].strip()
    }
    middle = choose_middle(encoded, (start, end), None, BY_LINES, max_bytes, SeededRandom(seed))
    if fitting:
        assert middle.kind == MiddleKind.LINES
        assert (middle.start, middle.end) in fitting
    else:
        assert middle is None or middle.kind == MiddleKind.CHARACTERS


def test_first_lines_are_equally_likely_and_short_runs_more_likely():
    text = b"a line\n" * 64 + b"\n"
    middles = [choose_middle(text, (0, len(text)), None, BY_LINES, 448, SeededRandom(seed)) for seed in range(6400)]
    starts = Counter(middle.start for middle in middles)
    assert len(starts) == 64
    assert all(50 < count < 160 for count in starts.values())
    counts = Counter(text[middle.start : middle.end].count(b"line") for middle in middles)
    assert counts[1] > counts[2] > counts[4] > counts[8] > counts[16] > 0
    assert max(counts) > 32


def test_single_line_is_cut_at_characters():
    for text in (b"one line", b"one line\n"):
        assert choose_middle(text, (0, len(text)), None, BY_LINES, 100, SeededRandom(1)).kind == MiddleKind.CHARACTERS


def test_every_pair_of_cuts_is_drawn():
    text = "zwölf€".encode()
    piece = (0, len(text))
    middles = [choose_middle(text, piece, None, BY_CHARACTERS, 100, SeededRandom(seed)) for seed in range(7000)]
    assert {(middle.start, middle.end) for middle in middles} == {
        (start, end)
        for start in character_boundaries("zwölf€")
        for end in character_boundaries("zwölf€")
        if start < end
    } - {piece}


def test_limit_keeps_cut_positions_uniform():
    text = b"x" * 1000
    middles = [choose_middle(text, (0, 1000), None, BY_CHARACTERS, 50, SeededRandom(seed)) for seed in range(4000)]
    assert 480 < sum(middle.start + middle.end for middle in middles) / 8000 < 520


def test_blank_middle_becomes_a_character():
    text = b" " * 500 + b"ab" + b" " * 500
    for seed in range(50):
        middle = choose_middle(text, (0, len(text)), None, BY_CHARACTERS, 3, SeededRandom(seed))
        assert text[middle.start : middle.end].strip()


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        (BY_SYNTAX, [1, 0, 0]),
        (BY_LINES, [0, 1, 0]),
        (BY_CHARACTERS, [0, 0, 1]),
        (Shares(2, 1, 1), [0.5, 0.25, 0.25]),
        (Shares(0, 0.1, 0.3), [0, 0.25, 0.75]),
    ],
)
def test_shares_are_respected(shares, expected):
    text, nodes = sample_text("go"), sample_nodes("go")
    kinds = [choose_middle(text, (0, len(text)), nodes, shares, 1000, SeededRandom(seed)).kind for seed in range(4000)]
    counts = Counter("syntax" if kind in SYNTAX_KINDS else kind for kind in kinds)
    found = [counts[method] / 4000 for method in ("syntax", MiddleKind.LINES, MiddleKind.CHARACTERS)]
    assert found == pytest.approx(expected, abs=0.03)
    assert [bool(one) for one in found] == [bool(one) for one in expected]


def test_lines_then_characters_are_used_without_a_fitting_node():
    text, nodes = sample_text("java"), sample_nodes("java")
    kinds = {
        max_bytes: choose_middle(text, (0, len(text)), nodes, BY_SYNTAX, max_bytes, SeededRandom(3)).kind
        for max_bytes in (1, 500)
    }
    assert kinds[1] == MiddleKind.CHARACTERS
    assert kinds[500] in SYNTAX_KINDS
    assert choose_middle(text, (0, len(text)), None, BY_SYNTAX, 500, SeededRandom(3)).kind == MiddleKind.LINES
