"""Patterns of a .gitignore, matched byte for byte as git's wildmatch does, in time bounded by path and pattern.

A pattern becomes a regular expression that never goes back on a choice. `*` takes as few bytes as lead to the next
literal stretch, `**/` as few folders as lead to the next stretch of folders. Neither ever needs to take more, as what
follows could skip those bytes itself. So both stand in atomic groups, `(?>...)`: the longest scan is that of one
stretch over one path, not the product of all stars.

Oddities that are git's own, and tested against git: `?` is one byte, classes are ASCII, no class matches a slash,
`foo**/bar` is `foo` with `**/bar` behind it, and a malformed class or a backslash at the end matches nothing.
"""

import os
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from gristmill.core.plain_files import open_plain

MAX_PATTERN_BYTES = 1 << 14
"""A pattern needs no more: a path of a system has at most 4,096 bytes, each of which may be escaped by four."""

BUNDLE = 64
"""Patterns in one regular expression: the time that `re` takes grows by the square of the number of its groups."""

SPECIAL = re.compile(rb"[*?\[\\]")
CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, (*range(32), 127))),
    b"digit": string.digits,
    b"graph": "".join(map(chr, range(33, 127))),
    b"lower": string.ascii_lowercase,
    b"print": "".join(map(chr, range(32, 127))),
    b"punct": string.punctuation,
    b"space": " \t\n\r",
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}
SLASH, DASH, COLON, BACKSLASH = b"/-:\\"
NO_SLASH = rb"[^/]"
STAR, DEEP, DEEPER, ALL = b"*", b"**/", rb"**\/", b"**"
"""What stands for more than one byte, among tokens that are regular expressions for one each."""


class Pattern(NamedTuple):
    text: str
    is_negated: bool
    folders_only: bool
    by_name: bool
    """Without a slash: compared with the last name of a path alone."""
    literal: bytes
    """What it begins with, up to the first special character."""
    rest: bytes
    """The regular expression for what follows; empty if the literal is all."""
    is_suffix: bool = False
    """`*.log`: the literal is the end of a name, and its beginning may be anything."""

    @classmethod
    def of(cls, line: bytes) -> "Pattern | None":
        """None for a line that matches nothing: blank, a comment, or malformed."""
        text = line.decode("utf-8", "surrogateescape")
        if line.startswith(b"#"):
            return None
        is_negated, line = line.startswith(b"!"), without_spaces(line).removeprefix(b"!")
        folders_only, line = line.endswith(b"/"), line.removesuffix(b"/")
        by_name, line = b"/" not in line, line.removeprefix(b"/")
        if not line or len(line) > MAX_PATTERN_BYTES:
            return None
        if by_name and line.startswith(b"*") and not SPECIAL.search(line, 1):
            return cls(text, is_negated, folders_only, by_name, line[1:], b"", is_suffix=True)
        special = SPECIAL.search(line)
        start = special.start() if special is not None else len(line)
        rest = _expression(line[start:]) if special is not None else b""
        return cls(text, is_negated, folders_only, by_name, line[:start], rest) if rest is not None else None


def is_usable(pattern: str) -> bool:
    """Say if there is a path that the pattern could match."""
    try:
        return "\0" not in pattern and Pattern.of(pattern.encode()) is not None
    except UnicodeEncodeError:
        return False


def without_spaces(line: bytes) -> bytes:
    """The line without spaces at its end; one behind a backslash stays."""
    end = len(line.rstrip(b" "))
    backslashes = end - len(line[:end].rstrip(b"\\"))
    return line[: end + 1] if backslashes % 2 else line[:end]


