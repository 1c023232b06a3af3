import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.sources.decode import Decoded, decode

BOMS = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        (b"x = 1\n", "utf-8"),
        ("größe = 'é€😀'\r\n".encode(), "utf-8"),
        (b"\xef\xbb\xbfx = 1\n", "utf-8-sig"),
        (b"\xff\xfe" + "x = 'ä'\r\n".encode("utf-16-le"), "utf-16-le"),
        (b"\xfe\xff" + "x = '😀'\n".encode("utf-16-be"), "utf-16-be"),
        ("# Größe für Übermut\n".encode("latin-1"), "latin-1"),
        ("# “quoted” – caf\xe9 …\n".encode("cp1252"), "cp1252"),
    ],
)
def test_decoded_text_encodes_to_the_bytes_of_the_file(raw, encoding):
    decoded = decode(raw)
    assert decoded.encoding == encoding
    assert BOMS.get(encoding, b"") + decoded.text.decode("utf-8").encode(encoding) == raw


@pytest.mark.parametrize(
    "raw",
    [
        b"\x7fELF\x02\x01\x01\x00\x00",
        b"text with a \x00 in it",
        b"\x89PNG\r\n\x1a\n\x01\xff\xfe",
        "日本語のコメント".encode("shift-jis"),
        "комментарий на русском языке".encode("koi8-r"),
        "x = 1 # 中文注释说明".encode("gbk"),
        b"\xff\xfeodd",
        b"\xff\xfe\x00\xd8x\x00",
        b"\xff\xfe\x00\x00x\x00\x00\x00",
        b"caf\xe9 \x81",
        b"caf\xe9 \x01",
        b"\xef\xbb\xbfcaf\xe9",
        b"\xc3",
    ],
)
def test_bytes_that_are_not_clearly_text_are_binary(raw):
    assert isinstance(decode(raw), str)


def test_random_bytes_are_binary():
    for seed in range(50):
        assert isinstance(decode(random.Random(seed).randbytes(500)), str)


def test_line_ends_are_kept():
    assert decode(b"a\r\nb\rc\n\n").text == b"a\r\nb\rc\n\n"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_any_utf8_round_trips(text):
    decoded = decode(text.encode())
    assert isinstance(decoded, Decoded)
    assert decoded.text.decode().encode(decoded.encoding) == text.encode()


@given(st.binary())
def test_any_bytes_give_text_or_a_defect(raw):
    decoded = decode(raw)
    assert isinstance(decoded, str) or decoded.text.decode("utf-8") is not None
