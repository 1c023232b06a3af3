"""Whether what has the shape of a secret is one (no placeholder, word, hash or name), and where its value stands.

Each check takes the text and a match of its rule's pattern, and gives the byte ranges of the values: none, one, or one
for each line of a key that quotes or comment signs break up.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import re2

from gristmill.cleaning.secret_rules import (
    CREDENTIAL_NAME,
    EXAMPLE_HOST,
    NO_EMAIL,
    NO_SECRET_NAME,
    NO_SECRET_VALUE,
    PLACEHOLDER,
    Check,
)

# Random text of 16 characters out of 36 has 3.6 bits each, of 40 out of 64 has 4.9; words and patterns have less.
MIN_ENTROPY_BITS = 3.0
# Pairs of neighbours where letter case or digit changes (a capital before a small letter apart): random text has 0.4
# and more, `camelCaseName2` 0.2.
MIN_CHANGE_FRACTION = 0.26
MIN_HEX_DIGITS = 32
MIN_KEY_LINE_BYTES = 32
MIN_KEY_RUN_BYTES = 4
MAX_NAME_BYTES = 64

# A run of base64 (one that may stand behind `//`), a shorter word, or the end of a line, written out or escaped.
KEY_WORD = r"(?:\\+[rt])|(\n\s*|\\+n)|([A-Za-z0-9+][A-Za-z0-9+/]*={0,3})"
LINE_END_GROUP, WORD_GROUP = 1, 2
Span = tuple[int, int]


@cache
def compiled(pattern: str) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes in, byte offsets out
    return re2.compile(pattern.encode(), options)


def _token(text: bytes, shape: Any) -> Iterator[Span]:
    start, end = shape.span(shape.re.groups)
    if _is_strong(text[start:end]):
        yield shape.span(1)


def _jwt(text: bytes, shape: Any) -> Iterator[Span]:
    start, end = shape.span(1)
    header = text[start : text.index(b".", start)]
    try:
        decoded = json.loads(base64.urlsafe_b64decode(header + b"==="))
    except (ValueError, RecursionError):
        return
    if "alg" in decoded:
        yield start, end


def _url_password(text: bytes, shape: Any) -> Iterator[Span]:
    start, end = shape.span(1)
    user, value = text[shape.start() + len(b"://") : start - 1], text[start:end]
    host = compiled(r"[A-Za-z0-9.-]*").match(text, end + 1, end + 1 + MAX_NAME_BYTES)[0]
    is_template = compiled(r"[$*]|%(?:[^0-9A-Fa-f]|\z)").search(value) is not None
    if is_template or _is_placeholder(value) or value == user or compiled(EXAMPLE_HOST).search(host):
        return
    if len(_classes(value)) > 1 or _entropy_bits(value) >= MIN_ENTROPY_BITS:
        yield start, end


def _aws_secret(text: bytes, shape: Any) -> Iterator[Span]:
    start, end = shape.span(1)
    value = text[start:end]
    if compiled(r"(?i:aws|secret_?access|secret_?key)").search(_name(text, shape)) and _is_strong(value):
        yield from () if _is_hex(value) else [(start, end)]


def _assigned(text: bytes, shape: Any) -> Iterator[Span]:
    start, end = shape.span(shape.lastindex)
    value, name = text[start:end], _name(text, shape)
    if compiled(NO_SECRET_NAME).search(name) or compiled(NO_SECRET_VALUE).search(value):
        return
    if _is_hex(value):
        is_key = value.isalnum() and len(value) >= MIN_HEX_DIGITS
        is_secret = is_key and compiled(CREDENTIAL_NAME).search(name) is not None
    else:
        is_secret = _looks_random(value)
    if is_secret and _is_strong(value):
        yield start, end


def _email(text: bytes, shape: Any) -> Iterator[Span]:
    at, end = shape.span(1)
    before = text[max(0, at - MAX_NAME_BYTES) : at].rpartition(b" ")[2]
    local = compiled(r"[A-Za-z0-9._%+-]*\z").search(before)[0].lstrip(b"._%+-")
    address = local + text[at:end].lower()
    is_in_url = b"://" in before
    if len(local) > 1 and not is_in_url and not compiled(NO_EMAIL).search(address):
        yield at - len(local), end


def _key_block(text: bytes, shape: Any) -> Iterator[Span]:
    """The body between BEGIN and END as one value; where quotes or comment signs stand in it, each line's part."""
    start = shape.end()
    stop = text.find(b"-----", start)  # no further: what follows the next dashes is looked at from there
    if text.startswith(b"-----END", stop):
        runs = _key_runs(text, start, stop)
    else:
        runs = _cut_off_key_runs(text, start, stop if stop >= 0 else len(text))
    if not any(_is_key_line(text[one:end]) for one, end in runs):
        return
    span = runs[0]
    for one, end in runs[1:]:
        if _is_gap(text, span[1], one):
            span = span[0], end
        else:
            yield span
            span = one, end
    yield span


