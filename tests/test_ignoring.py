import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.intake.ignoring import any_of, is_usable, spec_of, verdict_of


@pytest.mark.parametrize(
    "content", [b"*.log\r\nx\r\n", b"\xef\xbb\xbf*.log\nx\n", b"[z-a]\n!\n*.log\nx", b"\xff\n*.log\nx"]
)
def test_what_git_can_read_counts_and_the_rest_says_nothing(content):
    spec = spec_of(content)
    assert spec.match_file("a.log")
    assert spec.match_file("x")
    assert not spec.match_file("y")


def test_only_line_feeds_end_a_line():
    assert not spec_of(b"a\x0cb\n").match_file("b")


@pytest.mark.parametrize("pattern", ["*a" * 25 + "b", "*" * 100_000 + "x", "a/" + "*x" * 9])
def test_a_pattern_made_to_be_slow_is_not_used(pattern):
    started = time.monotonic()
    assert not spec_of(pattern.encode()).match_file("a" * 200)
    assert time.monotonic() - started < 30
    assert not is_usable(pattern)


@pytest.mark.parametrize("pattern", ["*.*.*", "**/a/**/b", "src/**/*.py", "a*b*c"])
def test_patterns_that_people_write_are_used(pattern):
    assert is_usable(pattern)


@pytest.mark.parametrize(
    ("patterns", "path", "expected"),
    [
        (["bar.*", "!a"], "a/bar.txt/", True),
        (["foo/**"], "foo/", None),
        (["foo/**"], "foo/x", True),
        (["foo/**", "!*.py"], "foo/x.py", False),
        (["a"], "a/b", None),
        (["a/"], "a", None),
        (["a/"], "a/", True),
        (["*"], "x/", True),
    ],
)
def test_a_pattern_speaks_of_the_entry_itself(patterns, path, expected):
    verdict = verdict_of(spec_of("\n".join(patterns).encode()), path)
    assert (verdict and verdict[0]) is expected


@pytest.mark.parametrize(
    "pattern", ["x[(?P<a>]", "x[(?P<ps_d>]", "a|b", "(?:", "x[(?P<ps_d>/)]", "[!/]x", "[[]", "[a--b]"]
)
@pytest.mark.parametrize("path", ["xa", "x(", "x", "a|b", "a", "(?:", "xs", "d/xP", "bx/"])
def test_one_look_at_all_patterns_finds_what_each_finds(pattern, path):
    spec = spec_of(f"{pattern}\n*.never\n!nobody/\n".encode())
    assert verdict_of(spec, path) is None or any_of(spec).search(path)


@given(
    st.lists(st.text("ab*?[]!/(P<>.x", min_size=1, max_size=8), max_size=4), st.text("ab/x.(P", min_size=1, max_size=6)
)
def test_one_look_at_all_patterns_misses_nothing(patterns, path):
    spec = spec_of("\n".join(patterns).encode())
    assert verdict_of(spec, path) is None or any_of(spec).search(path)
