"""A dataset for the viewer: rows are read one at a time, from many threads, with little memory.

Rows of uncompressed JSONL are located by their offsets in the index. Until the index exists, only the rows in the first
16 MiB of each file are available. Other formats need no index to locate rows.
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
from gristmill.core.manifest import OpenedBuild, RowsRecord, open_data_file
from gristmill.core.names import counted
from gristmill.core.plain_files import open_descriptor
from gristmill.core.records import Split
from gristmill.dataset.dataset import Dataset, RowFile, Rows
from gristmill.tokenizers.tokenizer import Tokenizer

FRONT_BYTES = 16 << 20
"""Number of bytes at the start of each file in which rows are located without an index."""
EXCERPT_IDS = 120
"""Number of ids decoded for the excerpt of a row in a list."""

Offsets = npt.NDArray[np.uint64]


class NotIndexedError(Exception):
    """The request needs the index, which is not built yet."""


class RowNumbers:
    """Numbers of the rows, counted from 0 across all splits."""

    def __init__(self, record: RowsRecord) -> None:
        counts = [record.splits[split].windows if split in record.splits else 0 for split in Split]
        edges = pairwise(accumulate([0, *counts]))
        self._ranges = {split: range(first, end) for split, (first, end) in zip(Split, edges, strict=True)}
        self.num_rows = sum(counts)

    def range_of(self, split: Split | None) -> range:
        """Return the numbers of the rows of one split, or of all splits if `split` is None."""
        return range(self.num_rows) if split is None else self._ranges[split]

    def number(self, split: Split, row: int) -> int:
        """Return the number of a row, given its split and its index in the split."""
        return self._ranges[split].start + row

    def split_and_row(self, number: int) -> tuple[Split, int]:
        """Return the split of a row, and the index of the row in the split."""
        split, numbers = next(item for item in self._ranges.items() if number in item[1])
        return split, number - numbers.start


class ViewerDataset(Dataset):
    """A dataset that can be read from many threads."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.row_numbers = RowNumbers(self.record)
        self.offsets: Offsets | None = None
        """Offset of every row in its file. None until the index is built, and for formats other than plain JSONL."""
        self._open_lock = threading.Lock()

    @property
    def is_plain(self) -> bool:
        """True if the rows are lines of uncompressed files."""
        names = [name for name, facts in self.record.files.items() if facts.format == "jsonl"]
        return "jsonl" in self.record.formats and not any(name.endswith(".zst") for name in names)

    def __getitem__(self, split: str) -> Rows:
        with self._open_lock:
            return super().__getitem__(split)

    def _files_of(self, split: Split) -> list[RowFile]:
        with self.edition.guard_reading():
            files = super()._files_of(split)
        num_rows = sum(map(len, files))
        if num_rows != len(self.row_numbers.range_of(split)):
            expected = f"{len(self.row_numbers.range_of(split)):,}"
            raise DatasetError(
                f"the manifest is damaged: it records {counted(expected, 'row')} of {split}, but the files of {split} "
                f"have {counted(num_rows, 'row')}. Build the dataset again."
            )
        return files

    def _plain_file(self, split: Split, path: Path, num_rows: int, first: int) -> RowFile:
        number = self.row_numbers.number(split, first)
        return PlainJsonl(path, num_rows, lambda: self._offsets_from(number), self.edition)

    def _offsets_from(self, number: int) -> Offsets | None:
        return None if self.offsets is None else self.offsets[number:]


class PlainJsonl:
    """One uncompressed JSONL file. It is not memory-mapped, so access to a row needs the memory of one row."""

    def __init__(
        self, path: Path, num_rows: int, offsets: "Callable[[], Offsets | None]", edition: OpenedBuild | None = None
    ) -> None:
        self._path, self._num_rows, self._offsets, self._edition = path, num_rows, offsets, edition
        try:
            self._descriptor = open_descriptor(path)
        except OSError as error:
            raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None
        weakref.finalize(self, os.close, self._descriptor)
        self._num_bytes = os.fstat(self._descriptor).st_size
        self._front_offsets = array("Q", [0])
        self._front_lock = threading.Lock()

    def __len__(self) -> int:
        return self._num_rows

    def __iter__(self) -> Iterator[bytes]:
        num_rows = 0
        with open_data_file(self._path, self._edition) as stream:
            for line in stream:
                num_rows += 1
                yield line
        if num_rows != self._num_rows:
            raise DatasetError(
                f"{str(self._path)!r} is damaged: it has {counted(num_rows, 'row')}, but the manifest records "
                f"{self._num_rows:,}. Build the dataset again."
            )

    def __getitem__(self, row: int) -> bytes:
        offsets = self._offsets()
        if offsets is None:
            start, end = self._locate_in_front(row)
        else:
            start, end = int(offsets[row]), int(offsets[row + 1]) if row + 1 < self._num_rows else self._num_bytes
        return os.pread(self._descriptor, max(end - start, 0), start)

    def _locate_in_front(self, row: int) -> tuple[int, int]:
        """Return start and end of a row in the first FRONT_BYTES. Raises NotIndexedError for a later row."""
        with self._front_lock:
            if len(self._front_offsets) == 1:
                content = os.pread(self._descriptor, FRONT_BYTES, 0)
                self._front_offsets.extend((np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n")) + 1).tolist())
        if row + 1 >= len(self._front_offsets):
            if len(self._front_offsets) - 1 < self._num_rows and self._num_bytes > FRONT_BYTES:
                raise NotIndexedError
            raise DatasetError(f"{str(self._path)!r} is damaged: it has no row {row}. Build the dataset again.")
        return self._front_offsets[row], self._front_offsets[row + 1]


def decode_text(ids: Sequence[int] | npt.NDArray[Any], tokenizer: Tokenizer, row_name: str) -> str:
    """Decode ids. A character that is cut by the edge of a window becomes U+FFFD.

    `row_name` is the row of the ids for an error message, like `test:12`.
    """
    try:
        return tokenizer.decode(ids).decode("utf-8", "replace")
    except (LookupError, TypeError, ValueError, OverflowError):
        raise DatasetError(
            f"row {row_name} is damaged: the tokenizer cannot decode its ids. Build the dataset again."
        ) from None
