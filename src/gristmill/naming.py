r"""How names and counts are written. First of all, the one escape for path names that are not UTF-8.

Each byte that is not UTF-8 becomes `\xNN`, and so that this can be undone, each backslash `\\`. Every other name, with
spaces, newlines or terminal escapes in it, is itself.

    src/caf\xe9.py      a Latin-1 name
    src/odd\\name.py    a name with a backslash in it
"""

import os
import re
import shlex

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
