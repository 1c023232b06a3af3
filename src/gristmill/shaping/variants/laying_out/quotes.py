"""'x' for "x" and the other way round, in the languages where both mean the same.

Only strings with neither quotes nor backslashes in them, none within another string, and none that touches another:
'' and "" side by side would open a long string of Python.
"""

import re

from gristmill.shaping.variants.grammars import Parsed, captures

QUOTES = (b"'", b'"')

_SCRIPT = "(string) @string"
QUERIES = {
    "python": "(string) @string",
    "typescript": _SCRIPT,
    **dict.fromkeys(("javascript", "jsx", "tsx"), f"{_SCRIPT} (jsx_attribute) @attribute"),
}

SIMPLE = re.compile(rb"""[A-Za-z]{0,2}(['"])[^'"\\\r\n]*\1""")


def find_quotes(parsed: Parsed) -> dict[bytes, list[int]]:
    """By the quote that could come there: the places of the others."""
    places: dict[bytes, list[int]] = {quote: [] for quote in QUOTES}
    if parsed.language not in QUERIES:
        return places
    text, reach = parsed.text, 0
    found = captures(parsed, QUERIES[parsed.language])
    ends_of_attributes = {node.end_byte for node in found.get("attribute", ())}  # quoted as in HTML
    for start, end in sorted((node.start_byte, node.end_byte) for node in found.get("string", ())):
        if start >= reach and end not in ends_of_attributes and not _touches_another(text, start, end):
            match = SIMPLE.fullmatch(text, start, end)
            if match:
                places[b"'" if match[1] == b'"' else b'"'] += (match.start(1), end - 1)
        reach = max(reach, end)
    return places


def quote_again(text: bytes, places: list[int], quote: bytes) -> bytes:
    changed = bytearray(text)
    for place in places:
        changed[place] = quote[0]
    return bytes(changed)


def _touches_another(text: bytes, start: int, end: int) -> bool:
    return text[start - 1 : start] in QUOTES or text[end : end + 1] in QUOTES
