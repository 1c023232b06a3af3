import os
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.core.names import _distance, nearest, path_text, printable, system_path
from gristmill.sources.languages import known_languages


def test_plain_names_are_themselves():
    for name in ("src/a.py", "mit leer zeichen.py", "zeile\numbruch", "größe/é.py", "\x1b[31mred"):
        assert path_text(name) == name


def test_bytes_that_are_no_utf8_are_escaped():
    assert path_text(os.fsdecode(b"caf\xe9.py")) == r"caf\xe9.py"
    assert path_text(r"odd\name") == r"odd\\name"


@given(st.binary(min_size=1, max_size=12), st.binary(min_size=1, max_size=12))
def test_no_two_names_become_one(left, right):
    texts = [path_text(os.fsdecode(name)) for name in (left, right)]
    assert (left == right) == (texts[0] == texts[1])
    assert all(text.encode("utf-8") for text in texts)


def test_a_terminal_is_shown_nothing_that_moves_it():
    assert printable("a\x1b[31mb\nc\u202e") == r"a\x1b[31mb\nc\u202e"


@given(st.binary(min_size=1).filter(lambda raw: b"\0" not in raw))
def test_the_escape_can_be_undone(raw):
    path = os.fsdecode(raw)
    assert system_path(path_text(path)) == path


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("cobol", known_languages(), None),
        ("pyton", known_languages(), "python"),
        ("Pyhton", known_languages(), "python"),
        ("typescipt", known_languages(), "typescript"),
        ("zz", known_languages(), None),
        ("codebrt", ["codebert"], "codebert"),
        ("gpt2", ["codebert"], None),
        ("--max-window", ["--max-windows", "--max-epochs"], "--max-windows"),
        ("--decontam", ["--decontaminate", "--out"], "--decontaminate"),
        ("--max", ["--max-windows", "--max-epochs"], None),
        ("biuld", ["build", "bench"], "build"),
        ("window.lenght", ["window.length", "window.tail"], "window.length"),
        ("src/ap.py", ["src/app.py", "src/apply.py", "docs/x.md"], "src/app.py"),
    ],
)
def test_only_a_name_that_is_near_is_suggested(word, known, meant):
    assert nearest(word, known) == meant


words = st.text("abc", max_size=7)


@given(words, st.lists(words, max_size=6))
def test_what_is_suggested_is_spelt_alike_or_begins_so(word, known):
    near = nearest(word, known)
    if near is None:
        return
    assert near in known
    assert near.startswith(word) or slow_distance(word, near) <= max(len(word), len(near)) / 4


@cache
def slow_distance(one, other):
    """By trying all ways: letters exchanged, left out, put in, or swapped with their neighbour."""
    if not one or not other:
        return len(one) + len(other)
    ways = [
        slow_distance(one[1:], other[1:]) + (one[0] != other[0]),
        slow_distance(one[1:], other) + 1,
        slow_distance(one, other[1:]) + 1,
    ]
    if len(one) > 1 and one[:2] == other[1::-1]:
        ways.append(slow_distance(one[2:], other[2:]) + 1)
    return min(ways)


@given(words, words)
def test_the_distance_is_that_of_trying_all_ways(one, other):
    assert _distance(one, other) == slow_distance(one, other)
