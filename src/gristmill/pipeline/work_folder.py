"""The work folder OUT.work beside the output folder OUT. A complete dataset is moved from OUT.work/dataset to OUT.

    OUT.work/lock         locked while a build runs, so that a second build into OUT fails
    OUT.work/prepared/    parts, the results of step 1, kept as a cache for the next build
    OUT.work/fetched/     clones, downloads and the rows of tables
    OUT.work/answers/     answers of a language model, kept regardless of --cache-bytes because they are costly
    OUT.work/scratch/     files that are not needed after a build
    OUT.work/tokenizer/   the tokenizer, for the workers
    OUT.work/steps/       results of the separate commands prepare, decide and shape
    OUT.work/dataset/     the incomplete dataset, with a marker file; after the exchange, the earlier dataset
    OUT.work/earlier/     the earlier dataset during an exchange, if the system cannot swap two folders
    OUT.work/discarded/   files being deleted; after a kill, the next command deletes the rest
    OUT.work/upload       names of the files of an upload to remote storage that is not complete
    OUT.work/built, previous.jsonl    settings and earlier splits of the last build
    OUT.work/compared, similar, measured, drawn, files, stamps    cached results of the last build
    OUT.work/pieces       log of the pieces in OUT, from which the next build copies unchanged pieces
    OUT.work/half.pieces  log of the pieces of a killed build, with which the next build resumes

Only gristmill's own files are ever deleted: the files of a build, and the files in the manifest of an earlier dataset.
Other files in the folder of an earlier dataset are moved to the new dataset. If a build is killed while it moves files,
the next build moves the rest.

After a power cut, either the earlier or the new dataset is complete. The new dataset is synced to disk before the
exchange, and the exchange is synced before the earlier dataset is deleted. Caches are not synced, because each of their
files contains a digest that a later build verifies.
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
    EXPORT_PREFIX,
    MANIFEST,
    REPORT,
    UNFINISHED,
    is_report,
    partly_exported_names,
    sync_folder,
    sync_tree,
    unfinished_file_name,
    write_atomically,
)
from gristmill.core.manifest import read_manifest
from gristmill.core.plain_files import read_plain_text

AT_FDCWD = -100
EXCHANGE = 2
"""Value of RENAME_EXCHANGE (for renameat2) and of RENAME_SWAP (for renamex_np)."""
SECONDS_FOR_LOCK = 2.0
"""Time to wait for the lock. Workers of a killed build hold the lock until they notice the kill."""
INCOMPLETE = ".growing"
"""Marker file in the folder of an incomplete dataset."""
PIECES = ".pieces"
"""Name of the log of pieces in the folder of an incomplete dataset."""
TAG = "CACHEDIR.TAG"
TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# Cache of the dataset beside it: see gristmill clean.\n"
"""Content of CACHEDIR.TAG, a file that marks a cache folder for backup programs (bford.info/cachedir)."""
TEMPORARY = ".gristmill-temporary"
"""Lock file in a temporary folder. A run locks its own folder, so that later runs detect abandoned folders."""


class Workspace:
    """The work folder of a dataset. As a context manager, it holds the lock and cleans up at the end."""

    def __init__(self, out: str) -> None:
        self.target = Path(os.path.realpath(out))
        if not self.target.name:
            raise DatasetError(f"{out!r} cannot be a dataset folder. Name a new folder with --out.")
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
        """Path of the log of the incomplete dataset's pieces."""
        return self.dataset / PIECES

    def refuse_sources(self, roots: list[str]) -> None:
        """Raise if the output folder cannot be replaced.

        Also raise if a source is the output folder or the work folder, or is inside one of them.
        """
        require_replaceable(self.target)
        for root in roots:
            for own_folder in (self.target, self.folder):
                if Path(root) == own_folder or own_folder in Path(root).parents:
                    raise InputError(
                        f"the source {root!r} overlaps {str(own_folder)!r}, a folder that the build replaces. "
                        "Move one of them."
                    )

    def __enter__(self) -> Self:
        require_replaceable(self.target)
        self._refuse_foreign_work()
        try:
            with _signals_delayed():
                self.folder.mkdir(parents=True, exist_ok=True)
                self._take_lock()
            self._clear_leftovers()
            self._create_folders()
        except BaseException as error:
            if self._lock is not None:
                self._clean_up()
            if isinstance(error, OSError):
                raise OutputError(f"cannot write beside {str(self.target)!r}: {error.strerror}.") from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clean_up(is_usable=kind is not NothingToBuildError)

    @contextmanager
    def locked(self, *, is_shared: bool) -> Iterator[Self]:
        """Hold the lock during a separate step, without deleting the files of earlier steps."""
        require_replaceable(self.target)
        self._refuse_foreign_work()
        try:
            with _signals_delayed():
                self.folder.mkdir(parents=True, exist_ok=True)
                self._take_lock(is_shared=is_shared)
            with self.exclusive("lay-out"):
                self._complete_exchange()
                self._create_folders()
        except OSError as error:
            raise OutputError(f"cannot write beside {str(self.target)!r}: {error.strerror}.") from None
        try:
            yield self
        finally:
            self._release_lock()

    @contextmanager
    def exclusive(self, name: str) -> Iterator[None]:
        """Wait until no other process holds the named lock of this work folder, then hold it."""
        with (self.folder / f"{name}.lock").open("wb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def _create_folders(self) -> None:
        for folder in (self.prepared, self._scratch, self.dataset):
            folder.mkdir(exist_ok=True)
        (self.folder / ".gitignore").write_text("*\n")
        (self.folder / TAG).write_text(TAG_TEXT)
        (self.dataset / INCOMPLETE).touch()
        if self.target.is_dir():
            shutil.copymode(self.target, self.dataset)

    def _refuse_foreign_work(self) -> None:
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / "lock").is_file():
            raise DatasetError(
                f"{str(self.folder)!r} exists and is not a work folder of gristmill. Choose a different --out."
            )

    def _clean_up(self, *, is_usable: bool = True) -> None:
        """Delete leftovers. Delete the work folder too if the next build can reuse nothing in it."""
        with _signals_delayed():
            with suppress(OSError, OutputError):
                self._clear_leftovers()
                if not (is_usable and self._has_reusable_files()):
                    self._remove()
            self._release_lock()

    def _has_reusable_files(self) -> bool:
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

    def copy_answers(self, other: "Workspace") -> None:
        """Copy the answers of a language model from `other` into this new work folder, to avoid repeated requests."""
        if other.answers.is_dir():
            shutil.copytree(other.answers, self.answers)
            (self.folder / "lock").touch()

    def clean(self) -> int:
        """Delete the work folder. Return the number of bytes freed."""
        self._refuse_foreign_work()
        if not self.folder.is_dir():
            return 0
        with _signals_delayed():
            self._take_lock()
            try:
                self._clear_leftovers()
                num_bytes = _total_size(self.folder)
                self._remove()
            except OSError as error:
                raise OutputError(f"cannot delete {str(self.folder)!r}: {error.strerror}.") from None
            finally:
                self._release_lock()
        return num_bytes

    def prune(self, used: set[str], max_bytes: int) -> None:
        """Delete cached files until the work folder has at most `max_bytes` bytes.

        Fetched sources are deleted only if the work folder is too large even without parts. Parts that are not in
        `used` are deleted before other parts, and old parts before new parts.
        """
        remaining = max_bytes - sum(_total_size(entry) for entry in self.folder.iterdir() if entry != self.prepared)
        if remaining < 0:
            remaining += _total_size(self.fetched)
            shutil.rmtree(self.fetched, ignore_errors=True)
        parts = [(entry.name in used, entry.stat().st_mtime_ns, entry) for entry in self.prepared.iterdir()]
        for _, _, entry in sorted(parts, reverse=True):
            remaining -= entry.stat().st_size
            if remaining < 0:
                entry.unlink()

    def require_space(self, num_bytes: int) -> None:
        """Raise OutputError if fewer than `num_bytes` are free on the disk."""
        num_free_bytes = shutil.disk_usage(self.folder).free
        if num_bytes > num_free_bytes:
            raise OutputError(
                f"the dataset needs {num_bytes / 1e6:,.0f} MB, but only {num_free_bytes / 1e6:,.0f} MB are free "
                f"at {str(self.target.parent)!r}. Free some space, choose a different --out, or use --compress zstd."
            )

    def publish(self) -> None:
        """Move the complete dataset to the output folder. The user's other files in that folder are kept."""
        try:
            _refuse_to_overwrite(foreign_names(self.target) if self.target.exists() else [], self.target, self.dataset)
            sync_tree(self.dataset)
            with suppress(FileNotFoundError):
                os.replace(self.log, self.pieces)
            (self.dataset / INCOMPLETE).unlink()
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
            raise OutputError(f"cannot move the dataset to {str(self.target)!r}: {error.strerror}.") from None

    def clear_scratch(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def upload_address(self) -> str | None:
        """Return the address of an upload that was interrupted, or None."""
        return self._read_upload()[0]

    def start_upload(self, address: str, names: Collection[str]) -> set[str]:
        """Record the start of an upload.

        Return the names of files that an interrupted upload to the same address may have left, except those in `names`.
        """
        earlier = self._read_upload()
        stale = set(earlier[1] if earlier[0] == address else ()) - set(names)
        write_atomically(self._upload, json.dumps([address, sorted({*names, *stale})]).encode())
        return stale

    def _read_upload(self) -> tuple[str | None, list[str]]:
        try:
            address, names = json.loads(read_plain_text(self._upload))
        except (OSError, ValueError, TypeError):
            return None, []
        return address, names

    def end_upload(self) -> None:
        """Delete the local copy of the uploaded dataset."""
        self._discard(self.dataset)
        self.half_pieces.unlink(missing_ok=True)
        self._upload.unlink()

    def store_previous(self, path: Path | None) -> None:
        """Store a copy of the earlier splits that this build uses, so that the build can be repeated."""
        self.previous.unlink(missing_ok=True)
        if path is not None:
            shutil.copyfile(path, self.previous)

    def _retire(self) -> None:
        """Move the user's files from the earlier dataset to the new dataset, then delete the earlier dataset.

        After the exchange, the earlier dataset is in the folder `dataset`.
        """
        foreign = foreign_names(self.dataset)
        _refuse_to_overwrite(foreign, self.dataset, self.target)
        for name in foreign:
            (self.target / name).parent.mkdir(parents=True, exist_ok=True)
            os.rename(self.dataset / name, self.target / name)
        for folder in {(self.target / name).parent for name in foreign}:
            sync_folder(folder)
        self._discard(self.dataset)

    def _discard(self, folder: Path) -> None:
        """Rename a folder to `discarded`, then delete it.

        With its old name, a partly deleted folder could be mistaken for a dataset, because its marker may be gone.
        """
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
        self._complete_exchange()
        if self.dataset.is_dir() and not any(
            log.is_file() and log.stat().st_size for log in (self.log, self.half_pieces)
        ):
            self._discard(self.dataset)

    def _complete_exchange(self) -> None:
        """Complete an exchange of datasets that a kill interrupted.

        After such an exchange, the folder `dataset` contains the earlier dataset and the user's files.
        """
        self._clear_discarded()
        if self._earlier.is_dir():  # killed between two renames
            os.rename(self._earlier, self.dataset if self.target.exists() else self.target)
        if not self.dataset.is_dir() or not any(self.dataset.iterdir()):
            return
        if (self.dataset / INCOMPLETE).exists() or not self.target.exists():
            return
        try:
            self._retire()
        except (OSError, DatasetError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error).rstrip(".")
            raise OutputError(
                f"{str(self.dataset)!r} contains your files from {str(self.target)!r}, which cannot be moved back: "
                f"{reason}. Move these files, then run the command again."
            ) from None

    def _take_lock(self, *, is_shared: bool = False) -> None:
        path = self.folder / "lock"
        kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        for _ in range(10):
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not _try_lock(self._lock, kind):
                self._release_lock()
                raise OutputError(f"another build into {str(self.target)!r} is running. Wait until it has ended.")
            # An earlier build may have deleted the lock file after os.open and before _try_lock.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._lock), os.stat(path)):
                    return
            self._release_lock()
            self.folder.mkdir(parents=True, exist_ok=True)
        raise OutputError(f"cannot lock {str(path)!r}: other builds keep replacing the file. Run the command again.")

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _exchange(self) -> None:
        """Swap the new and the earlier dataset, atomically if the system supports it, otherwise by three renames."""
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
def _signals_delayed() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the block ends.

    The handlers are replaced, because a masked signal may be delivered to another thread.
    """
    kinds = [kind for kind in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(kind) is not None]
    if threading.current_thread() is not threading.main_thread():  # Python runs signal handlers only in the main thread
        kinds = []
    received: list[int] = []
    handlers = {kind: signal.signal(kind, lambda number, _: received.append(number)) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in handlers.items():
            signal.signal(kind, handler)
        for number in received:
            signal.raise_signal(number)


def require_replaceable(target: Path) -> None:
    """Raise if the output folder exists and must not be replaced.

    A folder that is neither empty nor a dataset may contain the user's files. A mount point cannot be renamed.
    """
    if target.is_dir():
        if os.path.ismount(target):
            raise OutputError(f"{str(target)!r} is a mount point and cannot be replaced. Name a folder inside it.")
        if any(target.iterdir()):
            try:
                read_manifest(target)
            except DatasetError as error:
                raise DatasetError(
                    f"{str(error).rstrip('.')}. Name a new folder with --out, or move the existing folder."
                ) from None
    elif os.path.lexists(target):
        raise DatasetError(f"{str(target)!r} exists and is not a folder. Name a new folder with --out.")


def _total_size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())


def _refuse_to_overwrite(names: list[str], where: Path, other: Path) -> None:
    for name in names:
        if os.path.lexists(other / name):
            raise OutputError(
                f"{str(where / name)!r} is not part of the dataset, but has the name of a dataset file. Move it to a "
                "different folder."
            )


def foreign_names(folder: Path) -> list[str]:
    """Return the names of files and folders in a dataset folder that do not belong to the dataset.

    Folders of the dataset are searched. For any other folder, only the name of the folder is listed.
    """
    dataset_names = {MANIFEST, CHECK, *CARDS, INCOMPLETE, PIECES}
    if (folder / REPORT).is_file() and is_report(folder / REPORT):  # the user may have a page with that name
        dataset_names.add(REPORT)
    dataset_names.update(read_manifest(folder).files if any(folder.iterdir()) else ())
    folders = {str(parent) for name in dataset_names for parent in PurePosixPath(name).parents}
    foreign: list[str] = []
    to_search = [folder]
    while to_search:
        for entry in to_search.pop().iterdir():
            name = entry.relative_to(folder).as_posix()
            if entry.is_dir() and not entry.is_symlink() and name in folders:
                to_search.append(entry)
            elif entry.is_dir() or not (name in dataset_names or unfinished_file_name(name) in dataset_names):
                foreign.append(name)
    exports = [folder / name for name in foreign if name.startswith(EXPORT_PREFIX)]
    exported = {name for export in exports for name in partly_exported_names(export, dataset_names)}
    return sorted(name for name in foreign if not (name.startswith(EXPORT_PREFIX) or name in exported))


@contextmanager
def temporary_folder(prefix: str, parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Create a temporary folder and delete it at the end.

    Folders with the same prefix that killed runs have left are deleted first. `parent` defaults to the system's folder
    for temporary files.
    """
    parent = os.fspath(parent or tempfile.gettempdir())
    delete_abandoned_folders(prefix, parent)
    with _signals_delayed():
        folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=prefix, dir=parent)))
        lock = _create_lock(folder)
    try:
        yield folder
    finally:
        with _signals_delayed():
            _delete_temporary(folder)
            os.close(lock)


def delete_abandoned_folders(prefix: str, parent: str | os.PathLike[str]) -> None:
    """Delete this user's temporary folders with this prefix whose runs have ended. Folders without a lock are kept."""
    with suppress(OSError):
        for entry in sorted(Path(parent).iterdir()):
            if entry.name.startswith(prefix):
                _delete_if_abandoned(entry)


def _try_lock(descriptor: int, kind: int) -> bool:
    deadline = time.monotonic() + SECONDS_FOR_LOCK
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)


def _create_lock(folder: Path) -> int:
    """Create and lock the lock file, then give it its final name. So no other process finds an unlocked lock file."""
    unnamed = folder / f"{TEMPORARY}{UNFINISHED}"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.rename(unnamed, folder / TEMPORARY)
    return lock


def _delete_if_abandoned(folder: Path) -> None:
    with suppress(OSError):  # the folder is already deleted, has no lock file, or is locked by a live run
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
    """Delete a temporary folder, the lock file last.

    If another file cannot be deleted, the lock file remains, so that a later run tries again.
    """
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != TEMPORARY:
                entry.unlink(missing_ok=True)
        if [entry.name for entry in folder.iterdir()] == [TEMPORARY]:
            (folder / TEMPORARY).unlink()
            folder.rmdir()
