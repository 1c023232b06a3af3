"""Markdown that says what the text says, whatever signs are in it."""

import re

from gristmill.naming import printable

SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def plain_text(text: str) -> str:
    return SIGNS.sub(r"\\\1", printable(text))


def code(text: str) -> str:
    """In more backticks than stand in the text."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    blank = " " if len(fence) > 1 else ""
    return f"{fence}{blank}{printable(text)}{blank}{fence}"


def code_in_table(text: str) -> str:
    """Its bar must not end the cell."""
    return code(text).replace("|", "\\|")
