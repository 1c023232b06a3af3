"""Find license-related files (license texts and package manifests) in a scan and in the folders above a source.

Files that the user excluded are found too. Folders above a source are searched up to the root of its git work tree.
Without a work tree, they are not searched.
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

# License-related files that were dropped for these reasons are read nevertheless. Files that were dropped for other
# reasons, such as links, are not opened.
LICENSE_FILE_DROPS = frozenset({DropReason.EXCLUDED_BY_USER, DropReason.NOT_INCLUDED})


class FoundLicenseFiles(NamedTuple):
    """License-related files of one source and of the folders above it."""

    root: str | None
    """Folder of the source. None for rows of a table: their paths are only names."""
    above: tuple[str, ...]
    """Searched folders above the source, nearest first."""
    files: dict[str, SourceFile]
    """License-related files, keyed by path relative to the source, such as `src/LICENSE` or `../LICENSE`."""


def find_license_files(
    sources: Sequence[Source], scan: Scan, is_wanted: Callable[[str], bool]
) -> dict[str, FoundLicenseFiles]:
    """Find the license-related files of each source. The result is keyed by repo. A repo without such files is absent.

    `is_wanted` returns True for the name of a license-related file.
    """
    found: dict[str, dict[str, SourceFile]] = defaultdict(dict)
    for file in scan.files:
        if is_wanted(_name(file.path)):
            found[file.repo][file.path] = file
    roots = {source.repo: source for source in sources}
    for drop in scan.drops:
        # A row of a table is not in a source folder: its path is only a name.
        source = roots.get(drop.repo) if drop.reason in LICENSE_FILE_DROPS and not drop.path.endswith("/") else None
        if source is not None and is_wanted(_name(drop.path)):
            found[drop.repo].setdefault(drop.path, unlisted_file(source.root, drop.repo, drop.path))
    above = {source.repo: tuple(_folders_above(source)) for source in sources}
    for source in sources:
        # The scan has listed the folder of the source, unless the source consists of single files.
        first = 1 if source.only_files is None else 0
        for num_levels, folder in list(enumerate((source.root, *above[source.repo])))[first:]:
            for name in filter(is_wanted, _names_in(folder)):
                path = "../" * num_levels + path_text(name)
                file = SourceFile(repo=source.repo, path=path, location=os.path.join(folder, name), size=0)
                found[source.repo].setdefault(path, file)
    return {
        repo: FoundLicenseFiles(
            roots[repo].root if repo in roots else None, above.get(repo, ()), dict(sorted(files.items()))
        )
        for repo, files in sorted(found.items())
    }


def unlisted_file(root: str, repo: str, path: str) -> SourceFile:
    """Return a SourceFile for a file that the scan has not listed."""
    return SourceFile(repo=repo, path=path, location=os.path.normpath(os.path.join(root, system_path(path))), size=0)


def select_files(scan: Scan, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], SourceFile]:
    """Return the files of the scan whose repo and path are in `wanted`, keyed by repo and path."""
    return {(file.repo, file.path): file for file in scan.files if (file.repo, file.path) in wanted} if wanted else {}


def read_text(file: SourceFile, max_bytes: int) -> str | None:
    """Return the text of a file, or None if it is too large, not text, not a regular file or unreadable."""
    raw = read_bytes(file, max_bytes)
    decoded = decode(raw) if not isinstance(raw, Drop) else None
    return None if decoded is None or isinstance(decoded, str) else decoded.text.decode()


def _folders_above(source: Source) -> Iterator[str]:
    """Yield the folders above the source, up to and including the root of its work tree."""
    work_tree = _work_tree(source)
    folder = source.root
    while work_tree is not None and folder != work_tree:
        folder = os.path.dirname(folder)
        yield folder


def _work_tree(source: Source) -> str | None:
    """Return the root of the work tree. Return None for a download, or if no trusted root is above the source.

    The root is the nearest folder with a `.git`, and git must report the same folder, because `core.worktree` can name
    any folder. The `.git` must belong to the owner of the source or of this process, because anyone can put a `.git`
    into `/tmp`.
    """
    folder = git.nearest_repository(source.root)
    if folder is None or source.is_download or folder == source.root:
        return None
    try:
        owners = {os.lstat(source.root).st_uid, os.geteuid()}
        is_trusted = os.lstat(os.path.join(folder, ".git")).st_uid in owners
        return folder if is_trusted and git.work_tree_of(source.root) == folder else None
    except (OSError, InputError):
        return None


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _names_in(folder: str) -> list[str]:
    """Return the names of all entries of a folder except subfolders: a folder `license/` declares no license."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    except OSError:  # the permissions of a folder may allow opening its files but not listing them
        return []
