"""Markdown and the YAML on top of it: escaped text, names and commands as code, tables."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gristmill.core.names import printable

SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def plain_text(text: str) -> str:
    """Markdown that reads as the text does, whatever signs are in it."""
    return SIGNS.sub(r"\\\1", printable(text))


def code(text: str) -> str:
    """Code that can be copied: in more backticks than stand in it. `in_code` is for the names in a dataset's card."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if len(fence) > 1 else ""
    return f"{fence}{blank}{printable(text)}{blank}{fence}"


def code_in_table(text: str) -> str:
    """Its bar must not end the cell."""
    return code(text).replace("|", "\\|")


LEFT, RIGHT = ":--", "--:"


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], sides: Sequence[str] | None = None
) -> Iterator[str]:
    """A table whose cells are Markdown already. `sides`: LEFT or RIGHT for each column."""
    for line in (headings, sides or ["---"] * len(headings), *rows):
        yield f"| {' | '.join(line)} |"


def numbers_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of names, in its first column, and numbers."""
    return "\n".join(table_lines(headings, rows, [LEFT, *[RIGHT] * (len(headings) - 1)]))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Nothing where there are no rows; an empty line at the end."""
    if rows:
        yield from table_lines(headings, rows)
        yield ""


def more(num: int, what: str) -> Iterator[str]:
    if num > 0:
        yield f"And {num:,} more {what}.\n"


# Names from repositories, as parts of a Markdown or YAML text: whatever stands in them, it stays a name.

LONGEST_NAME = 200
PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
YAML_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
NO_TITLE = re.compile(r"[^\w .,+#~/-]+")
"""What no name of a dataset needs, and a page might take for markup."""


def shown(name: str) -> str:
    """Visible in one line: controls of any kind, those that turn the direction of writing too, as their escapes."""
    short = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    return printable(short.encode("utf-8", "backslashreplace").decode())


def in_code(name: object) -> str:
    """`my-repo`, as code; what would end the code or a table's cell is escaped as in a path (core/names.py)."""
    text = shown(str(name)).replace("`", "\\x60").replace("|", "\\x7c")
    return f"`{text}`" if text.strip() else "(no name)"


def literal(value: object) -> str:
    """As in a line of Python or TOML, nearly: `[["src/**",3.0]]`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def title(name: str) -> str:
    """For fields that others show as they are."""
    return NO_TITLE.sub("_", shown(name)).strip() or "_"


def yaml_of(value: Mapping[str, Any]) -> str:
    """Strings, numbers, lists and mappings of these, in blocks; keys are ours."""
    return "".join(f"{line}\n" for line in _block(value))


def _block(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _entry(f"{key}:", inner)
        return
    for item in value:
        if isinstance(item, str | int | float):
            yield f"- {_scalar(item)}"
            continue
        first, *others = _block(item)
        yield f"- {first}"
        yield from (f"  {line}" for line in others)


def _entry(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, str | int | float):
        yield f"{key} {_scalar(value)}"
        return
    yield key
    indent = "" if isinstance(value, Sequence) else "  "
    yield from (f"{indent}{line}" for line in _block(value))


def _scalar(value: str | float) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    if PLAIN_WORD.fullmatch(value) and value.lower() not in YAML_WORDS:
        return value
    escaped = (
        f"\\{char}" if char in '"\\' else char if char.isprintable() else f"\\U{ord(char):08x}" for char in value
    )
    return f'"{"".join(escaped)}"'
