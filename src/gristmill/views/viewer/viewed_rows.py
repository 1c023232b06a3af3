"""A dataset whose rows are read one at a time, from many threads, in little memory.

Rows of plain JSONL are found by the offsets that the index has; until there is one, only those at the front of each
file are. Other formats know where their rows are.
"""

import os
import threading
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import DatasetError
from gristmill.core.manifest import Edition, RowsRecord, opened
from gristmill.core.names import counted
from gristmill.core.plain_files import open_descriptor
from gristmill.core.records import Split
from gristmill.dataset.dataset import Dataset, RowFile, Rows
from gristmill.tokenizers.tokenizer import Tokenizer

FRONT_BYTES = 16 << 20
"""Of each file: so much is looked through for where rows begin, if the index does not tell yet."""
TEXT_IDS = 120
"""Enough for what a list shows of a row."""

Offsets = npt.NDArray[np.uint64]


class NotIndexedError(Exception):
    """What was asked for takes the index, which is not made yet."""


class Numbering:
    """Rows of all splits, numbered through."""

    def __init__(self, record: RowsRecord) -> None:
        counts = [record.splits[split].windows if split in record.splits else 0 for split in Split]
        edges = pairwise(accumulate([0, *counts]))
        self._ranges = {split: range(first, end) for split, (first, end) in zip(Split, edges, strict=True)}
        self.num_rows = sum(counts)

    def range_of(self, split: Split | None) -> range:
        return range(self.num_rows) if split is None else self._ranges[split]

    def number(self, split: Split, row: int) -> int:
        return self._ranges[split].start + row

    def place(self, number: int) -> tuple[Split, int]:
        split, numbers = next(one for one in self._ranges.items() if number in one[1])
        return split, number - numbers.start


class ViewedDataset(Dataset):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.numbering = Numbering(self.record)
        self.offsets: Offsets | None = None
        """Of every row in its file: the index has them, of plain JSONL."""
        self._opening = threading.Lock()

    @property
    def is_plain(self) -> bool:
        """Its rows are lines of files that are not compressed."""
        names = [name for name, facts in self.record.files.items() if facts.format == "jsonl"]
        return "jsonl" in self.record.formats and not any(name.endswith(".zst") for name in names)

    def __getitem__(self, split: str) -> Rows:
        with self._opening:
            return super().__getitem__(split)

    def _files_of(self, split: Split) -> list[RowFile]:
        with self.edition.reading():
            files = super()._files_of(split)
        num_rows = sum(map(len, files))
        if num_rows != len(self.numbering.range_of(split)):
            raise DatasetError(
                f"the manifest is damaged: {counted(num_rows, 'row')} of {split}. Build the dataset again."
            )
        return files

    def _plain_file(self, split: Split, path: Path, num_rows: int, first: int) -> RowFile:
        number = self.numbering.number(split, first)
        return PlainJsonl(path, num_rows, lambda: self._offsets_from(number), self.edition)

    def _offsets_from(self, number: int) -> Offsets | None:
        return None if self.offsets is None else self.offsets[number:]


class PlainJsonl:
    """One file. By number, a row is one read; nothing is mapped, so that the memory it takes is that of a row."""

    def __init__(
        self, path: Path, num_rows: int, offsets: "Callable[[], Offsets | None]", edition: Edition | None = None
    ) -> None:
        self._path, self._num_rows, self._offsets, self._edition = path, num_rows, offsets, edition
        try:
            self._descriptor = open_descriptor(path)
        except OSError as error:
            raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None
        weakref.finalize(self, os.close, self._descriptor)
        self._num_bytes = os.fstat(self._descriptor).st_size
        self._front = array("Q", [0])
        self._looking = threading.Lock()

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[bytes]:
        num_rows = 0
        with opened(self._path, self._edition) as stream:
            for line in stream:
                num_rows += 1
                yield line
        if num_rows != self._num_rows:
            raise DatasetError(
                f"{str(self._path)!r} is damaged: {counted(num_rows, 'row')}, the manifest says {self._num_rows}."
            )

    def __getitem__(self, row: int) -> bytes:
        offsets = self._offsets()
        if offsets is None:
            start, end = self._found(row)
        else:
            start, end = int(offsets[row]), int(offsets[row + 1]) if row + 1 < self._num_rows else self._num_bytes
        return os.pread(self._descriptor, max(end - start, 0), start)

    def _found(self, row: int) -> tuple[int, int]:
        """At the front of the file."""
        with self._looking:
            if len(self._front) == 1:
                content = os.pread(self._descriptor, FRONT_BYTES, 0)
                self._front.extend((np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + 1).tolist())
        if row + 1 >= len(self._front):
            if len(self._front) - 1 < self._num_rows and self._num_bytes > FRONT_BYTES:
                raise NotIndexedError
            raise DatasetError(f"{str(self._path)!r} is damaged: it has no row {row}. Build the dataset again.")
        return self._front[row], self._front[row + 1]


def text_of(ids: Sequence[int] | npt.NDArray[Any], tokenizer: Tokenizer) -> str:
    """A character that an edge of the window cuts in two reads as a replacement."""
    try:
        return tokenizer.decode(ids).decode("utf-8", "replace")
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise DatasetError(f"a row is damaged: its ids spell nothing ({error!r}). Build the dataset again.") from None
