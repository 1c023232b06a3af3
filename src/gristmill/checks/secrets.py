"""`secrets`: none is left in what a file's windows spell.

The rules and what makes a value a secret are the build's tables; the scan is not its code. A finding is a kind and a
place, never the value.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from gristmill.cleaning.secret_checks import CHECKS, compiled
from gristmill.cleaning.secret_kinds import SECRET_RULES, SecretRule

LONGEST_SHAPE_BYTES = 1 << 14
LONG_RUN_BYTES = 512
LOOK_BACK_BYTES = 256
"""How far before an opening its name, or the first part of an address, may begin."""
LOOK_AHEAD_BYTES = 64
# What stands for a secret that was taken out: its words name nothing.
PLACED = "<SECRET:[a-z0-9-]{1,32}>|__SECRET:[a-z0-9-]{1,32}__"
UNBROKEN = frozenset({"token", "jwt"})
"""Checks of a run of characters: what opens inside of one that was looked at is no secret by itself."""


class Finding(NamedTuple):
    kind: str
    start: int
    """Of all that was matched, in bytes of the text."""
    end: int


def secrets_in(text: bytes, *, emails: bool) -> Iterator[Finding]:
    yield from _found(text, emails=False)
    if emails:  # by themselves: `@config.p` may be where `password = "…"` begins
        yield from _found(text, emails=True)


def _found(text: bytes, *, emails: bool) -> Iterator[Finding]:
    pattern, rules_by_group = _openings(emails)
    done: dict[str, int] = {}
    opening = pattern.search(text)
    while opening is not None:
        start, end = opening.span(opening.lastindex)
        rules = rules_by_group[opening.lastindex]
        for rule in rules:
            run = "unbroken" if rule.check in UNBROKEN else rule.check
            if start < done.get(run, 0):
                continue
            shape = compiled(rule.pattern).match(text, start, start + LONGEST_SHAPE_BYTES)
            if shape is None:
                continue
            if run == "unbroken" or (run == "assigned" and shape.end() - start > LONG_RUN_BYTES):
                done[run] = shape.end()
            if run == "assigned" and shape.end() == start + LONGEST_SHAPE_BYTES:
                continue  # it goes on: nothing that is given to a name is as long
            if any(True for _ in CHECKS[rule.check](text, shape)):
                yield Finding(rule.kind, start, shape.end())
                break
        opening = pattern.search(text, start + 1 if rules else end)


@cache
def _openings(emails: bool) -> tuple[Any, list[list[SecretRule]]]:
    """One pattern of them all, and the rules behind each of its groups (which are counted from 1)."""
    rules: dict[str, list[SecretRule]] = {f"({PLACED})": []}
    for rule in SECRET_RULES:
        if emails == (rule.check == "email"):
            rules.setdefault(f"({rule.opening}){rule.followed_by}", []).append(rule)
    return compiled("|".join(rules)), [[], *rules.values()]
