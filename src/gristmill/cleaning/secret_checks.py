"""Check whether a match is a real secret, not a placeholder, word, hash or name, and locate its value.

Each check takes the text and a match of its rule's pattern. The check yields the byte ranges of the values: none, one,
or one for each line of a key that is broken up by quotes or comment signs.
"""

import base64
import json
import math
import string
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import re2

from gristmill.cleaning.secret_kinds import ESCAPED, Check

# Words that show that a value is not random. A word of 4 letters occurs by chance in one of 30,000 tokens.
PLACEHOLDER = (
    r"(?i)example|sample|placeholder|change.?(?:me|it)|your|x{4}|dummy|fake|foobar|test|insert|replace|redact|secret"
    r"|pass(?:wd|word)?$|^pass|passw|pwd|abcdef|012345|123456|qwerty|oauth|\.\.\.|aaaaa|00000000"
)
NON_SECRET_NAME = (
    r"(?i)hash|digest|sha[0-9]|md5|checksum|integrity|fingerprint|public|regex|pattern|charset|alphabet|^pass[ \t]+$"
)
# A hash in base64, such as `sha256=…`, may contain any sequence of letters by chance.
INSIDE_HASH = r"(?i)sha[0-9]{1,3}[=:-][A-Za-z0-9_+/-]*\z"
# A variable, a path, a hash, or code: a word after punctuation, or the code between two strings.
NON_SECRET_VALUE = (
    r"^(?:\$[A-Za-z0-9_{(]|%[A-Za-z({]|[@#&](?:[A-Za-z_]{2}|[{(])|[/~.]|[A-Za-z]:/)|://|^(?i:sha[0-9]+|md5)[-:]"
    r"|[(\[{<,;|][A-Za-z][a-z]{4}|^[,+;).:?=&|\]}].*(?:[A-Za-z0-9_]\(|\)[,;.)]|=>|&&)"
)
# Words in passwords that people invent for examples. Only passwords and logins are searched for these words.
PASSWORD_WORD = (
    r"(?i)p[a@4][s5$]{2}|s[e3]cr[e3]t|adm[i1]n|root|user|login|w[e3]lc[o0]m|l[e3]tm[e3]|hello|world|guest|demo|temp|local"
    r"|postgres|mysql|mongo|redis|docker|rabbit|django|minio|hunter|dragon|monkey|master|default|value"
    r"|name|string|null|none|true|false|super|strong|weak|wrong|valid|match|random|token|auth|param|field|input|word|abcd|1234"
)
# `{name}`, `[1,2]`
BRACKETED = r"^[{(<\[].*[})>\]]$"
# Examples in RFC 7617 and RFC 6749.
EXAMPLE_PASSWORD = r"(?i)^open ?sesame$|^gX1fBat3bV$|^7Fjfp0ZBr1KtDRbnfVdmIw$"
PASSWORD_NAME = r"""(?i)passw(?:or)?d|passphrase|pass["']?\]?[ \t]*[=:>]|pwd"""
# After one of these names, plain hex is a credential. After other names, it is a hash.
CREDENTIAL_NAME = (
    r"(?i)api[_.-]?key|secret[_-]?key|(?:client|app)[_-]?secret|(?:access|auth|bot)[_-]?token|authorization"
)
# A UUID after one of these names is not a secret.
NON_CREDENTIAL_NAME = r"(?i)(?:ids?|uuid|guid|name|type|version)[^A-Za-z0-9]*$"
# A UUID of version 1 encodes a time and a machine, so it is not random. Texts about UUIDs contain the example UUIDs.
RANDOM_UUID = r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[02-9a-f][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
EXAMPLE_UUID = r"(?i)^(?:550e8400-e29b-41d4-a716-446655440000|123e4567-e89b-.*)$"
# A port before a slash, or a host after an @, shows that the password ended earlier.
NON_RAW_PASSWORD = r"^[0-9]{1,5}(?:[/,]|$)|@(?:[A-Za-z0-9-]+\.[A-Za-z0-9.-]+|localhost)(?:[/,]|$)"
# Schemes of URLs whose path rarely contains an `@`.
LOGIN_SCHEME = (
    r"(?i)\b(?:postgres(?:ql)?|mysqlx?|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver|oracle|clickhouse|cockroachdb"
    r"|neo4j|bolt|couchdb|influxdb|redshift|snowflake|ldaps?|s?ftps?|smtps?|imaps?|nats|mqtts?|socks[45]h?|rtsp)"
    r"(?:\+[a-z0-9]{1,20})?$"
)
# `$PASS`, `a${b}`, `***`, `%s`, or a port in a list of hosts.
TEMPLATE = r"^\$[A-Za-z_]|\$[{(]|\*\*|%(?:[^0-9A-Fa-f]|\z)|^[0-9]{2,5}[,)]"
EXAMPLE_HOST = r"(?i)(?:^|\.)(?:example(?:\.[a-z]+)?|test|invalid)$"
NON_EMAIL = (
    r"(?:@|%40)(?:.*\.)?example\.|\.(?:example|test|invalid|png|jpg|jpeg|gif|svg|js|ts|py|css|html|json|md|sh|so|utf)$"
    r"|(?i:^(?:no-?reply|do-?not-?reply|git|user|username|you|your[a-z]*|me|foo|bar|name|email|someone)(?:@|%40))|users\.noreply"
)
# `O'Brien`, but not `r'brien`
APOSTROPHE_NAME = r"(?:^|[^A-Za-z0-9])[OoDd]'[^']*$"
# A single letter before the `@` needs one of these domains, because `a@b.T` and `x@w.sum` are expressions.
UNAMBIGUOUS_DOMAIN = r"(?i)\.(?:com|org|net|edu|gov|info|dev)$|\.[a-z]{2}$"

# Bits per character. Random text has 3.6 (16 characters from an alphabet of 36) to 4.9 (40 from 64). Words have fewer.
MIN_ENTROPY_BITS = 3.0
# Fraction of adjacent pairs of characters that differ in class (lowercase, uppercase, digit). Uppercase before
# lowercase is not counted. Random text has 0.4 or more, `camelCaseName2` has 0.2.
MIN_CHANGE_FRACTION = 0.26
MIN_HEX_DIGITS = 32
MIN_KEY_LINE_BYTES = 32
MIN_KEY_RUN_BYTES = 4
# A key of 16,384 bits takes 13 KB, or 20 KB as lines of code.
MAX_KEY_BYTES = 1 << 16
MAX_NAME_BYTES = 64
MAX_ESCAPE_BYTES = 6
MAX_HASH_BYTES = 96
MAX_LOCAL_BYTES = 256
# Only the start of a value is searched for PLACEHOLDER: a word of 4 letters occurs by chance in one of 100 random texts
# of 1,000 characters.
MAX_PLACEHOLDER_BYTES = 128
# Shorter values may not reach MIN_ENTROPY_BITS even if they are random.
SHORT_BYTES = 16
MIN_LOGIN_BYTES = 6
MIN_PASSWORD_BYTES = 8
MIN_MIXED_CLASSES = 3
MIN_MIXED_CHANGE_FRACTION = 0.33
# A value of only letters is random if it is long and its case changes more often than in any name.
MIN_LETTERS = 32
MIN_CASE_CHANGE_FRACTION = 0.36
# Digits are rare in base32.
MIN_BASE32_CHANGE_FRACTION = 0.15
# RE2's state machine for all openings takes 30 MB. If it does not fit, the scan takes three times as long.
MAX_PATTERN_BYTES = 64 << 20

# KEY_WORD matches escaped spaces, line ends (literal or escaped) and runs of base64, also after `//`. JSON and URLs may
# escape characters in a run.
LINE_END = r"\n\s*|\\+(?:n|x0[aA]|u000[aA]|012)|%0[aA]|&#(?:10|x[aA]);"
ESCAPED_SPACE = r"\\+(?:[rt]|x0[dD]|u000[dD])|%0[dD]|%20|&#(?:13|x[dD]);"
ESCAPED_SIGN = r"\\+/|\\+u002[BbFf]|%2[BbFf]|&#(?:43|47|x2[BbFf]);"
ESCAPED_EQUALS = r"\\+u003[Dd]|%3[Dd]|&#(?:61|x3[Dd]);"
KEY_WORD = (
    rf"(?:{ESCAPED_SPACE})|({LINE_END})"
    rf"|((?:[A-Za-z0-9+]|{ESCAPED_SIGN})(?:[A-Za-z0-9+/]|{ESCAPED_SIGN})*(?:=|{ESCAPED_EQUALS})*)"
)
# `&name=` in a URL, or `&&` in a shell.
NEXT_FIELD = r"&(?:amp;)?[A-Za-z0-9_.\[\]-]{1,40}=|&amp;|&&"
GAP = rf"(?:\s|{LINE_END}|{ESCAPED_SPACE})*/?"
LINE_END_GROUP, WORD_GROUP = 1, 2
LOCAL_BYTES = bytes({*b"._%+-", *string.ascii_letters.encode(), *string.digits.encode(), *range(0x80, 0x100)})
# Class of each character: lowercase (l), uppercase (u), digit (d) or other sign (s).
CLASS_BY_CHARACTER = {
    code: "d" if chr(code).isdigit() else "u" if chr(code).isupper() else "l" if chr(code).islower() else "s"
    for code in range(0x100)
}
FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")
Span = tuple[int, int]


@cache
def compile_pattern(pattern: str) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes in, byte offsets out
    options.max_mem = MAX_PATTERN_BYTES
    return re2.compile(pattern.encode(), options)


def _check_token(text: bytes, match: Any) -> Iterator[Span]:
    start, end = match.span(match.re.groups)
    value = text[start:end]
    if _is_strong(value) and (_starts_word(text, match.start(1)) or _is_token_in_word(text, match.start(1), value)):
        yield match.span(1)


def _starts_word(text: bytes, start: int) -> bool:
    before = text[max(0, start - MAX_ESCAPE_BYTES) : start]
    return not before[-1:].isalnum() or compile_pattern(rf"(?:{ESCAPED})\z").search(before) is not None


def _is_token_in_word(text: bytes, start: int, value: bytes) -> bool:
    """Return True if a token after letters, as in `tokenghp_…`, is neither a long name nor part of a hash."""
    before = text[max(0, start - MAX_HASH_BYTES) : start]
    return "d" in _classes(value) and _looks_random(value) and not compile_pattern(INSIDE_HASH).search(before)


def _check_jwt(text: bytes, match: Any) -> Iterator[Span]:
    start, end = match.span(1)
    header = text[start : text.index(b".", start)]
    try:
        decoded = json.loads(base64.urlsafe_b64decode(header + b"==="))
    except (ValueError, RecursionError):
        return
    if "alg" in decoded:
        yield start, end


def _check_url_password(text: bytes, match: Any) -> Iterator[Span]:
    start, end = match.span(1)
    user, value = text[match.start() + len(b"://") : start - 1], text[start:end]
    if compile_pattern("[/@]").search(value) and not _is_raw_password(text, match, value):
        return
    host = compile_pattern(r"[A-Za-z0-9.-]*").match(text, end + 1, end + 1 + MAX_NAME_BYTES)[0]
    is_template = compile_pattern(TEMPLATE).search(value) is not None
    if is_template or _is_placeholder(value) or value == user or compile_pattern(EXAMPLE_HOST).search(host):
        return
    if len(_classes(value)) > 1 or _entropy_bits(value) >= MIN_ENTROPY_BITS:
        yield start, end


def _is_raw_password(text: bytes, match: Any, value: bytes) -> bool:
    """Return True if a value with a slash or an @ is one password, unlike in `https://me:password@host/@name`."""
    scheme = text[max(0, match.start() - MAX_NAME_BYTES) : match.start()]
    may_be_raw = b"/" not in value or compile_pattern(LOGIN_SCHEME).search(scheme) is not None
    return may_be_raw and compile_pattern(NON_RAW_PASSWORD).search(value) is None


def _check_aws_secret(text: bytes, match: Any) -> Iterator[Span]:
    start, end = match.span(1)
    value = text[start:end]
    if compile_pattern(r"(?i:aws|secret_?access|secret_?key)").search(_assigned_name(text, match)) and _is_strong(
        value
    ):
        yield from () if _is_hex(value) else [(start, end)]


def _check_assigned(text: bytes, match: Any) -> Iterator[Span]:
    start, end = match.span(match.lastindex)
    value, name = text[start:end], _assigned_name(text, match)
    if compile_pattern(NON_SECRET_NAME).search(name) or compile_pattern(NON_SECRET_VALUE).search(value):
        return
    if _is_hex(value):
        is_key = value.isalnum() and len(value) >= MIN_HEX_DIGITS
        is_secret = is_key and compile_pattern(CREDENTIAL_NAME).search(name) is not None
        is_secret = is_secret or _is_secret_uuid(value, name)
    else:
        is_secret = _looks_random(value)
    if is_secret and _is_strong(value):
        yield start, _extend_past_ampersand(text, end)


def _is_secret_uuid(value: bytes, name: bytes) -> bool:
    if compile_pattern(r"(?i)client[_.-]?secret").search(name):
        return _is_uuid(value)
    is_credential = compile_pattern(CREDENTIAL_NAME).search(name) and not compile_pattern(NON_CREDENTIAL_NAME).search(
        name
    )
    is_random = compile_pattern(RANDOM_UUID).fullmatch(value) and not compile_pattern(EXAMPLE_UUID).search(value)
    return bool(is_credential and is_random)


def _check_password(text: bytes, match: Any) -> Iterator[Span]:
    """Check a short value after the name of a password. Short values must look more random than longer values."""
    start, end = match.span(match.lastindex)
    next_field = compile_pattern(NEXT_FIELD).search(text, start, end)
    end = end if next_field is None else next_field.start()
    value, name = text[start:end], _assigned_name(text, match)
    if (
        len(value) < MIN_PASSWORD_BYTES
        or not compile_pattern(PASSWORD_NAME).search(name)
        or compile_pattern(NON_SECRET_NAME).search(name)
    ):
        return
    is_no_password = any(
        compile_pattern(pattern).search(value) for pattern in (NON_SECRET_VALUE, PASSWORD_WORD, BRACKETED)
    )
    if not is_no_password and not _is_hex(value) and _is_mixed(value) and _is_strong(value):
        yield start, end


def _check_basic_login(text: bytes, match: Any) -> Iterator[Span]:
    start, end = match.span(1)
    try:
        login = base64.b64decode(text[start:end].rstrip(b"=").translate(FROM_URL_SAFE) + b"==")
    except ValueError:
        return
    user, colon, password = login.partition(b":")
    value = password or user  # some services use a key as the user name, without a password
    is_text = colon and login.isascii() and login.decode().isprintable()
    if not is_text or len(value) < MIN_LOGIN_BYTES or password == user or compile_pattern(TEMPLATE).search(value):
        return
    is_word = _is_placeholder(value) or any(
        compile_pattern(pattern).search(value) for pattern in (PASSWORD_WORD, EXAMPLE_PASSWORD)
    )
    if not is_word and (len(_classes(value)) > 1 or _entropy_bits(value) >= MIN_ENTROPY_BITS):
        yield start, end


def _extend_past_ampersand(text: bytes, end: int) -> int:
    """Extend a value past a `&` that does not start another URL field, as in `NAME=a1b2&c3d4`."""
    extension = compile_pattern(rf"{NEXT_FIELD}|(&[^\s\"'`<>)]+)").match(text, end, end + MAX_LOCAL_BYTES)
    return end if extension is None or extension.lastindex is None else int(extension.end())


def _check_email(text: bytes, match: Any) -> Iterator[Span]:
    at, end = match.span(1)
    before = text[max(0, at - MAX_LOCAL_BYTES) : at]
    local = before[len(before.rstrip(LOCAL_BYTES)) :]
    if local and before.endswith(b"'", 0, len(before) - len(local)) and compile_pattern(APOSTROPHE_NAME).search(before):
        head = before[: -len(local) - len(b"O'")]
        local = before[len(head.rstrip(LOCAL_BYTES)) :]
    local = local.lstrip(b"._%+-")
    is_in_url = b"://" in before[-MAX_NAME_BYTES:].rpartition(b" ")[2]
    is_name = len(local) > 1 or (local and compile_pattern(UNAMBIGUOUS_DOMAIN).search(text[at:end]) is not None)
    if is_name and not is_in_url and not compile_pattern(NON_EMAIL).search(local + text[at:end].lower()):
        yield at - len(local), end


def _check_key_block(text: bytes, match: Any) -> Iterator[Span]:
    """Yield the key after BEGIN as one value, or line by line between quotes or comment signs. END may be missing."""
    start = match.end()
    stop = text.find(b"-----", start, start + MAX_KEY_BYTES)  # text after the next dashes is scanned separately
    if stop < 0:
        runs = _truncated_key_runs(text, start, min(len(text), start + MAX_KEY_BYTES))
    elif text.startswith(b"-----END", stop):
        runs = _key_runs(text, start, stop)
    else:
        runs = _truncated_key_runs(text, start, stop)
    if not any(_is_key_line(text[run_start:end]) for run_start, end in runs):
        return
    span = runs[0]
    for run_start, end in runs[1:]:
        if _is_gap(text, span[1], run_start):
            span = span[0], end
        else:
            yield span
            span = run_start, end
    yield span


def _key_runs(text: bytes, start: int, stop: int) -> list[Span]:
    """Return the runs between BEGIN and END that belong to the key.

    These are full key lines, runs that are alone on their line or in quotes, runs that continue the previous run, and
    runs with the same line prefix as the last key line.
    """
    runs: list[Span] = []
    prefix = None  # text before the key in its line, such as `12: ` or `INFO `
    for line in _key_lines(text, start, stop):
        for run_start, end in line:
            is_line = _is_key_line(text[run_start:end])
            is_alone = len(line) == 1 and end - run_start >= MIN_KEY_RUN_BYTES
            continues_last = bool(runs) and (_is_gap(text, runs[-1][1], run_start) or _is_quoted(text, run_start, end))
            if (
                is_line
                or is_alone
                or continues_last
                or (run_start == line[-1][0] and _line_prefix(text, run_start) == prefix)
            ):
                runs.append((run_start, end))
            if is_line:
                prefix = _line_prefix(text, run_start)
    return runs


def _line_prefix(text: bytes, end: int) -> bytes:
    before = text[max(0, end - MAX_NAME_BYTES) : end].rpartition(b"\n")[2]
    return bytes(compile_pattern(r"[0-9]+").sub(b"0", before))


def _is_quoted(text: bytes, start: int, end: int) -> bool:
    return end - start >= MIN_KEY_RUN_BYTES and text[start - 1] in b"\"'`" and text[end] in b"\"'`\\"


def _truncated_key_runs(text: bytes, start: int, stop: int) -> list[Span]:
    """Return the runs of a key without END: consecutive key lines, and possibly a short last line."""
    runs: list[Span] = []
    for line in _key_lines(text, start, stop):
        first_start, end = line[0]
        full_lines = [span for span in line if _is_key_line(text[slice(*span)])]
        is_header = not runs and text[end : end + 1] in {b":", b"-"}
        if not full_lines and not is_header:
            is_last = not text[end:stop].strip() or (len(line) == 1 and _is_last_key_line(text[first_start:end]))
            follows_last = bool(runs) and text.count(b"\n", runs[-1][1], first_start) <= 1
            return [*runs, (first_start, end)] if follows_last and is_last else runs
        runs += full_lines
    return runs


def _is_last_key_line(run: bytes) -> bool:
    return len(run) >= MIN_KEY_RUN_BYTES and (len(_classes(run[1:])) > 1 or run.endswith(b"="))


def _key_lines(text: bytes, start: int, stop: int) -> Iterator[list[Span]]:
    r"""Yield the words of each nonempty line. A line ends with a line feed or an escaped line feed, `\n`."""
    line: list[Span] = []
    for word in compile_pattern(KEY_WORD).finditer(text, start, stop):
        if word.lastindex == WORD_GROUP:
            line.append(word.span())
        elif word.lastindex == LINE_END_GROUP and line:
            yield line
            line = []
    if line:
        yield line


def _is_gap(text: bytes, start: int, end: int) -> bool:
    return compile_pattern(GAP).fullmatch(text, start, end) is not None


def _is_key_line(run: bytes) -> bool:
    return len(run) >= MIN_KEY_LINE_BYTES and {"l", "u", "d"} <= _classes(run)


def _assigned_name(text: bytes, match: Any) -> bytes:
    """Return the complete name to which a value is assigned, including `hash` in `hash_of_token`."""
    start, end = match.start(), match.span(match.lastindex)[0]
    before = compile_pattern(r"[A-Za-z0-9_.-]*\z").search(text[max(0, start - MAX_NAME_BYTES) : start])[0]
    return bytes(before + text[start:end])


def _is_strong(value: bytes) -> bool:
    # Random text of 8 characters has 2.8 bits per character, because some characters occur twice.
    min_bits = MIN_ENTROPY_BITS if len(value) >= SHORT_BYTES else min(MIN_ENTROPY_BITS, math.log2(len(value)) - 0.5)
    return not _is_placeholder(value) and _entropy_bits(value) >= min_bits


def _is_placeholder(value: bytes) -> bool:
    return compile_pattern(PLACEHOLDER).search(value, 0, MAX_PLACEHOLDER_BYTES) is not None


def _is_hex(value: bytes) -> bool:
    return compile_pattern(r"(?:0x)?[0-9a-fA-F:-]+").fullmatch(value) is not None


def _is_uuid(value: bytes) -> bool:
    return compile_pattern(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch(value) is not None


def _entropy_bits(value: bytes) -> float:
    """Return the Shannon entropy in bits per byte."""
    fractions = [count / len(value) for count in Counter(value).values()]
    return -sum(fraction * math.log2(fraction) for fraction in fractions)


def _classes(value: bytes) -> set[str]:
    return set(value.decode("latin-1").translate(CLASS_BY_CHARACTER))


def _looks_random(value: bytes) -> bool:
    classes = value.translate(None, b"-_./:").decode("latin-1").translate(CLASS_BY_CHARACTER)
    distinct = set(classes)
    if len(classes) >= MIN_LETTERS and distinct == {"l", "u"}:
        return _change_fraction(classes, ignored=None) >= MIN_CASE_CHANGE_FRACTION
    if "d" not in distinct or not {"l", "u"} & distinct:
        return False
    min_fraction = (
        MIN_BASE32_CHANGE_FRACTION if compile_pattern(r"[A-Z2-7]{32,}=*").fullmatch(value) else MIN_CHANGE_FRACTION
    )
    return _change_fraction(classes, ignored="ul") >= min_fraction


def _is_mixed(value: bytes) -> bool:
    """Return True if a short value looks random: it has three character classes, or two that alternate often."""
    # Ignore the signs that also occur in `2016-09-08T21:47:36Z` and `min_count=1`.
    classes = value.translate(None, b"-_./:=").decode("latin-1").translate(CLASS_BY_CHARACTER)
    num_classes, change_fraction = len(set(classes)), _change_fraction(classes, ignored="ul")
    if "s" in classes and num_classes >= MIN_MIXED_CLASSES:
        return change_fraction >= MIN_MIXED_CHANGE_FRACTION
    return _looks_random(value) and (num_classes >= MIN_MIXED_CLASSES or change_fraction >= MIN_MIXED_CHANGE_FRACTION)


def _change_fraction(classes: str, ignored: str | None) -> float:
    num_changes = sum(left != right for left, right in pairwise(classes))
    num_ignored = classes.count(ignored) if ignored else 0
    return (num_changes - num_ignored) / max(1, len(classes) - 1)


CHECKS: dict[Check, Callable[[bytes, Any], Iterator[Span]]] = {
    "token": _check_token,
    "jwt": _check_jwt,
    "key_block": _check_key_block,
    "url_password": _check_url_password,
    "aws_secret": _check_aws_secret,
    "assigned": _check_assigned,
    "password": _check_password,
    "basic_login": _check_basic_login,
    "email": _check_email,
}
