"""The one way to open a file that somebody else may have put there: it waits for nothing and takes only regular files.

A FIFO in the place of a file blocks the process that opens it until another writes to it; opening a device may have
side effects. So the kind is looked at before, the file is opened without waiting, and the kind is looked at again,
as another process may have exchanged the file meanwhile.

Libraries that only take a path are given one after `require_plain`, or a folder after `require_plain_files`.
"""

import os
import stat
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Self

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


class NotPlainError(OSError):
    """The path is there, and not a regular file."""

    def __init__(self, kind: str, path: str | os.PathLike[str]) -> None:
        super().__init__(0, f"it is {kind}, not an ordinary file", os.fspath(path))

    def __str__(self) -> str:
        return f"{self.strerror}: {self.filename!r}"


def open_plain(path: str | Path) -> BufferedReader:
    """Open a regular file for reading bytes; raise OSError for anything else, also for a name that no file can have."""
    return os.fdopen(open_descriptor(path), "rb")


def read_plain(path: str | Path) -> bytes:
    with open_plain(path) as stream:
        return stream.read()


def read_plain_text(path: str | Path, encoding: str = "utf-8") -> str:
    """The text, with one line feed for every end of a line, as `Path.read_text` gives it."""
    with TextIOWrapper(open_plain(path), encoding=encoding) as stream:
        return stream.read()


def require_plain(path: str | Path) -> None:
    """Raise OSError if the path leads to anything but a regular file."""
    try:
        _require_regular(os.stat(path), path)
    except ValueError:
        raise OSError(0, "no file can have this name", os.fspath(path)) from None


def require_plain_files(folder: str | Path) -> None:
    """Raise OSError if the folder has an entry that is neither a folder nor a regular file: a library may open any."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                require_plain(entry.path)


def open_descriptor(path: str | os.PathLike[str], *, follow_links: bool = True) -> int:
    """The same as a descriptor, to be closed. Without `follow_links`, a link raises OSError with ELOOP."""
    try:
        status = os.stat(path, follow_symlinks=follow_links)
    except ValueError:
        raise OSError(0, "no file can have this name", os.fspath(path)) from None
    if not stat.S_ISLNK(status.st_mode):
        _require_regular(status, path)
    descriptor = os.open(path, FLAGS if follow_links else FLAGS | os.O_NOFOLLOW)
    try:
        _require_regular(os.fstat(descriptor), path)
        os.set_blocking(descriptor, True)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class PlainFolder:
    """The folder of the file that was read last: for files side by side, the way to it is followed and checked once."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """A regular file, not by way of any link; None where anything is out of the ordinary, also a file that changes.

        It takes half of the system calls that `open_descriptor` and a look at what was opened take.
        """
        folder, _, name = path.rpartition("/")
        try:
            in_folder = self._at(folder or "/")
            if in_folder is None:
                return None
            before = os.stat(name, dir_fd=in_folder, follow_symlinks=False)
            if not stat.S_ISREG(before.st_mode) or before.st_size > max_bytes:
                return None
            descriptor = os.open(name, FLAGS | os.O_NOFOLLOW, dir_fd=in_folder)
            try:
                content = os.read(descriptor, before.st_size + 1)
                after = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        except (OSError, ValueError):
            return None
        is_same = os.path.samestat(before, after) and before.st_mtime_ns == after.st_mtime_ns
        return content if is_same and len(content) == before.st_size == after.st_size else None

    def _at(self, path: str) -> int | None:
        """Its descriptor; None if the path leads through a link, or if the system does not say where it leads."""
        if path != self._path:
            self._close()
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            if name_of(descriptor) == path:
                self._descriptor = descriptor
            else:
                os.close(descriptor)
            self._path = path
        return self._descriptor

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._path = self._descriptor = None


def name_of(descriptor: int) -> str | None:
    """The path of what is open, without links; None where the system does not say."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # no such file system here
        return None


def _require_regular(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise NotPlainError(KINDS.get(kind, "something else"), path)
