import os
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.core.names import _distance, nearest_name, path_text, printable, system_path
from gristmill.sources.languages import known_languages


def test_plain_names_are_unchanged():
    for name in ("src/a.py", "mit leer zeichen.py", "zeile\numbruch", "größe/é.py", "\x1b[31mred"):
        assert path_text(name) == name


def test_bytes_that_are_not_utf8_are_escaped():
    assert path_text(os.fsdecode(b"caf\xe9.py")) == r"caf\xe9.py"
    assert path_text(r"odd\name") == r"odd\\name"


@given(st.binary(min_size=1, max_size=12), st.binary(min_size=1, max_size=12))
def test_different_names_have_different_texts(left, right):
    texts = [path_text(os.fsdecode(name)) for name in (left, right)]
    assert (left == right) == (texts[0] == texts[1])
    assert all(text.encode("utf-8") for text in texts)


def test_printable_escapes_terminal_controls():
    assert printable("a\x1b[31mb\nc\u202e") == r"a\x1b[31mb\nc\u202e"


@given(st.binary(min_size=1).filter(lambda raw: b"\0" not in raw))
def test_system_path_undoes_path_text(raw):
    path = os.fsdecode(raw)
    assert system_path(path_text(path)) == path


@pytest.mark.parametrize(
    ("word", "known", "expected"),
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
def test_only_a_similar_name_is_suggested(word, known, expected):
    assert nearest_name(word, known) == expected


words = st.text("abc", max_size=7)


@given(words, st.lists(words, max_size=6))
def test_suggestion_is_similar_or_starts_with_the_word(word, known):
    near = nearest_name(word, known)
    if near is None:
        return
    assert near in known
    assert near.startswith(word) or slow_distance(word, near) <= max(len(word), len(near)) / 4


@cache
def slow_distance(one, other):
    """Return the edit distance, found by trying all sequences of replaced, deleted, inserted and swapped letters."""
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
def test_distance_equals_exhaustive_search(one, other):
    assert _distance(one, other) == slow_distance(one, other)
