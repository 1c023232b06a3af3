"""The corpus of the tests: the same bytes everywhere, and like code."""

import ast
import hashlib

from gristmill.core.records import DropReason
from support.made_code import made_library, made_module

DIGEST = "fbc1635141eca51e6f5a8a0ed1756a85c8db11d98332a8557d64d83ab9f2a085"


def test_it_is_the_same_everywhere():
    texts = made_library()
    digest = hashlib.sha256("".join(f"{path}\0{texts[path]}\0" for path in sorted(texts)).encode()).hexdigest()
    assert digest == DIGEST, "each number that a test expects of the corpus is to be looked at again"


def test_each_name_has_its_own_text_whatever_came_before():
    assert made_module("b.py", 3000) == made_module("b.py", 3000) != made_module("c.py", 3000)
    assert made_module("a.rs", 2000).startswith("// ")


def test_python_in_it_is_python():
    for path, text in made_library().items():
        if path.endswith(".py"):
            ast.parse(text)


def test_a_build_of_it_has_something_to_do(built):
    _, manifest = built
    assert manifest.counts.found == len(made_library())
    assert {DropReason.EXACT_DUPLICATE, DropReason.NEAR_DUPLICATE} <= manifest.counts.dropped_by_reason.keys()
