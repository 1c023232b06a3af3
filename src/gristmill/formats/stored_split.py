"""The rows of a split in any format, as the JSON rows they are in JSONL: in order, or by number."""

from collections.abc import Iterator
from pathlib import Path

from gristmill.errors import DatasetError
from gristmill.formats.batch import Schema, WindowBatch
from gristmill.formats.format import SplitReader
from gristmill.formats.json_rows import lines_of
from gristmill.formats.registry import folder_of, format_named
from gristmill.records import Split

ROWS_AT_ONCE = 256


class StoredSplit:
    """By number, some rows around one that is asked for are read too and kept: the next is often beside it."""

    def __init__(self, dataset: Path, name: str, split: Split, schema: Schema, num_rows: int) -> None:
        self.path = folder_of(dataset, name) / split
        self._from = (dataset, name, split, schema, num_rows)
        self._reader: SplitReader | None = None
        self._kept: tuple[int, list[bytes]] = (-1, [])

    def __len__(self) -> int:
        return self._from[-1]

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self), ROWS_AT_ONCE):
            yield from self.lines(start, min(start + ROWS_AT_ONCE, len(self)))

    def __getitem__(self, row: int) -> bytes:
        number = row // ROWS_AT_ONCE
        if self._kept[0] != number:
            start = number * ROWS_AT_ONCE
            self._kept = (number, self.lines(start, min(start + ROWS_AT_ONCE, len(self))))
        return self._kept[1][row % ROWS_AT_ONCE]

    def lines(self, start: int, stop: int) -> list[bytes]:
        return lines_of(self.read(start, stop), self._from[3])

    def read(self, start: int, stop: int) -> WindowBatch:
        return self._opened().read(start, stop)

    def _opened(self) -> SplitReader:
        if self._reader is None:
            dataset, name, split, schema, num_rows = self._from
            way = format_named(name)
            way.require()
            reader = way.open(folder_of(dataset, name), split, schema)
            if len(reader) != num_rows:
                raise DatasetError(
                    f"{str(self.path)!r} is damaged: {len(reader)} rows, the manifest says {num_rows}. "
                    "Build the dataset again."
                )
            self._reader = reader
        return self._reader

    def __getstate__(self) -> tuple[Path, str, Split, Schema, int]:
        """An open file cannot travel to another process; it is opened again there."""
        return self._from

    def __setstate__(self, state: tuple[Path, str, Split, Schema, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]
