"""Folders, git work trees and single files -> the SourceFiles in them, in path order, and what was left out.

- A git work tree is what git says it is (intake.git). Submodules that are checked out and repositories nested inside
  are listed by their own git, under their path in the source. A folder that the work tree around it ignores is a
  plain one.
- In any other folder .gitignore and .ignore files count, as ripgrep reads them.
- A symbolic link is never followed, so nothing outside a source is read and no loop is possible.
- The output folder, where it lies inside a source, is not there as far as the scan is concerned.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from gristmill.config import ScanConfig
from gristmill.errors import InputError
from gristmill.intake import git
from gristmill.intake.excluding import PathFilter
from gristmill.intake.naming import path_text
from gristmill.records import Drop, DropReason, SourceFile

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


class Source(NamedTuple):
    repo: str
    root: str
    """Absolute, without links."""
    only: tuple[str, ...] | None
    """The files named one by one, or None for the whole folder."""


class Scan(NamedTuple):
    files: list[SourceFile]
    drops: list[Drop]
    commits: dict[str, str | None]
    """Per repo, the commit its work tree stands at."""
    warnings: list[str]


class _Found(NamedTuple):
    """One entry of a source, before it is judged."""

    path: str
    """Relative to the source, in the system's form."""
    is_tracked: bool
    folders_judged: bool


def scan(sources: Sequence[str], config: ScanConfig, *, leave_out: Sequence[Path] = ()) -> Scan:
    """`leave_out`: folders that are not looked at even if they lie inside a source."""
    paths = PathFilter(config)
    result = Scan([], [], {}, [])
    hidden = tuple(os.path.realpath(folder) for folder in leave_out)
    for source in resolve_sources(sources):
        _scan_source(source, paths, hidden, result)
    result.files.sort(key=lambda file: (file.repo, file.path))
    result.drops.sort(key=lambda drop: (drop.repo, drop.path))
    return result


def resolve_sources(names: Sequence[str]) -> list[Source]:
    """Folders as they are, single files grouped by their folder; two folders of one name become `name` and `name~2`."""
    whole: dict[str, None] = {}
    single: dict[str, list[str]] = {}
    for name in names:
        path = os.path.realpath(os.path.expanduser(name))
        if os.path.isdir(path):
            if path in whole:
                raise InputError(f"the source {name!r} is named twice.")
            whole[path] = None
        elif os.path.lexists(path):
            folder, file = os.path.split(path)
            single.setdefault(folder, []).append(file)
        else:
            raise InputError(f"there is no source {name!r}. Check the path.")
    sources: list[Source] = []
    taken: dict[str, int] = {}
    for root, only in [*((root, None) for root in whole), *single.items()]:
        name = path_text(os.path.basename(root)) or "root"
        taken[name] = taken.get(name, 0) + 1
        repo = name if taken[name] == 1 else f"{name}~{taken[name]}"
        sources.append(Source(repo, root, tuple(only) if only is not None else None))
    return sources


def _scan_source(source: Source, paths: PathFilter, hidden: tuple[str, ...], result: Scan) -> None:
    if source.root in hidden:
        raise InputError(f"the output folder {source.root!r} cannot be a source of itself.")
    result.commits[source.repo] = None
    if source.only is not None:
        entries: Iterator[_Found] = (_Found(name, is_tracked=True, folders_judged=True) for name in source.only)
    else:
        entries = _list_folder(source, "", paths, hidden, result)
    links = _LinkedFolders(source.root)
    for entry in entries:
        location = os.path.join(source.root, entry.path)
        if any(location == folder or location.startswith(folder + os.sep) for folder in hidden):
            continue
        judged = _judge(source, entry, location, paths, links)
        if isinstance(judged, Drop):
            result.drops.append(judged)
        else:
            result.files.append(judged)


def _judge(
    source: Source, entry: _Found, location: str, paths: PathFilter, links: "_LinkedFolders"
) -> SourceFile | Drop:
    path = path_text(entry.path)

    def drop(reason: DropReason, detail: str) -> Drop:
        return Drop(repo=source.repo, path=path, reason=reason, detail=detail)

    if source.only is None:
        verdict = paths.judge_file(path, is_tracked=entry.is_tracked, folders_judged=entry.folders_judged)
        if verdict is not None:
            return drop(*verdict)
    if not entry.folders_judged and links.lead_to(entry.path):
        return drop(DropReason.SYMLINK, "a folder on its way is a symbolic link")
    try:
        status = os.lstat(location)
    except FileNotFoundError:
        return drop(DropReason.VANISHED, "listed, but not there")
    except OSError as error:
        return drop(DropReason.UNREADABLE, error.strerror or str(error))
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        return drop(DropReason.SYMLINK, f"points to {path_text(os.readlink(location))}")
    if kind == stat.S_IFDIR:
        return drop(DropReason.NOT_A_FILE, "a submodule that is not checked out")
    if kind != stat.S_IFREG:
        return drop(DropReason.NOT_A_FILE, KINDS.get(kind, "not a regular file"))
    return SourceFile(repo=source.repo, path=path, location=location, size=status.st_size)


