"""Find secrets in a text and replace them with placeholders that preserve lines and syntax.

An opening is a short pattern with which a secret, or the text before a secret, begins. One RE2 pattern, which combines
the openings in secret_kinds.py, searches the text once. A second pattern searches for e-mail addresses if these are
secrets too. After each opening, only a bounded number of bytes is checked, so the time is linear in the length of any
text. Precision comes before recall: a password that looks like a word is kept. The speed on Python's standard library
is 330 MB/s per core (benchmarks/find_secrets.py).
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from gristmill.cleaning.pages import Texts
from gristmill.cleaning.secret_checks import CHECKS, compile_pattern
from gristmill.cleaning.secret_kinds import BARE_VALUE, PLACEHOLDER_PATTERN, SECRET_RULES, SecretRule
from gristmill.config.settings import SecretsConfig
from gristmill.core.records import Redaction

# Languages in which a bare `<` would open a tag or redirect input. `text` covers files of unknown language, such as
# .env, web.config and .jsp.
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
# Checks whose match is one unbroken run of characters.
RUN_CHECKS = frozenset({"token", "jwt"})
# An assigned value that is longer than this is also checked only once.
LONG_RUN_BYTES = 512


class Secret(NamedTuple):
    """A secret in a text."""

    kind: str
    start: int
    """Byte offset of the value. The value excludes quotes, the name before it and the host of a URL."""
    end: int
    line: int


class Redacted(NamedTuple):
    """A text with placeholders instead of secrets, and a record of each redaction."""

    text: bytes
    redactions: tuple[Redaction, ...]


class _Match(NamedTuple):
    start: int
    end: int
    rank: int
    """Index of the rule in SECRET_RULES. If matches overlap, the lowest rank decides the kind."""
    kind: str


class _Range(NamedTuple):
    start: int
    end: int
    kind: str


def find_secrets(text: bytes, *, emails: bool = False) -> list[Secret]:
    """Return the secrets in a text, in text order and without overlaps. With `emails`, also e-mail addresses."""
    matches = list(_find_matches(text, emails=False))
    if emails:
        matches += _find_matches(text, emails=True)
    return _merge_overlaps(text, matches)


def indices_with_secrets(texts: Sequence[bytes], *, emails: bool = False) -> list[int]:
    """Return the indices of the texts that contain a secret."""
    return [index for index in indices_with_openings(texts, emails=emails) if find_secrets(texts[index], emails=emails)]


def indices_with_openings(texts: Sequence[bytes], *, emails: bool = False) -> list[int]:
    """Return the indices of the texts that may contain a secret. All other texts contain none.

    All texts are searched at once. No opening depends on where a text begins or ends, so joining texts hides none.
    """
    joined = Texts.of(texts)
    patterns = [_openings(is_email) for is_email in ([False, True] if emails else [False])]
    return sorted({index for pattern in patterns for index in joined.indices_with_match(partial(_find, pattern))})


def _find(pattern: Any, text: bytes, start: int) -> int:
    opening = pattern.search(text, start)
    return -1 if opening is None else int(opening.start())


def _find_matches(text: bytes, *, emails: bool) -> Iterator[_Match]:
    """Yield the matches of the e-mail rule, or of all other rules.

    The e-mail rule is separate, because its opening `@host.p` may overlap other openings.
    """
    openings = _openings(emails)
    scanner, rules_by_group = _scanner(emails)
    # Checks of tokens, JWTs and long assigned values examine a run of characters only once, not again at each opening
    # inside the run.
    checked_until = dict.fromkeys(CHECKS, 0)
    run_end = 0
    position = _find(openings, text, 0)
    while position >= 0:
        opening = scanner.match(text, position)
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
            match = compile_pattern(rule.pattern).match(text, start, start + MAX_VALUE_BYTES)
            if match is None:
                continue
            if rule.check in RUN_CHECKS:
                checked_until["token"] = checked_until["jwt"] = match.end()
            elif rule.check == "assigned" and match.end() - start > LONG_RUN_BYTES:
                checked_until["assigned"] = match.end()
            values = [_Match(*span, rank, rule.kind) for span in CHECKS[rule.check](text, match)]
            yield from values
            if values:
                break
        position = _find(openings, text, start + 1 if rules else end)


def _bare_run_end(text: bytes, start: int) -> int:
    return int(compile_pattern(f"{BARE_VALUE}*").match(text, start).end())


def redact(text: bytes, language: str, config: SecretsConfig) -> Redacted | None:
    """Replace the secrets in a text until none is left. Return None if secrets are left after MAX_ROUNDS rounds.

    Without secrets, the result contains the same text object.
    """
    ranges: list[_Range] = []
    redacted = text
    for _ in range(MAX_ROUNDS):
        secrets = find_secrets(redacted, emails=config.emails)
        if not secrets:
            return Redacted(redacted, tuple(_redactions(text, ranges, config.salt.encode())))
        ranges = _merge_ranges(text, ranges, secrets, language)
        redacted = _replace(text, ranges, language)
    return None


def placeholder(kind: str, language: str) -> bytes:
    """Return the placeholder for a secret of this kind. The line feeds of the secret are appended separately."""
    name = f"SECRET:{kind}"
    return (f"__{name}__" if language in NO_ANGLE_LANGUAGES else f"<{name}>").encode()


def _merge_overlaps(text: bytes, matches: list[_Match]) -> list[Secret]:
    """Merge overlapping matches into one secret, with the kind that comes first in SECRET_RULES."""
    merged: list[_Match] = []
    for match in sorted(matches):
        if not merged or match.start >= merged[-1].end:
            merged.append(match)
            continue
        last = merged[-1]
        rank, kind = min((last.rank, last.kind), (match.rank, match.kind))
        merged[-1] = _Match(last.start, max(last.end, match.end), rank, kind)
    lines = _line_numbers(text, [match.start for match in merged])
    return [Secret(match.kind, match.start, match.end, line) for match, line in zip(merged, lines, strict=True)]


def _line_numbers(text: bytes, offsets: Sequence[int]) -> list[int]:
    breaks = (text.count(b"\n", before, offset) for before, offset in pairwise((0, *offsets)))
    return list(accumulate(breaks, initial=1))[1:]


def _redactions(text: bytes, ranges: Sequence[_Range], salt: bytes) -> Iterator[Redaction]:
    lines = _line_numbers(text, [span.start for span in ranges])
    for (start, end, kind), line in zip(ranges, lines, strict=True):
        digest = hashlib.sha256(salt + b"\0" + text[start:end]).hexdigest()
        yield Redaction(kind=kind, line=line, start=start, end=end, hash=digest[:NUM_HASH_DIGITS])


def _replacement(text: bytes, span: _Range, language: str) -> bytes:
    return placeholder(span.kind, language) + b"\n" * text.count(b"\n", span.start, span.end)


def _replace(text: bytes, ranges: Sequence[_Range], language: str) -> bytes:
    pieces = []
    done = 0
    for span in ranges:
        pieces += [text[done : span.start], _replacement(text, span, language)]
        done = span.end
    return b"".join((*pieces, text[done:]))


def _merge_ranges(text: bytes, ranges: list[_Range], secrets: list[Secret], language: str) -> list[_Range]:
    """Add secrets in the redacted text to the ranges in the original. A secret absorbs the placeholders it overlaps."""
    starts, ends, shift = [], [], 0
    for span in ranges:
        starts.append(span.start + shift)
        ends.append(starts[-1] + len(_replacement(text, span, language)))
        shift = ends[-1] - span.end
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
    """Return the pattern of all openings. RE2 matches a pattern without groups in a fraction of the time."""
    return compile_pattern(
        "|".join(f"(?:{opening}){followed_by}" for opening, followed_by in _rules_by_opening(emails))
    )


@cache
def _scanner(emails: bool) -> tuple[Any, dict[int, list[tuple[int, SecretRule]]]]:
    """Return the pattern of all openings with a group for each, and the rules of each group."""
    rules = _rules_by_opening(emails)
    pattern = "|".join(f"({opening}){followed_by}" for opening, followed_by in rules)
    return compile_pattern(pattern), dict(enumerate(rules.values(), start=1))


@cache
def _rules_by_opening(emails: bool) -> dict[tuple[str, str], list[tuple[int, SecretRule]]]:
    """Return the rules with their rank, keyed by `opening` and `followed_by`. A placeholder has no rules."""
    rules: dict[tuple[str, str], list[tuple[int, SecretRule]]] = {(PLACEHOLDER_PATTERN, ""): []}
    for rank, rule in enumerate(SECRET_RULES):
        if emails == (rule.check == "email"):
            rules.setdefault((rule.opening, rule.followed_by), []).append((rank, rule))
    return rules
