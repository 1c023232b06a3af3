"""Find the literal text of control tokens in documents, and respell it so that no tokenizer reads it as the token.

    <|endoftext|>      ->  < |endoftext|>
    ▁<PRE> x           ->  ▁ <PRE> x  ->  ▁ < PRE> x, if both ▁<PRE> and <PRE> are control tokens

The literal text of a control token is called its spelling. A space after the first character breaks the spelling. The
text is searched again until no spelling is left. The offset of each space is recorded, so the text can be restored.
The caller passes the spellings to search for. One RE2 pattern scans all texts of a batch at once, at about 800 MB/s per
core (benchmarks/documents.md).
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

from gristmill.cleaning.pages import Texts
from gristmill.cleaning.secret_checks import compile_pattern
from gristmill.core.records import Respelling

MAX_ROUNDS = 8
SPACE = b" "


class Spellings(NamedTuple):
    """Control tokens to search for."""

    names: tuple[str, ...]
    """Literal texts, such as `<|endoftext|>`."""
    shapes: tuple[str, ...]
    """Regular expressions for families of control tokens."""

    @property
    def pattern(self) -> str:
        """Regular expression for all names and shapes. If several names match at one position, the longest is found."""
        names = sorted(self.names, key=lambda name: (-len(name), name))
        return "|".join((*map(re.escape, names), *self.shapes))


class Respelled(NamedTuple):
    """A text without spellings, and the spaces that were inserted."""

    text: bytes
    respellings: tuple[Respelling, ...]
    """Respellings in text order."""


def indices_with_spellings(texts: Sequence[bytes], spellings: Spellings) -> list[int]:
    """Return the indices of the texts that contain a spelling. All texts are searched in one pass."""
    return list(Texts.of(texts).indices_with_match(partial(_find, _compiled(spellings))))


def has_spelling(text: bytes, spellings: Spellings) -> bool:
    """Return True if the text contains a spelling."""
    return _find(_compiled(spellings), text, 0) >= 0


def respell(text: bytes, spellings: Spellings) -> Respelled | None:
    """Insert spaces until no spelling is left. Return None if a spelling is left after MAX_ROUNDS rounds."""
    pattern = _compiled(spellings)
    found: list[tuple[int, str]] = []
    respelled = text
    for _ in range(MAX_ROUNDS):
        new = [
            (_first_character_end(respelled, match.start()), match.group().decode())
            for match in pattern.finditer(respelled)
        ]
        if not new:
            return Respelled(respelled, tuple(_respellings(text, found)))
        spaces = [at + num_before for num_before, (at, _) in enumerate(found)]
        found = sorted([*found, *((_original_offset(at, spaces), name) for at, name in new)])
        respelled = insert_spaces(text, [at for at, _ in found])
    return None


def insert_spaces(text: bytes, offsets: Sequence[int]) -> bytes:
    """Insert a space at each of these byte offsets, given in ascending order."""
    edges = (0, *offsets, len(text))
    return SPACE.join(text[at:to] for at, to in pairwise(edges))


def restore(text: bytes, respellings: Sequence[Respelling]) -> bytes:
    """Return the text as it was before respelling."""
    space_offsets = {respelling.at + num_before for num_before, respelling in enumerate(respellings)}
    edges = sorted(space_offsets)
    pieces = zip((0, *(at + 1 for at in edges)), (*edges, len(text)), strict=True)
    return b"".join(text[at:to] for at, to in pieces)


def _original_offset(at: int, spaces: Sequence[int]) -> int:
    """Convert an offset in the respelled text to an offset in the original text."""
    return at - bisect_left(spaces, at)


def _first_character_end(text: bytes, start: int) -> int:
    """Return the end offset of the UTF-8 character that starts at `start`."""
    end = start + 1
    while end < len(text) and text[end] & 0xC0 == 0x80:  # noqa: PLR2004 - UTF-8 continuation bytes
        end += 1
    return end


def _respellings(text: bytes, found: Sequence[tuple[int, str]]) -> list[Respelling]:
    line, done = 1, 0
    respellings: list[Respelling] = []
    for at, name in found:
        line, done = line + text.count(b"\n", done, at), at
        respellings.append(Respelling(spelling=name, line=line, at=at))
    return respellings


def _find(pattern: Any, text: bytes, start: int) -> int:
    found = pattern.search(text, start)
    return -1 if found is None else int(found.start())


@cache
def _compiled(spellings: Spellings) -> Any:
    return compile_pattern(spellings.pattern)
