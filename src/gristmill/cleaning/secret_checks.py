"""Whether what has the shape of a secret is one (no placeholder, word, hash or name), and where its value stands.

Each check takes the text and a match of its rule's pattern, and gives the byte ranges of the values: none, one, or one
for each line of a key that quotes or comment signs break up.
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

# Words that no random value holds: 4 letters turn up in one of 30,000 tokens.
PLACEHOLDER = (
    r"(?i)example|sample|placeholder|change.?(?:me|it)|your|x{4}|dummy|fake|foobar|test|insert|replace|redact|secret"
    r"|pass(?:wd|word)?$|^pass|passw|pwd|abcdef|012345|123456|qwerty|oauth|\.\.\.|aaaaa|00000000"
)
NO_SECRET_NAME = (
    r"(?i)hash|digest|sha[0-9]|md5|checksum|integrity|fingerprint|public|regex|pattern|charset|alphabet|^pass[ \t]+$"
)
# `sha256=…` in base64: any letters may come together in it.
INSIDE_HASH = r"(?i)sha[0-9]{1,3}[=:-][A-Za-z0-9_+/-]*\z"
# A name, a path or a hash, and code: a word behind its punctuation, or what stands between two strings.
NO_SECRET_VALUE = (
    r"^(?:\$[A-Za-z0-9_{(]|%[A-Za-z({]|[@#&](?:[A-Za-z_]{2}|[{(])|[/~.]|[A-Za-z]:/)|://|^(?i:sha[0-9]+|md5)[-:]"
    r"|[(\[{<,;|][A-Za-z][a-z]{4}|^[,+;).:?=&|\]}].*(?:[A-Za-z0-9_]\(|\)[,;.)]|=>|&&)"
)
# Words in passwords that people make up for examples. Only short values are held against them.
PASSWORD_WORD = (
    r"(?i)p[a@4][s5$]{2}|s[e3]cr[e3]t|adm[i1]n|root|user|login|w[e3]lc[o0]m|l[e3]tm[e3]|hello|world|guest|demo|temp|local"
    r"|postgres|mysql|mongo|redis|docker|rabbit|django|minio|hunter|dragon|monkey|master|default|value"
    r"|name|string|null|none|true|false|super|strong|weak|wrong|valid|match|random|token|auth|param|field|input|word|abcd|1234"
)
# `{name}`, `[1,2]`
BRACKETED = r"^[{(<\[].*[})>\]]$"
# By RFC 7617 and RFC 6749.
EXAMPLE_PASSWORD = r"(?i)^open ?sesame$|^gX1fBat3bV$|^7Fjfp0ZBr1KtDRbnfVdmIw$"
PASSWORD_NAME = r"""(?i)passw(?:or)?d|passphrase|pass["']?\]?[ \t]*[=:>]|pwd"""
# Behind one of these names even plain hex is a credential; elsewhere it is a hash.
CREDENTIAL_NAME = (
    r"(?i)api[_.-]?key|secret[_-]?key|(?:client|app)[_-]?secret|(?:access|auth|bot)[_-]?token|authorization"
)
# What is known by one of these names is often a UUID too, and no secret.
NO_CREDENTIAL_NAME = r"(?i)(?:ids?|uuid|guid|name|type|version)[^A-Za-z0-9]*$"
# Version 1 is a time and a machine, not random; the others are in every text on UUIDs.
RANDOM_UUID = r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[02-9a-f][0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
EXAMPLE_UUID = r"(?i)^(?:550e8400-e29b-41d4-a716-446655440000|123e4567-e89b-.*)$"
# A port before a slash, and a host behind an @: the password has ended there, if it was one.
NO_RAW_PASSWORD = r"^[0-9]{1,5}(?:[/,]|$)|@(?:[A-Za-z0-9-]+\.[A-Za-z0-9.-]+|localhost)(?:[/,]|$)"
# Schemes of addresses that hardly ever have a path with an `@` in it.
LOGIN_SCHEME = (
    r"(?i)\b(?:postgres(?:ql)?|mysqlx?|mariadb|mongodb|rediss?|amqps?|mssql|sqlserver|oracle|clickhouse|cockroachdb"
    r"|neo4j|bolt|couchdb|influxdb|redshift|snowflake|ldaps?|s?ftps?|smtps?|imaps?|nats|mqtts?|socks[45]h?|rtsp)"
    r"(?:\+[a-z0-9]{1,20})?$"
)
# `$PASS`, `a${b}`, `***`, `%s`, and the port of one host before the name of another
TEMPLATE = r"^\$[A-Za-z_]|\$[{(]|\*\*|%(?:[^0-9A-Fa-f]|\z)|^[0-9]{2,5}[,)]"
EXAMPLE_HOST = r"(?i)(?:^|\.)(?:example(?:\.[a-z]+)?|test|invalid)$"
NO_EMAIL = (
    r"(?:@|%40)(?:.*\.)?example\.|\.(?:example|test|invalid|png|jpg|jpeg|gif|svg|js|ts|py|css|html|json|md|sh|so|utf)$"
    r"|(?i:^(?:no-?reply|do-?not-?reply|git|user|username|you|your[a-z]*|me|foo|bar|name|email|someone)(?:@|%40))|users\.noreply"
)
# `O'Brien`, but not `r'brien`
IRISH = r"(?:^|[^A-Za-z0-9])[OoDd]'[^']*$"
# Behind one letter, as in `a@b.T` or `x@w.sum`, only a domain that is no attribute.
SURE_DOMAIN = r"(?i)\.(?:com|org|net|edu|gov|info|dev)$|\.[a-z]{2}$"

# Random text of 16 characters out of 36 has 3.6 bits each, of 40 out of 64 has 4.9; words and patterns have less.
MIN_ENTROPY_BITS = 3.0
# Pairs of neighbours where letter case or digit changes (a capital before a small letter apart): random text has 0.4
# and more, `camelCaseName2` 0.2.
MIN_CHANGE_FRACTION = 0.26
MIN_HEX_DIGITS = 32
MIN_KEY_LINE_BYTES = 32
MIN_KEY_RUN_BYTES = 4
# A key of 16,384 bits has 13 KB, as lines of code 20.
MAX_KEY_BYTES = 1 << 16
MAX_NAME_BYTES = 64
MAX_ESCAPE_BYTES = 6
MAX_HASH_BYTES = 96
MAX_LOCAL_BYTES = 256
# A word of 4 letters turns up by chance in one of 100 random texts of 1,000 characters.
MAX_PLACEHOLDER_BYTES = 128
# Values of fewer bytes than this cannot reach MIN_ENTROPY_BITS for certain, even if they are random.
SHORT_BYTES = 16
MIN_LOGIN_BYTES = 6
MIN_PASSWORD_BYTES = 8
MIN_MIXED_CLASSES = 3
MIN_MIXED_CHANGE_FRACTION = 0.33
# Letters alone are random only if there are many of them, and the case changes as it never does in a name.
MIN_LETTERS = 32
MIN_CASE_CHANGE_FRACTION = 0.36
# Digits are rare in base32.
MIN_BASE32_CHANGE_FRACTION = 0.15
# The DFA of all openings has 30 MB of states; where they do not fit, a third of the speed is left.
MAX_PATTERN_BYTES = 64 << 20

# The end of a line, written out or escaped; a run of base64 (one that may stand behind `//`), where JSON or a URL may
# have escaped a sign.
LINE_END = r"\n\s*|\\+(?:n|x0[aA]|u000[aA]|012)|%0[aA]|&#(?:10|x[aA]);"
BLANK = r"\\+(?:[rt]|x0[dD]|u000[dD])|%0[dD]|%20|&#(?:13|x[dD]);"
ESCAPED_SIGN = r"\\+/|\\+u002[BbFf]|%2[BbFf]|&#(?:43|47|x2[BbFf]);"
ESCAPED_EQUALS = r"\\+u003[Dd]|%3[Dd]|&#(?:61|x3[Dd]);"
KEY_WORD = (
    rf"(?:{BLANK})|({LINE_END})"
    rf"|((?:[A-Za-z0-9+]|{ESCAPED_SIGN})(?:[A-Za-z0-9+/]|{ESCAPED_SIGN})*(?:=|{ESCAPED_EQUALS})*)"
)
# `&name=` of a URL, and the `&&` of a shell
NEXT_FIELD = r"&(?:amp;)?[A-Za-z0-9_.\[\]-]{1,40}=|&amp;|&&"
GAP = rf"(?:\s|{LINE_END}|{BLANK})*/?"
LINE_END_GROUP, WORD_GROUP = 1, 2
LOCAL_BYTES = bytes({*b"._%+-", *string.ascii_letters.encode(), *string.digits.encode(), *range(0x80, 0x100)})
# Of a lower or upper letter, a digit, another sign
CLASS_BY_CHARACTER = {
    code: "d" if chr(code).isdigit() else "u" if chr(code).isupper() else "l" if chr(code).islower() else "s"
    for code in range(0x100)
}
FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")
Span = tuple[int, int]


@cache
def compiled(pattern: str) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes in, byte offsets out
    options.max_mem = MAX_PATTERN_BYTES
    return re2.compile(pattern.encode(), options)


def _token(text: bytes, shape: Any) -> Iterator[Span]:
    start, end = shape.span(shape.re.groups)
    value = text[start:end]
    if _is_strong(value) and (_starts_word(text, shape.start(1)) or _is_token_in_word(text, shape.start(1), value)):
        yield shape.span(1)


def _starts_word(text: bytes, start: int) -> bool:
    before = text[max(0, start - MAX_ESCAPE_BYTES) : start]
    return not before[-1:].isalnum() or compiled(rf"(?:{ESCAPED})\z").search(before) is not None


def _is_token_in_word(text: bytes, start: int, value: bytes) -> bool:
    """Behind letters, as in `tokenghp_…`: neither a long name nor a part of a hash."""
    before = text[max(0, start - MAX_HASH_BYTES) : start]
    return "d" in _classes(value) and _looks_random(value) and not compiled(INSIDE_HASH).search(before)


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
    if compiled("[/@]").search(value) and not _is_raw_password(text, shape, value):
        return
    host = compiled(r"[A-Za-z0-9.-]*").match(text, end + 1, end + 1 + MAX_NAME_BYTES)[0]
    is_template = compiled(TEMPLATE).search(value) is not None
    if is_template or _is_placeholder(value) or value == user or compiled(EXAMPLE_HOST).search(host):
        return
    if len(_classes(value)) > 1 or _entropy_bits(value) >= MIN_ENTROPY_BITS:
        yield start, end


def _is_raw_password(text: bytes, shape: Any, value: bytes) -> bool:
    """A value with a slash or an @ in it may go beyond the password: `https://me:password@host/@name`."""
    scheme = text[max(0, shape.start() - MAX_NAME_BYTES) : shape.start()]
    is_possible = b"/" not in value or compiled(LOGIN_SCHEME).search(scheme) is not None
    return is_possible and compiled(NO_RAW_PASSWORD).search(value) is None


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
        is_secret = is_secret or _is_secret_uuid(value, name)
    else:
        is_secret = _looks_random(value)
    if is_secret and _is_strong(value):
        yield start, _bare_end(text, end)


def _is_secret_uuid(value: bytes, name: bytes) -> bool:
    if compiled(r"(?i)client[_.-]?secret").search(name):
        return _is_uuid(value)
    is_credential = compiled(CREDENTIAL_NAME).search(name) and not compiled(NO_CREDENTIAL_NAME).search(name)
    is_random = compiled(RANDOM_UUID).fullmatch(value) and not compiled(EXAMPLE_UUID).search(value)
    return bool(is_credential and is_random)


def _password(text: bytes, shape: Any) -> Iterator[Span]:
    """A short one, behind the name of a password: it must look more random than a longer one."""
    start, end = shape.span(shape.lastindex)
    next_field = compiled(NEXT_FIELD).search(text, start, end)
    end = end if next_field is None else next_field.start()
    value, name = text[start:end], _name(text, shape)
    if (
        len(value) < MIN_PASSWORD_BYTES
        or not compiled(PASSWORD_NAME).search(name)
        or compiled(NO_SECRET_NAME).search(name)
    ):
        return
    is_other = any(compiled(one).search(value) for one in (NO_SECRET_VALUE, PASSWORD_WORD, BRACKETED))
    if not is_other and not _is_hex(value) and _is_mixed(value) and _is_strong(value):
        yield start, end


def _basic_login(text: bytes, shape: Any) -> Iterator[Span]:
    start, end = shape.span(1)
    try:
        login = base64.b64decode(text[start:end].rstrip(b"=").translate(FROM_URL_SAFE) + b"==")
    except ValueError:
        return
    user, colon, password = login.partition(b":")
    value = password or user  # of some services a key is the name, without a password
    is_text = colon and login.isascii() and login.decode().isprintable()
    if not is_text or len(value) < MIN_LOGIN_BYTES or password == user or compiled(TEMPLATE).search(value):
        return
    is_word = _is_placeholder(value) or any(compiled(one).search(value) for one in (PASSWORD_WORD, EXAMPLE_PASSWORD))
    if not is_word and (len(_classes(value)) > 1 or _entropy_bits(value) >= MIN_ENTROPY_BITS):
        yield start, end


def _bare_end(text: bytes, end: int) -> int:
    """A `&` that begins no further field of a URL, as in `NAME=a1b2&c3d4`, belongs to the value."""
    rest = compiled(rf"{NEXT_FIELD}|(&[^\s\"'`<>)]+)").match(text, end, end + MAX_LOCAL_BYTES)
    return end if rest is None or rest.lastindex is None else int(rest.end())


def _email(text: bytes, shape: Any) -> Iterator[Span]:
    at, end = shape.span(1)
    before = text[max(0, at - MAX_LOCAL_BYTES) : at]
    local = before[len(before.rstrip(LOCAL_BYTES)) :]
    if local and before.endswith(b"'", 0, len(before) - len(local)) and compiled(IRISH).search(before):
        head = before[: -len(local) - len(b"O'")]
        local = before[len(head.rstrip(LOCAL_BYTES)) :]
    local = local.lstrip(b"._%+-")
    is_in_url = b"://" in before[-MAX_NAME_BYTES:].rpartition(b" ")[2]
    is_name = len(local) > 1 or (local and compiled(SURE_DOMAIN).search(text[at:end]) is not None)
    if is_name and not is_in_url and not compiled(NO_EMAIL).search(local + text[at:end].lower()):
        yield at - len(local), end


def _key_block(text: bytes, shape: Any) -> Iterator[Span]:
    """The body between BEGIN and END as one value; where quotes or comment signs stand in it, each line's part."""
    start = shape.end()
    stop = text.find(b"-----", start, start + MAX_KEY_BYTES)  # what follows the next dashes is looked at from there
    if stop < 0:
        runs = _cut_off_key_runs(text, start, min(len(text), start + MAX_KEY_BYTES))
    elif text.startswith(b"-----END", stop):
        runs = _key_runs(text, start, stop)
    else:
        runs = _cut_off_key_runs(text, start, stop)
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
    """Lines of a key, and what is alone on its line or in its quotes, or stands where the line before had its part."""
    runs: list[Span] = []
    indent = None  # what stands before the part of a line: `12: `, `INFO `
    for line in _key_lines(text, start, stop):
        for one, end in line:
            is_line = _is_key_line(text[one:end])
            is_alone = len(line) == 1 and end - one >= MIN_KEY_RUN_BYTES
            is_next = bool(runs) and (_is_gap(text, runs[-1][1], one) or _is_quoted(text, one, end))
            if is_line or is_alone or is_next or (one == line[-1][0] and _indent(text, one) == indent):
                runs.append((one, end))
            if is_line:
                indent = _indent(text, one)
    return runs


def _indent(text: bytes, end: int) -> bytes:
    before = text[max(0, end - MAX_NAME_BYTES) : end].rpartition(b"\n")[2]
    return bytes(compiled(r"[0-9]+").sub(b"0", before))


def _is_quoted(text: bytes, start: int, end: int) -> bool:
    return end - start >= MIN_KEY_RUN_BYTES and text[start - 1] in b"\"'`" and text[end] in b"\"'`\\"


def _cut_off_key_runs(text: bytes, start: int, stop: int) -> list[Span]:
    """Without an END, only lines of a key that follow each other, and what may be the short last one of them."""
    runs: list[Span] = []
    for line in _key_lines(text, start, stop):
        one, end = line[0]
        long = [span for span in line if _is_key_line(text[slice(*span)])]
        is_header = not runs and text[end : end + 1] in {b":", b"-"}
        if not long and not is_header:
            is_last = not text[end:stop].strip() or (len(line) == 1 and _is_key_rest(text[one:end]))
            is_next = bool(runs) and text.count(b"\n", runs[-1][1], one) <= 1
            return [*runs, (one, end)] if is_next and is_last else runs
        runs += long
    return runs


def _is_key_rest(run: bytes) -> bool:
    return len(run) >= MIN_KEY_RUN_BYTES and (len(_classes(run[1:])) > 1 or run.endswith(b"="))


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
    return compiled(GAP).fullmatch(text, start, end) is not None


def _is_key_line(run: bytes) -> bool:
    return len(run) >= MIN_KEY_LINE_BYTES and {"l", "u", "d"} <= _classes(run)


def _name(text: bytes, shape: Any) -> bytes:
    """The whole name that a value is given to: `hash` too in `hash_of_token`."""
    start, end = shape.start(), shape.span(shape.lastindex)[0]
    before = compiled(r"[A-Za-z0-9_.-]*\z").search(text[max(0, start - MAX_NAME_BYTES) : start])[0]
    return bytes(before + text[start:end])


def _is_strong(value: bytes) -> bool:
    # Random text of 8 has 2.8 bits, as some of its characters turn up twice.
    least = MIN_ENTROPY_BITS if len(value) >= SHORT_BYTES else min(MIN_ENTROPY_BITS, math.log2(len(value)) - 0.5)
    return not _is_placeholder(value) and _entropy_bits(value) >= least


def _is_placeholder(value: bytes) -> bool:
    return compiled(PLACEHOLDER).search(value, 0, MAX_PLACEHOLDER_BYTES) is not None


def _is_hex(value: bytes) -> bool:
    return compiled(r"(?:0x)?[0-9a-fA-F:-]+").fullmatch(value) is not None


def _is_uuid(value: bytes) -> bool:
    return compiled(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch(value) is not None


def _entropy_bits(value: bytes) -> float:
    """Per byte, by Shannon."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


def _classes(value: bytes) -> set[str]:
    return set(value.decode("latin-1").translate(CLASS_BY_CHARACTER))


def _looks_random(value: bytes) -> bool:
    classes = value.translate(None, b"-_./:").decode("latin-1").translate(CLASS_BY_CHARACTER)
    kinds = set(classes)
    if len(classes) >= MIN_LETTERS and kinds == {"l", "u"}:
        return _change_fraction(classes, ignored=None) >= MIN_CASE_CHANGE_FRACTION
    if "d" not in kinds or not {"l", "u"} & kinds:
        return False
    least = MIN_BASE32_CHANGE_FRACTION if compiled(r"[A-Z2-7]{32,}=*").fullmatch(value) else MIN_CHANGE_FRACTION
    return _change_fraction(classes, ignored="ul") >= least


def _is_mixed(value: bytes) -> bool:
    """Random, as far as so few characters can show it: three classes of them, or two that take turns."""
    # `2016-09-08T21:47:36Z` and `min_count=1` have signs too.
    classes = value.translate(None, b"-_./:=").decode("latin-1").translate(CLASS_BY_CHARACTER)
    num_classes, changes = len(set(classes)), _change_fraction(classes, ignored="ul")
    if "s" in classes and num_classes >= MIN_MIXED_CLASSES:
        return changes >= MIN_MIXED_CHANGE_FRACTION
    return _looks_random(value) and (num_classes >= MIN_MIXED_CLASSES or changes >= MIN_MIXED_CHANGE_FRACTION)


def _change_fraction(classes: str, ignored: str | None) -> float:
    changes = sum(one != other for one, other in pairwise(classes))
    num_ignored = classes.count(ignored) if ignored else 0
    return (changes - num_ignored) / max(1, len(classes) - 1)


CHECKS: dict[Check, Callable[[bytes, Any], Iterator[Span]]] = {
    "token": _token,
    "jwt": _jwt,
    "key_block": _key_block,
    "url_password": _url_password,
    "aws_secret": _aws_secret,
    "assigned": _assigned,
    "password": _password,
    "basic_login": _basic_login,
    "email": _email,
}
