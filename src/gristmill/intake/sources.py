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
    origin: str
    """The word that named it, without credentials; of several files, the first one's."""
    is_download: bool = False
    """Files brought here one by one: a repository around the folder they lie in is not theirs."""


def resolved(sources: Sequence[str] | Sequence[Source]) -> list[Source]:
    """Words of the local kind are resolved; what is a Source already stays as it is."""
    names = [source for source in sources if isinstance(source, str)]
    return [*(source for source in sources if isinstance(source, Source)), *resolve_sources(names)]


def resolve_sources(names: Sequence[str]) -> list[Source]:
    """Folders as they are, single files grouped by their folder; two folders of one name become `name` and `name~2`."""
    whole: list[str] = []
    origins: dict[str, str] = {}
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
            origins[path] = name
        else:
            origins.setdefault(folder, name)
            single.setdefault(folder, []).append(file)
    found = [(root, None) for root in whole] + [(root, tuple(only)) for root, only in single.items()]
    return with_own_names(
        [Source(path_text(os.path.basename(root)) or "root", root, only, origins[root]) for root, only in found]
    )


def with_own_names(sources: Sequence[Source]) -> list[Source]:
    """The second of a name becomes `name~2`."""
    named: list[Source] = []
    taken: set[str] = set()
    for source in sources:
        named.append(source._replace(repo=free_name(source.repo, taken)))
        taken.add(named[-1].repo)
    return named


def free_name(name: str, taken: set[str]) -> str:
    candidates = (name if number == 1 else f"{name}~{number}" for number in range(1, len(taken) + 2))
    return next(candidate for candidate in candidates if candidate not in taken)
