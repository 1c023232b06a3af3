"""A change of layout preserves the tokens of a program."""

import ast
import random

import pytest

from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.code_layout import vary_layout
from gristmill.variants.grammars import GRAMMARS, parse

NUM_SEEDS = 150


def variants(text, language):
    """Return the variants for many seeds."""
    parsed = parse(text, language)
    return {vary_layout(parsed, SeededRandom(seed)) for seed in range(NUM_SEEDS)}


def list_tokens(text, language):
    """Return the tokens of a text. Strings are listed without quotes, and JSX text as words."""
    found, nodes = [], [parse(text, language).tree.root_node]
    while nodes:
        node = nodes.pop()
        piece = text[node.start_byte : node.end_byte]
        if node.type == "string":
            found.append(piece[1:-1])
        elif node.type == "jsx_text":
            found += piece.split()
        elif "comment" not in node.type:
            nodes += reversed(node.children)
            found += [] if node.children else [piece]
    return found


PYTHON = b"def f(x):\n    if x:\n        return 'a'\n    return g(x,\n             1)\n\n\ny = 2\n"
BRACES = b"int f() {\n    /* a\n     * b */\n    return g(1,\n             2);\n}\n\n\nint y;\n"


def test_indent_unit_changes_and_alignment_is_kept():
    found = variants(PYTHON, "python")
    assert b"def f(x):\n  if x:\n    return 'a'\n  return g(x,\n           1)\n\n\ny = 2\n" in found
    assert b"def f(x):\n\tif x:\n\t\treturn 'a'\n\treturn g(x,\n\t         1)\n\n\ny = 2\n" in found
    assert b"int f() {\n\t/* a\n\t * b */\n\treturn g(1,\n\t         2);\n}\n\n\nint y;\n" in variants(BRACES, "c")


def test_tabs_may_become_spaces():
    text = b"package a\n\nfunc f() {\n\tif x {\n\t\tg(1,\n\t\t  2)\n\t}\n}\n"
    assert text.replace(b"\t", b"    ") in variants(text, "go")


def test_quotes_change_where_both_mean_the_same():
    assert variants(b"x = 'a' + b'b' + 'c\"' + 'd\\n' + f'{e}'\n", "python") == {
        b'x = "a" + b"b" + \'c"\' + \'d\\n\' + f"{e}"\n'
    }
    assert variants(b"let x = <a b='c'>{'d'}</a>\n", "tsx") == {b"let x = <a b='c'>{\"d\"}</a>\n"}


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", b"x = f\"{y['a']}\"\n"),
        ("python", b"x = ''\"\"\n"),
        ("python", b"x = '''a'''\n"),
        ("python", b"if x:\n\ty\n\tz\nif x:\n        y\n"),
        ("python", b"if x:\n    y(\n\t1)\n"),
        ("python", b"x = = 1\n\n\n'a'\n"),
        ("python", b"if x:\n    y = 'a'\r    z\n"),
        ("python", b"x = 1 \\\n\ny = 2\n"),
        ("c", b"#define A 1 \\\n\nint x = 'a';\n"),
        ("java", b"class A { char x = 'a'; String y = \"b\"; }\n"),
        ("rust", b"fn f() { g('a', \"b\") }\n"),
        *((language, b"") for language in GRAMMARS),
    ],
)
def test_text_whose_meaning_would_change_has_no_variant(language, text):
    assert variants(text, language) == {None}


def test_number_of_blank_lines_changes():
    found = variants(b"f()\n\n\ng()\n\nh()\n", "python")
    assert found == {b"f()\n\ng()\n\nh()\n", b"f()\n\n\n\ng()\n\n\nh()\n"}
    assert b"f()\r\n\r\ng()\r\n" in variants(b"f()\r\n\r\n\r\ng()\r\n", "python")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", b'if x:\n    y = """\n    a\n\n\n    b"""\n    z\n'),
        ("javascript", b"if (x) {\n    y = `\n    a\n\n\n    ${b}`;\n    z();\n}\n"),
        ("rust", b'fn f() {\n    g(r"\n    a\n\n\n    b");\n    /** c\n       d */\n    h();\n}\n'),
        ("go", b"package a\n\nfunc f() {\n\tg(`\n\ta\n\n\n\tb`)\n}\n"),
        ("java", b'class A {\n    String x = """\n    a\n\n\n    b""";\n    int y;\n}\n'),
        ("c", b"void f() {\n    g();\n#define A \\\n    x \\\n    y\n    h();\n}\n"),
        ("c++", b'void f() {\n    g(R"(\n    a\n\n\n    b)");\n    h();\n}\n'),
        ("tsx", b"let x = (\n    <a>\n        b c\n        {d}\n    </a>\n);\n"),
    ],
)
def test_multiline_tokens_are_unchanged(language, text):
    found = variants(text, language)
    assert len(found) > 1
    for variant in found:
        assert list_tokens(variant, language) == list_tokens(text, language)


def test_rust_doc_comments_are_unchanged():
    for variant in variants(b"mod a {\n    /** c\n       d */\n    fn f() {\n        g();\n    }\n}\n", "rust"):
        assert b"/** c\n       d */" in variant


def test_first_line_and_missing_last_line_feed_are_kept():
    for variant in variants(b"\xef\xbb\xbfif x:\r\n    y = 'a'", "python"):
        assert variant.startswith(b"\xef\xbb\xbfif x:\r\n")
        assert not variant.endswith(b"\n")


def test_layout_is_deterministic_for_a_seed():
    assert vary_layout(parse(PYTHON, "python"), SeededRandom(3)) == vary_layout(
        parse(PYTHON, "python"), SeededRandom(3)
    )
    assert len(variants(PYTHON, "python")) > 8


def test_layout_of_real_code_keeps_the_ast(own_files):
    num_variants = 0
    for path in own_files[::4]:
        text = path.read_bytes()
        parsed, expected = parse(text, "python"), ast.dump(ast.parse(text))
        for seed in range(2):
            variant = vary_layout(parsed, SeededRandom(seed, path.name))
            if variant is not None:
                num_variants += 1
                assert variant != text
                assert parse(variant, "python").num_errors == 0
                assert ast.dump(ast.parse(variant)) == expected, path
    assert num_variants > 80


HOSTILE = {
    "junk": random.Random(1).randbytes(20_000),
    "NUL": b"if x:\n    y\0\n",
    "deep brackets": b"x = " + b"[" * 10_000 + b"]" * 10_000 + b"\n",
    "deep blocks": b"".join(b" " * depth + b"if x:\n" for depth in range(200)) + b" " * 200 + b"y\n",
    "strings on one line": b"x = [" + b"'a', " * 5_000 + b"]\n",
    "a long line": b'x = "' + b"a" * 1_000_000 + b'"\n',
    "line feeds": b"\n" * 20_000,
    "spaces": b" " * 20_000,
    "form feeds": b"if x:\n    y\n\x0c    z\n\x0c\n\x0c\n",
}


@pytest.mark.parametrize("language", GRAMMARS)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.timeout(20)
def test_layout_of_hostile_texts_terminates(language, text):
    parsed = parse(text, language)
    assert text not in {vary_layout(parsed, SeededRandom(seed)) for seed in range(3)}
