"""`secrets`: none is left in what a file's windows spell.

The table of rules and its limits are the build's, the code that applies them is not. A finding is a kind and a place,
never the value.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import re2

from gristmill.cleaning.secret_rules import (
    CREDENTIAL_NAME,
    EXAMPLE_HOST,
    NO_EMAIL,
    NO_SECRET_NAME,
    NO_SECRET_VALUE,
    PLACEHOLDER,
    SECRET_RULES,
    SecretRule,
)
from gristmill.cleaning.secret_values import (
    MAX_NAME_BYTES,
    MIN_CHANGE_FRACTION,
    MIN_ENTROPY_BITS,
    MIN_HEX_DIGITS,
    MIN_KEY_LINE_BYTES,
)
from gristmill.cleaning.secrets import MAX_VALUE_BYTES

KEY_LINE = rf"[A-Za-z0-9+][A-Za-z0-9+/]{{{MIN_KEY_LINE_BYTES - 1},}}"
ONE_RUN = frozenset({"token", "jwt"})
"""Checks of an unbroken run of characters: what opens inside of one that was looked at is no secret by itself."""


class Finding(NamedTuple):
    kind: str
    start: int
    """Of all that was matched, in bytes of the text."""
    end: int


def secrets_in(text: bytes, *, emails: bool) -> Iterator[Finding]:
    pattern, rules_by_group = _openings(emails)
    run_end = 0
    opening = pattern.search(text)
    while opening is not None:
        start, end = opening.span(opening.lastindex)
        for rule in rules_by_group[opening.lastindex]:
            if rule.check in ONE_RUN and start < run_end:
                break
            shape = _compiled(rule.pattern).match(text, start, start + MAX_VALUE_BYTES)
            if shape is None:
                continue
            run_end = shape.end() if rule.check in ONE_RUN else run_end
            if IS_SECRET[rule.check](text, shape):
                yield Finding(rule.kind, start, shape.end())
                break
        opening = pattern.search(text, end)


@cache
def _openings(emails: bool) -> tuple[Any, list[list[SecretRule]]]:
    """One pattern of them all, and the rules behind each of its groups (which are counted from 1)."""
    rules: dict[str, list[SecretRule]] = {}
    for rule in SECRET_RULES:
        if emails or rule.check != "email":
            rules.setdefault(f"({rule.opening}){rule.followed_by}", []).append(rule)
    return _compiled("|".join(rules)), [[], *rules.values()]


@cache
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(pattern.encode(), options)


def _has(pattern: str, text: bytes) -> bool:
    return _compiled(pattern).search(text) is not None


def _is_random_token(_: bytes, shape: Any) -> bool:
    return _is_strong(shape[shape.re.groups])


def _is_jwt(_: bytes, shape: Any) -> bool:
    header = shape[1].split(b".")[0]
    try:
        return "alg" in json.loads(base64.urlsafe_b64decode(header + b"==="))
    except (ValueError, TypeError, RecursionError):
        return False


def _is_url_password(text: bytes, shape: Any) -> bool:
    start, end = shape.span(1)
    value, user = shape[1], text[shape.start() + len(b"://") : start - 1]
    host = _compiled(r"[A-Za-z0-9.-]*").match(text, end + 1, end + 1 + MAX_NAME_BYTES)[0]
    if (
        value == user
        or _has(PLACEHOLDER, value)
        or _has(r"[$*]|%(?:[^0-9A-Fa-f]|\z)", value)
        or _has(EXAMPLE_HOST, host)
    ):
        return False
    return len(set(map(_kind_of, value))) > 1 or _entropy_bits(value) >= MIN_ENTROPY_BITS


def _is_aws_secret(text: bytes, shape: Any) -> bool:
    value = shape[1]
    return _has(r"(?i:aws|secret_?access|secret_?key)", _name(text, shape)) and _is_strong(value) and not _is_hex(value)


def _is_assigned(text: bytes, shape: Any) -> bool:
    value, name = shape[shape.lastindex], _name(text, shape)
    if _has(NO_SECRET_NAME, name) or _has(NO_SECRET_VALUE, value) or not _is_strong(value):
        return False
    if _is_hex(value):
        return value.isalnum() and len(value) >= MIN_HEX_DIGITS and _has(CREDENTIAL_NAME, name)
    return _changes_often(value)


def _is_email(text: bytes, shape: Any) -> bool:
    before = text[max(0, shape.start(1) - MAX_NAME_BYTES) : shape.start(1)].rpartition(b" ")[2]
    local = _compiled(r"[A-Za-z0-9._%+-]*\z").search(before)[0].lstrip(b"._%+-")
    return len(local) > 1 and b"://" not in before and not _has(NO_EMAIL, local + shape[1].lower())


def _is_key_block(text: bytes, shape: Any) -> bool:
    """A line of a key between BEGIN and END; without an END, in the first line that is not blank."""
    start = shape.end()
    stop = text.find(b"-----", start)
    body = text[start : stop if stop >= 0 else None]
    if not text.startswith(b"-----END", max(stop, 0)):
        body = body.lstrip().split(b"\n")[0].split(b"\\n")[0]
    return any(_is_key_line(line[0]) for line in _compiled(KEY_LINE).finditer(body))


def _is_key_line(run: bytes) -> bool:
    return {"lower", "upper", "digit"} <= set(map(_kind_of, run))


def _name(text: bytes, shape: Any) -> bytes:
    """`hash_of_token = "`: the whole name that a value is given to, and what stands between them."""
    start = shape.start()
    before = _compiled(r"[A-Za-z0-9_.-]*\z").search(text[max(0, start - MAX_NAME_BYTES) : start])[0]
    return bytes(before + text[start : shape.start(shape.lastindex)])


def _is_strong(value: bytes) -> bool:
    return not _has(PLACEHOLDER, value) and _entropy_bits(value) >= MIN_ENTROPY_BITS


def _is_hex(value: bytes) -> bool:
    return _compiled(r"(?:0x)?[0-9a-fA-F:-]+").fullmatch(value) is not None


def _entropy_bits(value: bytes) -> float:
    counts = Counter(value).values()
    return math.log2(len(value)) - sum(count * math.log2(count) for count in counts) / len(value)


def _kind_of(byte: int) -> str:
    char = chr(byte)
    return "digit" if char.isdigit() else "upper" if char.isupper() else "lower" if char.islower() else "symbol"


def _changes_often(value: bytes) -> bool:
    """Between letters of one case, of the other and digits, as random text does and names do not."""
    kinds = [_kind_of(byte) for byte in value if byte not in b"-_./:"]
    if "digit" not in kinds or not {"lower", "upper"} & {*kinds}:
        return False
    num_changes = sum(left != right and (left, right) != ("upper", "lower") for left, right in pairwise(kinds))
    return num_changes >= MIN_CHANGE_FRACTION * (len(kinds) - 1)


IS_SECRET: Mapping[str, Callable[[bytes, Any], bool]] = {
    "token": _is_random_token,
    "jwt": _is_jwt,
    "url_password": _is_url_password,
    "aws_secret": _is_aws_secret,
    "assigned": _is_assigned,
    "email": _is_email,
    "key_block": _is_key_block,
}
