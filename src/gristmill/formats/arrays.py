"""Files that hold numbers of one dtype, raw or in NumPy's .npy format. Writers append, readers memory-map."""

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
NPY_MAX_SHAPE_DIGITS = 21
"""Number of digits that NumPy reserves for the shape, so that the header length does not depend on the array length."""

COPY_BUFFER_BYTES = 1 << 20

MakeHeader = Callable[[np.dtype[Any], int], bytes]
"""Function that returns the file header for a dtype and a number of values.

The length of the header must not depend on the number of values."""


def no_header(_dtype: np.dtype[Any], _count: int) -> bytes:
    return b""


def npy_header(dtype: np.dtype[Any], count: int) -> bytes:
    """Return the header that numpy.save writes for a one-dimensional array."""
    descr = np.lib.format.dtype_to_descr(dtype)
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({count},), }}"
    header += " " * (NPY_MAX_SHAPE_DIGITS - len(str(count)))
    preamble_bytes = len(NPY_MAGIC) + 2
    header_bytes = -(-(preamble_bytes + len(header) + 1) // NPY_ALIGNMENT) * NPY_ALIGNMENT - preamble_bytes
    return NPY_MAGIC + header_bytes.to_bytes(2, "little") + header.ljust(header_bytes - 1).encode() + b"\n"


class ArrayFile:
    """Writer for a file of numbers. Takes the numbers as bytes. The end of the `with` block writes the header."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, make_header: MakeHeader = npy_header) -> None:
        self._dtype, self._make_header = np.dtype(dtype), make_header
        self._num_bytes = 0
        self._stream = path.open("wb")
        self._stream.write(bytes(len(make_header(self._dtype, 0))))

    def __len__(self) -> int:
        return self._num_bytes // self._dtype.itemsize

    def append(self, content: bytes) -> None:
        self._num_bytes += len(content)
        self._stream.write(content)

    def append_file(self, path: Path) -> None:
        """Append the numbers of another file with the same dtype and kind of header."""
        start = self._stream.tell()
        with open_plain(path) as other:
            other.seek(len(self._make_header(self._dtype, 0)))
            shutil.copyfileobj(other, self._stream, COPY_BUFFER_BYTES)
        self._num_bytes += self._stream.tell() - start

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stream:
            if error is None:
                self._stream.seek(0)
                self._stream.write(self._make_header(self._dtype, len(self)))


def write_array(path: Path, numbers: npt.NDArray[Any]) -> None:
    with ArrayFile(path, numbers.dtype) as file:
        file.append(numbers.tobytes())


def map_array(path: Path, dtype: npt.DTypeLike, make_header: MakeHeader = npy_header) -> npt.NDArray[Any]:
    """Return the numbers in a file that ArrayFile wrote, as a memory map.

    The header is compared with the expected header, not parsed. Raises DatasetError if the file is missing or damaged.
    """
    dtype = np.dtype(dtype)
    try:
        size = path.stat().st_size
        with open_plain(path) as stream:
            header = stream.read(len(make_header(dtype, 0)))
    except OSError as error:
        raise damage_error(path, error.strerror or str(error)) from None
    count, rest = divmod(size - len(header), dtype.itemsize)
    if rest:
        raise damage_error(
            path,
            f"its size is {counted(size, 'byte')}, which is not a whole number of {_unit(dtype)}s after the header",
        )
    if header != make_header(dtype, count):
        raise damage_error(path, f"its header does not describe {counted(count, _unit(dtype))}")
    return map_part(path, dtype, len(header), count)


def _unit(dtype: np.dtype[Any]) -> str:
    return f"{dtype.name} value" if dtype.names is None else f"{dtype.itemsize}-byte record"


def map_part(path: Path, dtype: np.dtype[Any], offset: int, count: int) -> npt.NDArray[Any]:
    """Memory-map `count` values, starting at byte `offset`."""
    if not count:  # an empty range cannot be mapped
        return np.zeros(0, dtype)
    try:
        with open_plain(path) as stream:
            return np.asarray(np.memmap(stream, dtype, "r", offset, (count,)))
    except (OSError, ValueError) as error:
        raise damage_error(path, str(error)) from None


def damage_error(path: Path, fault: str) -> DatasetError:
    return DatasetError(f"{os.fspath(path)!r} is damaged: {fault}. Build the dataset again.")