class _LinkedFolders:
    """Whether a path that git lists goes through a link: its index may hold `a/b` where `a` has become one since."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[str, bool] = {}

    def lead_to(self, path: str) -> bool:
        folder = os.path.dirname(path)
        if folder not in self._known:
            straight = os.path.normpath(os.path.join(self._root, folder))
            self._known[folder] = os.path.realpath(straight) != straight
        return self._known[folder]


def _list_folder(
    source: Source, prefix: str, paths: PathFilter, hidden: tuple[str, ...], result: Scan
) -> Iterator[_Found]:
    """Everything below `prefix` (`""` or `some/folder/`): by git where it is a work tree, else by walking."""
    folder = os.path.join(source.root, prefix).rstrip(os.sep) or os.sep
    listing = _git_listing(folder, source.repo, result)
    if listing is None:
        yield from _walk(source, prefix, paths, hidden, result)
        return
    if not prefix:
        result.commits[source.repo] = listing.commit
    if listing.complaints:
        result.warnings.append(f"git on {source.repo}/{path_text(prefix)}: {listing.complaints.splitlines()[0]}")
    for entry in listing.entries:
        nested = prefix + entry.path.rstrip("/")
        location = os.path.join(source.root, nested)
        # A submodule is listed by its name, a repository nested inside with a slash at its end.
        if os.path.lexists(os.path.join(location, ".git")) and not os.path.islink(location):
            yield from _list_folder(source, nested + "/", paths, hidden, result)
        else:
            yield _Found(nested, is_tracked=entry.is_tracked, folders_judged=False)


def _git_listing(folder: str, repo: str, result: Scan) -> git.Listing | None:
    """None for a plain folder, and, with a warning, for a repository that git cannot be asked about."""
    try:
        listing = git.list_files(folder)
        problem = "git is not installed" if listing is None and os.path.lexists(os.path.join(folder, ".git")) else None
    except InputError as error:
        listing, problem = None, str(error).rstrip(".")
    if problem:
        result.warnings.append(f"{problem}; {repo} was read as a plain folder, with its .gitignore files.")
    return listing


def _walk(source: Source, prefix: str, paths: PathFilter, hidden: tuple[str, ...], result: Scan) -> Iterator[_Found]:
    """A plain folder. Folders that are left out are not entered: one drop stands for all that is in them."""
    pending: list[tuple[str, tuple[_IgnoreFile, ...]]] = [(prefix, ())]
    while pending:
        prefix, ignores = pending.pop()
        folder = os.path.join(source.root, prefix)
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            reason, detail = DropReason.UNREADABLE, error.strerror or str(error)
            result.drops.append(Drop(repo=source.repo, path=path_text(prefix), reason=reason, detail=detail))
            continue
        ignores = (*_ignore_files(folder, prefix, entries), *ignores)
        for entry in entries:
            path = prefix + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if _is_ignored(path + "/" if is_folder else path, ignores) or os.path.join(folder, entry.name) in hidden:
                continue
            if not is_folder:
                yield _Found(path, is_tracked=False, folders_judged=True)
                continue
            if entry.name == ".git":
                continue
            verdict = paths.judge_folder(path_text(path))
            if verdict is not None:
                result.drops.append(
                    Drop(repo=source.repo, path=path_text(path) + "/", reason=verdict.reason, detail=verdict.detail)
                )
            elif os.path.lexists(os.path.join(entry.path, ".git")):
                yield from _list_folder(source, path + "/", paths, hidden, result)
            else:
                pending.append((path + "/", ignores))


class _IgnoreFile(NamedTuple):
    name: str
    prefix: str
    """Its patterns are relative to the folder it lies in."""
    spec: GitIgnoreSpec


def _ignore_files(folder: str, prefix: str, entries: Sequence[os.DirEntry[str]]) -> Iterator[_IgnoreFile]:
    for entry in entries:
        if entry.name in {".gitignore", ".ignore"} and entry.is_file(follow_symlinks=False):
            try:
                lines = Path(folder, entry.name).read_bytes().decode("utf-8", "surrogateescape").splitlines()
                yield _IgnoreFile(entry.name, prefix, GitIgnoreSpec.from_lines(lines))
            except (OSError, ValueError):
                continue  # an unreadable or malformed ignore file ignores nothing, as with git


def _is_ignored(path: str, ignores: Sequence[_IgnoreFile]) -> bool:
    """The nearest file that says anything decides; any .ignore outranks every .gitignore."""
    for name in (".ignore", ".gitignore"):
        for ignore in ignores:
            if ignore.name == name:
                verdict = ignore.spec.check_file(path[len(ignore.prefix) :]).include
                if verdict is not None:
                    return verdict
    return False
