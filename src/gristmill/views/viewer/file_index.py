r"""The index of files.jsonl: codes per file in arrays, where its line is, and all names in one text.

Files go by their number, which is that of their line. Names are lower-case, with a byte between them that is in no
UTF-8, so that one search through all of them finds those with a word in them.
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
from gristmill.core.files_table import FileRow, file_lines
from gristmill.core.manifest import Edition, reading
from gristmill.core.plain_files import open_plain, read_plain
from gristmill.formats.arrays import map_array, write_array

CODES = ("language", "license", "reason")
NAMES, WORDS = "names.bin", "words.json"
BETWEEN = b"\xff"
NAMES_AT_ONCE = 4096
LONGEST_NAME = 8192
"""Bytes at its end, by which a file is found: twice what a system takes. A glob takes the square of it."""
KEPT, DROPPED = 0, 1

Mask = npt.NDArray[np.bool_]
Tick = Callable[[int], None]
"""So many more bytes are read; raises where nobody waits for it any more."""


def key_of(repo: str, path: str) -> int:
    """64 bits: with a million files, two have the same in one of thirty million datasets, and that is noticed."""
    return int.from_bytes(hashlib.blake2b(f"{repo}\0{path}".encode(), digest_size=8).digest(), "little")


class _Codes(dict[str | None, int]):
    """Words -> numbers in the order in which they come; 0 is no word."""

    def __init__(self) -> None:
        super().__init__({None: 0})

    def __missing__(self, word: str | None) -> int:
        return self.setdefault(word, len(self))


def write_files(table: Path, folder: Path, tick: Tick) -> None:
    """Reads files.jsonl once, in a stream."""
    codes = {name: _Codes() for name in CODES}
    numbers = {name: array("I") for name in (*CODES, "status")}
    places, starts, keys = array("Q", [0]), array("Q", [0]), array("Q")
    with (folder / NAMES).open("wb") as names:
        for line, row in file_lines(table):
            for name in CODES:
                numbers[name].append(codes[name][getattr(row, name)])
            numbers["status"].append(KEPT if row.status == "kept" else DROPPED)
            keys.append(key_of(row.repo, row.path))
            names.write(row.name.lower().encode()[-LONGEST_NAME:] + BETWEEN)
            starts.append(names.tell())
            places.append(places[-1] + len(line))
            tick(len(line))
    for name, values in (*numbers.items(), ("place", places), ("name", starts)):
        write_array(folder / f"{name}.npy", np.array(values))
    _write_keys(np.array(keys, np.uint64), table, folder)
    words = {name: [word for word in codes[name] if word is not None] for name in CODES}
    (folder / WORDS).write_bytes(msgspec.json.encode(words))


def _write_keys(keys: npt.NDArray[np.uint64], table: Path, folder: Path) -> None:
    order = np.argsort(keys, kind="stable")
    if (np.diff(keys[order]) == 0).any():
        raise DatasetError(f"{str(table)!r} is damaged: it names a file twice. Build the dataset again.")
    write_array(folder / "key.npy", keys[order])
    write_array(folder / "keyed.npy", order.astype(np.uint32))


class FileTable:
    """What `write_files` has written, mapped."""

    def __init__(self, folder: Path, table: Path, edition: Edition | None = None) -> None:
        self._table, self._edition = table, edition
        self._codes = {name: map_array(folder / f"{name}.npy", np.uint32) for name in (*CODES, "status")}
        self._places, self._starts = (map_array(folder / f"{name}.npy", np.uint64) for name in ("place", "name"))
        self._keys, self._keyed = map_array(folder / "key.npy", np.uint64), map_array(folder / "keyed.npy", np.uint32)
        self._words: dict[str, list[str]] = msgspec.json.decode(read_plain(folder / WORDS), type=dict[str, list[str]])
        with open_plain(folder / NAMES) as names:
            self._names = mmap.mmap(names.fileno(), 0, access=mmap.ACCESS_READ) if len(self) else b""

    def __len__(self) -> int:
        return len(self._keys)

    def row(self, number: int) -> FileRow:
        start, end = self._places[number : number + 2].tolist()
        try:
            with reading(self._edition), open_plain(self._table) as stream:
                stream.seek(start)
                return msgspec.json.decode(stream.read(end - start), type=FileRow)
        except OSError as error:
            raise DatasetError(f"cannot read {str(self._table)!r}: {error.strerror}.") from None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DatasetError(f"{str(self._table)!r} is damaged: {error}. Build the dataset again.") from None

    def number_of(self, repo: str, path: str) -> int | None:
        (number,) = self.numbers_of([key_of(repo, path)])
        return None if number is None or self.row(number).key != (repo, path) else number

    def numbers_of(self, keys: Sequence[int]) -> list[int | None]:
        """None for those that are of no file."""
        wanted = np.array(keys, np.uint64)
        at = np.minimum(np.searchsorted(self._keys, wanted), max(len(self) - 1, 0))
        if not len(self):
            return [None] * len(keys)
        is_there = self._keys[at] == wanted
        return [number if found else None for number, found in zip(self._keyed[at].tolist(), is_there, strict=True)]

    def license_of(self, repo: str, path: str) -> str | None:
        (number,) = self.numbers_of([key_of(repo, path)])
        code = 0 if number is None else int(self._codes["license"][number])
        return self._words["license"][code - 1] if code else None

    def having(self, name: str, word: str) -> Mask:
        """Which files have this language, licence or drop reason."""
        words = self._words[name]
        mask: Mask = self._codes[name] == (words.index(word) + 1 if word in words else len(words) + 1)
        return mask

    def with_status(self, status: str) -> Mask:
        mask: Mask = self._codes["status"] == (KEPT if status == "kept" else DROPPED)
        return mask

    def named(self, path: str) -> Mask:
        """By a part of repo/path; with `*` or `?` in it by a glob, for all of that or what follows a slash of it."""
        return self._like(path.lower()) if set(path) & {"*", "?"} else self._with_part(path.lower().encode())

    def _with_part(self, part: bytes) -> Mask:
        hits = array("Q")
        at = self._names.find(part)
        while at >= 0:
            hits.append(at)
            end = self._names.find(BETWEEN, at)
            at = self._names.find(part, end + 1)
        mask = np.zeros(len(self), np.bool_)
        mask[np.searchsorted(self._starts, np.array(hits, np.uint64), "right") - 1] = True
        return mask

    def _like(self, glob: str) -> Mask:
        behind = "" if glob.startswith("*") else "(?s:.*/)?"
        pattern = re.compile(behind + fnmatch.translate(glob.replace("[", "[[]")))
        mask = np.zeros(len(self), np.bool_)
        for first in range(0, len(self), NAMES_AT_ONCE):
            start, *_, end = self._starts[first : first + NAMES_AT_ONCE + 1].tolist()
            names = self._names[start : end - 1].split(BETWEEN)
            mask[first : first + len(names)] = [
                pattern.match(name.decode("utf-8", "replace")) is not None for name in names
            ]
        return mask
