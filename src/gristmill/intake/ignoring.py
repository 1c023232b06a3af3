"""The .gitignore and .ignore files of plain folders, read as git and ripgrep read them."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gristmill.plainfile import open_plain
from gristmill.wildmatch import Patterns

NAMES = (".ignore", ".gitignore")
"""The first outranks the second, wherever they lie."""
MAX_BYTES = 1 << 20
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
                    content = stream.read(MAX_BYTES + 1)
            except OSError:
                continue  # one that cannot be read ignores nothing, as with git
            if len(content) > MAX_BYTES:
                warn(prefix + entry.name, f"larger than {MAX_BYTES:,} bytes; its patterns are not used.")
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
