"""`fim`: fill in the middle. A piece of text is cut at two characters by chance, and the middle comes last:

    PSM   <prefix> a <suffix> c <middle> b
    SPM   <prefix> <suffix> c <middle> a b        one in two (Bavarian et al. 2022)

The cuts are between characters, not tokens: so are those of an editor's cursor. Each piece is as long as a window
takes, so that no window is without one of its sentinels. Decoded, the parts are the piece, byte for byte.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.records import Range
from gristmill.core.seeded_random import Dice
from gristmill.windows.cut import Indices

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
    text: bytes
    """The text that encodes to these ids: the parts in this order, sentinels spelled out."""


class Sentinel(NamedTuple):
    id: int
    spelled: bytes


class Infiller(NamedTuple):
    """`encode` and `decode` take a part as one that goes on after other tokens: no blank is put before it."""

    encode: Callable[[bytes], Ids]
    decode: Callable[[Ids], bytes]
    prefix: Sentinel
    middle: Sentinel
    suffix: Sentinel
    num_content: int
    """Tokens that a window takes."""
    with_text: bool = False
    """Rows have a text, which must encode to their ids. Where the tokenizer would join the end of the prefix with the
    beginning of the middle, the row is PSM, which has a sentinel between the two."""

    def infill(self, text: bytes, starts: Indices, dice: Dice) -> list[Infilled] | None:
        """The whole file, piece by piece; None where the tokenizer does not give a part of it back as it was.

        `starts`: the byte at which each of its tokens begins, and the length.
        """
        made: list[Infilled] = []
        start, num_tokens = 0, len(starts) - 1
        while num_tokens - start >= MIN_PIECE_TOKENS:
            end = min(start + self.num_content - NUM_SENTINELS - ROOM, num_tokens)
            while end - start >= MIN_PIECE_TOKENS:
                parts = self._parts(whole_characters(text, int(starts[start]), int(starts[end])), dice)
                if parts is None:
                    return None
                ids = np.concatenate([part.ids for part in parts])
                if len(ids) <= self.num_content:
                    made.append(Infilled(ids, (start, end), b"".join(part.text for part in parts)))
                    break
                end -= len(ids) - self.num_content
            start = max(end, start + 1)
        return made

    def _parts(self, piece: bytes, dice: Dice) -> "list[_Part] | None":
        """In the order of the row, sentinels among them."""
        characters = piece.decode()
        first, last = sorted((dice.below(len(characters) + 1), dice.below(len(characters) + 1)))
        texts = [part.encode() for part in (characters[:first], characters[first:last], characters[last:])]
        parts = [_Part(self.encode(text) if text else np.zeros(0, np.uint32), text) for text in texts]
        if any(self.decode(part.ids) != part.text for part in parts if part.text):
            return None
        before, between, behind = parts
        sentinels = (_Part(np.array([one.id], np.uint32), one.spelled) for one in self[2:5])
        prefix, middle, suffix = sentinels
        if dice.below(2) and not (self.with_text and self._are_joined(before, between)):
            return [prefix, suffix, behind, middle, before, between]
        return [prefix, before, suffix, behind, middle, between]

    def _are_joined(self, before: "_Part", between: "_Part") -> bool:
        together = self.encode(before.text + between.text) if before.text + between.text else before.ids
        return not np.array_equal(together, np.concatenate((before.ids, between.ids)))


class _Part(NamedTuple):
    ids: Ids
    text: bytes


def whole_characters(text: bytes, start: int, end: int) -> bytes:
    """A character whose bytes two tokens share belongs to the first of them."""
    while start < len(text) and text[start] & 0xC0 == 0x80:  # noqa: PLR2004 - a byte that continues a character
        start += 1
    while end < len(text) and text[end] & 0xC0 == 0x80:  # noqa: PLR2004
        end += 1
    return text[start:end]
