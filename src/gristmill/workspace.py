"""Where a dataset grows: OUT.work, beside OUT, under a lock. It takes its place by rename when it is complete.

OUT.work/lock        held while a build runs; a second build into OUT refuses
OUT.work/prepared/   shards of ids
OUT.work/dataset/    the dataset until it is complete
"""

import ctypes
import errno
import fcntl
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gristmill.errors import DatasetError, OutputError
from gristmill.layout import MANIFEST
from gristmill.manifest import read_manifest

AT_FDCWD = -100
EXCHANGE = 2
"""renameat2's RENAME_EXCHANGE and renamex_np's RENAME_SWAP have the same number."""


class Workspace:
    def __init__(self, out: str) -> None:
        self.target = Path(os.path.realpath(os.path.expanduser(out)))
        self.folder = self.target.with_name(self.target.name + ".work")
        self.prepared = self.folder / "prepared"
        self.dataset = self.folder / "dataset"
        self._lock: int | None = None

    def __enter__(self) -> Self:
        refuse_foreign_folder(self.target)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            # What a killed build left behind.
            for leftover in (self.prepared, self.dataset):
                shutil.rmtree(leftover, ignore_errors=True)
                leftover.mkdir()
        except OSError as error:
            self._release_lock()
            raise OutputError(f"cannot write beside {str(self.target)!r}: {error.strerror}.") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.prepared, ignore_errors=True)
        shutil.rmtree(self.dataset, ignore_errors=True)
        (self.folder / "lock").unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()
        self._release_lock()

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
            if not self.target.exists():
                os.rename(self.dataset, self.target)
                return
            _exchange(self.dataset, self.target)
            ours = dataset_files(self.dataset)
            for entry in self.dataset.iterdir():
                if entry.name not in ours and not (self.target / entry.name).exists():
                    os.rename(entry, self.target / entry.name)
        except OSError as error:
            raise OutputError(f"cannot put the dataset in its place {str(self.target)!r}: {error.strerror}.") from None

    def _take_lock(self) -> None:
        path = self.folder / "lock"
        for _ in range(10):
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._release_lock()
                raise OutputError(f"another build into {str(self.target)!r} is running. Wait for it.") from None
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


def refuse_foreign_folder(target: Path) -> None:
    """An output folder may be new, empty, or a dataset; anything else is somebody's and stays."""
    if target.is_dir():
        if any(target.iterdir()) and not (target / MANIFEST).is_file():
            raise DatasetError(f"{str(target)!r} exists and is not a dataset. Name a new folder with --out.")
    elif os.path.lexists(target):
        raise DatasetError(f"{str(target)!r} exists and is not a folder. Name a new folder with --out.")


def dataset_files(folder: Path) -> set[str]:
    """The names that belong to the dataset in this folder."""
    try:
        return {MANIFEST, *read_manifest(folder).files}
    except DatasetError:
        return {MANIFEST}


def _exchange(new: Path, old: Path) -> None:
    """Both names swap at one moment where the system can do that; else by way of a third name."""
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux" and hasattr(libc, "renameat2"):
        failed = libc.renameat2(AT_FDCWD, os.fsencode(new), AT_FDCWD, os.fsencode(old), EXCHANGE)
    elif sys.platform == "darwin":
        failed = libc.renamex_np(os.fsencode(new), os.fsencode(old), EXCHANGE)
    else:
        failed = -1
    if failed and ctypes.get_errno() not in {0, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if failed:
        aside = new.with_name("earlier")
        os.rename(old, aside)
        os.rename(new, old)
        os.rename(aside, new)
