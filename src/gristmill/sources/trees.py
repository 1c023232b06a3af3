"""Scan folders, git work trees and single files for source files, in path order, and record the drops.

- Git lists the files of a work tree (see git.py). It lists nested repositories and checked-out submodules separately,
  under their path in the source. A source folder that its work tree ignores is treated as a plain folder.
- In a plain folder, .gitignore and .ignore files apply, as in ripgrep.
- A symbolic link is never followed, so nothing outside a source is read and no loop is possible.
- An output folder inside a source is skipped, and files of earlier datasets are dropped.
"""

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gristmill.config.settings import ScanConfig
from gristmill.core import plain_files
from gristmill.core.errors import InputError
from gristmill.core.layout import MANIFEST, is_dataset_folder
from gristmill.core.names import path_text
from gristmill.core.records import Drop, DropReason, SourceFile
from gristmill.sources import git
from gristmill.sources.addresses import Source, as_sources
from gristmill.sources.gitignore import IgnoreFile, ignore_files, is_ignored
from gristmill.sources.path_filter import PathFilter

NANOSECONDS_TO_SETTLE = 3_000_000_000
"""Minimum age at which the timestamps of a file are reliable. It exceeds the error of any file system clock."""
KINDS = {**plain_files.KINDS, stat.S_IFDIR: "a folder, such as a submodule that is not checked out"}


class Scan(NamedTuple):
    """Result of scanning all sources."""

    files: list[SourceFile]
    drops: list[Drop]
    commits: dict[str, str | None]
    """Commit of each source, keyed by repo. None for a source without a commit."""
    warnings: list[str]
    num_rows: dict[str, int]
    """Number of rows of each table, keyed by repo."""

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files)


class _Folder(NamedTuple):
    """A folder to list."""

    prefix: str
    """Path relative to the source, not escaped: `""` or `some/folder/`."""
    ignores: tuple[IgnoreFile, ...] = ()
    """Ignore files of the folders above, innermost first."""
    may_be_repository: bool = False
    is_below_git: bool = False
    """True if git listed this folder or a folder above it. The path filter has then not checked the folders above."""

    @property
    def sort_key(self) -> str:
        """Sort key for the position of the folder and its contents in path order."""
        return path_text(self.prefix)


class _Entry(NamedTuple):
    """An entry of a source that is not checked yet."""

    path: str
    """Relative to the source, not escaped."""
    is_tracked: bool
    folders_checked: bool
    """True if the folders above the entry have already been checked for links and exclusions."""
    may_be_repository: bool = False
    """True if git listed the entry. Git lists submodules like files."""

    @property
    def sort_key(self) -> str:
        """Sort key for the position in path order."""
        return path_text(self.path)


def scan(sources: Sequence[str] | Sequence[Source], config: ScanConfig, *, leave_out: Sequence[Path] = ()) -> Scan:
    """Scan all sources.

    `leave_out` are folders to skip. A source that is inside such a folder is scanned nevertheless.
    """
    found = Scan([], [], {}, [], {})
    found.files.extend(iter_files(found, sources, config, leave_out=leave_out))
    return found


def iter_files(
    found: Scan, sources: Sequence[str] | Sequence[Source], config: ScanConfig, *, leave_out: Sequence[Path] = ()
) -> Iterator[SourceFile]:
    """Yield the files of all sources in path order, as they are found.

    Drops, commits and warnings are added to `found`. They are complete after the last file.
    """
    paths = PathFilter(config)
    skipped_folders = tuple(os.path.realpath(folder) for folder in leave_out)
    sorted_sources = sorted(as_sources(sources), key=lambda source: source.repo)

    def files() -> Iterator[SourceFile]:
        for source in sorted_sources:
            skipped_inside_source = tuple(
                folder for folder in skipped_folders if not (source.root + os.sep).startswith(folder + os.sep)
            )
            yield from _Scanner(source, paths, skipped_inside_source, found).files()
        found.drops.sort(key=lambda drop: (drop.repo, drop.path))

    return files()


