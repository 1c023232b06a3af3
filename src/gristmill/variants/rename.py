"""The same program with other names for its local variables: same tree, same meaning.

Only what nobody outside a function can see is renamed, and a name becomes the same new name in the whole file. As the
new one occurs nowhere in the file, nothing can collide, whatever is shadowed by what; all there is to know is which
names must stay (binding.py, and a query for each language).
"""

import unicodedata
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from gristmill.core.seeded_random import Dice
from gristmill.variants.fresh_names import FreshNames, is_fit, words_of
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


def _replaced(parsed: Parsed, places: Iterable[Place], fresh: FreshNames) -> bytes:
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
