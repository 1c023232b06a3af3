"""Match .gitignore patterns byte by byte as git's wildmatch does, but without exponential backtracking.

A pattern becomes a regular expression. Each wildcard except the last matches as few bytes (`*`) or folders (`**/`) as
possible. It never needs to match more, because the next wildcard can match those bytes instead. So it is in an atomic
group, `(?>...)`, and the time does not grow exponentially with the number of wildcards.

Tests compare these special cases with git:

- `?` matches one byte, named classes contain only ASCII, and no class matches a slash.
- In `foo**/bar`, `**/` matches any folders although no slash precedes it: the pattern also matches `foobar`.
- A pattern with a malformed class or with a backslash at the end matches nothing.
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
"""Enough for any path: a path is at most 4,096 bytes long, and each byte takes at most four in a pattern."""

PATTERNS_PER_BUNDLE = 64
"""Maximum number of patterns in one regular expression. Matching time grows with the square of this number."""

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
STAR, ANY_FOLDERS, SOME_FOLDERS, ANYTHING = b"*", b"**/", rb"**\/", b"**"
"""Tokens that match a variable number of bytes. All other tokens are regular expressions for one byte."""


class Pattern(NamedTuple):
    """A parsed line of a .gitignore."""

    text: str
    is_negated: bool
    folders_only: bool
    by_name: bool
    """True for a pattern without a slash. It is compared only with the last name in a path."""
    literal: bytes
    """Beginning of the pattern, up to the first special character."""
    rest: bytes
    """Regular expression for the rest of the pattern. Empty without a special character, and if `is_suffix` is True."""
    is_suffix: bool = False
    """True for a pattern such as `*.log`. `literal` is then the required end of the name, here `.log`."""

    @classmethod
    def of(cls, line: bytes) -> "Pattern | None":
        """Parse a line. Return None if the line is blank, a comment, malformed or longer than MAX_PATTERN_BYTES."""
        text = line.decode("utf-8", "surrogateescape")
        if line.startswith(b"#"):
            return None
        is_negated, line = line.startswith(b"!"), without_trailing_spaces(line).removeprefix(b"!")
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
    """Return True if the pattern is valid and can match a path."""
    try:
        return "\0" not in pattern and Pattern.of(pattern.encode()) is not None
    except UnicodeEncodeError:
        return False


def without_trailing_spaces(line: bytes) -> bytes:
    """Remove the spaces at the end of a line, except a space that a backslash escapes."""
    end = len(line.rstrip(b" "))
    backslashes = end - len(line[:end].rstrip(b"\\"))
    return line[: end + 1] if backslashes % 2 else line[:end]


class Patterns:
    """A list of patterns. The last pattern that matches a path decides."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self.patterns = [pattern for pattern in map(Pattern.of, lines) if pattern is not None]

    def last_match(self, path: bytes) -> Pattern | None:
        """Return the last pattern that matches the path itself, or None. The path of a folder must end in `/`."""
        last_index = self._last_index(path)
        return self.patterns[last_index] if last_index >= 0 else None

    def selects(self, path: bytes) -> bool:
        """Return True if a pattern matches the file or a folder above it, and the last such pattern is not negated."""
        ends = (end + 1 for end, byte in enumerate(path) if byte == SLASH)
        last_index = max((self._last_index(path[:end]) for end in ends), default=-1)
        last_index = max(last_index, self._last_index(path))
        return last_index >= 0 and not self.patterns[last_index].is_negated

    def _last_index(self, path: bytes) -> int:
        if path.endswith(b"/"):
            path, (names, paths) = path[:-1], self._for_folders
        else:
            names, paths = self._for_files
        last_index = names.last_index(path.rpartition(b"/")[2]) if names is not None else -1
        return max(last_index, paths.last_index(path)) if paths is not None else last_index

    @cached_property
    def _for_folders(self) -> "tuple[_Lookup | None, _Lookup | None]":
        return self._lookups(dict(enumerate(self.patterns)))

    @cached_property
    def _for_files(self) -> "tuple[_Lookup | None, _Lookup | None]":
        return self._lookups({n: pattern for n, pattern in enumerate(self.patterns) if not pattern.folders_only})

    @staticmethod
    def _lookups(patterns: dict[int, Pattern]) -> "tuple[_Lookup | None, _Lookup | None]":
        """Return a lookup for last names and a lookup for complete paths. A lookup without patterns is None."""
        groups = (
            {n: pattern for n, pattern in patterns.items() if pattern.by_name is by_name} for by_name in (True, False)
        )
        names, paths = (_Lookup(group) if group else None for group in groups)
        return names, paths


