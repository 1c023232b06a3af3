"""New names that look like the old ones: as many words, in the same style, and not yet in the file.

FreshNames(words_of(text), dice).like(b"user_count", "python") -> b"active_margin"
"""

import re
from functools import cache

from gristmill.shaping.variants.dice import Dice
from gristmill.shaping.variants.words import BUILTINS, KEYWORDS, MODIFIERS, NOUNS, SHORT

MAX_SHORT = 2
"""A name of so many letters becomes one of so many."""

MAX_WORDS = 3
TRIES_PER_LENGTH = 8

FIT = re.compile(rb"_?[a-z][A-Za-z0-9_]*")
"""Neither a constant nor a type, neither special nor private to a class; and in ASCII, as others have several spellings."""

PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
SNAKE = frozenset({"python", "rust", "c", "c++"})
"""Where two words are joined by _ unless the old name has it otherwise."""

NOT_IN_WORDS = bytes(byte if byte > 127 or chr(byte).isalnum() or byte == ord("_") else ord(" ") for byte in range(256))
RESERVED = KEYWORDS | BUILTINS


def words_of(text: bytes) -> set[bytes]:
    """Whatever could be a name, in code or comments. 2x faster than a regular expression."""
    return set(text.translate(NOT_IN_WORDS).split())


@cache
def is_fit(name: bytes) -> bool:
    """May it be renamed, if it is local?"""
    return FIT.fullmatch(name) is not None and name.decode() not in KEYWORDS


class FreshNames:
    def __init__(self, taken: set[bytes], dice: Dice) -> None:
        self._taken = taken
        self._dice = dice

    def like(self, name: bytes, language: str) -> bytes:
        """In Rust a leading _ has a meaning: it stays."""
        old = name.decode()
        prefix, old = ("_", old[1:]) if old.startswith("_") else ("", old)
        is_snake = "_" in old or (old.islower() and language in SNAKE)
        num_words = 0 if len(old) <= MAX_SHORT else min(len(PARTS.findall(old)), MAX_WORDS)
        while True:
            for _ in range(TRIES_PER_LENGTH):
                new = prefix + self._draw(num_words, is_snake=is_snake)
                if new not in RESERVED and new.encode() not in self._taken:
                    self._taken.add(new.encode())
                    return new.encode()
            num_words += 1

    def _draw(self, num_words: int, *, is_snake: bool) -> str:
        if not num_words:
            return self._dice.one_of(SHORT)
        words = [self._dice.one_of(MODIFIERS) for _ in range(num_words - 1)] + [self._dice.one_of(NOUNS)]
        return "_".join(words) if is_snake else words[0] + "".join(word.capitalize() for word in words[1:])
