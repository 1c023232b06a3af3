"""Spellings of control tokens in a text: found, and respelled so that no tokenizer takes them for the token.

    <|endoftext|>      ->  < |endoftext|>
    ▁<PRE> x           ->  ▁ <PRE> x  ->  ▁ < PRE> x, where both are spellings

A blank after the first character is enough; the text is searched again until no spelling is left. The place of each
blank is recorded, so that the text can be restored. The caller passes the spellings to search for. One RE2 pattern
reads all texts of a batch at once, at some 800 MB/s a core (benchmarks/documents.md).
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

from gristmill.cleaning.pages import Texts
from gristmill.cleaning.secret_checks import compiled
from gristmill.core.records import Respelling

MAX_ROUNDS = 8
BLANK = b" "


class Spellings(NamedTuple):
    """Control tokens to search for."""

    names: tuple[str, ...]
    """Literal spellings."""
    shapes: tuple[str, ...]
    """Regular expressions."""

    @property
    def pattern(self) -> str:
        """A regular expression that matches the longest of several names that begin at the same place."""
        names = sorted(self.names, key=lambda name: (-len(name), name))
        return "|".join((*map(re.escape, names), *self.shapes))


class Respelled(NamedTuple):
    text: bytes
    respellings: tuple[Respelling, ...]
    """In order."""


def with_spellings(texts: Sequence[bytes], spellings: Spellings) -> list[int]:
    """Return the indices of the texts with a spelling. All texts are searched in one pass."""
    return list(Texts.of(texts).with_match(partial(_position, _compiled(spellings))))


def has_spelling(text: bytes, spellings: Spellings) -> bool:
    return _position(_compiled(spellings), text, 0) >= 0


def respell(text: bytes, spellings: Spellings) -> Respelled | None:
    """Insert blanks until no spelling is left; None if one is left after MAX_ROUNDS."""
    pattern = _compiled(spellings)
    found: list[tuple[int, str]] = []
    respelled = text
    for _ in range(MAX_ROUNDS):
        new = [(_behind_first(respelled, one.start()), one.group().decode()) for one in pattern.finditer(respelled)]
        if not new:
            return Respelled(respelled, tuple(_respellings(text, found)))
        before = [at + number for number, (at, _) in enumerate(found)]
        found = sorted([*found, *((_unshifted(at, before), name) for at, name in new)])
        respelled = with_blanks(text, [at for at, _ in found])
    return None


def with_blanks(text: bytes, places: Sequence[int]) -> bytes:
    """The text with a blank at each of these places, which are in order."""
    edges = (0, *places, len(text))
    return BLANK.join(text[at:to] for at, to in pairwise(edges))


def restored(text: bytes, respellings: Sequence[Respelling]) -> bytes:
    """The text before it was respelled."""
    taken_out = {one.at + number for number, one in enumerate(respellings)}
    edges = sorted(taken_out)
    pieces = zip((0, *(at + 1 for at in edges)), (*edges, len(text)), strict=True)
    return b"".join(text[at:to] for at, to in pieces)


def _unshifted(at: int, blanks: Sequence[int]) -> int:
    """A place in the respelled text -> the same in the text itself."""
    return at - bisect_left(blanks, at)


def _behind_first(text: bytes, start: int) -> int:
    """The end of the character that begins here."""
    end = start + 1
    while end < len(text) and text[end] & 0xC0 == 0x80:  # noqa: PLR2004 - bytes that continue a character
        end += 1
    return end


def _respellings(text: bytes, found: Sequence[tuple[int, str]]) -> list[Respelling]:
    line, done = 1, 0
    respellings: list[Respelling] = []
    for at, name in found:
        line, done = line + text.count(b"\n", done, at), at
        respellings.append(Respelling(spelling=name, line=line, at=at))
    return respellings


def _position(pattern: Any, text: bytes, start: int) -> int:
    found = pattern.search(text, start)
    return -1 if found is None else int(found.start())


@cache
def _compiled(spellings: Spellings) -> Any:
    return compiled(spellings.pattern)
