import os

from hypothesis import given
from hypothesis import strategies as st

from gristmill.naming import path_text, printable, system_path


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
