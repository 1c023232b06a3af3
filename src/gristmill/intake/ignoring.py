"""What .gitignore and .ignore files say outside of git, read as git and ripgrep read them."""

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

NAMES = (".ignore", ".gitignore")
"""The first outranks the second, wherever they lie."""
MAX_STARS = 3
"""In one part of a path. Past that a pattern can take minutes for a name made to be slow; nobody's own has more."""

NOTHING = "(?!)"
NAMED_SLASH = "(?P<ps_d>/)"


class IgnoreFile(NamedTuple):
    name: str
    prefix: str
    """Its patterns are relative to the folder it lies in."""
    spec: GitIgnoreSpec
    any_of_them: re.Pattern[str]
    """Finds what any of its patterns finds: most paths none does, and that is told by one look instead of fifty."""


def ignore_files(folder: str, prefix: str, entries: Sequence[os.DirEntry[str]]) -> Iterator[IgnoreFile]:
    for entry in entries:
        if entry.name in NAMES and entry.is_file(follow_symlinks=False):
            try:
                content = Path(folder, entry.name).read_bytes()
            except OSError:
                continue  # one that cannot be read ignores nothing, as with git
            spec = spec_of(content)
            yield IgnoreFile(entry.name, prefix, spec, any_of(spec))


def spec_of(content: bytes) -> GitIgnoreSpec:
    lines = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")
    usable = [line for line in (line.removesuffix("\r") for line in lines) if is_usable(line)]
    with _no_warnings():
        return GitIgnoreSpec.from_lines(usable)


def is_usable(pattern: str) -> bool:
    """A malformed line says nothing; the others still count."""
    if any(part.count("*") > MAX_STARS for part in pattern.split("/")):
        return False
    try:
        with _no_warnings():
            GitIgnoreSpec.from_lines([pattern])
    except (ValueError, re.error):
        return False
    return True


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Of Python's, about what a set like `[[]` may mean one day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


def any_of(spec: GitIgnoreSpec) -> re.Pattern[str]:
    """pathspec's own expressions, without the one name that they all use; no pattern of a user has a slash in it."""
    own = (pattern.regex.pattern.replace(NAMED_SLASH, "/") for pattern in spec.patterns if pattern.regex is not None)
    with _no_warnings():
        return re.compile("|".join(f"(?:{one})" for one in own) or NOTHING)


def verdict_of(spec: GitIgnoreSpec, path: str) -> tuple[bool, str] | None:
    """What the last pattern that means this very entry says, and that pattern. A folder's path ends in `/`.

    Unlike pathspec's own answer, what a pattern says of a folder is not carried down to what is in it: as git does, one
    asks about each folder on the way, and does not go into one that is left out.
    """
    for pattern in reversed(list(spec.patterns)):
        result = pattern.match_file(path) if pattern.include is not None else None
        if result is not None and _means_the_entry(result.match, str(pattern.pattern), path):
            return bool(pattern.include), str(pattern.pattern)
    return None


def _means_the_entry(match: re.Match[str], pattern: str, path: str) -> bool:
    if pattern.endswith("/**"):
        return match.end() < len(path)  # what is inside, not the folder itself
    end_of_folder = match.end("ps_d") if "ps_d" in match.re.groupindex else -1
    return end_of_folder in {-1, len(path)}


def is_ignored(path: str, ignores: Sequence[IgnoreFile]) -> bool:
    """`ignores` from the innermost folder outwards: the nearest file that says anything decides."""
    for name in NAMES:
        for ignore in ignores:
            if ignore.name == name:
                inside = path[len(ignore.prefix) :]
                verdict = verdict_of(ignore.spec, inside) if ignore.any_of_them.search(inside) else None
                if verdict is not None:
                    return verdict[0]
    return False
