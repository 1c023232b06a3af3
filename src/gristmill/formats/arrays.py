"""Files of numbers of one type, written piece by piece and mapped into memory: raw, or as NumPy's .npy."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import DatasetError
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain

NPY_MAGIC = b"\x93NUMPY\x01\x00"
NPY_ALIGNMENT = 64
NPY_MOST_DIGITS = 21
"""NumPy leaves room for so many, so that a longer array's head is no longer."""

COPIED_BYTES = 1 << 20

Head = Callable[[np.dtype[Any], int], bytes]
"""What stands before so many numbers of a type: as long, however many there are."""


def no_head(_kind: np.dtype[Any], _count: int) -> bytes:
    return b""


def npy_head(kind: np.dtype[Any], count: int) -> bytes:
    """As numpy.save writes it for an array of one dimension."""
    descr = np.lib.format.dtype_to_descr(kind)
    told = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({count},), }}"
    told += " " * (NPY_MOST_DIGITS - len(str(count)))
    num_before = len(NPY_MAGIC) + 2
    num_told = -(-(num_before + len(told) + 1) // NPY_ALIGNMENT) * NPY_ALIGNMENT - num_before
    return NPY_MAGIC + num_told.to_bytes(2, "little") + told.ljust(num_told - 1).encode() + b"\n"


class ArrayFile:
    """Takes numbers as bytes, one piece after the other; the head, with their count, is written at the end."""

    def __init__(self, path: Path, kind: npt.DTypeLike, head: Head = npy_head) -> None:
        self._kind, self._head = np.dtype(kind), head
        self._num_bytes = 0
        self._stream = path.open("wb")
        self._stream.write(bytes(len(head(self._kind, 0))))

    def __len__(self) -> int:
        return self._num_bytes // self._kind.itemsize

    def append(self, content: bytes) -> None:
        self._num_bytes += len(content)
        self._stream.write(content)

    def append_file(self, path: Path) -> None:
        """The numbers of another one, which has the same kind and head."""
        before = self._stream.tell()
        with open_plain(path) as other:
            other.seek(len(self._head(self._kind, 0)))
            shutil.copyfileobj(other, self._stream, COPIED_BYTES)
        self._num_bytes += self._stream.tell() - before

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stream:
            if error is None:
                self._stream.seek(0)
                self._stream.write(self._head(self._kind, len(self)))


def write_array(path: Path, numbers: npt.NDArray[Any]) -> None:
    with ArrayFile(path, numbers.dtype) as file:
        file.append(numbers.tobytes())


def map_array(path: Path, kind: npt.DTypeLike, head: Head = npy_head) -> npt.NDArray[Any]:
    """The numbers of a file that ArrayFile has written. The head is not parsed: it is as it must be, or not."""
    kind = np.dtype(kind)
    try:
        size = path.stat().st_size
        with open_plain(path) as stream:
            found = stream.read(len(head(kind, 0)))
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from None
    count, rest = divmod(size - len(found), kind.itemsize)
    if rest:
        raise damaged(path, f"{counted(size, 'byte')}, which is no whole number of {kind.name} values")
    if found != head(kind, count):
        raise damaged(path, f"its head does not tell of {count} {kind.name} values")
    return map_part(path, kind, len(found), count)


def map_part(path: Path, kind: np.dtype[Any], offset: int, count: int) -> npt.NDArray[Any]:
    if not count:  # nothing cannot be mapped
        return np.zeros(0, kind)
    try:
        with open_plain(path) as stream:
            return np.asarray(np.memmap(stream, kind, "r", offset, (count,)))
    except (OSError, ValueError) as error:
        raise damaged(path, str(error)) from None


def damaged(path: Path, what: str) -> DatasetError:
    return DatasetError(f"{os.fspath(path)!r} is damaged: {what}. Build the dataset again.")
