"""Index of files.jsonl: arrays of codes for some columns, the offset of each line, and all file names.

The number of a file is the index of its line, from 0. Names are in lower case, separated by a byte that never occurs in
UTF-8, so that one search through all names finds the files whose name contains a text.
"""

import fnmatch
import hashlib
import mmap
import re
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.errors import DatasetError
from gristmill.core.files_table import FileRow, read_file_lines
from gristmill.core.manifest import OpenedBuild, guard_reading
from gristmill.core.plain_files import open_plain, read_plain
from gristmill.formats.arrays import map_array, write_array

CODED_COLUMNS = ("language", "license", "reason")
NAMES, VALUES = "names.bin", "words.json"
SEPARATOR = b"\xff"
NAMES_PER_BATCH = 4096
MAX_NAME_BYTES = 8192
"""Maximum size of an indexed name, twice the limit of Linux for paths. Only the end of a longer name is indexed,
because the time to match a glob is quadratic in the size."""
KEPT, DROPPED = 0, 1

Mask = npt.NDArray[np.bool_]
Advance = Callable[[int], None]
"""Callback that gets the number of bytes read since its last call. It raises an exception to stop the indexing."""


def file_key(repo: str, path: str) -> int:
    """Return a 64-bit hash of a file name.

    One in 30 million datasets with a million files has a collision, which is reported as an error.
    """
    return int.from_bytes(hashlib.blake2b(f"{repo}\0{path}".encode(), digest_size=8).digest(), "little")


class _Codes(dict[str | None, int]):
    """Codes for values, assigned in order of first occurrence. None has the code 0."""

    def __init__(self) -> None:
        super().__init__({None: 0})

    def __missing__(self, value: str | None) -> int:
        return self.setdefault(value, len(self))


def write_file_index(table: Path, folder: Path, advance: Advance) -> None:
    """Read a files.jsonl once, as a stream, and write its index."""
    codes = {name: _Codes() for name in CODED_COLUMNS}
    columns = {name: array("I") for name in (*CODED_COLUMNS, "status")}
    line_offsets, name_offsets, keys = array("Q", [0]), array("Q", [0]), array("Q")
    with (folder / NAMES).open("wb") as names:
        for line, row in read_file_lines(table):
            for name in CODED_COLUMNS:
                columns[name].append(codes[name][getattr(row, name)])
            columns["status"].append(KEPT if row.status == "kept" else DROPPED)
            keys.append(file_key(row.repo, row.path))
            names.write(row.name.lower().encode()[-MAX_NAME_BYTES:] + SEPARATOR)
            name_offsets.append(names.tell())
            line_offsets.append(line_offsets[-1] + len(line))
            advance(len(line))
    for name, numbers in (*columns.items(), ("place", line_offsets), ("name", name_offsets)):
        write_array(folder / f"{name}.npy", np.array(numbers))
    _write_keys(np.array(keys, np.uint64), table, folder)
    values = {name: [value for value in codes[name] if value is not None] for name in CODED_COLUMNS}
    (folder / VALUES).write_bytes(msgspec.json.encode(values))


def _write_keys(keys: npt.NDArray[np.uint64], table: Path, folder: Path) -> None:
    order = np.argsort(keys, kind="stable")
    repeated = np.flatnonzero(np.diff(keys[order]) == 0)
    if len(repeated):
        first, second = (order[repeated[0] : repeated[0] + 2] + 1).tolist()
        raise DatasetError(
            f"{str(table)!r} is damaged: lines {first:,} and {second:,} list the same file. Build the dataset again."
        )
    write_array(folder / "key.npy", keys[order])
    write_array(folder / "keyed.npy", order.astype(np.uint32))


