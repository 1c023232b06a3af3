"""`rename`: give new names to local variables, without changing the syntax tree or the meaning.

Only names that are not visible outside a function are renamed. A name gets the same new name in the complete file. The
original file does not contain the new name, so new names cannot collide, and shadowing is preserved.
scopes.py finds the names that must be kept, with a query for each language.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.grammars import ERROR_QUERY, Parsed, captures, is_hard_to_query
from gristmill.variants.scopes import Captures, NameUse, NameUses

MAX_ERRORS = 100
"""Maximum number of syntax errors. A text with more errors is probably not in the detected language."""

QUERY_FILES = {
    "javascript": ("ecmascript", "javascript"),
    "jsx": ("ecmascript", "javascript"),
    "typescript": ("ecmascript", "typescript"),
    "tsx": ("ecmascript", "typescript", "tsx"),
    "c++": ("c", "cpp"),
}
"""Names of the query files of a language. A language that is not listed has one query file with the same name."""

LANGUAGES_WITHOUT_ESCAPES = frozenset({"python", "rust", "go"})
"""Languages that allow no escapes such as \\u0061 in a name."""

NAME_LOOKUP_WORDS = frozenset(
    b"""angular duckdb numexpr polars patsy statsmodels snakemake
    f_locals _getframe currentframe getinnerframes getclosurevars tb_frame gi_frame cr_frame ag_frame
    settrace setprofile co_varnames co_freevars co_cellvars capture_locals""".split()
)
"""Words that suggest that code looks up variables or parameters by name. A file with such a word is not changed."""


def rename(parsed: Parsed, rng: SeededRandom) -> bytes | None:
    """Return the text with new names for its local variables, or None if no name can be renamed."""
    if is_hard_to_query(parsed):
        return None
    found = captures(parsed, load_query(parsed.language))
    names = _defined_names(parsed.text, found)
    if not names:
        return None
    words = find_words(parsed.text)
    names -= _add_normalized_words(words)
    errors = _error_ranges(parsed)
    if not words.isdisjoint(NAME_LOOKUP_WORDS) or len(errors) > MAX_ERRORS or _has_escaped_names(parsed, found):
        return None
    uses = NameUses(parsed, found, frozenset(names)).find_renamable(errors)
    return _replace_names(parsed, uses, NameGenerator(words, rng)) if uses else None


@cache
def load_query(language: str) -> str:
    folder = files(__package__) / "queries"
    return "\n".join((folder / f"{name}.scm").read_text("utf-8") for name in QUERY_FILES.get(language, (language,)))


def _defined_names(text: bytes, found: Captures) -> set[bytes]:
    nodes = [*found.get("define", ()), *found.get("define.function", ())]
    return {name for name in {text[node.start_byte : node.end_byte] for node in nodes} if may_be_renamed(name)}


def _error_ranges(parsed: Parsed) -> list[tuple[int, int]]:
    if not parsed.tree.root_node.has_error:
        return []
    return [(node.start_byte, node.end_byte) for nodes in captures(parsed, ERROR_QUERY).values() for node in nodes]


def _add_normalized_words(words: set[bytes]) -> set[bytes]:
    """Add the normalized forms of non-ASCII words to `words`, and return these forms.

    Python reads a name in fullwidth letters as the same name in ASCII.
    """
    non_ascii = [word for word in words if not word.isascii()]
    normalized = {unicodedata.normalize("NFKC", word.decode("utf-8", "replace")).encode() for word in non_ascii}
    words |= normalized
    return normalized


def _has_escaped_names(parsed: Parsed, found: Captures) -> bool:
    r"""Return True if an identifier contains an escape. In JavaScript and Java, \u0061 is the letter a."""
    if parsed.language in LANGUAGES_WITHOUT_ESCAPES or b"\\u" not in parsed.text:
        return False
    return any(b"\\" in parsed.text[node.start_byte : node.end_byte] for node in found.get("use", ()))


def _replace_names(parsed: Parsed, uses: Iterable[NameUse], generator: "NameGenerator") -> bytes:
    text = parsed.text
    renamed: dict[bytes, bytes] = {}
    pieces: list[bytes] = []
    copied_until = 0
    for start, name, _ in uses:
        new = renamed.get(name)
        if new is None:
            new = renamed[name] = generator.similar_to(name, parsed.language)
        pieces += (text[copied_until:start], new)
        copied_until = start + len(name)
    pieces.append(text[copied_until:])
    return b"".join(pieces)


# New names. A new name has the same number of words and the same style as the old name, and is not yet in the file.

MAX_SHORT_LENGTH = 2
"""Maximum length of a name that is replaced by a name from words/short.txt."""

MAX_WORDS = 3
TRIES_PER_LENGTH = 8

RENAMABLE_NAME = re.compile(rb"_?[a-z][A-Za-z0-9_]*")
"""Pattern of names that can be local variables, but not constants, types, special names or private class members.

