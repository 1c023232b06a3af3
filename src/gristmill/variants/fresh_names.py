"""New names that look like the old ones: as many words, in the same style, and not yet in the file.

FreshNames(words_of(text), dice).like(b"user_count", "python") -> b"active_margin"
"""

import re
from functools import cache
from importlib.resources import files

from gristmill.core.seeded_random import Dice

MAX_SHORT = 2
"""A name of so many letters becomes one of so many."""

MAX_WORDS = 3
TRIES_PER_LENGTH = 8

FIT = re.compile(rb"_?[a-z][A-Za-z0-9_]*")
"""Neither a constant nor a type, neither special nor private to a class; in ASCII, as others have several spellings."""

PARTS = re.compile(rb"[A-Z]?[a-z0-9]+|[A-Z]+")
SNAKE = frozenset({"python", "rust", "c", "c++"})
"""Where two words are joined by _ unless the old name has it otherwise."""

NOT_IN_WORDS = bytes(
    byte if chr(byte).isalnum() or not chr(byte).isascii() or chr(byte) == "_" else ord(" ") for byte in range(256)
)


@cache
def word_list(name: str) -> tuple[str, ...]:
    """words/nouns.txt: what names are made of. words/keywords.txt, words/builtins.txt: what none may be."""
    lines = (files(__package__) / "words" / f"{name}.txt").read_text("utf-8").splitlines()
    return tuple(word for line in lines if not line.startswith("#") for word in line.split())


@cache
def keywords() -> frozenset[str]:
    return frozenset(word_list("keywords"))


@cache
def reserved() -> frozenset[str]:
    """In any of the languages."""
    return keywords().union(word_list("builtins"))


def words_of(text: bytes) -> set[bytes]:
    """Whatever could be a name, in code or comments. 2x faster than a regular expression."""
    return set(text.translate(NOT_IN_WORDS).split())


@cache
def is_fit(name: bytes) -> bool:
    """May it be renamed, if it is local?"""
    return FIT.fullmatch(name) is not None and name.decode() not in keywords()


class FreshNames:
    def __init__(self, taken: set[bytes], dice: Dice) -> None:
        self._taken = taken
        self._dice = dice
        self._reserved = reserved()

    def like(self, name: bytes, language: str) -> bytes:
        """In Rust a leading _ has a meaning: it stays."""
        prefix, old = (b"_", name[1:]) if name[:1] == b"_" else (b"", name)
        is_snake = b"_" in old or (language in SNAKE and old.islower())
        num_words = 0 if len(old) <= MAX_SHORT else min(len(PARTS.findall(old)), MAX_WORDS)
        while True:
            for _ in range(TRIES_PER_LENGTH):
                new = prefix + self._draw(num_words, is_snake=is_snake)
                if new not in self._taken and new.decode() not in self._reserved:
                    self._taken.add(new)
                    return new
            num_words += 1

    def _draw(self, num_words: int, *, is_snake: bool) -> bytes:
        one_of = self._dice.one_of
        if num_words <= 1:
            return one_of(word_list("nouns" if num_words else "short")).encode()
        words = [*(one_of(word_list("modifiers")) for _ in range(num_words - 1)), one_of(word_list("nouns"))]
        return ("_".join(words) if is_snake else words[0] + "".join(map(str.capitalize, words[1:]))).encode()
