"""Check `secrets`: no secret remains in the text of a file's windows.

The rules and the tests for secret values are the tables of the build. The scan itself is separate code. A finding has a
kind and a position, never the value.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from gristmill.cleaning.secret_checks import CHECKS, compile_pattern
from gristmill.cleaning.secret_kinds import SECRET_RULES, SecretRule

MAX_SHAPE_BYTES = 1 << 14
LONG_RUN_BYTES = 512
LOOKBACK_BYTES = 256
"""A name, or the local part of an e-mail address, begins at most this many bytes before the opening of its rule."""
LOOKAHEAD_BYTES = 64
# Placeholder of a redacted secret. The words in it do not name a secret.
PLACEHOLDER = "<SECRET:[a-z0-9-]{1,32}>|__SECRET:[a-z0-9-]{1,32}__"
UNBROKEN_CHECKS = frozenset({"token", "jwt"})
"""Checks of an unbroken run of characters. An opening inside a run that was already tested is not a separate secret."""


class Finding(NamedTuple):
    """Kind and position of a secret."""

    kind: str
    start: int
    """Byte offset of the match in the text."""
    end: int


def scan_for_secrets(text: bytes, *, emails: bool) -> Iterator[Finding]:
    """Yield the secrets in a text. If `emails` is set, e-mail addresses count as secrets."""
    yield from _scan(text, emails=False)
    if emails:  # a separate pass, since `@config.p` may overlap the start of `password = "…"`
        yield from _scan(text, emails=True)


def _scan(text: bytes, *, emails: bool) -> Iterator[Finding]:
    pattern, rules_by_group = _opening_pattern(emails)
    scanned_until: dict[str, int] = {}
    opening = pattern.search(text)
    while opening is not None:
        start, end = opening.span(opening.lastindex)
        rules = rules_by_group[opening.lastindex]
        for rule in rules:
            category = "unbroken" if rule.check in UNBROKEN_CHECKS else rule.check
            if start < scanned_until.get(category, 0):
                continue
            shape = compile_pattern(rule.pattern).match(text, start, start + MAX_SHAPE_BYTES)
            if shape is None:
                continue
            if category == "unbroken" or (category == "assigned" and shape.end() - start > LONG_RUN_BYTES):
                scanned_until[category] = shape.end()
            if category == "assigned" and shape.end() == start + MAX_SHAPE_BYTES:
                continue  # the match is truncated, and no assigned secret is that long
            if any(True for _ in CHECKS[rule.check](text, shape)):
                yield Finding(rule.kind, start, shape.end())
                break
        opening = pattern.search(text, start + 1 if rules else end)


@cache
def _opening_pattern(emails: bool) -> tuple[Any, list[list[SecretRule]]]:
    """Return one pattern for the openings of all rules, and the rules of each of its groups. Groups count from 1."""
    rules: dict[str, list[SecretRule]] = {f"({PLACEHOLDER})": []}
    for rule in SECRET_RULES:
        if emails == (rule.check == "email"):
            rules.setdefault(f"({rule.opening}){rule.followed_by}", []).append(rule)
    return compile_pattern("|".join(rules)), [[], *rules.values()]
