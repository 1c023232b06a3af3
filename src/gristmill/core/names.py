r"""How names and counts are written: the escape for path names that are not UTF-8, and suggestions for unknown names.

Each byte that is not UTF-8 becomes `\xNN`, and so that this can be undone, each backslash `\\`. Every other name, with
spaces, newlines or terminal escapes in it, is itself.

    src/caf\xe9.py      a Latin-1 name
    src/odd\\name.py    a name with a backslash in it
"""

import difflib
import os
import re
import shlex
from collections.abc import Iterable

SHORTEST_NEAR = 3
"""Of a shorter name, any other of its length is near."""
MOST_CHANGED = 0.25
UNPRINTED = frozenset({*range(0x20), *range(0x7F, 0x100), *b"'\\"})


ES_PLURALS = {"batches": "batch"}
SCHEME = re.compile(r"([a-z][a-z0-9.+-]*)://", re.IGNORECASE)
# As git reads it: a colon before any slash, a user in front, so that `C:\\x` and `a:b` stay paths.
SCP_FORM = re.compile(r"[\w.-]+@[\w.-]+:(?!//)[^-].*", re.DOTALL)


def is_address(word: str) -> bool:
    """`s3://bucket/x` or `git@host:name`, not a path here."""
    return bool(SCHEME.match(word) or SCP_FORM.fullmatch(word))


def path_text(path: str) -> str:
    """From the system's form to text that any reader takes: the same for the same bytes, whatever the locale."""
    if "\\" not in path and path.isascii():
        return path
    escaped = os.fsencode(path).decode("utf-8", "surrogateescape").replace("\\", "\\\\")
    return "".join(f"\\x{ord(char) - 0xDC00:02x}" if "\udc80" <= char <= "\udcff" else char for char in escaped)


def system_path(text: str) -> str:
    """The way back from `path_text`."""
    if "\\" not in text:
        return text
    raw = re.sub(
        rb"\\(?:x([0-9a-f]{2})|\\)",
        lambda match: bytes.fromhex(match[1].decode()) if match[1] else b"\\",
        text.encode(),
    )
    return os.fsdecode(raw)


def counted(num: int | str, one: str, many: str = "") -> str:
    """`1 file`, `2,075 files`; `many` where it is not `one` with an s. A number that is text stays as it is."""
    told = num if isinstance(num, str) else f"{num:,}"
    return f"{told} {one if told == '1' else many or f'{one}s'}"


def counted_units(num: int | str, units: str) -> str:
    """The same for a plural that is a variable: `1 file`, `2 batches`."""
    return counted(num, ES_PLURALS.get(units) or units.removesuffix("s"), units)


def shell_word(word: str) -> str:
    r"""As a shell takes it; what cannot be printed as bash and zsh do: `$'caf\xe9.py'`."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (f"\\x{byte:02x}" if byte in UNPRINTED else chr(byte) for byte in os.fsencode(word))
    return f"$'{''.join(escaped)}'"


def printable(text: str) -> str:
    """For a terminal: nothing in a file's name may move the cursor or change a colour."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant: spelt alike, or the only one that begins so. None where none is near.

    Alike: at most one character in four is another one, missing, added, or swapped with its neighbour.
    """
    names = {name.lower(): str(name) for name in known}
    wanted = word.lower()
    longer = [name for name in names if name.startswith(wanted)]
    if len(longer) == 1 and len(wanted) >= SHORTEST_NEAR:
        return names[longer[0]]
    alike = difflib.get_close_matches(wanted, names, n=5)
    distances = {name: _distance(wanted, name) for name in alike}
    near = [name for name in alike if distances[name] <= max(len(wanted), len(name)) * MOST_CHANGED]
    return names[min(near, key=distances.__getitem__)] if near and len(wanted) >= SHORTEST_NEAR else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    near = nearest(word, known)
    return f"Did you mean {near!r}?" if near is not None else otherwise


def _distance(one: str, other: str) -> int:
    """Characters to exchange, leave out, put in or swap with their neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, char in enumerate(one):
        earlier, before, row = before, row, [i + 1]
        for j, its in enumerate(other):
            row.append(min(before[j] + (char != its), before[j + 1] + 1, row[j] + 1))
            if i and j and (char, one[i - 1]) == (other[j - 1], its):
                row[-1] = min(row[-1], earlier[j - 1] + 1)
    return row[-1]