class Patterns:
    """A list of patterns; the last that matches decides."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.patterns = [pattern for pattern in map(Pattern.of, lines) if pattern is not None]

    def last_match(self, path: bytes) -> Pattern | None:
        """The pattern that decides about this very entry, not about what is in it. A folder's path ends in `/`."""
        number = self._number(path)
        return self.patterns[number] if number >= 0 else None

    def take(self, path: bytes) -> bool:
        """Say if the last pattern that matches the file, or a folder above it, is one without `!`."""
        ends = (end + 1 for end, byte in enumerate(path) if byte == SLASH)
        number = max((self._number(path[:end]) for end in ends), default=-1)
        number = max(number, self._number(path))
        return number >= 0 and not self.patterns[number].is_negated

    def _number(self, path: bytes) -> int:
        if path.endswith(b"/"):
            path, (names, paths) = path[:-1], self._for_folders
        else:
            names, paths = self._for_files
        number = names.number(path.rpartition(b"/")[2]) if names is not None else -1
        return max(number, paths.number(path)) if paths is not None else number

    @cached_property
    def _for_folders(self) -> "tuple[_Lookup | None, _Lookup | None]":
        return self._lookups(dict(enumerate(self.patterns)))

    @cached_property
    def _for_files(self) -> "tuple[_Lookup | None, _Lookup | None]":
        return self._lookups({n: pattern for n, pattern in enumerate(self.patterns) if not pattern.folders_only})

    @staticmethod
    def _lookups(patterns: dict[int, Pattern]) -> "tuple[_Lookup | None, _Lookup | None]":
        """For names, and for whole paths."""
        sides = ({n: one for n, one in patterns.items() if one.by_name is by_name} for by_name in (True, False))
        names, paths = (_Lookup(side) if side else None for side in sides)
        return names, paths


class _Lookup:
    """Numbered patterns that are all compared with the same text: most are found in a dict, the others in one look."""

    def __init__(self, patterns: dict[int, Pattern]) -> None:
        self._literals = {one.literal: n for n, one in patterns.items() if not one.rest and not one.is_suffix}
        self._suffixes = {one.literal: n for n, one in patterns.items() if one.is_suffix}
        self._lengths = sorted({len(suffix) for suffix in self._suffixes})
        others = {re.escape(one.literal) + one.rest: n for n, one in patterns.items() if one.rest}
        # The last first: of several alternatives, the first that matches is the one found.
        last_first = sorted(others.items(), key=lambda item: -item[1])
        self._bundles = [
            _Bundle([expression for expression, _ in some], [number for _, number in some])
            for some in (last_first[at : at + BUNDLE] for at in range(0, len(last_first), BUNDLE))
        ]

    def number(self, text: bytes) -> int:
        """The largest number of a pattern that matches, or -1."""
        number = self._literals.get(text, -1)
        for length in self._lengths:
            if length > len(text):
                break
            number = max(number, self._suffixes.get(text[len(text) - length :], -1))
        for bundle in self._bundles:
            if bundle.numbers[0] < number:
                break
            match = bundle.match(text)
            if match is not None and match.lastindex is not None:
                return max(number, bundle.numbers[match.lastindex - 1])
        return number


class _Bundle:
    """Alternatives in one regular expression, each a group whose number says which of them has matched."""

    def __init__(self, expressions: list[bytes], numbers: list[int]) -> None:
        self.numbers = numbers
        self.match = re.compile(b"|".join(b"(%b)" % one for one in expressions), re.DOTALL).match


def _expression(pattern: bytes) -> bytes | None:
    """The regular expression that matches all of a text; None for a malformed pattern."""
    tokens = _tokens(pattern)
    if tokens is None:
        return None
    stretches: list[list[bytes]] = [[]]
    leads = [b""]
    for token in tokens:
        if token in {DEEP, DEEPER}:
            leads.append(rb"(?:[^/]*/)*?" if token == DEEP else rb"(?:[^/]*/)+?")
            stretches.append([])
        else:
            stretches[-1].append(token)
    *inner, last = (
        lead + _stretch(stretch, is_last=n == len(leads) - 1)
        for n, (lead, stretch) in enumerate(zip(leads, stretches, strict=True))
    )
    return b"".join(b"(?>%b)" % one for one in inner) + last


def _stretch(tokens: list[bytes], *, is_last: bool) -> bytes:
    """What is between two `**/`: literal pieces with a `*` between each two."""
    if tokens[-1:] == [ALL]:
        return _stretch(tokens[:-1], is_last=False) + b".*"
    pieces: list[list[bytes]] = [[]]
    for token in tokens:
        if token == STAR:
            pieces.append([])
        else:
            pieces[-1].append(token)
    first, *others = (b"".join(piece) for piece in pieces)
    if not is_last:
        return first + b"".join(b"(?>[^/]*?%b)" % one for one in others)
    if not others:
        return first + rb"\Z"
    *inner, last = others
    return first + b"".join(b"(?>[^/]*?%b)" % one for one in inner) + rb"[^/]*%b\Z" % last


