"""Check `secrets`: no secret remains in the text of a file's windows.

The scan uses the build's tables of rules and value checks, but is separate code. It searches for the opening of each
rule, a short pattern, before it tries the complete pattern. A finding contains the kind and position of a secret, never
its value.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from gristmill.cleaning.secret_checks import CHECKS, compile_pattern
from gristmill.cleaning.secret_kinds import SECRET_RULES, SecretRule

MAX_MATCH_BYTES = 1 << 14
LONG_MATCH_BYTES = 512
LOOKBACK_BYTES = 256
"""Maximum number of bytes before an opening that belong to a name or to the local part of an e-mail address."""
LOOKAHEAD_BYTES = 64
# Pattern of the placeholders for redacted secrets. Words in a placeholder are not the name of a secret.
PLACEHOLDER = "<SECRET:[a-z0-9-]{1,32}>|__SECRET:[a-z0-9-]{1,32}__"
UNBROKEN_CHECKS = frozenset({"token", "jwt"})
"""Checks of values that are one unbroken run of characters.

An opening inside a run that was already tested is not a separate secret.
"""


class Finding(NamedTuple):
    """Kind and position of a secret."""

    kind: str
    start: int
    """Byte offset of the match in the text."""
    end: int


def scan_for_secrets(text: bytes, *, emails: bool) -> Iterator[Finding]:
    """Yield the secrets in a text. If `emails` is True, e-mail addresses are secrets too."""
    yield from _scan(text, emails=False)
    if emails:  # a separate pass, because `@config.p` may overlap the start of `password = "…"`
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
            match = compile_pattern(rule.pattern).match(text, start, start + MAX_MATCH_BYTES)
            if match is None:
                continue
            if category == "unbroken" or (category == "assigned" and match.end() - start > LONG_MATCH_BYTES):
                scanned_until[category] = match.end()
            if category == "assigned" and match.end() == start + MAX_MATCH_BYTES:
                continue  # the match is truncated, and no assigned secret is that long
            if any(True for _ in CHECKS[rule.check](text, match)):
                yield Finding(rule.kind, start, match.end())
                break
        opening = pattern.search(text, start + 1 if rules else end)


@cache
def _opening_pattern(emails: bool) -> tuple[Any, list[list[SecretRule]]]:
    """Return a pattern with one group per opening, and the rules of each group, indexed by group number from 1."""
    rules: dict[str, list[SecretRule]] = {f"({PLACEHOLDER})": []}
    for rule in SECRET_RULES:
        if emails == (rule.check == "email"):
            rules.setdefault(f"({rule.opening}){rule.followed_by}", []).append(rule)
    return compile_pattern("|".join(rules)), [[], *rules.values()]
