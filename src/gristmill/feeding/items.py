"""A stored row -> an item: a dict of tensors and plain values, as collators of ours and of transformers take it.

{"input_ids": tensor([0, 9232, …, 2]), "attention_mask": tensor([1, 1, …, 1])}
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from gristmill.errors import ConfigError, DatasetError
from gristmill.feeding.frame import IGNORED_LABEL, Frame, Pad, check_pad
from gristmill.feeding.order import Draw
from gristmill.manifest import Manifest
from gristmill.records import VariantKind

Row = dict[str, Any]
Item = dict[str, Any]

IDS, MASK, LABELS = "input_ids", "attention_mask", "labels"
DRAW_COLUMNS = ("epoch", "position", "row", "fresh")
"""Of a window that is drawn; our collators look at them."""
DEFAULT_COLUMNS = (IDS, MASK)


class StoredRows(Protocol):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Row]: ...
    def __getitem__(self, index: int, /) -> Row: ...


class ItemFormat(NamedTuple):
    frame: Frame
    pad: Pad
    columns: frozenset[str]

    @classmethod
    def of(cls, manifest: Manifest, pad: Pad, columns: Sequence[str]) -> "ItemFormat":
        check_pad(pad)
        known = {*manifest.columns, *DEFAULT_COLUMNS, LABELS, *DRAW_COLUMNS}
        if wrong := next((column for column in columns if column not in known), None):
            raise ConfigError(f"there is no column {wrong!r}: this dataset has {', '.join(sorted(known))}.")
        needed = DEFAULT_COLUMNS if pad == "length" else (IDS,)
        return cls(Frame.of(manifest), pad, frozenset((*columns, *needed)))

    def drawn(self, row: Row, draw: Draw) -> Item:
        """With what our collators want to know of it."""
        return {**self.item(row), **draw._asdict(), "fresh": self.num_fresh(row)}

    def item(self, row: Row) -> Item:
        num_ids = num_ids_of(row)
        item: Item = {IDS: self._tensor(row[IDS][:num_ids], self.frame.pad_id)}
        if MASK in self.columns:
            item[MASK] = torch.ones_like(item[IDS])
            item[MASK][num_ids:] = 0
        if LABELS in self.columns:
            item[LABELS] = self._tensor(self._labels(row, num_ids), IGNORED_LABEL)
        for column in self.columns.difference(item, DRAW_COLUMNS):
            item[column] = row[column]
        if "fresh" in self.columns:
            item["fresh"] = self.num_fresh(row)
        return item

    def num_fresh(self, row: Row) -> int:
        """All of them where nothing is known, and where the window is by itself."""
        num_content = self.frame.num_content(num_ids_of(row))
        if row.get("variant") in {VariantKind.NOISE, VariantKind.FIM}:
            return num_content
        return min(num_content, row.get("fresh", num_content))

    def _labels(self, row: Row, num_ids: int) -> list[int]:
        """The stored ones, of a dataset with noise; else the ids themselves."""
        if LABELS not in row:
            return row[IDS][:num_ids]  # type: ignore[no-any-return] # JSON
        return [label for label in row[LABELS] if label != IGNORED_LABEL]

    def _tensor(self, numbers: list[int], padding: int) -> torch.Tensor:
        if self.pad == "batch" or len(numbers) >= self.frame.length:
            return torch.from_numpy(np.array(numbers, np.int64))
        padded = np.full(self.frame.length, padding, np.int64)
        padded[: len(numbers)] = numbers
        return torch.from_numpy(padded)


def num_ids_of(row: Row) -> int:
    """Without padding."""
    try:
        return sum(row[MASK]) if MASK in row else len(row[IDS])
    except (LookupError, TypeError) as error:
        raise DatasetError(f"a row is damaged: {error!r}. Build the dataset again.") from None