def _key_runs(text: bytes, start: int, stop: int) -> list[Span]:
    """What is long enough for a line of a key, alone on its line, or only space away from what was taken."""
    runs: list[Span] = []
    for line in _key_lines(text, start, stop):
        for one, end in line:
            is_alone = len(line) == 1 and end - one >= MIN_KEY_RUN_BYTES
            if is_alone or _is_key_line(text[one:end]) or (runs and _is_gap(text, runs[-1][1], one)):
                runs.append((one, end))
    return runs


def _cut_off_key_runs(text: bytes, start: int, stop: int) -> list[Span]:
    """Without an END, only lines of a key that follow each other, and what is left of one where the text ends."""
    runs: list[Span] = []
    for line in _key_lines(text, start, stop):
        (_, end) = first = line[0]
        long = [span for span in line if _is_key_line(text[slice(*span)])]
        is_header = not runs and text[end : end + 1] in {b":", b"-"}
        if not long and not is_header:
            return [*runs, first] if runs and not text[end:stop].strip() else runs
        runs += long
    return runs


def _key_lines(text: bytes, start: int, stop: int) -> Iterator[list[Span]]:
    r"""The words of each line that has any; a line ends with a line feed or with an escaped one, `\n`."""
    line: list[Span] = []
    for word in compiled(KEY_WORD).finditer(text, start, stop):
        if word.lastindex == WORD_GROUP:
            line.append(word.span())
        elif word.lastindex == LINE_END_GROUP and line:
            yield line
            line = []
    if line:
        yield line


def _is_gap(text: bytes, start: int, end: int) -> bool:
    return compiled(r"(?:\s|\\+[nrt])*/?").fullmatch(text, start, end) is not None


def _is_key_line(run: bytes) -> bool:
    return len(run) >= MIN_KEY_LINE_BYTES and len(_classes(run) - {"symbol"}) == len(("lower", "upper", "digit"))


def _name(text: bytes, shape: Any) -> bytes:
    """The whole name that a value is given to: `hash` too in `hash_of_token`."""
    start, end = shape.start(), shape.span(shape.lastindex)[0]
    before = compiled(r"[A-Za-z0-9_.-]*\z").search(text[max(0, start - MAX_NAME_BYTES) : start])[0]
    return bytes(before + text[start:end])


def _is_strong(value: bytes) -> bool:
    return not _is_placeholder(value) and _entropy_bits(value) >= MIN_ENTROPY_BITS


def _is_placeholder(value: bytes) -> bool:
    return compiled(PLACEHOLDER).search(value) is not None


def _is_hex(value: bytes) -> bool:
    return compiled(r"(?:0x)?[0-9a-fA-F:-]+").fullmatch(value) is not None


def _entropy_bits(value: bytes) -> float:
    """Per byte, by Shannon."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


def _class(byte: int) -> str:
    char = chr(byte)
    return "digit" if char.isdigit() else "upper" if char.isupper() else "lower" if char.islower() else "symbol"


def _classes(value: bytes) -> set[str]:
    return {_class(byte) for byte in set(value)}


def _looks_random(value: bytes) -> bool:
    classes = [_class(byte) for byte in value.translate(None, b"-_./:")]
    if "digit" not in classes or not {"lower", "upper"} & set(classes):
        return False
    changes = sum(one != other and (one, other) != ("upper", "lower") for one, other in pairwise(classes))
    return changes >= MIN_CHANGE_FRACTION * (len(classes) - 1)


CHECKS: dict[Check, Callable[[bytes, Any], Iterator[Span]]] = {
    "token": _token,
    "jwt": _jwt,
    "key_block": _key_block,
    "url_password": _url_password,
    "aws_secret": _aws_secret,
    "assigned": _assigned,
    "email": _email,
}
