"""Comments are removed or moved without changing the program."""

import ast
import random

import pytest

from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.comments import vary_comments
from gristmill.variants.grammars import GRAMMARS, parse

NUM_SEEDS = 12
COMMENT_TYPES = {"comment", "line_comment", "block_comment"}


def variants(text, language):
    """Return the variants for several seeds."""
    parsed = parse(text, language)
    return {vary_comments(parsed, SeededRandom(seed)) for seed in range(NUM_SEEDS)}


def list_tokens(text, language):
    parsed = parse(text, language)
    found, nodes = [], [parsed.tree.root_node]
    while nodes:
        node = nodes.pop()
        if node.type in COMMENT_TYPES:
            continue
        nodes += reversed(node.children)
        if not node.children:
            found.append((node.type, text[node.start_byte : node.end_byte]))
    return found


def dump_without_docstrings(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
            if [type(statement) for statement in node.body] == [ast.Pass]:
                node.body = []
    return ast.dump(tree)


STRIPPED = {
    "python": (b"# why\nx = f(a)  # how\n\n\ny = 1\n", b"x = f(a)\n\n\ny = 1\n"),
    "rust": (b"// why\nlet x = a /* b */ + 1; // how\n", b"let x = a + 1;\n"),
    "javascript": (b"// why\nx = a/* b */+ 1 // how\ny()\n", b"x = a + 1\ny()\n"),
    "jsx": (b"x = <a>{f(/* b */ 1)}</a> // how\n", b"x = <a>{f( 1)}</a>\n"),
    "typescript": (b"let x: /* b */ number = 1 // how\n", b"let x: number = 1\n"),
    "tsx": (b"/** why */\nlet x = 1;\n", b"let x = 1;\n"),
    "go": (b"package a\n\n// why\n\nvar x = 1 // how\n", b"package a\n\n\nvar x = 1\n"),
    "java": (b"/** why\n * and how */\nclass A { int x; /* b */ }\n", b"class A { int x; }\n"),
    "c": (b"/* why */ int x; // how\nint/**/y;\n", b"int x;\nint y;\n"),
    "c++": (b"  /* a */ /* b */\nint x; /* how\n */\n", b"int x;\n"),
}


@pytest.mark.parametrize("language", GRAMMARS)
def test_all_comments_are_removed_and_tokens_stay_separate(language):
    text, expected = STRIPPED[language]
    found = variants(text, language)
    assert expected in found
    for variant in found:
        assert list_tokens(variant, language) == list_tokens(text, language)


KEPT = [
    ("python", b"#!/usr/bin/env python\n# -*- coding: latin-1 -*-\nx = []  # type: list[int]\n"),
    ("python", b"import os  # noqa: F401\nif x:  # pragma: no cover\n    y  # pylint: disable=all\n"),
    ("python", b"# Copyright 2020 Somebody\n#\n# All of it.\nx = 1\n"),
    ("python", b"x = 1\n# SPDX-License-Identifier: MIT\n"),
    ("python", b"# /// script\n# dependencies = []\n# ///\nimport a\n"),
    ("python", b"x = 1 + \\\n    y  # why\n"),
    ("python", b"x = 1 \\\n# why\ny = 2\n"),
    ("python", b"x = = 1  # a\n"),
    ("python", b"x = f.f_lineno  # which is 1\n"),
    ("python", b"x = 1  # a\ry = 2\n"),
    ("python", b"x = '# a'\n"),
    ("rust", b"//! of the module\n/// of f\n#[a]\nfn f() {}\n/** of g */\nfn g() {}\n"),
    ("javascript", b"// @ts-ignore\nx()\n/*! kept */\n// eslint-disable-line\n//# sourceMappingURL=x\n"),
    ("javascript", b"import(/* webpackChunkName: 'a' */ 'a')\n/// <reference path='a' />\n"),
    ("javascript", b"var text = function () {/* a text */}.toString()\n"),
    ("javascript", "x = 1 // a\u2028y = 2\n".encode()),
    ("tsx", b"let x = <a>{/* c */}</a>\n"),
    ("tsx", b"let x = <a>// c\n</a>\n"),
    (
        "go",
        b"//go:build linux\n// +build linux\n\npackage a\n\n//go:embed x\nvar x string\n\n//export f\nfunc f() {}\n",
    ),
    ("go", b'package a\n\n// #include "a.h"\nimport "C" // why\n'),
    ("go", b"package a\n\nfunc ExampleF() {\n\tf()\n\t// Output:\n\t// one\n}\n"),
    ("java", b"// \\u000a class A {}\n"),
    ("java", b"class A { /** @deprecated */ void f() {} }\n"),
    ("c", b"#define A 1 /* a */\n#define B \\\n  /* b */ 2\n"),
    ("c", b"// goes on \\\nint y;\nint x;\n"),
    ("c", b"void f() { switch (x) { case 1: f(); /* fall through */ case 2:; } }\n"),
    ("c++", b'auto x = R"(// a\n/* b */)";\n'),
    *((language, b"") for language in GRAMMARS),
]


@pytest.mark.parametrize(("language", "text"), KEPT)
def test_comments_that_programs_read_are_kept(language, text):
    assert variants(text, language) == {None}


def test_file_of_only_comments_has_no_variant():
    assert variants(b"# a", "python") == {None}


def test_removed_comment_with_a_line_feed_leaves_a_line_feed():
    assert b"return\nx\n" in variants(b"return /* a\n b */ x\n", "javascript")
    assert b"package a\r\n\r\nvar x = f\r\n(1)\r\n" in variants(b"package a\r\n\r\nvar x = f /* a\r\n */ (1)\r\n", "go")


def test_line_ends_are_kept():
    assert b"x = 1\r\ny = 2\r\n" in variants(b"x = 1  # a\r\n# b\r\ny = 2\r\n", "python")
    assert b"x = 1" in variants(b"x = 1\n# b", "python")
    assert b"\xef\xbb\xbfx = 1\n\x0c\n" in variants(b"\xef\xbb\xbfx = 1  # a\n\x0c# b\n", "python")


def test_comments_move_by_a_line():
    text = b"if x:\n    y = 1  # why\n    # how\n    z = 2\n"
    found = variants(text, "python")
    assert b"if x:\n    # why\n    y = 1\n    # how\n    z = 2\n" not in found  # "how" may continue the comment "why"
    assert b"if x:\n    # why\n    y = 1\n" in variants(b"if x:\n    y = 1  # why\n", "python")
    assert b"f();\r\n  // a\r\n  g();\r\n" in variants(b"f();\r\n  g(); // a\r\n", "c")
    assert b"f()\ng()  // a\n" in variants(b"f()\n// a\ng()\n", "javascript")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", b'x = """\n"""  # a\n'),
        ("javascript", b"x = `\n${f( // a\n)}`\n"),
        ("jsx", b"x = <a>\n  {f( // a\n  )}</a>\n"),
        ("rust", b'let x = "\n"; // a\n'),
        ("go", b"package a\n\nvar x = `\n` // a\n"),
        ("java", b'class A { String x = """\n  """; // a\n}\n'),
    ],
)
def test_no_comment_moves_into_a_string(language, text):
    for variant in variants(text, language):
        assert list_tokens(variant, language) == list_tokens(text, language)


def test_unread_docstrings_are_removed():
    text = b'def f():\n    """Why."""\n    return 1\n\n\nclass A:\n    """Why."""\n'
    assert b"def f():\n    return 1\n\n\nclass A:\n    pass\n" in variants(text, "python")


@pytest.mark.parametrize(
    "text",
    [
        b'"""Why."""\nx = 1\n',
        b'def f():\n    """Why."""\nprint(f.__doc__)\n',
        b'import argparse\ndef f():\n    """Why."""\n',
        b'@tool\ndef f():\n    """Why."""\n',
        b'class A(Base):\n    """Why."""\n',
        b'def f():\n    """>>> f()"""\n',
        b'def f():\n    """Why."""\n    "and how"\n',
        b'def f(): "Why."\n',
        b'def f():\n    b"no docstring"\n',
        b'def f():\n    "a"; x = 1\n',
    ],
)
def test_docstrings_that_may_be_read_are_kept(text):
    assert variants(text, "python") == {None}


def test_comments_are_deterministic_for_a_seed():
    text = b"x = 1  # a\n# b\ny = 2  # c\n" * 20
    assert {vary_comments(parse(text, "python"), SeededRandom(1)) for _ in range(3)} == {
        vary_comments(parse(text, "python"), SeededRandom(1))
    }
    assert len(variants(text, "python")) > 3


def test_comments_of_real_code_keep_the_ast(own_files):
    num_variants = 0
    for path in own_files[::4]:
        text = path.read_bytes()
        parsed, expected = parse(text, "python"), dump_without_docstrings(ast.parse(text))
        for seed in range(2):
            variant = vary_comments(parsed, SeededRandom(seed, path.name))
            if variant is not None:
                num_variants += 1
                assert variant != text
                assert parse(variant, "python").num_errors == 0
                assert dump_without_docstrings(ast.parse(variant)) == expected, path
    assert num_variants > 80


NUM_BYTES = 20_000
HOSTILE = {
    "junk": random.Random(1).randbytes(NUM_BYTES),
    "NUL": b"x = 1 # a\0\n",
    "comments on one line": b"x /* a */ + " * (NUM_BYTES // 12),
    "comments alone on one line": b"/* a */" * (NUM_BYTES // 7),
    "deep brackets": b"(" * NUM_BYTES + b"/* a */ # b",
    "deep blocks": b"".join(b" " * depth + b"if x:  # a\n" for depth in range(200)),
    "a long line": b'x = "' + b"a" * 1_000_000 + b'"  # a',
    "backslashes": b"\\\n" * 1000 + b"# a\n",
    "hashes": b"#" * NUM_BYTES,
    "spaces": b"/* a */" + b" " * NUM_BYTES + b"/* b */" + b"\n" * NUM_BYTES + b"x",
    "an open comment": b"/* a\n" * 100,
    "an open string": b'x = "a // b\n' * 100,
}


@pytest.mark.parametrize("language", GRAMMARS)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.timeout(20)
def test_comments_of_hostile_texts_terminate(language, text):
    parsed = parse(text, language)
    assert text not in {vary_comments(parsed, SeededRandom(seed)) for seed in range(3)}