Non-ASCII names are excluded, because Unicode has several ways to write the same name.
"""

NAME_PARTS = re.compile(rb"[A-Z]?[a-z0-9]+|[A-Z]+")
SNAKE_CASE_LANGUAGES = frozenset({"python", "rust", "c", "c++"})
"""Languages in which the words of a new name are joined with _ if the old name is in lowercase.

In other languages, the words are joined with _ only if the old name contains _.
"""

NON_NAME_BYTES_TO_SPACES = bytes(
    byte if chr(byte).isalnum() or not chr(byte).isascii() or chr(byte) == "_" else ord(" ") for byte in range(256)
)
"""Translation table that replaces each byte that cannot be in a name with a space."""


@cache
def read_word_list(name: str) -> tuple[str, ...]:
    """Read words/`name`.txt.

    New names consist of words from the lists nouns, modifiers and short. Words in the lists keywords and builtins are
    never used as new names.
    """
    lines = (files(__package__) / "words" / f"{name}.txt").read_text("utf-8").splitlines()
    return tuple(word for line in lines if not line.startswith("#") for word in line.split())


@cache
def keywords() -> frozenset[str]:
    return frozenset(read_word_list("keywords"))


@cache
def reserved_words() -> frozenset[str]:
    """Return the keywords and builtins of all languages."""
    return keywords().union(read_word_list("builtins"))


def find_words(text: bytes) -> set[bytes]:
    """Return all words that could be names, in code or comments. `translate` is 2x faster than a regular expression."""
    return set(text.translate(NON_NAME_BYTES_TO_SPACES).split())


@cache
def may_be_renamed(name: bytes) -> bool:
    """Return True if a local variable of this name may be renamed."""
    return RENAMABLE_NAME.fullmatch(name) is not None and name.decode() not in keywords()


class NameGenerator:
    """Generator of new names that do not occur in a text.

    `NameGenerator(find_words(text), rng).similar_to(b"user_count", "python")` -> `b"active_margin"`
    """

    def __init__(self, names_in_use: set[bytes], rng: SeededRandom) -> None:
        self._names_in_use = names_in_use
        self._rng = rng
        self._reserved_words = reserved_words()

    def similar_to(self, name: bytes, language: str) -> bytes:
        """Return a new name in the style of the old name, with the same number of words.

        If no such name is free, the new name has more words. A leading _ is kept, because _ has a meaning in Rust.
        """
        prefix, old = (b"_", name[1:]) if name[:1] == b"_" else (b"", name)
        is_snake = b"_" in old or (language in SNAKE_CASE_LANGUAGES and old.islower())
        num_words = 0 if len(old) <= MAX_SHORT_LENGTH else min(len(NAME_PARTS.findall(old)), MAX_WORDS)
        while True:
            for _ in range(TRIES_PER_LENGTH):
                new = prefix + self._draw_name(num_words, is_snake=is_snake)
                if new not in self._names_in_use and new.decode() not in self._reserved_words:
                    self._names_in_use.add(new)
                    return new
            num_words += 1

    def _draw_name(self, num_words: int, *, is_snake: bool) -> bytes:
        one_of = self._rng.choice
        if num_words <= 1:
            return one_of(read_word_list("nouns" if num_words else "short")).encode()
        words = [*(one_of(read_word_list("modifiers")) for _ in range(num_words - 1)), one_of(read_word_list("nouns"))]
        return ("_".join(words) if is_snake else words[0] + "".join(map(str.capitalize, words[1:]))).encode()
