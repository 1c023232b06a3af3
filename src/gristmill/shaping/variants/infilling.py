"""`fim`: fill in the middle. A piece of text is cut at two characters by chance, and the middle comes last:

    PSM   <prefix> a <suffix> c <middle> b
    SPM   <prefix> <suffix> c <middle> a b        one in two (Bavarian et al. 2022)

The cuts are between characters, not tokens: so are those of an editor's cursor. Each piece is as long as a window
takes, so that no window is without one of its sentinels.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.records import Range
from gristmill.shaping.chance import Dice
from gristmill.shaping.windows import Indices

NUM_SENTINELS = 3
MIN_PIECE_TOKENS = 8
"""Shorter ones have no middle worth guessing."""
ROOM = 12
"""Tokens that cutting at characters may cost: a token in two is two or three."""

Ids = npt.NDArray[Any]


class Infilled(NamedTuple):
    ids: Ids
    place: Range
    """Of the file's tokens."""


class Infiller(NamedTuple):
    encode: Callable[[bytes], Ids]
    decode: Callable[[Ids], bytes]
    prefix: int
    middle: int
    suffix: int
    num_content: int
    """Tokens that a window takes."""

    def infill(self, text: bytes, starts: Indices, dice: Dice) -> list[Infilled] | None:
        """The whole file, piece by piece; None where the tokenizer does not give a part of it back as it was.

        `starts`: the byte at which each of its tokens begins, and the length.
        """
        made: list[Infilled] = []
        start, num_tokens = 0, len(starts) - 1
        while num_tokens - start >= MIN_PIECE_TOKENS:
            end = min(start + self.num_content - NUM_SENTINELS - ROOM, num_tokens)
            ids: Ids | None = None
            while end - start >= MIN_PIECE_TOKENS:
                ids = self._infilled(whole_characters(text, int(starts[start]), int(starts[end])), dice)
                if ids is None:
                    return None
                if len(ids) <= self.num_content:
                    made.append(Infilled(ids, (start, end)))
                    break
                end -= len(ids) - self.num_content
            start = max(end, start + 1)
        return made

    def _infilled(self, piece: bytes, dice: Dice) -> Ids | None:
        characters = piece.decode()
        first, last = sorted((dice.below(len(characters) + 1), dice.below(len(characters) + 1)))
        parts = [part.encode() for part in (characters[:first], characters[first:last], characters[last:])]
        encoded = [self.encode(part) if part else np.zeros(0, np.uint32) for part in parts]
        if any(self.decode(ids) != part for ids, part in zip(encoded, parts, strict=True) if part):
            return None
        prefix, middle, suffix = encoded
        if dice.below(2):
            return np.concatenate(([self.prefix, self.suffix], suffix, [self.middle], prefix, middle))
        return np.concatenate(([self.prefix], prefix, [self.suffix], suffix, [self.middle], middle))


def whole_characters(text: bytes, start: int, end: int) -> bytes:
    """A character whose bytes two tokens share belongs to the first of them."""
    while start < len(text) and text[start] & 0xC0 == 0x80:  # noqa: PLR2004 - a byte that continues a character
        start += 1
    while end < len(text) and text[end] & 0xC0 == 0x80:  # noqa: PLR2004
        end += 1
    return text[start:end]