class _Scanner:
    """Scanner of one source."""

    def __init__(self, source: Source, paths: PathFilter, skipped_folders: tuple[str, ...], result: Scan) -> None:
        self._source, self._paths, self._skipped_folders, self._result = source, paths, skipped_folders, result
        self._root = os.path.join(source.root, "")
        self._skipped_prefixes = tuple(os.path.join(folder, "") for folder in skipped_folders)
        self._started_at = time.time_ns()
        self._is_link_free: dict[str, bool] = {}
        self._is_dataset: dict[str, bool] = {}

    def files(self) -> Iterator[SourceFile]:
        """Yield the files in path order, and add all other entries to the drops of the result."""
        self._result.commits[self._source.repo] = None
        pending: list[_Entry | _Folder] = []
        """A stack: the next entry is last."""
        if self._source.only_files is None:
            pending.append(_Folder("", may_be_repository=not self._source.is_download))
        else:
            _push(pending, (_Entry(name, is_tracked=True, folders_checked=True) for name in self._source.only_files))
        while pending:
            entry = pending.pop()
            if isinstance(entry, _Folder):
                listing = self._git_listing(entry) if entry.may_be_repository else None
                _push(pending, self._walk(entry) if listing is None else self._git_entries(entry, listing))
                continue
            location = self._location(entry.path)
            if location in self._skipped_folders or location.startswith(self._skipped_prefixes):
                continue
            status = _status(location) if entry.may_be_repository else None
            if status is not None and self._is_repository(entry.path, location, status):
                _push(pending, [_Folder(entry.path + "/", may_be_repository=True, is_below_git=True)])
                continue
            file_or_drop = self._check(entry, location, status)
            if isinstance(file_or_drop, Drop):
                self._result.drops.append(file_or_drop)
            else:
                yield file_or_drop

    def _is_repository(self, path: str, location: str, status: os.stat_result | OSError) -> bool:
        is_folder = isinstance(status, os.stat_result) and stat.S_ISDIR(status.st_mode)
        return (
            is_folder
            and os.path.lexists(os.path.join(location, ".git"))
            and not _is_outside(path)
            and self._has_no_links(path + "/")
        )

    def _check(self, entry: _Entry, location: str, status: os.stat_result | OSError | None) -> SourceFile | Drop:
        """Return the file, or a Drop with the reason. `status` is None if `lstat` was not called yet."""
        path = path_text(entry.path)

        def drop(reason: DropReason, detail: str) -> Drop:
            return Drop(repo=self._source.repo, path=path, reason=reason, detail=detail)

        if _is_outside(entry.path):
            return drop(DropReason.OUTSIDE_SOURCE, "the listed path leads out of the source")
        if self._source.only_files is None:
            exclusion = self._paths.check_file(path, is_tracked=entry.is_tracked, folders_checked=entry.folders_checked)
            if exclusion is not None:
                return drop(*exclusion)
        if not entry.folders_checked and not self._has_no_links(entry.path):
            return drop(DropReason.SYMLINK, "a folder in its path is a symbolic link")
        if self._is_in_dataset(location):
            return drop(DropReason.EXCLUDED, "part of a gristmill dataset")
        status = status or _status(location)
        if isinstance(status, os.stat_result) and stat.S_ISREG(status.st_mode):
            return SourceFile(
                repo=self._source.repo,
                path=path,
                location=location,
                size=status.st_size,
                may_be_translation=self._source.only_files is None and self._paths.may_be_translation(path),
                stamp=self._stamp(status),
            )
        return drop(*_drop_reason(location, status))

    def _stamp(self, status: os.stat_result) -> int | None:
        """Return a hash of device, inode, size and times, or None for a file that was changed very recently.

        A recent file could change again while its times stay the same. Git does not rely on recent times either.
        """
        if max(status.st_ctime_ns, status.st_mtime_ns) > self._started_at - NANOSECONDS_TO_SETTLE:
            return None
        return hash((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))

    def _is_in_dataset(self, location: str) -> bool:
        """Return True for a file of an earlier dataset. It is not source code, even if this build writes elsewhere."""
        folder = location.rpartition(os.sep)[0] or os.sep
        if folder not in self._is_dataset:
            may_be = self._source.only_files is None and os.path.lexists(os.path.join(folder, MANIFEST))
            self._is_dataset[folder] = may_be and is_dataset_folder(Path(folder))
        return self._is_dataset[folder]

    def _git_listing(self, folder: _Folder) -> git.Listing | None:
        """Return git's listing, or None for a plain folder. Warn and return None if git cannot list a repository."""
        location = self._location(folder.prefix)
        try:
            listing = git.list_files(location)
            is_git_missing = listing is None and os.path.lexists(os.path.join(location, ".git"))
            problem = "git is not installed" if is_git_missing else None
        except InputError as error:
            listing, problem = None, str(error).rstrip(".")
        if problem:
            self._warn(folder.prefix, f"{problem}; the folder is read as a plain folder, with its .gitignore files.")
        return listing

    def _git_entries(self, folder: _Folder, listing: git.Listing) -> Iterator[_Entry | _Folder]:
        if not folder.prefix:
            self._result.commits[self._source.repo] = listing.commit
        for message in listing.messages:
            self._warn(folder.prefix, f"git: {message}")
        for path, detail in listing.unreadable:
            self._drop_folder(folder.prefix + path.rstrip("/") + "/", DropReason.UNREADABLE, detail)
        for entry in listing.entries:
            # The path of a nested repository ends in a slash. The path of a submodule does not.
            path = folder.prefix + entry.path.rstrip("/")
            yield _Entry(path, entry.is_tracked, folders_checked=False, may_be_repository=True)

    def _walk(self, folder: _Folder) -> Iterator[_Entry | _Folder]:
        """List a plain folder. An excluded folder is not entered: one drop represents everything in it."""
        location = self._location(folder.prefix)
        try:
            with os.scandir(location) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            if not folder.prefix:
                raise InputError(
                    f"cannot read the source {location!r}: {error.strerror}. Check the folder and its permissions."
                ) from None
            self._drop_folder(folder.prefix, DropReason.UNREADABLE, error.strerror or str(error))
            return
        ignores = (*ignore_files(location, folder.prefix, entries, self._warn), *folder.ignores)
        for entry in entries:
            path = folder.prefix + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            is_skipped = entry.name == ".git" or self._location(path) in self._skipped_folders
            if is_skipped or is_ignored(path + "/" if is_folder else path, ignores):
                continue
            if not is_folder:
                yield _Entry(path, is_tracked=False, folders_checked=not folder.is_below_git)
                continue
            exclusion = self._paths.check_folder(path_text(path))
            if exclusion is not None:
                self._drop_folder(path + "/", exclusion.reason, exclusion.detail)
                continue
            is_repository = os.path.lexists(os.path.join(entry.path, ".git"))
            yield _Folder(path + "/", () if is_repository else ignores, is_repository, folder.is_below_git)

    def _location(self, path: str) -> str:
        return self._root + path

    def _has_no_links(self, path: str) -> bool:
        """Return True if no folder of the path is a link. A git index may list `a/b` although `a` has become a link."""
        folder = path.rpartition("/")[0]
        if folder not in self._is_link_free:
            has_no_links = self._is_link_free.setdefault("", os.path.realpath(self._source.root) == self._source.root)
            for end in (end for end, char in enumerate(folder + "/") if char == "/"):
                if folder[:end] not in self._is_link_free:
                    is_link = os.path.islink(self._location(folder[:end]))
                    self._is_link_free[folder[:end]] = has_no_links and not is_link
                has_no_links = self._is_link_free[folder[:end]]
        return self._is_link_free[folder]

    def _drop_folder(self, path: str, reason: DropReason, detail: str) -> None:
        drop = Drop(repo=self._source.repo, path=path_text(path), reason=reason, detail=detail)
        self._result.drops.append(drop)

    def _warn(self, path: str, text: str) -> None:
        self._result.warnings.append(f"{self._source.repo}/{path_text(path)}: {path_text(text)}")


