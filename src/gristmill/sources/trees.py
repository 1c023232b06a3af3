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
from gristmill.sources.addresses import Source, resolved
from gristmill.sources.gitignore import IgnoreFile, ignore_files, is_ignored
from gristmill.sources.path_filter import PathFilter

NANOSECONDS_TO_SETTLE = 3_000_000_000
"""More than the coarsest clock of a file system is off."""
KINDS = {**plain_files.KINDS, stat.S_IFDIR: "a submodule that is not checked out"}


class Scan(NamedTuple):
    files: list[SourceFile]
    drops: list[Drop]
    commits: dict[str, str | None]
    """Per repo, the commit its work tree stands at."""
    warnings: list[str]
    num_rows: dict[str, int]
    """Per table that was a source."""

    @property
    def num_bytes(self) -> int:
        return sum(file.size for file in self.files)


class _Folder(NamedTuple):
    """One to look into."""

    prefix: str
    """Relative to the source, in the system's form: `""` or `some/folder/`."""
    ignores: tuple[IgnoreFile, ...] = ()
    """Those above it, the innermost first."""
    may_be_repository: bool = False
    is_below_git: bool = False
    """Git listed it, so nobody has judged the folders on the way."""

    @property
    def place(self) -> str:
        """In path order, it and all that is in it."""
        return path_text(self.prefix)


class _Found(NamedTuple):
    """One entry of a source, before it is judged."""

    path: str
    """Relative to the source, in the system's form."""
    is_tracked: bool
    folders_judged: bool
    may_be_repository: bool = False
    """As git lists submodules like files."""

    @property
    def place(self) -> str:
        return path_text(self.path)


def scan(sources: Sequence[str] | Sequence[Source], config: ScanConfig, *, leave_out: Sequence[Path] = ()) -> Scan:
    """`leave_out`: folders that are not looked at even if they lie inside a source; a source inside one is."""
    found = Scan([], [], {}, [], {})
    found.files.extend(scanned(found, sources, config, leave_out=leave_out))
    return found


def scanned(
    found: Scan, sources: Sequence[str] | Sequence[Source], config: ScanConfig, *, leave_out: Sequence[Path] = ()
) -> Iterator[SourceFile]:
    """Files as they are found, in path order. All else goes into `found`, and is complete when the files are."""
    paths = PathFilter(config)
    hidden = tuple(os.path.realpath(folder) for folder in leave_out)
    in_order = sorted(resolved(sources), key=lambda source: source.repo)

    def files() -> Iterator[SourceFile]:
        for source in in_order:
            inside = tuple(folder for folder in hidden if not (source.root + os.sep).startswith(folder + os.sep))
            yield from _Scanner(source, paths, inside, found).files()
        found.drops.sort(key=lambda drop: (drop.repo, drop.path))

    return files()


