"""The index of the rows: what each of their windows shows, as numbers in arrays, and where each row begins in its file.

Rows of all splits are numbered through. A row that several files share has several windows; most have one.
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
from gristmill.views.viewer.file_index import FileTable, key_of
from gristmill.views.viewer.viewed_rows import Offsets, ViewedDataset

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
"""Of each window: 34 bytes."""
OFFSET = np.dtype(np.uint64)
KINDS = ("", *VariantKind)
"""By their code; the first is the file itself."""
FORMS = ("", *FimForm)
"""Forms of fill in the middle, by their code."""
ROWS_AT_ONCE = 256
"""So little that a request hardly waits for its turn."""

Numbers = npt.NDArray[np.uint32]
Tick = Callable[[int], None]
"""So many more rows are read; raises where nobody waits for it any more."""


def write_windows(dataset: ViewedDataset, files: FileTable | None, folder: Path, tick: Tick) -> None:
    """Reads every row once. Without a record of files nothing is known of windows, and only offsets are written."""
    with ExitStack() as stack:
        columns = {name: stack.enter_context(ArrayFile(folder / f"{name}.npy", kind)) for name, kind in COLUMNS.items()}
        offsets = stack.enter_context(ArrayFile(folder / "offset.npy", OFFSET))
        is_packed = dataset.record.packing is not None
        for split in Split:
            sizes: list[int] = []
            starts = _Starts(dataset, split)
            lines = _noting(dataset[split].lines(), sizes)
            rows = read_windows(dataset, split, lines) if files else (RowWindows(0, []) for _ in lines)
            first = dataset.numbering.range_of(split).start
            for block in _blocks(rows):
                if dataset.is_plain:
                    offsets.append(starts.of(sizes).tobytes())
                sizes.clear()
                if files:
                    _write_block(block, first, files, columns, split, is_packed=is_packed)
                first += len(block)
                tick(len(block))


def _noting(lines: Iterable[bytes], sizes: list[int]) -> Iterator[bytes]:
    for line in lines:
        sizes.append(len(line))
        yield line


def _blocks(rows: Iterable[RowWindows]) -> Iterator[list[RowWindows]]:
    block: list[RowWindows] = []
    for row in rows:
        block.append(row)
        if len(block) == ROWS_AT_ONCE:
            yield block
            block = []
    if block:
        yield block


class _Starts:
    """Where rows begin, each in its file."""

    def __init__(self, dataset: ViewedDataset, split: Split) -> None:
        facts = (one for one in dataset.record.files.values() if one.format == "jsonl" and one.split == split)
        self._counts = [one.rows or 0 for one in facts]
        self._num_done, self._at = 0, 0

    def of(self, sizes: list[int]) -> Offsets:
        """Of the next rows, that have these sizes."""
        found = []
        for size in sizes:
            while self._counts and self._num_done == self._counts[0]:
                self._counts.pop(0)
                self._num_done = self._at = 0
            found.append(self._at)
            self._num_done += 1
            self._at += size
        return np.array(found, OFFSET)


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
    numbers = files.numbers_of(_keys(window for _, window, _ in entries))
    values = [
        (
            row,
            _file(number, window, split),
            window.start,
            window.fresh,
            *window.lines,
            window.repeat,
            num_ids,
            _code(window.variant, KINDS, "kind of variants"),
            _code(window.fim, FORMS, "form of fill in the middle"),
        )
        for (row, window, num_ids), number in zip(entries, numbers, strict=True)
    ]
    try:
        table = np.array(values, np.int64)
    except OverflowError:
        table = np.full((1, len(COLUMNS)), -1)
    if table.min() < 0 or table.max() > np.iinfo(np.uint32).max:
        raise DatasetError(f"rows of {split} are damaged: a number that no window has. `gristmill check` tells more.")
    for (name, kind), column in zip(COLUMNS.items(), table.T, strict=True):
        columns[name].append(column.astype(kind).tobytes())


def _keys(windows: Iterable[Window]) -> list[int]:
    """Windows of one file follow each other, so that most keys are those of the window before."""
    keys: list[int] = []
    last: tuple[str, str] | None = None
    for window in windows:
        name = (window.repo, window.path)
        keys.append(keys[-1] if name == last else key_of(*name))
        last = name
    return keys


def _file(number: int | None, window: Window, split: Split) -> int:
    if number is None:
        raise DatasetError(
            f"a row of {split} is of {window.repo}/{window.path}, which is not in {FILES}. "
            "`gristmill check` tells more."
        )
    return number


def _code(word: str, known: tuple[str, ...], what: str) -> int:
    try:
        return known.index(word)
    except ValueError:
        raise DatasetError(
            f"a row is damaged: there is no {what} {word!r}. Run `gristmill check` for details."
        ) from None


class WindowTable:
    """What `write_windows` has written, mapped."""

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

    def of_row(self, row: int) -> range:
        """The windows of a row, by number."""
        first, end = np.searchsorted(self.row, np.array([row, row + 1], np.uint32))
        return range(int(first), int(end))
