r"""Text forms of names and counts: escaped paths, quoted shell words, plurals, and suggestions for unknown names.

In a path, each byte that is not UTF-8 becomes `\xNN` and each backslash becomes `\\`, so that the escape can be undone.
Other characters, including spaces, newlines and terminal escapes, are unchanged.

    src/caf\xe9.py      a Latin-1 name
    src/odd\\name.py    a name with a backslash
"""

import difflib
import os
import re
import shlex
from collections.abc import Iterable

MIN_LENGTH = 3
"""Minimum length of an unknown name for a suggestion. A shorter name is similar to almost any short known name."""
MAX_CHANGED_FRACTION = 0.25
ESCAPED_BYTES = frozenset({*range(0x20), *range(0x7F, 0x100), *b"'\\"})


ES_PLURALS = {"batches": "batch"}
SCHEME = re.compile(r"([a-z][a-z0-9.+-]*)://", re.IGNORECASE)
# An SSH address as git accepts it: user@host, and a colon before any slash. `C:\\x` and `a:b` are paths.
SCP_ADDRESS = re.compile(r"[\w.-]+@[\w.-]+:(?!//)[^-].*", re.DOTALL)


def is_remote_address(word: str) -> bool:
    """Return True for an address like `s3://bucket/x` or `git@host:name`, False for a local path."""
    return bool(SCHEME.match(word) or SCP_ADDRESS.fullmatch(word))


def path_text(path: str) -> str:
    """Convert a path from the system's form to escaped text. Equal bytes give equal text in every locale."""
    if "\\" not in path and path.isascii():
        return path
    escaped = os.fsencode(path).decode("utf-8", "surrogateescape").replace("\\", "\\\\")
    return "".join(f"\\x{ord(char) - 0xDC00:02x}" if "\udc80" <= char <= "\udcff" else char for char in escaped)


def system_path(text: str) -> str:
    """Convert escaped text back to a path in the system's form. Inverse of `path_text`."""
    if "\\" not in text:
        return text
    raw = re.sub(
        rb"\\(?:x([0-9a-f]{2})|\\)",
        lambda match: bytes.fromhex(match[1].decode()) if match[1] else b"\\",
        text.encode(),
    )
    return os.fsdecode(raw)


def counted(num: int | str, one: str, many: str = "") -> str:
    """Format a count: `1 file`, `2,075 files`. `many` is the plural, if irregular. A string `num` is not formatted."""
    number = num if isinstance(num, str) else f"{num:,}"
    return f"{number} {one if number == '1' else many or f'{one}s'}"


def counted_units(num: int | str, units: str) -> str:
    """Format a count for a unit given as a plural: `1 file`, `2 batches`."""
    return counted(num, ES_PLURALS.get(units) or units.removesuffix("s"), units)


def shell_quote(word: str) -> str:
    r"""Quote a word for a shell. Unprintable characters are written as in bash and zsh: `$'caf\xe9.py'`."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (f"\\x{byte:02x}" if byte in ESCAPED_BYTES else chr(byte) for byte in os.fsencode(word))
    return f"$'{''.join(escaped)}'"


def printable(text: str) -> str:
    """Escape unprintable characters, so that a file's name cannot move the terminal's cursor or change colors."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def nearest_name(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that the user probably meant, or None if there is no such name.

    If exactly one known name starts with `word`, return that name. Otherwise return the most similar known name, in
    which at most one character in four is replaced, missing, added, or swapped with its neighbor. Return None if
    `word` has fewer than MIN_LENGTH characters.
    """
    names = {name.lower(): str(name) for name in known}
    lowered = word.lower()
    completions = [name for name in names if name.startswith(lowered)]
    if len(completions) == 1 and len(lowered) >= MIN_LENGTH:
        return names[completions[0]]
    similar = difflib.get_close_matches(lowered, names, n=5)
    distances = {name: _distance(lowered, name) for name in similar}
    near = [name for name in similar if distances[name] <= max(len(lowered), len(name)) * MAX_CHANGED_FRACTION]
    return names[min(near, key=distances.__getitem__)] if near and len(lowered) >= MIN_LENGTH else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return a sentence that suggests the nearest known name, or `otherwise` if no known name is similar."""
    near = nearest_name(word, known)
    return f"Did you mean {near!r}?" if near is not None else otherwise


def _distance(one: str, other: str) -> int:
    """Return the number of replaced, deleted, inserted and swapped characters (optimal string alignment distance)."""
    row_above: list[int] = []
    row = list(range(len(other) + 1))
    for i, char in enumerate(one):
        second_row_above, row_above, row = row_above, row, [i + 1]
        for j, other_char in enumerate(other):
            row.append(min(row_above[j] + (char != other_char), row_above[j + 1] + 1, row[j] + 1))
            if i and j and (char, one[i - 1]) == (other[j - 1], other_char):
                row[-1] = min(row[-1], second_row_above[j - 1] + 1)
    return row[-1]
