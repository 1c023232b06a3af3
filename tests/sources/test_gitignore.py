import itertools
import os
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gristmill.sources.gitignore import CLASSES, is_usable, parse_patterns
from support.source_trees import git, write_tree

NUM_COPIES = 20
NAMES = ["a", "b", "aa", "ab", "-b", "a b", "a ", "]", "[a]", "!a", "#a", "a\\", "*", "0", "é", "a:"]
TREE = [
    *NAMES,
    *(f"d/{name}" for name in NAMES),
    *("x/y", "x/a/b", "x/a/a/b", "x/a/a/a/ab", "a.d/b", "a.d/a.d/a.d/b", "x/b/a/b", "d/d/d/d"),
]
PIECES = [
    *("a", "b", "d", "x", ".d", "0", "é", " ", ":", "*", "*", "**", "**/", "/**", "/", "/", "?", "\\", "#", "!"),
    *("[", "]", "[a", "[!a]", "[^b]", "-", "[a-b]", "[]a]", "[b-a]", "[\\]]", "[a/]", "[:", ":]"),
    *("[[:alpha:]]", "[[:foo:]]", "[[:alpha:]", "[![:digit:]-]", "[[:]", "[[::]]", "\r", "\\ "),
]


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Make a repository with many copies of one tree, so that git checks many patterns at once.

    Return the repository and the paths in each copy.
    """
    root = tmp_path_factory.mktemp("wildmatch")
    for number in range(NUM_COPIES):
        write_tree(root / str(number), dict.fromkeys(TREE, ""))
    git(root, "init", "-q")
    folders = {parent for name in TREE for parent in itertools.accumulate(name.split("/")[:-1], "{}/{}".format)}
    return root, sorted({*TREE, *folders})


def lines_by_git(root, paths):
    """Map each path to the number of the .gitignore line that decides if git ignores the path, or to None."""
    request = b"".join(os.fsencode(path) + b"\0" for path in paths)
    command = ["git", "check-ignore", "--no-index", "--stdin", "-z", "-v", "-n"]
    result = subprocess.run(command, cwd=root, input=request, stdout=subprocess.PIPE, check=False)
    assert result.returncode in {0, 1}
    fields = os.fsdecode(result.stdout).split("\0")
    return {path: int(line) if line else None for line, path in zip(fields[1::4], fields[3::4], strict=True)}


def lines_by_gristmill(root, content, names):
    """Yield each path and the number of the .gitignore line that decides if gristmill ignores the path, or None.

    For a path in an ignored folder, the line that ignores the folder decides.
    """
    lines = content.split(b"\n")
    patterns = parse_patterns(content)
    line_by_pattern = {
        id(pattern): number for pattern, number in zip(patterns.patterns, line_numbers(lines), strict=True)
    }
    for name in names:
        parts = name.split("/")
        found = None
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            is_folder = (root / path).is_dir()
            found = patterns.last_match(os.fsencode(path) + b"/" * is_folder)
            if found is not None and not found.is_negated:
                break
        yield name, line_by_pattern[id(found)] if found is not None else None


def line_numbers(lines):
    return [number for number, line in enumerate(lines, 1) if parse_patterns(line).patterns]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(st.lists(st.sampled_from(PIECES), max_size=7).map("".join), min_size=1, max_size=3),
        min_size=NUM_COPIES,
        max_size=NUM_COPIES,
    )
)
@example([["x/a**/b"], ["x**"], ["**/a/**/b"], ["*/", "!d/"], ["d/**\\/d"], ["[[:foo:]]"], ["[!]]"], ["[a-]"]])
@example([["foo\\"], ["a\\\\"], ["[\\"], ["a  "], ["a\\  "], ["/"], ["//a"], ["d//a"], ["!"], ["**"], ["***/b"]])
@example([["[/]"], ["d[/]a"], ["d[^a]a"], ["d?a"], ["*a*"], ["d/*"], ["*/b"], ["a.d/**/b"], ["x/**/**/b"]])
def test_each_line_matches_as_in_git(copies, contents):
    root, names = copies
    expected, found = expected_and_found(root, names, [("\n".join(lines) + "\n").encode() for lines in contents])
    assert found == expected


def expected_and_found(root, names, contents):
    found = {}
    for number, content in enumerate(contents):
        folder = root / str(number)
        (folder / ".gitignore").write_bytes(content)
        found |= {f"{number}/{name}": line for name, line in lines_by_gristmill(folder, content, names)}
    return lines_by_git(root, found), found


def test_character_classes_match_the_same_bytes_as_in_git(tmp_path):
    git(tmp_path, "init", "-q")
    names = {os.fsdecode(b"x" + bytes([byte])): byte for byte in range(1, 256) if byte != ord("/")}
    for kind in CLASSES:
        content = b"x[[:%b:]]\n" % kind
        (tmp_path / ".gitignore").write_bytes(content)
        result = lines_by_git(tmp_path, names)
        patterns = parse_patterns(content)
        assert {name for name in names if patterns.last_match(os.fsencode(name))} == {
            name for name, line in result.items() if line
        }


@pytest.mark.parametrize(
    "content", [b"*.log\r\nx\r\n", b"\xef\xbb\xbf*.log\nx", b"[z-a]\n!\n*.log\nx", b"\xff\n*.log\nx\0y"]
)
def test_lines_end_as_in_git(copies, content):
    root, _ = copies
    expected, found = expected_and_found(root, ["a.log", "x", "y", "xy"], [content])
    assert found == expected
    assert found == {"0/a.log": found["0/a.log"], "0/x": found["0/x"], "0/y": None, "0/xy": None}
    assert found["0/a.log"]
    assert found["0/x"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("content", "path"),
    [
        (b"**/a/" * 10 + b"b", b"a/" * 1000 + b"c"),
        (b"**/a*a/" * 300 + b"b", b"aaaa/" * 800 + b"c"),
        (b"*a" * 100 + b"b", b"a" * 250),
        (b"*" * 100_000 + b"x", b"a" * 250),
        (b"?*" * 200 + b"b", b"a" * 250),
        (b"x/" + b"*a*/" * 1000 + b"b", b"x/" + b"a/" * 1000 + b"c"),
        (b"[[:alpha:]]*" * 300 + b"9", b"a" * 250),
        (b"a/" * 5000, b"a/" * 2000),
        (b"".join(b"name%d\n" % number for number in range(20_000)), b"a"),
        (b"".join(b"*.s%d\n" % number for number in range(20_000)), b"a"),
        (b"".join(b"a%d*b\n" % number for number in range(5_000)), b"a4999c"),
        (b"[" * 50_000, b"["),
        (b"[[:" * 5_000 + b"]", b"["),
    ],
)
def test_hostile_patterns_are_not_slow(content, path):
    assert parse_patterns(content).last_match(path) is None


@pytest.mark.parametrize("pattern", ["", "#x", "!", "/", "[[:foo:]]", "[a", "a\\", "a\0b", "\udcff*", "a" * 20_000])
def test_pattern_that_cannot_match_is_not_usable(pattern):
    assert not is_usable(pattern)


@pytest.mark.parametrize("pattern", ["*.*.*", "**/a/**/b", "src/**/*.py", "a*b*c*d*e", "[]]", "\\#x", "!x", "[!a-c]*/"])
def test_common_patterns_are_usable(pattern):
    assert is_usable(pattern)


@pytest.mark.parametrize(
    ("lines", "path", "is_selected"),
    [
        (["src/"], "src/a/b.py", True),
        (["src/", "!src/gen/"], "src/gen/b.py", False),
        (["src/", "!*.txt"], "src/a.txt", False),
        (["!*.txt", "src/"], "src/a.txt", True),
        (["*.py"], "a.py/b.txt", True),
        (["*.py"], "b.txt", False),
        (["**"], "a/b", True),
    ],
)
def test_file_is_selected_with_its_folder(lines, path, is_selected):
    assert parse_patterns("\n".join(lines).encode()).selects(path.encode()) is is_selected


@pytest.mark.parametrize(
    ("lines", "path", "is_ignored"),
    [
        (["bar.*", "!a"], "a/bar.txt/", True),
        (["foo/**"], "foo/", None),
        (["foo/**"], "foo/x", True),
        (["foo/**", "!*.py"], "foo/x.py", False),
        (["a"], "a/b", None),
        (["a/"], "a", None),
        (["a/"], "a/", True),
        (["*"], "x/", True),
        (["a\x0cb"], "b", None),
    ],
)
def test_pattern_decides_about_an_entry_but_not_about_its_children(lines, path, is_ignored):
    found = parse_patterns("\n".join(lines).encode()).last_match(path.encode())
    assert (None if found is None else not found.is_negated) is is_ignored