class _Scanner:
    """One source."""

    def __init__(self, source: Source, paths: PathFilter, hidden: tuple[str, ...], result: Scan) -> None:
        self._source, self._paths, self._hidden, self._result = source, paths, hidden, result
        self._root = os.path.join(source.root, "")
        self._inside_hidden = tuple(os.path.join(folder, "") for folder in hidden)
        self._started_at = time.time_ns()
        self._is_straight: dict[str, bool] = {}
        self._is_dataset: dict[str, bool] = {}

    def files(self) -> Iterator[SourceFile]:
        """In path order. What is left out is among the result's drops."""
        self._result.commits[self._source.repo] = None
        pending: list[_Found | _Folder] = []
        """The next one last."""
        if self._source.only is None:
            pending.append(_Folder("", may_be_repository=not self._source.is_download))
        else:
            _put(pending, (_Found(name, is_tracked=True, folders_judged=True) for name in self._source.only))
        while pending:
            entry = pending.pop()
            if isinstance(entry, _Folder):
                listing = self._git_listing(entry) if entry.may_be_repository else None
                _put(pending, self._walk(entry) if listing is None else self._from_git(entry, listing))
                continue
            location = self._location(entry.path)
            if location in self._hidden or location.startswith(self._inside_hidden):
                continue
            status = _status(location) if entry.may_be_repository else None
            if status is not None and self._is_repository(entry.path, location, status):
                _put(pending, [_Folder(entry.path + "/", may_be_repository=True, is_below_git=True)])
                continue
            judged = self._judge(entry, location, status)
            if isinstance(judged, Drop):
                self._result.drops.append(judged)
            else:
                yield judged

    def _is_repository(self, path: str, location: str, status: os.stat_result | OSError) -> bool:
        is_folder = isinstance(status, os.stat_result) and stat.S_ISDIR(status.st_mode)
        return (
            is_folder
            and os.path.lexists(os.path.join(location, ".git"))
            and not _leads_out(path)
            and self._has_straight_way(path + "/")
        )

    def _judge(self, entry: _Found, location: str, status: os.stat_result | OSError | None) -> SourceFile | Drop:
        """`status`: where it is known."""
        path = path_text(entry.path)

        def drop(reason: DropReason, detail: str) -> Drop:
            return Drop(repo=self._source.repo, path=path, reason=reason, detail=detail)

        if _leads_out(entry.path):
            return drop(DropReason.OUTSIDE_SOURCE, "listed under a path that leads out of the source")
        if self._source.only is None:
            verdict = self._paths.judge_file(path, is_tracked=entry.is_tracked, folders_judged=entry.folders_judged)
            if verdict is not None:
                return drop(*verdict)
        if not entry.folders_judged and not self._has_straight_way(entry.path):
            return drop(DropReason.SYMLINK, "a folder on its way is a symbolic link")
        if self._is_in_dataset(location):
            return drop(DropReason.EXCLUDED, "a dataset of gristmill")
        status = status or _status(location)
        if isinstance(status, os.stat_result) and stat.S_ISREG(status.st_mode):
            return SourceFile(
                repo=self._source.repo,
                path=path,
                location=location,
                size=status.st_size,
                may_be_translation=self._source.only is None and self._paths.may_be_translation(path),
                stamp=self._stamp(status),
            )
        return drop(*_why_no_file(location, status))

    def _stamp(self, status: os.stat_result) -> int | None:
        """As git does it: a file that was changed just now may be changed again without its time showing it."""
        if max(status.st_ctime_ns, status.st_mtime_ns) > self._started_at - NANOSECONDS_TO_SETTLE:
            return None
        return hash((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))

    def _is_in_dataset(self, location: str) -> bool:
        """An earlier build's output is not source, also when this build goes elsewhere."""
        folder = location.rpartition(os.sep)[0] or os.sep
        if folder not in self._is_dataset:
            may_be = self._source.only is None and os.path.lexists(os.path.join(folder, MANIFEST))
            self._is_dataset[folder] = may_be and is_dataset_folder(Path(folder))
        return self._is_dataset[folder]

    def _git_listing(self, folder: _Folder) -> git.Listing | None:
        """None for a plain folder, and, with a warning, for a repository that git cannot be asked about."""
        location = self._location(folder.prefix)
        try:
            listing = git.list_files(location)
            is_skipped = listing is None and os.path.lexists(os.path.join(location, ".git"))
            problem = "git is not installed" if is_skipped else None
        except InputError as error:
            listing, problem = None, str(error).rstrip(".")
        if problem:
            self._warn(folder.prefix, f"{problem}; read as a plain folder, with its .gitignore files.")
        return listing

    def _from_git(self, folder: _Folder, listing: git.Listing) -> Iterator[_Found | _Folder]:
        if not folder.prefix:
            self._result.commits[self._source.repo] = listing.commit
        for complaint in listing.complaints:
            self._warn(folder.prefix, f"git: {complaint}")
        for path, detail in listing.unreadable:
            self._drop_folder(folder.prefix + path.rstrip("/") + "/", DropReason.UNREADABLE, detail)
        for entry in listing.entries:
            # A submodule is listed by its name, a repository nested inside with a slash at its end.
            path = folder.prefix + entry.path.rstrip("/")
            yield _Found(path, entry.is_tracked, folders_judged=False, may_be_repository=True)

    def _walk(self, folder: _Folder) -> Iterator[_Found | _Folder]:
        """A plain folder. Folders that are left out are not entered: one drop stands for all that is in them."""
        location = self._location(folder.prefix)
        try:
            with os.scandir(location) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            if not folder.prefix:
                raise InputError(f"cannot read the source {location!r}: {error.strerror}.") from None
            self._drop_folder(folder.prefix, DropReason.UNREADABLE, error.strerror or str(error))
            return
        ignores = (*ignore_files(location, folder.prefix, entries, self._warn), *folder.ignores)
        for entry in entries:
            path = folder.prefix + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            is_hidden = entry.name == ".git" or self._location(path) in self._hidden
            if is_hidden or is_ignored(path + "/" if is_folder else path, ignores):
                continue
            if not is_folder:
                yield _Found(path, is_tracked=False, folders_judged=not folder.is_below_git)
                continue
            verdict = self._paths.judge_folder(path_text(path))
            if verdict is not None:
                self._drop_folder(path + "/", verdict.reason, verdict.detail)
                continue
            is_repository = os.path.lexists(os.path.join(entry.path, ".git"))
            yield _Folder(path + "/", () if is_repository else ignores, is_repository, folder.is_below_git)

    def _location(self, path: str) -> str:
        return self._root + path

    def _has_straight_way(self, path: str) -> bool:
        """No folder on it is a link. A repository's index may hold `a/b` where `a` has become one since."""
        folder = path.rpartition("/")[0]
        if folder not in self._is_straight:
            is_straight = self._is_straight.setdefault("", os.path.realpath(self._source.root) == self._source.root)
            for end in (end for end, char in enumerate(folder + "/") if char == "/"):
                if folder[:end] not in self._is_straight:
                    is_link = os.path.islink(self._location(folder[:end]))
                    self._is_straight[folder[:end]] = is_straight and not is_link
                is_straight = self._is_straight[folder[:end]]
        return self._is_straight[folder]

    def _drop_folder(self, path: str, reason: DropReason, detail: str) -> None:
        drop = Drop(repo=self._source.repo, path=path_text(path), reason=reason, detail=detail)
        self._result.drops.append(drop)

    def _warn(self, path: str, text: str) -> None:
        self._result.warnings.append(f"{self._source.repo}/{path_text(path)}: {path_text(text)}")