def _tokens(pattern: bytes) -> list[bytes] | None:
    tokens = []
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        if char == b"*":
            token, at = _stars(pattern, at)
            tokens.append(token)
        elif char == b"[":
            found = _set(pattern, at + 1)
            if found is None:
                return None
            members, at = found
            tokens.append(b"[%b]" % b"".join(b"\\x%02x" % byte for byte in sorted(members)) if members else b"(?!)")
        elif char == b"?":
            tokens.append(NO_SLASH)
            at += 1
        else:
            at += char == b"\\"
            if at == len(pattern):
                return None
            tokens.append(re.escape(pattern[at : at + 1]))
            at += 1
    return tokens


def _stars(pattern: bytes, start: int) -> tuple[bytes, int]:
    """The token, and where what follows it begins."""
    end = start
    while pattern[end : end + 1] == b"*":
        end += 1
    is_whole = end - start > 1 and (start == 0 or pattern[start - 1 : start] == b"/")
    if is_whole and end == len(pattern):
        return ALL, end
    if is_whole and pattern.startswith(b"/", end):
        return DEEP, end + 1
    if is_whole and pattern.startswith(rb"\/", end):
        return DEEPER, end + 2
    return STAR, end


def _set(pattern: bytes, at: int) -> tuple[set[int], int] | None:
    """The bytes that a `[...]` stands for, never a slash, and where what follows it begins."""
    is_negated = pattern[at : at + 1] in {b"!", b"^"}
    at += is_negated
    members: set[int] = set()
    before = 0
    is_first = True
    while is_first or pattern[at : at + 1] != b"]":
        is_first = False
        if at >= len(pattern):
            return None
        name_end = pattern.find(b"]", at + 2) if pattern.startswith(b"[:", at) else -1
        if pattern.startswith(b"[:", at) and name_end < 0:
            return None
        if pattern[at] == DASH and before and pattern[at + 1 : at + 2] not in {b"", b"]"}:
            at += 1 + (pattern[at + 1 : at + 2] == b"\\")
            if at >= len(pattern):
                return None
            members.update(range(before, pattern[at] + 1))
            before = 0
        elif name_end > at + 2 and pattern[name_end - 1] == COLON:
            named = CLASSES.get(pattern[at + 2 : name_end - 1])
            if named is None:
                return None
            members.update(named.encode())
            at, before = name_end, 0
        else:
            at += pattern[at] == BACKSLASH
            if at >= len(pattern):
                return None
            before = pattern[at]
            members.add(before)
        at += 1
    return (set(range(256)) - members if is_negated else members) - {SLASH}, at + 1


# The .gitignore and .ignore files of plain folders, read as git and ripgrep read them.

NAMES = (".ignore", ".gitignore")
"""The first outranks the second, wherever they lie."""
MAX_FILE_BYTES = 1 << 20
"""Patterns take time by their number, and far more than this only a file made for that has."""


class IgnoreFile(NamedTuple):
    name: str
    prefix: bytes
    """Its patterns are relative to the folder it lies in."""
    patterns: Patterns


def ignore_files(
    folder: str, prefix: str, entries: Sequence[os.DirEntry[str]], warn: Callable[[str, str], None]
) -> Iterator[IgnoreFile]:
    """`warn` is called with the path of a file that is not used, and the reason."""
    for entry in entries:
        if entry.name in NAMES and entry.is_file(follow_symlinks=False):
            try:
                with open_plain(Path(folder, entry.name)) as stream:
                    content = stream.read(MAX_FILE_BYTES + 1)
            except OSError:
                continue  # one that cannot be read ignores nothing, as with git
            if len(content) > MAX_FILE_BYTES:
                warn(prefix + entry.name, f"larger than {MAX_FILE_BYTES:,} bytes; its patterns are not used.")
                continue
            yield IgnoreFile(entry.name, os.fsencode(prefix), patterns_of(content))


def patterns_of(content: bytes) -> Patterns:
    """Lines end as git has it: at a line feed, a carriage return before it, or a NUL."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return Patterns(line.removesuffix(b"\r").partition(b"\0")[0] for line in lines)


def is_ignored(path: str, ignores: Sequence[IgnoreFile]) -> bool:
    """`ignores` from the innermost folder outwards: the nearest file with a pattern that matches decides.

    As git does, one asks about each folder on the way, whose path ends in `/`, and does not enter one that is ignored.
    """
    if not ignores:
        return False
    raw = os.fsencode(path)
    for name in NAMES:
        for ignore in ignores:
            if ignore.name == name:
                found = ignore.patterns.last_match(raw[len(ignore.prefix) :])
                if found is not None:
                    return not found.is_negated
    return False
