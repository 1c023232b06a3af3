"""The build and the check order the files of a repository with independent code, and must agree."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gristmill.checks import repo_order as checked
from gristmill.pipeline.repo_order import import_order
from gristmill.sources.imports import GO_MOD, IMPORT_LANGUAGES, MAX_IMPORTS, RepoFiles, find_imports
from gristmill.sources.languages import language_of

PIECES = [
    *(
        "import ",
        "from ",
        " import ",
        "import(",
        "import (",
        "require(",
        "use ",
        "mod ",
        "pub ",
        "pub(crate) ",
        "module ",
    ),
    *(
        "static ",
        "#include ",
        "# include",
        '"',
        "'",
        "(",
        ")",
        "{",
        "}",
        ";",
        ",",
        ".",
        "..",
        "*",
        ".*",
        "::",
        "/",
        "//",
    ),
    *(
        "./",
        "../",
        "#",
        "\\\n",
        "\n",
        "\n",
        "\n",
        "\r\n",
        "\r",
        " ",
        "\t",
        "\x0b",
        "\x0c",
        "\x85",
        "é",
        "\0",
        "as ",
        "_ ",
    ),
    *("a", "b", "c", "a.b", "a.b.C", "a/b", "./a", "'./a'", '"./b.js"', '"../a"', '"a.h"', '"x.org/m/a"', "crate::a"),
    *("crate::a::{b, c::{self, d}}", "super::a", "self::b", "self", "from .a import b\n", "import a.b as c, d\n", "1a"),
    *("from . import (a, # )\n b)\n", 'import "x.org/m/b"\n', 'import (\n\t_ "x.org/m/a"\n)\n', "module x.org/m\n"),
    *("mod a;\n", "pub use crate::b;\n", "import a.b.C;\n", "import static a.b.C.d;\n", "import a.b.*;\n"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


def imports_by_check(text, language):
    """Return the distinct imports among the first MAX_IMPORTS that the check finds."""
    found = []
    for one in checked.READERS[language](b"\n".join(text.split(b"\r\n"))):
        found.append(one)
        if len(found) == MAX_IMPORTS:
            break
    return list(dict.fromkeys(found))


def test_build_and_check_read_the_same_languages():
    assert set(checked.READERS) == IMPORT_LANGUAGES


@pytest.mark.parametrize("language", sorted(IMPORT_LANGUAGES - {"tsx", "jsx", "javascript", "c++"}))
@given(TEXTS)
def test_build_and_check_read_the_same_imports(language, text):
    encoded = text.encode()
    assert imports_by_check(encoded, language) == [tuple(one) for one in find_imports(encoded, language)]


@pytest.mark.parametrize("language", sorted(set(checked.READERS) - {"tsx", "jsx", "javascript", "c++"}))
@pytest.mark.parametrize("piece", ["from a import (", "import (", "use a::{{", "'./", " \t", '#include "', "import a,"])
def test_hostile_text_is_read_in_linear_time(language, piece):
    """The texts are half a million bytes long, on one line or on many lines. Quadratic code would time out."""
    for end in ("", "\n"):
        text = ((piece + end) * (500_000 // len(piece + end))).encode()
        assert imports_by_check(text, language) == [tuple(one) for one in find_imports(text, language)]


FOLDERS = st.sampled_from(["", "", "a/", "a/b/", "b/", "src/", "src/a/", "c/src/a/", "x/a/b/"])
FILES = st.sampled_from(
    [
        *("__init__.py", "a.py", "b.py", "b.pyi", "go.mod", "a.go", "b.go", "a_test.go", ".go", "lib.rs", "main.rs"),
        *("mod.rs", "a.rs", "b.rs", "a.ts", "b.tsx", "index.js", "b.js", "a.mjs", "C.java", "b.java", "a.c", "a.h"),
        *("b.hpp", "x.md"),
    ]
)
TREES = st.dictionaries(st.builds("".join, st.tuples(FOLDERS, FILES)), TEXTS, max_size=14)


@given(TREES)
@example({"a/b/C.java": "import a.b.C.D;\n", "x/a/b/C.java": "", "b/a.go": 'import "x.org/a"\n', "a/a.go": ""})
@example({"go.mod": "module x.org\n", "b/go.mod": "module x.org\n", "a/a.go": 'import "x.org/b"\n', "b/b.go": ""})
def test_build_and_check_resolve_imports_to_the_same_files(tree):
    paths = sorted(tree)
    texts = {path: tree[path].encode() for path in paths}
    languages = {path: language_of(path, texts[path]) for path in paths}
    files, other = RepoFiles(paths), checked._RepoTree(paths)
    for number, path in enumerate(paths):
        if languages[path] == GO_MOD:
            files.add_go_module(number, find_imports(texts[path], GO_MOD))
            other.add_module(path, imports_by_check(texts[path], GO_MOD))
    for number, path in enumerate(paths):
        language = languages[path]
        names = imports_by_check(texts[path], language) if language in IMPORT_LANGUAGES else []
        found = files.imported_by(number, language, find_imports(texts[path], language))
        assert found == other.resolve_imports(number, language, names), path
        assert number not in found


def graphs(max_files):
    """Generate import graphs: for each file, the indices of the files that it imports."""
    return st.integers(0, max_files).flatmap(
        lambda size: st.lists(st.sets(st.integers(0, max(0, size - 1))), min_size=size, max_size=size).map(
            lambda edges: [sorted(imported_here - {number}) for number, imported_here in enumerate(edges)]
        )
    )


def reachable(imported, number):
    """Return all files that a file imports, directly or indirectly."""
    found, pending = set(), list(imported[number])
    while pending:
        one = pending.pop()
        if one not in found:
            found.add(one)
            pending += imported[one]
    return found


def reference_order(imported):
    """Return the order of files. Each step appends the candidate with the fewest pending imports."""
    leads_to = [reachable(imported, number) for number in range(len(imported))]
    order = []
    while len(order) < len(imported):
        pending = {number: set(imported[number]) - set(order) for number in range(len(imported)) if number not in order}
        candidates = [
            (len(imported_here), number)
            for number, imported_here in pending.items()
            if all(number in leads_to[one] for one in imported_here)  # every pending import is in a cycle with the file
        ]
        order.append(min(candidates)[1])
    return order


@given(graphs(9))
@example([[1], [0]])
@example([[2], [0], [1], [0]])
def test_file_comes_after_its_imports(imported):
    order = import_order(imported)
    position = {number: at for at, number in enumerate(order.indices)}
    assert sorted(order.indices) == list(range(len(imported)))
    pairs = [(number, one) for number, imported_here in enumerate(imported) for one in imported_here]
    broken = [(number, one) for number, one in pairs if position[one] > position[number]]
    assert all(number in reachable(imported, one) for number, one in broken)
    assert (order.num_imports, order.num_broken) == (len(pairs), len(broken))
    assert order.indices == reference_order(imported)
    assert (order.indices, order.num_broken) == checked._sort_by_imports(imported)


def test_files_without_imports_are_in_path_order():
    assert import_order([[]] * 5).indices == [0, 1, 2, 3, 4]


def test_chain_of_100_000_files_needs_no_recursion():
    size = 100_000
    chain = [[number + 1] if number + 1 < size else [] for number in range(size)]
    assert import_order(chain).indices == list(reversed(range(size)))
    ring = [[(number + 1) % size] for number in range(size)]
    assert import_order(ring) == ([0, *reversed(range(1, size))], size, 1)
    assert checked._sort_by_imports(ring) == ([0, *reversed(range(1, size))], 1)
