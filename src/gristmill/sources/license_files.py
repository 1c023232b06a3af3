"""Files that say something about licences: those in a scan, whether wanted as source or not, and those above a source.

Above a source means: up to the root of its git work tree. Without a work tree nothing above the source is looked at.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from gristmill.core.errors import InputError
from gristmill.core.names import path_text, system_path
from gristmill.core.records import Drop, DropReason, SourceFile
from gristmill.sources import git
from gristmill.sources.addresses import Source
from gristmill.sources.decode import decode
from gristmill.sources.documents import read_bytes
from gristmill.sources.trees import Scan

# Inside the source, and a file: whatever else a drop stands for is not opened.
STILL_A_LICENSE = frozenset({DropReason.EXCLUDED_BY_USER, DropReason.NOT_INCLUDED})


class SpeakingFiles(NamedTuple):
    """The files of one source, and above it, that have a wanted name."""

    root: str | None
    """None for the rows of a table, whose paths are only names."""
    above: tuple[str, ...]
    """The folders above the source that count, the nearest first."""
    files: dict[str, SourceFile]
    """By path from the source: `src/LICENSE`, `../LICENSE`."""


def find_speaking_files(
    sources: Sequence[Source], scan: Scan, is_wanted: Callable[[str], bool]
) -> dict[str, SpeakingFiles]:
    """By source."""
    found: dict[str, dict[str, SourceFile]] = defaultdict(dict)
    for file in scan.files:
        if is_wanted(_name(file.path)):
            found[file.repo][file.path] = file
    roots = {source.repo: source for source in sources}
    for drop in scan.drops:
        # The row of a table has no source and no place: its path is only a name.
        source = roots.get(drop.repo) if drop.reason in STILL_A_LICENSE and not drop.path.endswith("/") else None
        if source is not None and is_wanted(_name(drop.path)):
            found[drop.repo].setdefault(drop.path, file_below(source.root, drop.repo, drop.path))
    above = {source.repo: tuple(_folders_above(source)) for source in sources}
    for source in sources:
        # Beside files named one by one, the scan has not looked.
        first = 1 if source.only is None else 0
        for number, folder in list(enumerate((source.root, *above[source.repo])))[first:]:
            for name in filter(is_wanted, _names_in(folder)):
                path = "../" * number + path_text(name)
                file = SourceFile(repo=source.repo, path=path, location=os.path.join(folder, name), size=0)
                found[source.repo].setdefault(path, file)
    return {
        repo: SpeakingFiles(
            roots[repo].root if repo in roots else None, above.get(repo, ()), dict(sorted(files.items()))
        )
        for repo, files in sorted(found.items())
    }


def file_below(root: str, repo: str, path: str) -> SourceFile:
    """One that the scan has not listed."""
    return SourceFile(repo=repo, path=path, location=os.path.normpath(os.path.join(root, system_path(path))), size=0)


def rows_at(scan: Scan, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], SourceFile]:
    """Files of the scan by repo and path."""
    return {(file.repo, file.path): file for file in scan.files if (file.repo, file.path) in wanted} if wanted else {}


def read_text(file: SourceFile, max_bytes: int) -> str | None:
    """None if it is too large, no text, not a regular file or cannot be read."""
    raw = read_bytes(file, max_bytes)
    decoded = decode(raw) if not isinstance(raw, Drop) else None
    return None if decoded is None or isinstance(decoded, str) else decoded.text.decode()


def _folders_above(source: Source) -> Iterator[str]:
    """The folders between the source and the root of its work tree, that root included."""
    work_tree = _work_tree(source)
    folder = source.root
    while work_tree is not None and folder != work_tree:
        folder = os.path.dirname(folder)
        yield folder


def _work_tree(source: Source) -> str | None:
    """The nearest folder with a `.git`, if git agrees that it is the work tree and its owner may speak for the source.

    Git's own answer may be any folder: `core.worktree` names one. And anybody may put a `.git` into `/tmp`.
    """
    folder = git.holder_of(source.root)
    if folder is None or source.is_download or folder == source.root:
        return None
    try:
        owners = {os.lstat(source.root).st_uid, os.geteuid()}
        is_ours = os.lstat(os.path.join(folder, ".git")).st_uid in owners
        return folder if is_ours and git.work_tree_of(source.root) == folder else None
    except (OSError, InputError):
        return None


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _names_in(folder: str) -> list[str]:
    """Names of all entries but folders: `license/` says nothing by itself."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    except OSError:  # one may open a file in it, and not look around
        return []
