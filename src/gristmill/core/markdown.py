"""Markdown and its YAML front matter: escaped text, names and commands as code, tables."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gristmill.core.names import counted_units, printable

SPECIAL_CHARACTERS = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown displays it unchanged."""
    return SPECIAL_CHARACTERS.sub(r"\\\1", printable(text))


def code(text: str) -> str:
    """Format a text as code, even if the text contains backticks. For names in cards, use `name_as_code`."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if len(fence) > 1 else ""
    return f"{fence}{space}{printable(text)}{space}{fence}"


def code_in_table(text: str) -> str:
    """Format code for a table cell, where each `|` must be escaped."""
    return code(text).replace("|", "\\|")


LEFT, RIGHT = ":--", "--:"


def table_lines(
    headings: Sequence[str], rows: Iterable[Sequence[str]], sides: Sequence[str] | None = None
) -> Iterator[str]:
    """Yield the lines of a table whose cells are Markdown. `sides` aligns each column: LEFT or RIGHT."""
    for line in (headings, sides or ["---"] * len(headings), *rows):
        yield f"| {' | '.join(line)} |"


def numbers_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table with names in the first column and numbers in the other columns."""
    return "\n".join(table_lines(headings, rows, [LEFT, *[RIGHT] * (len(headings) - 1)]))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table and an empty line, or nothing if there are no rows."""
    if rows:
        yield from table_lines(headings, rows)
        yield ""


def more_line(num: int, units: str, file: str) -> Iterator[str]:
    """Yield a line with the number of omitted items and the file that lists them, if items were omitted."""
    if num > 0:
        yield f"And {counted_units(num, f'more {units}')} in {file}.\n"


# Names from repositories are not trusted: they must not become Markdown or YAML syntax.

MAX_NAME_LENGTH = 200
PLAIN_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
YAML_KEYWORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
NOT_IN_TITLE = re.compile(r"[^\w .,+#~/-]+")
"""Characters that a title does not need and a page might interpret as markup."""


def display_name(name: str) -> str:
    """Shorten a name and escape its control characters, including those that change the direction of writing."""
    short = name if len(name) <= MAX_NAME_LENGTH else f"{name[:MAX_NAME_LENGTH]}…"
    return printable(short.encode("utf-8", "backslashreplace").decode())


def name_as_code(name: object) -> str:
    """Format a name as code: `my-repo`. Backticks and bars are escaped like invalid bytes in a path (core/names.py)."""
    text = display_name(str(name)).replace("`", "\\x60").replace("|", "\\x7c")
    return f"`{text}`" if text.strip() else "(no name)"


def literal(value: object) -> str:
    """Format a value as compact JSON, which looks almost like Python or TOML: `[["src/**",3.0]]`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def safe_title(name: str) -> str:
    """Make a name safe for fields that other programs display without escaping."""
    return NOT_IN_TITLE.sub("_", display_name(name)).strip() or "_"


def to_yaml(value: Mapping[str, Any]) -> str:
    """Format strings, numbers, lists and mappings as block-style YAML. Keys are not escaped."""
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
    if PLAIN_WORD.fullmatch(value) and value.lower() not in YAML_KEYWORDS:
        return value
    escaped = (
        f"\\{char}" if char in '"\\' else char if char.isprintable() else f"\\U{ord(char):08x}" for char in value
    )
    return f'"{"".join(escaped)}"'
