"""Words on the command line -> the folders and files they mean, and the name each goes by in the rows."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from gristmill.errors import InputError
from gristmill.naming import path_text


class Source(NamedTuple):
    repo: str
    root: str
    """Absolute, without links."""
    only: tuple[str, ...] | None
    """The files named one by one, or None for the whole folder."""


def resolve_sources(names: Sequence[str]) -> list[Source]:
    """Folders as they are, single files grouped by their folder; two folders of one name become `name` and `name~2`."""
    whole: list[str] = []
    single: dict[str, list[str]] = {}
    for name in names:
        path = os.path.realpath(os.path.expanduser(name))
        folder, file = os.path.split(path)
        if not name or not os.path.lexists(path):
            raise InputError(f"there is no source {name!r}. Check the path.")
        if path in whole or file in single.get(folder, ()):
            raise InputError(f"the source {name!r} is named twice.")
        if os.path.isdir(path):
            whole.append(path)
        else:
            single.setdefault(folder, []).append(file)
    sources: list[Source] = []
    for root, only in [*((root, None) for root in whole), *single.items()]:
        repo = free_name(path_text(os.path.basename(root)) or "root", {source.repo for source in sources})
        sources.append(Source(repo, root, tuple(only) if only is not None else None))
    return sources


def free_name(name: str, taken: set[str]) -> str:
    candidates = (name if number == 1 else f"{name}~{number}" for number in range(1, len(taken) + 2))
    return next(candidate for candidate in candidates if candidate not in taken)
