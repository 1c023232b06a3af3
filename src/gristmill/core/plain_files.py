"""Open files that others may have created: only regular files, and without blocking.

Opening a FIFO blocks until another process opens it for writing, and opening a device may have side effects. So the
type of the file is checked first, the file is opened without blocking, and the type is checked again, because another
process may have replaced the file in between.

Call `require_plain` before passing the path of a file to a library, and `require_plain_files` for a folder.
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
    """The path exists but is not a regular file."""

    def __init__(self, kind: str, path: str | os.PathLike[str]) -> None:
        super().__init__(0, f"it is {kind}, not a regular file", os.fspath(path))

    def __str__(self) -> str:
        return f"{self.filename!r}: {self.strerror}"


def open_plain(path: str | Path) -> BufferedReader:
    """Open a regular file for reading bytes. Raise OSError for anything else, or if no file can have this name."""
    return os.fdopen(open_descriptor(path), "rb")


def read_plain(path: str | Path) -> bytes:
    with open_plain(path) as stream:
        return stream.read()


def read_plain_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Read a regular file as text. Line ends become line feeds, as in `Path.read_text`."""
    with TextIOWrapper(open_plain(path), encoding=encoding) as stream:
        return stream.read()


def require_plain(path: str | Path) -> None:
    """Raise OSError if the path is not a regular file or a link to one."""
    try:
        _require_regular(os.stat(path), path)
    except ValueError:
        raise OSError(0, "no file can have this name", os.fspath(path)) from None


def require_plain_files(folder: str | Path) -> None:
    """Raise OSError if an entry of the folder is neither a folder nor a regular file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                require_plain(entry.path)


def open_descriptor(path: str | os.PathLike[str], *, follow_links: bool = True) -> int:
    """Open a regular file and return its descriptor. Without `follow_links`, a link raises OSError (ELOOP)."""
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


class FolderReader:
    """Reader of regular files. It keeps the last folder open, so that the folder's path is checked only once."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Read a regular file. Return None if the caller must read the file in a slower and safer way.

        None means that the path contains a link, that the file is larger than `max_bytes` or changed while it was read,
        or that an error occurred. This method makes half as many system calls as `open_descriptor` followed by a
        check of the opened file.
        """
        folder, _, name = path.rpartition("/")
        try:
            folder_descriptor = self._folder_descriptor(folder or "/")
            if folder_descriptor is None:
                return None
            before = os.stat(name, dir_fd=folder_descriptor, follow_symlinks=False)
            if not stat.S_ISREG(before.st_mode) or before.st_size > max_bytes:
                return None
            descriptor = os.open(name, FLAGS | os.O_NOFOLLOW, dir_fd=folder_descriptor)
            try:
                content = os.read(descriptor, before.st_size + 1)
                after = os.fstat(descriptor)
            finally:
                os.close(descriptor)
        except (OSError, ValueError):
            return None
        is_same = os.path.samestat(before, after) and before.st_mtime_ns == after.st_mtime_ns
        return content if is_same and len(content) == before.st_size == after.st_size else None

    def _folder_descriptor(self, path: str) -> int | None:
        """Return the folder's descriptor, or None if its path contains a link or the system cannot resolve it."""
        if path != self._path:
            self._close()
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            if descriptor_path(descriptor) == path:
                self._descriptor = descriptor
            else:
                os.close(descriptor)
            self._path = path
        return self._descriptor

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._path = self._descriptor = None


def descriptor_path(descriptor: int) -> str | None:
    """Return the path of an open file with all links resolved, or None if the system does not provide it."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # there is no /proc
        return None


def _require_regular(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise NotPlainError(KINDS.get(kind, "something else"), path)
