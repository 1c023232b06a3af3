"""`rename`: the same program with other names for its local variables: same tree, same meaning.

Only what nobody outside a function can see is renamed, and a name becomes the same new name in the whole file. As the
new one occurs nowhere in the file, nothing can collide, whatever is shadowed by what; all there is to know is which
names must stay (scopes.py, and a query for each language).
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from gristmill.core.seeded_random import Dice
from gristmill.variants.grammars import ERRORS, Parsed, captures, is_hard_to_query
from gristmill.variants.scopes import Found, Place, Places

MAX_ERRORS = 100
"""With more of them it is hardly the language it is said to be."""

QUERIES = {
    "javascript": ("ecmascript", "javascript"),
    "jsx": ("ecmascript", "javascript"),
    "typescript": ("ecmascript", "typescript"),
    "tsx": ("ecmascript", "typescript", "tsx"),
    "c++": ("c", "cpp"),
}
"""Where it is not one that is called like the language."""

NOT_ESCAPING = frozenset({"python", "rust", "go"})

LOOKS_UP_NAMES = frozenset(
    b"""angular duckdb numexpr polars patsy statsmodels snakemake
    f_locals _getframe currentframe getinnerframes getclosurevars tb_frame gi_frame cr_frame ag_frame
    settrace setprofile co_varnames co_freevars co_cellvars capture_locals""".split()
)
"""By which variables or parameters are found by their names: files with one of these words stay as they are."""


def rename(parsed: Parsed, dice: Dice) -> bytes | None:
    """None: nothing to rename."""
    if is_hard_to_query(parsed):
        return None
    found = captures(parsed, query_of(parsed.language))
    names = _names_defined(parsed.text, found)
    if not names:
        return None
    words = words_of(parsed.text)
    names -= _other_spellings(words)
    errors = _errors(parsed)
    if not words.isdisjoint(LOOKS_UP_NAMES) or len(errors) > MAX_ERRORS or _has_escaped_names(parsed, found):
        return None
    places = Places(parsed, found, frozenset(names)).renamable(errors)
    return _replaced(parsed, places, FreshNames(words, dice)) if places else None


@cache
def query_of(language: str) -> str:
    folder = files(__package__) / "queries"
    return "\n".join((folder / f"{name}.scm").read_text("utf-8") for name in QUERIES.get(language, (language,)))


def _names_defined(text: bytes, found: Found) -> set[bytes]:
    nodes = [*found.get("define", ()), *found.get("define.function", ())]
    return {name for name in {text[node.start_byte : node.end_byte] for node in nodes} if is_fit(name)}


def _errors(parsed: Parsed) -> list[tuple[int, int]]:
    if not parsed.tree.root_node.has_error:
        return []
    return [(node.start_byte, node.end_byte) for nodes in captures(parsed, ERRORS).values() for node in nodes]


def _other_spellings(words: set[bytes]) -> set[bytes]:
    """Python reads a name in fullwidth letters as the same name in ASCII. They are added to the words."""
    odd = [word for word in words if not word.isascii()]
    spellings = {unicodedata.normalize("NFKC", word.decode("utf-8", "replace")).encode() for word in odd}
    words |= spellings
    return spellings


def _has_escaped_names(parsed: Parsed, found: Found) -> bool:
    r"""In JavaScript and Java \u0061 is a."""
    if parsed.language in NOT_ESCAPING or b"\\u" not in parsed.text:
        return False
    return any(b"\\" in parsed.text[node.start_byte : node.end_byte] for node in found.get("use", ()))


def _replaced(parsed: Parsed, places: Iterable[Place], fresh: "FreshNames") -> bytes:
    text = parsed.text
    renamed: dict[bytes, bytes] = {}
    pieces: list[bytes] = []
    done = 0
    for start, name, _ in places:
        new = renamed.get(name)
        if new is None:
            new = renamed[name] = fresh.like(name, parsed.language)
        pieces += (text[done:start], new)
        done = start + len(name)
    pieces.append(text[done:])
    return b"".join(pieces)


# New names that look like the old ones: as many words, in the same style, and not yet in the file.

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
    """`FreshNames(words_of(text), dice).like(b"user_count", "python")` -> `b"active_margin"`"""

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