class _Lookup:
    """Lookup of the last pattern that matches. Literals and suffixes are in dicts, others in regular expressions."""

    def __init__(self, patterns: dict[int, Pattern]) -> None:
        self._literals = {
            pattern.literal: n for n, pattern in patterns.items() if not pattern.rest and not pattern.is_suffix
        }
        self._suffixes = {pattern.literal: n for n, pattern in patterns.items() if pattern.is_suffix}
        self._lengths = sorted({len(suffix) for suffix in self._suffixes})
        others = {re.escape(pattern.literal) + pattern.rest: n for n, pattern in patterns.items() if pattern.rest}
        # Last pattern first, because a regular expression finds the first alternative that matches.
        last_first = sorted(others.items(), key=lambda item: -item[1])
        self._bundles = [
            _Bundle([expression for expression, _ in batch], [index for _, index in batch])
            for batch in (
                last_first[start : start + PATTERNS_PER_BUNDLE]
                for start in range(0, len(last_first), PATTERNS_PER_BUNDLE)
            )
        ]

    def last_index(self, text: bytes) -> int:
        """Return the index of the last pattern that matches, or -1."""
        last_index = self._literals.get(text, -1)
        for length in self._lengths:
            if length > len(text):
                break
            last_index = max(last_index, self._suffixes.get(text[len(text) - length :], -1))
        for bundle in self._bundles:
            if bundle.indices[0] < last_index:
                break
            match = bundle.match(text)
            if match is not None and match.lastindex is not None:
                return max(last_index, bundle.indices[match.lastindex - 1])
        return last_index


class _Bundle:
    """Several patterns in one regular expression. The number of the matched group identifies the pattern."""

    def __init__(self, expressions: list[bytes], indices: list[int]) -> None:
        self.indices = indices
        self.match = re.compile(b"|".join(b"(%b)" % expression for expression in expressions), re.DOTALL).match


def _expression(pattern: bytes) -> bytes | None:
    """Return a regular expression that matches complete texts only, or None for a malformed pattern."""
    tokens = _tokenize(pattern)
    if tokens is None:
        return None
    segments: list[list[bytes]] = [[]]
    prefixes = [b""]
    for token in tokens:
        if token in {ANY_FOLDERS, SOME_FOLDERS}:
            prefixes.append(rb"(?:[^/]*/)*?" if token == ANY_FOLDERS else rb"(?:[^/]*/)+?")
            segments.append([])
        else:
            segments[-1].append(token)
    *earlier, last = (
        prefix + _segment_expression(segment, is_last=n == len(prefixes) - 1)
        for n, (prefix, segment) in enumerate(zip(prefixes, segments, strict=True))
    )
    return b"".join(b"(?>%b)" % segment for segment in earlier) + last


def _segment_expression(tokens: list[bytes], *, is_last: bool) -> bytes:
    """Return the regular expression for one segment: the tokens between two `**/`. Each `*` starts a new piece."""
    if tokens[-1:] == [ANYTHING]:
        return _segment_expression(tokens[:-1], is_last=False) + b".*"
    pieces: list[list[bytes]] = [[]]
    for token in tokens:
        if token == STAR:
            pieces.append([])
        else:
            pieces[-1].append(token)
    first, *others = (b"".join(piece) for piece in pieces)
    if not is_last:
        return first + b"".join(b"(?>[^/]*?%b)" % piece for piece in others)
    if not others:
        return first + rb"\Z"
    *middle, last = others
    return first + b"".join(b"(?>[^/]*?%b)" % piece for piece in middle) + rb"[^/]*%b\Z" % last


def _tokenize(pattern: bytes) -> list[bytes] | None:
    tokens = []
    position = 0
    while position < len(pattern):
        char = pattern[position : position + 1]
        if char == b"*":
            token, position = _star_token(pattern, position)
            tokens.append(token)
        elif char == b"[":
            found = _byte_class(pattern, position + 1)
            if found is None:
                return None
            members, position = found
            tokens.append(b"[%b]" % b"".join(b"\\x%02x" % byte for byte in sorted(members)) if members else b"(?!)")
        elif char == b"?":
            tokens.append(NO_SLASH)
            position += 1
        else:
            position += char == b"\\"
            if position == len(pattern):
                return None
            tokens.append(re.escape(pattern[position : position + 1]))
            position += 1
    return tokens


