"""Finds secrets in a text and puts placeholders in their place, keeping lines and syntax.

One RE2 pattern made of all openings reads the text once (rows: secret_kinds.py); what follows an opening is checked
within a bound, so time is linear in the text whatever it holds. Precision goes first: a password that reads like a word
stays. 330 MB/s a core on the standard library (benchmarks/find_secrets.py).
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from gristmill.cleaning.pages import Texts
from gristmill.cleaning.secret_checks import CHECKS, compiled
from gristmill.cleaning.secret_kinds import BARE_VALUE, PLACED, SECRET_RULES, SecretRule
from gristmill.config.settings import SecretsConfig
from gristmill.core.records import Redaction

# Where a bare `<` would open a tag or redirect a file. `text` is what no language is known of: .env, web.config, .jsp.
MARKUP_LANGUAGES = (
    *("astro", "ejs", "entitlements", "erb", "gotmpl", "handlebars", "html", "jinja", "jsx", "liquid", "mdx"),
    *("mustache", "ngdoc", "nunjucks", "php", "plist", "svelte", "svg", "text", "tsx", "twig", "vdx", "vtl", "vue"),
    *("xml", "zpt"),
)
SHELL_LANGUAGES = ("batch", "dockerfile", "dotenv", "expect", "fish", "makefile", "nushell", "powershell", "shell")
NO_ANGLE_LANGUAGES = frozenset((*MARKUP_LANGUAGES, *SHELL_LANGUAGES))
MAX_VALUE_BYTES = 1 << 14
MAX_ROUNDS = 8
NUM_HASH_DIGITS = 4
# Checks of one unbroken run of characters.
RUN_CHECKS = frozenset({"token", "jwt"})
# A run of more than this is looked at once for values given to a name, too.
LONG_RUN_BYTES = 512


class Secret(NamedTuple):
    kind: str
    start: int
    """Byte offsets of the value alone: quotes, names and the host of a URL stay outside."""
    end: int
    line: int


class Redacted(NamedTuple):
    text: bytes
    redactions: tuple[Redaction, ...]


class _Found(NamedTuple):
    start: int
    end: int
    rank: int
    """Of its rule in the table: the lower wins."""
    kind: str


class _Range(NamedTuple):
    start: int
    end: int
    kind: str


def find_secrets(text: bytes, *, emails: bool = False) -> list[Secret]:
    """In order and without overlap."""
    found = list(_found(text, emails=False))
    if emails:
        found += _found(text, emails=True)
    return _in_order(text, found)


def with_secrets(texts: Sequence[bytes], *, emails: bool = False) -> list[int]:
    """The numbers of those that hold one."""
    return [number for number in with_openings(texts, emails=emails) if find_secrets(texts[number], emails=emails)]


def with_openings(texts: Sequence[bytes], *, emails: bool = False) -> list[int]:
    """The numbers of those that may hold one: no other does. All texts are read in one go.

    No opening asks where a text begins or ends, so none is missed for the texts beside it.
    """
    together = Texts.of(texts)
    patterns = [_openings(kind) for kind in ([False, True] if emails else [False])]
    return sorted({number for pattern in patterns for number in together.with_match(partial(_position, pattern))})


def _position(pattern: Any, text: bytes, start: int) -> int:
    opening = pattern.search(text, start)
    return -1 if opening is None else int(opening.start())


def _found(text: bytes, *, emails: bool) -> Iterator[_Found]:
    """As the rules find them; e-mail addresses by themselves, since `@host.p` may be where another opening begins."""
    openings = _openings(emails)
    scanner, rules_by_group = _scanner(emails)
    # A run of characters is looked at once by each kind of check, not again from each opening inside it.
    checked_until = dict.fromkeys(CHECKS, 0)
    run_end = 0
    at = _position(openings, text, 0)
    while at >= 0:
        opening = scanner.match(text, at)
        group = opening.lastindex
        start, end = opening.span(group)
        rules = rules_by_group[group]
        for rank, rule in rules:
            if start < checked_until[rule.check]:
                continue
            if rule.check == "assigned":
                run_end = run_end if start < run_end else _bare_run_end(text, end)
                if run_end - start > MAX_VALUE_BYTES:
                    continue
            shape = compiled(rule.pattern).match(text, start, start + MAX_VALUE_BYTES)
            if shape is None:
                continue
            if rule.check in RUN_CHECKS:
                checked_until["token"] = checked_until["jwt"] = shape.end()
            elif rule.check == "assigned" and shape.end() - start > LONG_RUN_BYTES:
                checked_until["assigned"] = shape.end()
            values = [_Found(*span, rank, rule.kind) for span in CHECKS[rule.check](text, shape)]
            yield from values
            if values:
                break
        at = _position(openings, text, start + 1 if rules else end)


def _bare_run_end(text: bytes, start: int) -> int:
    return int(compiled(f"{BARE_VALUE}*").match(text, start).end())


def redact(text: bytes, language: str, config: SecretsConfig) -> Redacted | None:
    """The text itself where nothing is found; else one in which a second look finds nothing; None if none can be."""
    ranges: list[_Range] = []
    redacted = text
    for _ in range(MAX_ROUNDS):
        secrets = find_secrets(redacted, emails=config.emails)
        if not secrets:
            return Redacted(redacted, tuple(_redactions(text, ranges, config.salt.encode())))
        ranges = _with_originals(text, ranges, secrets, language)
        redacted = _replace(text, ranges, language)
    return None


def placeholder(kind: str, language: str) -> bytes:
    """What a value becomes; as many line feeds as the value had follow it."""
    name = f"SECRET:{kind}"
    return (f"__{name}__" if language in NO_ANGLE_LANGUAGES else f"<{name}>").encode()


def _in_order(text: bytes, found: list[_Found]) -> list[Secret]:
    """What overlaps becomes one, of the kind that comes first in the table."""
    kept: list[_Found] = []
    for one in sorted(found):
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
            continue
        last = kept[-1]
        rank, kind = min((last.rank, last.kind), (one.rank, one.kind))
        kept[-1] = _Found(last.start, max(last.end, one.end), rank, kind)
    lines = _lines(text, [one.start for one in kept])
    return [Secret(one.kind, one.start, one.end, line) for one, line in zip(kept, lines, strict=True)]


def _lines(text: bytes, offsets: Sequence[int]) -> list[int]:
    breaks = (text.count(b"\n", before, offset) for before, offset in pairwise((0, *offsets)))
    return list(accumulate(breaks, initial=1))[1:]


def _redactions(text: bytes, ranges: Sequence[_Range], salt: bytes) -> Iterator[Redaction]:
    lines = _lines(text, [one.start for one in ranges])
    for (start, end, kind), line in zip(ranges, lines, strict=True):
        digest = hashlib.sha256(salt + b"\0" + text[start:end]).hexdigest()
        yield Redaction(kind=kind, line=line, start=start, end=end, hash=digest[:NUM_HASH_DIGITS])


def _replacement(text: bytes, one: _Range, language: str) -> bytes:
    return placeholder(one.kind, language) + b"\n" * text.count(b"\n", one.start, one.end)


def _replace(text: bytes, ranges: Sequence[_Range], language: str) -> bytes:
    pieces = []
    done = 0
    for one in ranges:
        pieces += [text[done : one.start], _replacement(text, one, language)]
        done = one.end
    return b"".join((*pieces, text[done:]))


def _with_originals(text: bytes, ranges: list[_Range], secrets: list[Secret], language: str) -> list[_Range]:
    """Secrets of the redacted text join the ranges of the original; one that touches a placeholder swallows it."""
    starts, ends, shift = [], [], 0
    for one in ranges:
        starts.append(one.start + shift)
        ends.append(starts[-1] + len(_replacement(text, one, language)))
        shift = ends[-1] - one.end
    merged: list[_Range] = []
    done = 0
    for secret in secrets:
        first, last = bisect_right(ends, secret.start), bisect_left(starts, secret.end)
        start = secret.start - (ends[first - 1] - ranges[first - 1].end if first else 0)
        end = secret.end - (ends[last - 1] - ranges[last - 1].end if last else 0)
        if first < last:
            start, end = min(start, ranges[first].start), max(end, ranges[last - 1].end)
        merged += [*ranges[done:first], _Range(start, end, secret.kind)]
        done = max(first, last)
    return [*merged, *ranges[done:]]


@cache
def _openings(emails: bool) -> Any:
    """The pattern of all openings without groups: RE2 finds a match of it in a fraction of the time."""
    return compiled("|".join(f"(?:{opening}){followed_by}" for opening, followed_by in _rules_by_opening(emails)))


@cache
def _scanner(emails: bool) -> tuple[Any, dict[int, list[tuple[int, SecretRule]]]]:
    """All openings in one pattern, and the rules that each of its groups stands for."""
    rules = _rules_by_opening(emails)
    pattern = "|".join(f"({opening}){followed_by}" for opening, followed_by in rules)
    return compiled(pattern), dict(enumerate(rules.values(), start=1))


@cache
def _rules_by_opening(emails: bool) -> dict[tuple[str, str], list[tuple[int, SecretRule]]]:
    """Each with its rank, by the opening and what must follow it. A placeholder opens no secret: it has none."""
    rules: dict[tuple[str, str], list[tuple[int, SecretRule]]] = {(PLACED, ""): []}
    for rank, rule in enumerate(SECRET_RULES):
        if emails == (rule.check == "email"):
            rules.setdefault((rule.opening, rule.followed_by), []).append((rank, rule))
    return rules
