"""Test that the generated corpus has the same bytes on every machine and resembles real code."""

import ast
import hashlib

from gristmill.core.records import DropReason
from support.made_code import made_library, made_module

DIGEST = "fbc1635141eca51e6f5a8a0ed1756a85c8db11d98332a8557d64d83ab9f2a085"


def test_corpus_has_the_same_bytes_everywhere():
    texts = made_library()
    digest = hashlib.sha256("".join(f"{path}\0{texts[path]}\0" for path in sorted(texts)).encode()).hexdigest()
    assert digest == DIGEST, "the generated corpus has changed. Check all numbers in tests that depend on it."


def test_text_depends_only_on_the_name():
    assert made_module("b.py", 3000) == made_module("b.py", 3000) != made_module("c.py", 3000)
    assert made_module("a.rs", 2000).startswith("// ")


def test_python_files_can_be_parsed():
    for path, text in made_library().items():
        if path.endswith(".py"):
            ast.parse(text)


def test_build_of_the_corpus_finds_duplicates(built):
    _, manifest = built
    assert manifest.counts.found == len(made_library())
    assert {DropReason.EXACT_DUPLICATE, DropReason.NEAR_DUPLICATE} <= manifest.counts.dropped_by_reason.keys()