def _star_token(pattern: bytes, start: int) -> tuple[bytes, int]:
    """Return the token for one or more stars, and the position after the token."""
    end = start
    while pattern[end : end + 1] == b"*":
        end += 1
    is_double = end - start > 1 and (start == 0 or pattern[start - 1 : start] == b"/")
    if is_double and end == len(pattern):
        return ANYTHING, end
    if is_double and pattern.startswith(b"/", end):
        return ANY_FOLDERS, end + 1
    if is_double and pattern.startswith(rb"\/", end):
        return SOME_FOLDERS, end + 2
    return STAR, end


def _byte_class(pattern: bytes, position: int) -> tuple[set[int], int] | None:
    """Return the bytes that a class `[...]` matches, without the slash, and the position after the class.

    Return None if the class is malformed.
    """
    is_negated = pattern[position : position + 1] in {b"!", b"^"}
    position += is_negated
    members: set[int] = set()
    previous = 0
    is_first = True
    while is_first or pattern[position : position + 1] != b"]":
        is_first = False
        if position >= len(pattern):
            return None
        name_end = pattern.find(b"]", position + 2) if pattern.startswith(b"[:", position) else -1
        if pattern.startswith(b"[:", position) and name_end < 0:
            return None
        if pattern[position] == DASH and previous and pattern[position + 1 : position + 2] not in {b"", b"]"}:
            position += 1 + (pattern[position + 1 : position + 2] == b"\\")
            if position >= len(pattern):
                return None
            members.update(range(previous, pattern[position] + 1))
            previous = 0
        elif name_end > position + 2 and pattern[name_end - 1] == COLON:
            named = CLASSES.get(pattern[position + 2 : name_end - 1])
            if named is None:
                return None
            members.update(named.encode())
            position, previous = name_end, 0
        else:
            position += pattern[position] == BACKSLASH
            if position >= len(pattern):
                return None
            previous = pattern[position]
            members.add(previous)
        position += 1
    return (set(range(256)) - members if is_negated else members) - {SLASH}, position + 1


# Read the .gitignore and .ignore files of plain folders, as ripgrep does.

IGNORE_FILE_NAMES = (".ignore", ".gitignore")
"""A pattern in any .ignore file takes precedence over all .gitignore files, regardless of their folders."""
MAX_FILE_BYTES = 1 << 20
"""Larger files are not used: matching time grows with the number of patterns, and no genuine file is so large."""


class IgnoreFile(NamedTuple):
    """A .gitignore or .ignore file."""

    name: str
    prefix: bytes
    """Path of the file's folder in the source. The patterns are relative to this folder."""
    patterns: Patterns


def ignore_files(
    folder: str, prefix: str, entries: Sequence[os.DirEntry[str]], warn: Callable[[str, str], None]
) -> Iterator[IgnoreFile]:
    """Read the ignore files among the entries of a folder.

    `warn` is called with the path of a file that is too large, and a message.
    """
    for entry in entries:
        if entry.name in IGNORE_FILE_NAMES and entry.is_file(follow_symlinks=False):
            try:
                with open_plain(Path(folder, entry.name)) as stream:
                    content = stream.read(MAX_FILE_BYTES + 1)
            except OSError:
                continue  # as in git, a file that cannot be read ignores nothing
            if len(content) > MAX_FILE_BYTES:
                warn(prefix + entry.name, f"the file exceeds {MAX_FILE_BYTES:,} bytes. Its patterns are not used.")
                continue
            yield IgnoreFile(entry.name, os.fsencode(prefix), parse_patterns(content))


def parse_patterns(content: bytes) -> Patterns:
    """Parse an ignore file. As in git, a line ends with LF or CR LF, and the text after a NUL in a line is ignored."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return Patterns(line.removesuffix(b"\r").partition(b"\0")[0] for line in lines)


def is_ignored(path: str, ignores: Sequence[IgnoreFile]) -> bool:
    """Return True if the path is ignored. The innermost ignore file with a matching pattern decides.

    `.ignore` files are checked before `.gitignore` files. `ignores` is ordered from the innermost folder outwards. As
    in git, the caller must also check each folder above the path, with a `/` at the end, and must not enter an ignored
    folder.
    """
    if not ignores:
        return False
    raw = os.fsencode(path)
    for name in IGNORE_FILE_NAMES:
        for ignore in ignores:
            if ignore.name == name:
                found = ignore.patterns.last_match(raw[len(ignore.prefix) :])
                if found is not None:
                    return not found.is_negated
    return False