def _is_outside(path: str) -> bool:
    """Return True for a path outside the source. A crafted index may list `../elsewhere` or `/etc/passwd`."""
    return path.startswith("/") or not {"", ".", ".."}.isdisjoint(path.split("/"))


def _push(pending: list[_Entry | _Folder], found: Iterable[_Entry | _Folder]) -> None:
    """Push entries onto the stack so that the next entry in path order is last.

    If a pending entry comes before a new entry, which can happen if git listed a submodule, all entries are sorted.
    """
    entries = sorted(found, key=lambda entry: entry.sort_key, reverse=True)
    is_mixed = bool(entries and pending) and pending[-1].sort_key < entries[0].sort_key
    pending += entries
    if is_mixed:
        pending.sort(key=lambda entry: entry.sort_key, reverse=True)


def _status(location: str) -> os.stat_result | OSError:
    try:
        return os.lstat(location)
    except OSError as error:
        return error


def _drop_reason(location: str, status: os.stat_result | OSError) -> tuple[DropReason, str]:
    if isinstance(status, FileNotFoundError | NotADirectoryError):
        return DropReason.VANISHED, "listed, but missing"
    if isinstance(status, OSError):
        return DropReason.UNREADABLE, status.strerror or str(status)
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        return DropReason.SYMLINK, f"a symbolic link to {path_text(os.readlink(location))}"
    return DropReason.NOT_A_FILE, KINDS.get(kind, "not a regular file")
