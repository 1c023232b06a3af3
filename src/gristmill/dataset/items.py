"""Convert a stored row to an item: a dict of tensors and plain values, for collators of gristmill or transformers.

{"input_ids": tensor([0, 9232, …, 2]), "attention_mask": tensor([1, 1, …, 1])}
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from gristmill.core.columns import IDS, IGNORED_LABEL, LABELS, MASK, POSITION_IDS, SEGMENTS
from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.manifest import RowsRecord
from gristmill.core.names import counted
from gristmill.core.records import INDEPENDENT_WINDOW_KINDS
from gristmill.dataset.batches import Draw
from gristmill.dataset.dataset import row_name
from gristmill.dataset.frame import Frame, Pad, check_pad

Row = dict[str, Any]
Item = dict[str, Any]

DRAW_COLUMNS = ("epoch", "position", "row", "fresh")
"""Columns added to the item of a drawn window (see `Draw`). Masking and `fresh_only` need them."""
DEFAULT_COLUMNS = (IDS, MASK)


class StoredRows(Protocol):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Row]: ...
    def __getitem__(self, index: int, /) -> Row: ...


class ItemFormat(NamedTuple):
    frame: Frame
    pad: Pad
    columns: frozenset[str]
    """Columns of an item: the requested columns, and those that every item has."""
    copied_columns: tuple[str, ...]
    """Columns that are copied from the stored row unchanged."""

    @classmethod
    def of(cls, record: RowsRecord, pad: Pad, columns: Sequence[str]) -> "ItemFormat":
        check_pad(pad)
        valid_columns = {*record.columns, *DEFAULT_COLUMNS, LABELS, *DRAW_COLUMNS}
        if unknown := next((column for column in columns if column not in valid_columns), None):
            raise ConfigError(f"there is no column {unknown!r}: the columns are {', '.join(sorted(valid_columns))}.")
        requested = frozenset((*columns, *(DEFAULT_COLUMNS if pad == "length" else (IDS,))))
        if POSITION_IDS in record.columns:  # positions mark where each file of a packed row begins
            requested |= {POSITION_IDS}
        copied_columns = requested.difference(DEFAULT_COLUMNS, DRAW_COLUMNS, {LABELS, POSITION_IDS})
        return cls(Frame.of(record), pad, requested, tuple(sorted(copied_columns)))

    def make_drawn_item(self, row: Row, draw: Draw) -> Item:
        """Convert a drawn row to an item that includes DRAW_COLUMNS."""
        num_ids = count_ids(row)
        item = self._item(row, num_ids)
        item["epoch"], item["position"], item["row"] = draw
        item["fresh"] = self._fresh_tokens(row, num_ids)
        return item

    def item(self, row: Row) -> Item:
        num_ids = count_ids(row)
        item = self._item(row, num_ids)
        if "fresh" in self.columns:
            item["fresh"] = self._fresh_tokens(row, num_ids)
        return item

    def _item(self, row: Row, num_ids: int) -> Item:
        ids = row[IDS] if len(row[IDS]) == num_ids else row[IDS][:num_ids]
        item: Item = {IDS: self._tensor(ids, self.frame.pad_id)}
        if MASK in self.columns:
            item[MASK] = self._mask(num_ids)
        if LABELS in self.columns:
            item[LABELS] = self._tensor(_labels(row, ids), IGNORED_LABEL)
        for column in self.copied_columns:
            item[column] = row[column]
        if POSITION_IDS in self.columns:
            item[POSITION_IDS] = self._tensor(row[POSITION_IDS][:num_ids], 0)
        return item

    def _fresh_tokens(self, row: Row, num_ids: int) -> int | torch.Tensor:
        """Return the number of fresh tokens: those that no earlier window of the file contains.

        All tokens are fresh if the row has no `fresh` column, or if the ids are changed by noise or reordered for
        fill-in-the-middle. For a packed row, return a flag per id: 1 for a fresh token or the end of a document.
        """
        if SEGMENTS in row:
            return self._tensor(self._fresh_flags(row, num_ids), 0)
        num_content = self.frame.num_content(row[IDS][:num_ids])
        if row.get("fim") or row.get("variant") in INDEPENDENT_WINDOW_KINDS:
            return num_content
        return min(num_content, int(row.get("fresh", num_content)))

    def _fresh_flags(self, row: Row, num_ids: int) -> list[int]:
        flags, ids, closing = [0] * num_ids, row[IDS], list(self.frame.closing)
        fault = "one of its segments has no valid at, length or fresh"
        try:
            for segment in row[SEGMENTS]:
                start, length = segment["at"], segment["length"]
                is_altered = segment.get("fim") or segment.get("variant") in INDEPENDENT_WINDOW_KINDS
                fresh, end = length if is_altered else segment["fresh"], start + length
                if not 0 <= fresh <= length or not 0 <= start <= end <= num_ids:
                    fault = (
                        f"a segment at position {start} with length {length} and fresh {fresh} does not fit in the "
                        f"{counted(num_ids, 'id')} of the row"
                    )
                    raise ValueError(fault)
                flags[end - fresh : end] = [1] * fresh
                closing_start = end + self.frame.num_suffix
                if closing and ids[closing_start : closing_start + len(closing)] == closing:
                    flags[closing_start : closing_start + len(closing)] = [1] * len(closing)
        except (LookupError, TypeError, ValueError):
            raise DatasetError(f"{row_name(row)} is damaged: {fault}. Build the dataset again.") from None
        return flags

    def _tensor(self, numbers: list[int], padding: int) -> torch.Tensor:
        if self.pad == "length":
            numbers = numbers + [padding] * (self.frame.length - len(numbers))
        try:
            return torch.from_numpy(np.fromiter(numbers, np.int64, len(numbers)))
        except (TypeError, ValueError, OverflowError):
            raise DatasetError(
                "a row is damaged: its ids, labels or positions are not all integers. Build the dataset again."
            ) from None

    def _mask(self, num_ids: int) -> torch.Tensor:
        mask = np.ones(self.frame.length if self.pad == "length" else num_ids, np.int64)
        mask[num_ids:] = 0
        return torch.from_numpy(mask)


def _labels(row: Row, ids: list[int]) -> list[int]:
    """Return the stored labels of a row without padding, or the ids if the row has no labels."""
    return [label for label in row[LABELS] if label != IGNORED_LABEL] if LABELS in row else ids


def count_ids(row: Row) -> int:
    """Count the ids of a row without padding."""
    try:
        return sum(row[MASK]) if MASK in row else len(row[IDS])
    except (LookupError, TypeError):
        raise DatasetError(
            f"{row_name(row)} is damaged: it has no valid {IDS} or {MASK}. Build the dataset again."
        ) from None