def _leads_out(path: str) -> bool:
    """A crafted index may list what a real one cannot: `../elsewhere` or `/etc/passwd`."""
    return path.startswith("/") or not {"", ".", ".."}.isdisjoint(path.split("/"))


def _put(pending: list[_Found | _Folder], found: Iterable[_Found | _Folder]) -> None:
    """On top, in their order; what lies below them in path order, as a submodule may, moves to its place."""
    own = sorted(found, key=lambda one: one.place, reverse=True)
    is_mixed = bool(own and pending) and pending[-1].place < own[0].place
    pending += own
    if is_mixed:
        pending.sort(key=lambda one: one.place, reverse=True)


def _status(location: str) -> os.stat_result | OSError:
    try:
        return os.lstat(location)
    except OSError as error:
        return error


def _why_no_file(location: str, status: os.stat_result | OSError) -> tuple[DropReason, str]:
    if isinstance(status, FileNotFoundError | NotADirectoryError):
        return DropReason.VANISHED, "listed, but not there"
    if isinstance(status, OSError):
        return DropReason.UNREADABLE, status.strerror or str(status)
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        return DropReason.SYMLINK, f"points to {path_text(os.readlink(location))}"
    return DropReason.NOT_A_FILE, KINDS.get(kind, "not a regular file")
