"""Index of the rows: arrays with the facts of each window, and the offset of each row in its file.

Rows are numbered from 0 across all splits. A row has one window, or several windows if it is packed.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import DatasetError
from gristmill.core.layout import FILES
from gristmill.core.records import FimForm, Split, VariantKind
from gristmill.dataset.row_windows import RowWindows, Window, read_windows
from gristmill.formats.arrays import ArrayFile, map_array
from gristmill.views.viewer.file_index import FileTable, file_key
from gristmill.views.viewer.viewer_dataset import Offsets, ViewerDataset

COLUMNS: dict[str, np.dtype[Any]] = {
    "row": np.dtype(np.uint32),
    "file": np.dtype(np.uint32),
    "start": np.dtype(np.uint32),
    "fresh": np.dtype(np.uint32),
    "first_line": np.dtype(np.uint32),
    "last_line": np.dtype(np.uint32),
    "repeat": np.dtype(np.uint32),
    "num_ids": np.dtype(np.uint32),
    "variant": np.dtype(np.uint8),
    "form": np.dtype(np.uint8),
}
"""Columns of the window table, 34 bytes per window."""
OFFSET = np.dtype(np.uint64)
VARIANT_KINDS = ("", *VariantKind)
"""Variant kinds, indexed by code. Code 0 is a window of the original file."""
FIM_FORMS = ("", *FimForm)
"""Fill-in-the-middle forms, indexed by code. Code 0 is a window without fill-in-the-middle."""
ROWS_PER_BLOCK = 256
"""Number of rows written at once, so small that a request waits only briefly for a block to finish."""

Numbers = npt.NDArray[np.uint32]
Advance = Callable[[int], None]
"""Callback that gets the number of rows read since its last call. It raises an exception to stop the indexing."""


def write_window_index(dataset: ViewerDataset, files: FileTable | None, folder: Path, advance: Advance) -> None:
    """Read every row once and write the index of windows and offsets.

    Without a file table, no windows are written. Offsets are only written for uncompressed JSONL.
    """
    with ExitStack() as stack:
        columns = {name: stack.enter_context(ArrayFile(folder / f"{name}.npy", kind)) for name, kind in COLUMNS.items()}
        offsets = stack.enter_context(ArrayFile(folder / "offset.npy", OFFSET))
        is_packed = dataset.record.packing is not None
        for split in Split:
            sizes: list[int] = []
            row_offsets = _RowOffsets(dataset, split)
            lines = _record_sizes(dataset[split].lines(), sizes)
            rows = read_windows(dataset, split, lines) if files else (RowWindows(0, []) for _ in lines)
            first = dataset.row_numbers.range_of(split).start
            for block in _blocks(rows):
                if dataset.is_plain:
                    offsets.append(row_offsets.next_rows(sizes).tobytes())
                sizes.clear()
                if files:
                    _write_block(block, first, files, columns, split, is_packed=is_packed)
                first += len(block)
                advance(len(block))


def _record_sizes(lines: Iterable[bytes], sizes: list[int]) -> Iterator[bytes]:
    for line in lines:
        sizes.append(len(line))
        yield line


def _blocks(rows: Iterable[RowWindows]) -> Iterator[list[RowWindows]]:
    block: list[RowWindows] = []
    for row in rows:
        block.append(row)
        if len(block) == ROWS_PER_BLOCK:
            yield block
            block = []
    if block:
        yield block


class _RowOffsets:
    """Computes the offset of each row in its file from the sizes of consecutive rows of a split."""

    def __init__(self, dataset: ViewerDataset, split: Split) -> None:
        facts = (one for one in dataset.record.files.values() if one.format == "jsonl" and one.split == split)
        self._rows_per_file = [one.rows or 0 for one in facts]
        self._num_done, self._offset = 0, 0

    def next_rows(self, sizes: list[int]) -> Offsets:
        """Return the offsets of the next rows, given their sizes in bytes."""
        offsets = []
        for size in sizes:
            while self._rows_per_file and self._num_done == self._rows_per_file[0]:
                self._rows_per_file.pop(0)
                self._num_done = self._offset = 0
            offsets.append(self._offset)
            self._num_done += 1
            self._offset += size
        return np.array(offsets, OFFSET)


def _write_block(
    block: list[RowWindows],
    first: int,
    files: FileTable,
    columns: dict[str, ArrayFile],
    split: Split,
    *,
    is_packed: bool,
) -> None:
    entries = [
        (first + number, window, window.length if is_packed else row.num_ids)
        for number, row in enumerate(block)
        for window in row.windows
    ]
    if not entries:
        return
    numbers = files.find_keys(_keys(window for _, window, _ in entries))
    values = [
        (
            row,
            _require_file(number, window, split),
            window.start,
            window.fresh,
            *window.lines,
            window.repeat,
            num_ids,
            _code(window.variant, VARIANT_KINDS, "variant kind", split),
            _code(window.fim, FIM_FORMS, "fill-in-the-middle form", split),
        )
        for (row, window, num_ids), number in zip(entries, numbers, strict=True)
    ]
    try:
        table = np.array(values, np.int64)
    except OverflowError:
        table = np.full((1, len(COLUMNS)), -1)
    if table.min() < 0 or table.max() > np.iinfo(np.uint32).max:
        raise DatasetError(
            f"rows of {split} are damaged: a number is out of range. Run gristmill check DIR for details."
        )
    for (name, kind), column in zip(COLUMNS.items(), table.T, strict=True):
        columns[name].append(column.astype(kind).tobytes())


def _keys(windows: Iterable[Window]) -> list[int]:
    """Return the file key of each window. For consecutive windows of one file, the name is hashed only once."""
    keys: list[int] = []
    last: tuple[str, str] | None = None
    for window in windows:
        name = (window.repo, window.path)
        keys.append(keys[-1] if name == last else file_key(*name))
        last = name
    return keys


def _require_file(number: int | None, window: Window, split: Split) -> int:
    if number is None:
        raise DatasetError(
            f"a row of {split} has a window of {window.repo}/{window.path}, but {FILES} does not list this file. "
            "Run gristmill check DIR for details."
        )
    return number


def _code(value: str, known_values: tuple[str, ...], noun: str, split: Split) -> int:
    try:
        return known_values.index(value)
    except ValueError:
        raise DatasetError(
            f"a row of {split} is damaged: unknown {noun} {value!r}. Run gristmill check DIR for details."
        ) from None


class WindowTable:
    """The memory-mapped index of windows and row offsets."""

    def __init__(self, folder: Path) -> None:
        columns = {name: map_array(folder / f"{name}.npy", kind) for name, kind in COLUMNS.items()}
        self.row: Numbers = columns["row"]
        self.file: Numbers = columns["file"]
        self.start: Numbers = columns["start"]
        self.fresh: Numbers = columns["fresh"]
        self.first_line: Numbers = columns["first_line"]
        self.last_line: Numbers = columns["last_line"]
        self.repeat: Numbers = columns["repeat"]
        self.num_ids: Numbers = columns["num_ids"]
        self.variant: npt.NDArray[np.uint8] = columns["variant"]
        self.form: npt.NDArray[np.uint8] = columns["form"]
        self.offset: Offsets = map_array(folder / "offset.npy", OFFSET)

    def __len__(self) -> int:
        return len(self.row)

    def windows_of_row(self, row: int) -> range:
        """Return the indexes of the windows of a row in this table, given the number of the row."""
        first, end = np.searchsorted(self.row, np.array([row, row + 1], np.uint32))
        return range(int(first), int(end))
