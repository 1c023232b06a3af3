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


def _require_regular(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise NotPlainError(KINDS.get(kind, "something else"), path)
