"""Pieces of a text, in bytes, and what is put in their place."""

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    start: int
    end: int


class Edit(NamedTuple):
    start: int
    """Of what goes."""
    end: int
    new: bytes


def apply_edits(text: bytes, edits: Iterable[Edit]) -> bytes:
    """In one pass: they come in the order of the text and do not overlap."""
    pieces: list[bytes] = []
    done = 0
    for start, end, new in edits:
        pieces += (text[done:start], new)
        done = end
    pieces.append(text[done:])
    return b"".join(pieces)