class FileTable:
    """The memory-mapped index of files.jsonl."""

    def __init__(self, folder: Path, table: Path, edition: OpenedBuild | None = None) -> None:
        self._table, self._edition = table, edition
        self._codes = {name: map_array(folder / f"{name}.npy", np.uint32) for name in (*CODED_COLUMNS, "status")}
        self._line_offsets, self._name_offsets = (
            map_array(folder / f"{name}.npy", np.uint64) for name in ("place", "name")
        )
        self._keys, self._numbers = map_array(folder / "key.npy", np.uint64), map_array(folder / "keyed.npy", np.uint32)
        self._values: dict[str, list[str]] = msgspec.json.decode(read_plain(folder / VALUES), type=dict[str, list[str]])
        with open_plain(folder / NAMES) as names:
            self._names = mmap.mmap(names.fileno(), 0, access=mmap.ACCESS_READ) if len(self) else b""

    def __len__(self) -> int:
        return len(self._keys)

    def row(self, number: int) -> FileRow:
        """Read one line of files.jsonl."""
        start, end = self._line_offsets[number : number + 2].tolist()
        try:
            with guard_reading(self._edition), open_plain(self._table) as stream:
                stream.seek(start)
                return msgspec.json.decode(stream.read(end - start), type=FileRow)
        except OSError as error:
            raise DatasetError(f"cannot read {str(self._table)!r}: {error.strerror}.") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DatasetError(
                f"line {number + 1:,} of {str(self._table)!r} is damaged: {error}. Build the dataset again."
            ) from None

    def find(self, repo: str, path: str) -> int | None:
        """Return the number of a file, or None if files.jsonl does not list the file."""
        (number,) = self.find_keys([file_key(repo, path)])
        return None if number is None or self.row(number).key != (repo, path) else number

    def find_keys(self, keys: Sequence[int]) -> list[int | None]:
        """Return the file number for each key, or None for a key without a file."""
        wanted = np.array(keys, np.uint64)
        positions = np.minimum(np.searchsorted(self._keys, wanted), max(len(self) - 1, 0))
        if not len(self):
            return [None] * len(keys)
        is_found = self._keys[positions] == wanted
        return [
            number if found else None for number, found in zip(self._numbers[positions].tolist(), is_found, strict=True)
        ]

    def license_of(self, repo: str, path: str) -> str | None:
        (number,) = self.find_keys([file_key(repo, path)])
        code = 0 if number is None else int(self._codes["license"][number])
        return self._values["license"][code - 1] if code else None

    def with_value(self, column: str, value: str) -> Mask:
        """Return a mask of the files with this language, license or drop reason."""
        values = self._values[column]
        mask: Mask = self._codes[column] == (values.index(value) + 1 if value in values else len(values) + 1)
        return mask

    def with_status(self, status: str) -> Mask:
        mask: Mask = self._codes["status"] == (KEPT if status == "kept" else DROPPED)
        return mask

    def with_name(self, path: str) -> Mask:
        """Return a mask of the files whose name REPO/PATH matches `path`, ignoring case.

        If `path` contains `*` or `?`, it is a glob that must match the complete name or everything after a slash.
        Any other `path` must occur in the name.
        """
        return (
            self._mask_matching(path.lower())
            if set(path) & {"*", "?"}
            else self._mask_containing(path.lower().encode())
        )

    def _mask_containing(self, part: bytes) -> Mask:
        hits = array("Q")
        at = self._names.find(part)
        while at >= 0:
            hits.append(at)
            end = self._names.find(SEPARATOR, at)
            at = self._names.find(part, end + 1)
        mask = np.zeros(len(self), np.bool_)
        mask[np.searchsorted(self._name_offsets, np.array(hits, np.uint64), "right") - 1] = True
        return mask

    def _mask_matching(self, glob: str) -> Mask:
        optional_folders = "" if glob.startswith("*") else "(?s:.*/)?"
        pattern = re.compile(optional_folders + fnmatch.translate(glob.replace("[", "[[]")))
        mask = np.zeros(len(self), np.bool_)
        for first in range(0, len(self), NAMES_PER_BATCH):
            start, *_, end = self._name_offsets[first : first + NAMES_PER_BATCH + 1].tolist()
            names = self._names[start : end - 1].split(SEPARATOR)
            mask[first : first + len(names)] = [
                pattern.match(name.decode("utf-8", "replace")) is not None for name in names
            ]
        return mask
