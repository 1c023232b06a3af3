"""Where a dataset grows: OUT.work, beside OUT, under a lock. It takes its place by rename when it is complete.

    OUT.work/lock         held while a build runs; a second build into OUT refuses
    OUT.work/prepared/    parts: what batches of files became. They stay, as the cache of the next build
    OUT.work/fetched/     clones, downloads and the rows of tables
    OUT.work/answers/     what a language model has answered: dear, so it stays whatever --cache-bytes says
    OUT.work/scratch/     of no use once a build is over
    OUT.work/dataset/     the dataset until it is complete, marked as such; after the exchange, the earlier one
    OUT.work/discarded/   what is being deleted: a kill leaves some of it, and the next command deletes the rest
    OUT.work/built, previous.jsonl    what the last build was made with
    OUT.work/compared, similar, measured, files, stamps    what it found out
    OUT.work/pieces       the log of the pieces in OUT: the next build takes over those that are to be the same
    OUT.work/half.pieces  that of a dataset whose build was killed, and is gone on with

Only what is known to be ours is ever deleted: files of a build, and files that an earlier dataset's manifest names.
What else lies in the folder of an earlier dataset is carried over to the new one; the next build finishes what one that
was killed at that point had begun.

A power cut leaves the earlier dataset or the new one, whole: the new one is on the disk before the exchange, and the
exchange before the earlier one is deleted. Nothing else here is synced: whatever a later build reads carries a digest.
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from gristmill.core.errors import DatasetError, InputError, NothingToBuildError, OutputError
from gristmill.core.layout import (
    CARDS,
    CHECK,
    EXPORTING,
    MANIFEST,
    REPORT,
    UNFINISHED,
    half_exported,
    half_written,
    is_report,
    sync_folder,
    sync_tree,
    write_atomically,
)
from gristmill.core.manifest import read_manifest
from gristmill.core.plain_files import read_plain_text

AT_FDCWD = -100
EXCHANGE = 2
"""renameat2's RENAME_EXCHANGE and renamex_np's RENAME_SWAP have the same number."""
SECONDS_FOR_LOCK = 2.0
"""The workers of a build that was killed hold its lock until they notice, which takes a moment."""
GROWING = ".growing"
"""In a dataset folder: it belongs to a build that is not done."""
PIECES = ".pieces"
"""In a dataset folder that grows: the log of its pieces."""
TAG = "CACHEDIR.TAG"
TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# The cache of a dataset beside it: see gristmill clean.\n"
"""By which programs that make backups know a folder they can do without (bford.info/cachedir)."""
TEMPORARY = ".gristmill-temporary"
"""In a temporary folder: locked while its run lives, so that a later one can see which were left by a kill."""


class Workspace:
    def __init__(self, out: str) -> None:
        self.target = Path(os.path.realpath(out))
        if not self.target.name:
            raise DatasetError(f"{out!r} cannot be a dataset folder. Name a new one with --out.")
        self.folder = self.target.with_name(self.target.name + ".work")
        self.prepared = self.folder / "prepared"
        self.dataset = self.folder / "dataset"
        self.fetched = self.folder / "fetched"
        self.answers = self.folder / "answers"
        self._scratch = self.folder / "scratch"
        self._upload = self.folder / "upload"
        self._earlier = self.folder / "earlier"
        self._discarded = self.folder / "discarded"
        self.pieces = self.folder / "pieces"
        self.half_pieces = self.folder / "half.pieces"
        self.built = self.folder / "built"
        self.previous = self.folder / "previous.jsonl"
        self._lock: int | None = None

    @property
    def log(self) -> Path:
        """Where the pieces of the dataset that grows are written down."""
        return self.dataset / PIECES

    def refuse_sources(self, roots: list[str]) -> None:
        """A build must not read what it replaces."""
        refuse_foreign_folder(self.target)
        for root in roots:
            for ours in (self.target, self.folder):
                if Path(root) == ours or ours in Path(root).parents:
                    raise InputError(
                        f"the source {root!r} lies inside the output folder {str(ours)!r}. Move one of them."
                    )

    def __enter__(self) -> Self:
        refuse_foreign_folder(self.target)
        self._refuse_foreign_work()
        try:
            with _undisturbed():
                self.folder.mkdir(parents=True, exist_ok=True)
                self._take_lock()
            self._clear_leftovers()
            self._lay_out()
        except BaseException as error:
            if self._lock is not None:
                self._clear_up()
            if isinstance(error, OSError):
                raise OutputError(f"cannot write beside {str(self.target)!r}: {error.strerror}.") from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear_up(is_of_use=kind is not NothingToBuildError)

    @contextmanager
    def held(self, *, is_shared: bool) -> Iterator[Self]:
        """For one step of several that come one after the other: nothing is cleared, before or after."""
        refuse_foreign_folder(self.target)
        self._refuse_foreign_work()
        try:
            with _undisturbed():
                self.folder.mkdir(parents=True, exist_ok=True)
                self._take_lock(is_shared=is_shared)
            with self.alone_at("lay-out"):
                self._end_exchange()
                self._lay_out()
        except OSError as error:
            raise OutputError(f"cannot write beside {str(self.target)!r}: {error.strerror}.") from None
        try:
            yield self
        finally:
            self._release_lock()

    @contextmanager
    def alone_at(self, what: str) -> Iterator[None]:
        """One of those that share the folder at a time; the others wait."""
        with (self.folder / f"{what}.lock").open("wb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def _lay_out(self) -> None:
        for folder in (self.prepared, self._scratch, self.dataset):
            folder.mkdir(exist_ok=True)
        (self.folder / ".gitignore").write_text("*\n")
        (self.folder / TAG).write_text(TAG_TEXT)
        (self.dataset / GROWING).touch()
        if self.target.is_dir():
            shutil.copymode(self.target, self.dataset)

    def _refuse_foreign_work(self) -> None:
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / "lock").is_file():
            raise DatasetError(
                f"{str(self.folder)!r} exists and is not a work folder of gristmill. Name another --out."
            )

    def _clear_up(self, *, is_of_use: bool = True) -> None:
        """What the next build can use stays; without any, there is no trace but what is the user's."""
        with _undisturbed():
            with suppress(OSError, OutputError):
                self._clear_leftovers()
                if not (is_of_use and self._is_of_use()):
                    self._remove()
            self._release_lock()

    def _is_of_use(self) -> bool:
        parts = self.prepared.is_dir() and any(self.prepared.iterdir())
        return parts or any(folder.is_dir() for folder in (self.dataset, self.fetched, self.answers))

    def _remove(self) -> None:
        for entry in self.folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != "lock":
                entry.unlink()
        (self.folder / "lock").unlink(missing_ok=True)
        self.folder.rmdir()

    def take_answers(self, other: "Workspace") -> None:
        """A copy of another's, into a work folder that is new: a language model need not say the same twice."""
        if other.answers.is_dir():
            shutil.copytree(other.answers, self.answers)
            (self.folder / "lock").touch()

    def clean(self) -> int:
        """Delete all that is kept for the next build -> how many bytes that were."""
        self._refuse_foreign_work()
        if not self.folder.is_dir():
            return 0
        with _undisturbed():
            self._take_lock()
            try:
                self._clear_leftovers()
                num_bytes = _size_of(self.folder)
                self._remove()
            except OSError as error:
                raise OutputError(f"cannot delete {str(self.folder)!r}: {error.strerror}.") from None
            finally:
                self._release_lock()
        return num_bytes

    def prune(self, used: set[str], max_bytes: int) -> None:
        """Leave no more than so many bytes: of the parts those of this build first, then those used last."""
        left = max_bytes - sum(_size_of(entry) for entry in self.folder.iterdir() if entry != self.prepared)
        if left < 0:
            left += _size_of(self.fetched)
            shutil.rmtree(self.fetched, ignore_errors=True)
        parts = [(entry.name in used, entry.stat().st_mtime_ns, entry) for entry in self.prepared.iterdir()]
        for _, _, entry in sorted(parts, reverse=True):
            left -= entry.stat().st_size
            if left < 0:
                entry.unlink()

    def require_space(self, num_bytes: int) -> None:
        """Say so before writing, not after: how large the output will be is known by then."""
        free = shutil.disk_usage(self.folder).free
        if num_bytes > free:
            raise OutputError(
                f"the dataset takes {num_bytes / 1e6:,.0f} MB, but only {free / 1e6:,.0f} MB are free "
                f"at {str(self.target.parent)!r}. Free some, name another --out, or use --compress zstd."
            )

    def publish(self) -> None:
        """Put the complete dataset in its place. What else lay in an earlier dataset's folder stays there."""
        try:
            _refuse_to_overwrite(foreign_names(self.target) if self.target.exists() else [], self.target, self.dataset)
            sync_tree(self.dataset)
            with suppress(FileNotFoundError):
                os.replace(self.log, self.pieces)
            (self.dataset / GROWING).unlink()
            sync_folder(self.dataset)
            if self.target.exists():
                self._exchange()
            else:
                os.rename(self.dataset, self.target)
            sync_folder(self.target.parent)
            sync_folder(self.folder)
            if self.dataset.exists():
                self._retire()
            self.half_pieces.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"cannot put the dataset in its place {str(self.target)!r}: {error.strerror}.") from None

    def clear_scratch(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def uploading_to(self) -> str | None:
        """Where the dataset was being brought to when its build was killed."""
        return self._noted_upload()[0]

    def note_upload(self, address: str, names: Collection[str]) -> set[str]:
        """-> names that an upload to there which was killed may have left, and that are not among these."""
        earlier = self._noted_upload()
        stale = set(earlier[1] if earlier[0] == address else ()) - set(names)
        write_atomically(self._upload, json.dumps([address, sorted({*names, *stale})]).encode())
        return stale

    def _noted_upload(self) -> tuple[str | None, list[str]]:
        try:
            address, names = json.loads(read_plain_text(self._upload))
        except (OSError, ValueError, TypeError):
            return None, []
        return address, names

    def end_upload(self) -> None:
        """What lies elsewhere now is not kept here as well."""
        self._discard(self.dataset)
        self.half_pieces.unlink(missing_ok=True)
        self._upload.unlink()

    def keep_previous(self, path: Path | None) -> None:
        """The earlier splits that this build keeps to, as they were: a clean build of the same can then be made."""
        self.previous.unlink(missing_ok=True)
        if path is not None:
            shutil.copyfile(path, self.previous)

    def _retire(self) -> None:
        """After the exchange `dataset` holds the earlier one: carry over what is not its own, delete what is."""
        foreign = foreign_names(self.dataset)
        _refuse_to_overwrite(foreign, self.dataset, self.target)
        for name in foreign:
            (self.target / name).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.dataset / name, self.target / name)
        for folder in {(self.target / name).parent for name in foreign}:
            sync_folder(folder)
        self._discard(self.dataset)

    def _discard(self, folder: Path) -> None:
        """Delete it under a name that says so: what a kill leaves of it may have no manifest and no mark any more."""
        self._clear_discarded()
        os.rename(folder, self._discarded)
        self._clear_discarded()

    def _clear_discarded(self) -> None:
        if self._discarded.is_dir():
            shutil.rmtree(self._discarded)

    def _clear_leftovers(self) -> None:
        self.clear_scratch()
        if self.prepared.is_dir():
            for entry in self.prepared.iterdir():
                if entry.name.endswith(UNFINISHED):
                    entry.unlink(missing_ok=True)
        self._end_exchange()
        if self.dataset.is_dir() and not any(
            log.is_file() and log.stat().st_size for log in (self.log, self.half_pieces)
        ):
            self._discard(self.dataset)

    def _end_exchange(self) -> None:
        """After a kill in the middle of it: then `dataset` is the earlier one, with what is not its own."""
        self._clear_discarded()
        if self._earlier.is_dir():  # between two renames
            os.rename(self._earlier, self.dataset if self.target.exists() else self.target)
        if not self.dataset.is_dir() or not any(self.dataset.iterdir()):
            return
        if (self.dataset / GROWING).exists() or not self.target.exists():
            return
        try:
            self._retire()
        except (OSError, DatasetError) as error:
            raise OutputError(
                f"{str(self.dataset)!r} holds files of yours from {str(self.target)!r} that cannot be moved back "
                f"({error}). Move them, then run the command again."
            ) from None

    def _take_lock(self, *, is_shared: bool = False) -> None:
        path = self.folder / "lock"
        kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        for _ in range(10):
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not _is_locked_soon(self._lock, kind):
                self._release_lock()
                raise OutputError(f"another build into {str(self.target)!r} is running. Wait for it.")
            # The build before may have removed the file between our opening and locking it.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._lock), os.stat(path)):
                    return
            self._release_lock()
            self.folder.mkdir(parents=True, exist_ok=True)
        raise OutputError(f"cannot lock {str(path)!r}: it keeps being replaced.")

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _exchange(self) -> None:
        """Both names swap at one moment where the system can do that; else by way of a third name."""
        new, old = os.fsencode(self.dataset), os.fsencode(self.target)
        libc = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "linux" and hasattr(libc, "renameat2"):
            failed = libc.renameat2(AT_FDCWD, new, AT_FDCWD, old, EXCHANGE)
        elif sys.platform == "darwin":
            failed = libc.renamex_np(new, old, EXCHANGE)
        else:
            failed = -1
        if failed and ctypes.get_errno() not in {0, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        if failed:
            os.rename(self.target, self._earlier)
            os.rename(self.dataset, self.target)
            os.rename(self._earlier, self.dataset)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C waits until this is done. Its handler is replaced, not masked: another thread may receive the signal."""
    kinds = [kind for kind in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(kind) is not None]
    if threading.current_thread() is not threading.main_thread():  # only the main thread is ever interrupted
        kinds = []
    came: list[int] = []
    handlers = {kind: signal.signal(kind, lambda number, _: came.append(number)) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in handlers.items():
            signal.signal(kind, handler)
        for number in came:
            signal.raise_signal(number)


def refuse_foreign_folder(target: Path) -> None:
    """An output folder may be new, empty, or a dataset; anything else is somebody's and stays."""
    if target.is_dir():
        if os.path.ismount(target):
            raise OutputError(f"{str(target)!r} is a mount point and cannot be replaced. Name a folder inside it.")
        if any(target.iterdir()):
            try:
                read_manifest(target)
            except DatasetError as error:
                raise DatasetError(
                    f"{str(error).rstrip('.')}. Name a new folder with --out, or move that one."
                ) from None
    elif os.path.lexists(target):
        raise DatasetError(f"{str(target)!r} exists and is not a folder. Name a new folder with --out.")


def _size_of(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())


def _refuse_to_overwrite(names: list[str], where: Path, other: Path) -> None:
    for name in names:
        if os.path.lexists(other / name):
            raise OutputError(f"{str(where / name)!r} is not of the dataset there, and stands in its way. Move it.")


def foreign_names(folder: Path) -> list[str]:
    """What lies in a dataset's folder and is not the dataset's; of a folder that is, what lies in there."""
    known = {MANIFEST, CHECK, *CARDS, GROWING, PIECES}
    if (folder / REPORT).is_file() and is_report(folder / REPORT):  # a page of one's own may have that name
        known.add(REPORT)
    known.update(read_manifest(folder).files if any(folder.iterdir()) else ())
    folders = {str(parent) for name in known for parent in PurePosixPath(name).parents}
    foreign: list[str] = []
    waiting = [folder]
    while waiting:
        for entry in waiting.pop().iterdir():
            name = entry.relative_to(folder).as_posix()
            if entry.is_dir() and not entry.is_symlink() and name in folders:
                waiting.append(entry)
            elif entry.is_dir() or not (name in known or half_written(name) in known):
                foreign.append(name)
    exports = [folder / name for name in foreign if name.startswith(EXPORTING)]
    exported = {name for growing in exports for name in half_exported(growing, known)}
    return sorted(name for name in foreign if not (name.startswith(EXPORTING) or name in exported))


@contextmanager
def temporary_folder(prefix: str, parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A new folder, deleted in the end. Those with the same prefix that killed runs have left are deleted first.

    `parent`: the folder it is in; by default the system's for temporary files.
    """
    parent = os.fspath(parent or tempfile.gettempdir())
    clear_temporary(prefix, parent)
    with _undisturbed():
        folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=prefix, dir=parent)))
        lock = _locked(folder)
    try:
        yield folder
    finally:
        with _undisturbed():
            _delete_temporary(folder)
            os.close(lock)


def clear_temporary(prefix: str, parent: str | os.PathLike[str]) -> None:
    """Delete this user's temporary folders with this prefix whose runs are dead; a folder without our lock stays."""
    with suppress(OSError):
        for entry in sorted(Path(parent).iterdir()):
            if entry.name.startswith(prefix):
                _clear_one(entry)


def _is_locked_soon(descriptor: int, kind: int) -> bool:
    deadline = time.monotonic() + SECONDS_FOR_LOCK
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


def _locked(folder: Path) -> int:
    """The lock has its name only once it is held: nobody else finds it free."""
    unnamed = folder / f"{TEMPORARY}{UNFINISHED}"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(unnamed, folder / TEMPORARY)
    return lock


def _clear_one(folder: Path) -> None:
    with suppress(OSError):  # gone meanwhile, without a lock, or locked by a run that lives
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
            return
        lock = os.open(folder / TEMPORARY, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _delete_temporary(folder)
        finally:
            os.close(lock)


def _delete_temporary(folder: Path) -> None:
    """The lock last: where something else cannot be deleted now, a later run finds it."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != TEMPORARY:
                entry.unlink(missing_ok=True)
        if [entry.name for entry in folder.iterdir()] == [TEMPORARY]:
            (folder / TEMPORARY).unlink()
            folder.rmdir()
