"""WindowDataset: the windows of a split by index, for DataLoader or the Trainer of transformers.

windows = open_dataset("dataset").torch("train", seed=1)
windows[3]["input_ids"]
loader = windows.loader(32, windows.masked_collator(), num_workers=1)
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch.utils.data

from gristmill.core.errors import DatasetError
from gristmill.dataset.batches import Batches, Draw, Order, RowIndices, State, Weights, are_valid_weights
from gristmill.dataset.items import Item
from gristmill.dataset.torch_split import StackingLoader, TorchSplit


class WindowLoader(StackingLoader):
    """DataLoader over a WindowDataset that can resume within an epoch.

    As with the samplers of torch, an iteration begins with the first batch of the epoch that was set last. Only the
    first iteration after `load_state_dict` may begin with a later batch.
    """

    def __init__(
        self, dataset: "WindowDataset", batches: Batches, collate: Callable[[list[Item]], Any], **options: Any
    ) -> None:
        self.batches = batches
        self._num_delivered = batches.start
        super().__init__(dataset, collate, seed=dataset.seed, batch_sampler=batches, **options)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override] # a generator, not torch's iterator
        self._num_delivered = self.batches.start
        for batch in super().__iter__():
            # Counted before the batch is delivered, so that a state saved after the training step includes the batch.
            self._num_delivered += 1
            yield batch

    @property
    def epoch(self) -> int:
        return self.batches.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. Setting the current epoch again has no effect."""
        if epoch != self.batches.epoch:
            self.batches.epoch, self.batches.start, self._num_delivered = epoch, 0, 0

    def state_dict(self) -> State:
        """Return the state after the batches delivered so far, without batches that workers have prefetched."""
        return {**self.batches.state_dict(), "batch": self._num_delivered}

    def load_state_dict(self, state: State) -> None:
        self.batches.load_state_dict(state)
        self._num_delivered = self.batches.start


class WindowDataset(TorchSplit, torch.utils.data.Dataset[Item]):
    """The windows of a split by index, in the order of the split.

    Every rank can access all windows; `loader` distributes them to ranks. If the index is a Draw, the item also has
    `epoch`, `position`, `row` and `fresh`, the number of tokens that no earlier window of the file contains.
    """

    def __len__(self) -> int:
        return len(self._row_indices)

    def __getitem__(self, index: int | Draw) -> Item:
        if isinstance(index, Draw):
            return self._items.make_drawn_item(self.rows[index.row], index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"window index {index} is out of range for a dataset of length {len(self)}")
        return self._items.item(self.rows[int(self._row_indices[index])])

    def __getitems__(self, indices: Sequence[int | Draw]) -> list[Item]:
        """Return the items of a batch. DataLoader calls this method."""
        return [self[index] for index in indices]

    @cached_property
    def order(self) -> Order:
        return Order(self._row_indices, seed=self.seed, shuffle=self.shuffle, weights=self._weights)

    def batches(self, batch_size: int, **options: Any) -> Batches:
        """Return the batches of this rank. `options` are passed to Batches."""
        return Batches(self.order, batch_size, rank=self.rank, world_size=self.world_size, **options)

    def loader(
        self,
        batch_size: int,
        collate: Callable[[list[Item]], Any],
        *,
        num_workers: int = 0,
        epochs: int | None = 1,
        across_epochs: bool = False,
        drop_last: bool = False,
        num_batches: int | None = None,
        **options: Any,
    ) -> "WindowLoader":
        """Return a loader for the batches of this rank, by default with one epoch per iteration.

        With `across_epochs=True, epochs=None`, the batches never end, and all are full. See Batches for these
        parameters. `options` are passed to DataLoader.
        """
        batches = self.batches(
            batch_size, epochs=epochs, across_epochs=across_epochs, drop_last=drop_last, num_batches=num_batches
        )
        return WindowLoader(self, batches, collate, num_workers=num_workers, **options)

    @cached_property
    def _row_indices(self) -> RowIndices:
        """Indices of the rows that are not left out."""
        if not self.without:
            return np.arange(len(self.rows), dtype=np.int64)
        is_kept = [row.get("variant") not in self.without for row in self.rows]
        return np.flatnonzero(is_kept)

    @cached_property
    def _weights(self) -> Weights | None:
        if not self.has_weights or not len(self):
            return None
        weights = np.array([row["weight"] for row in self.rows], np.float64)[self._row_indices]
        if not are_valid_weights(weights):
            raise DatasetError(
                f"the weights in {str(self.folder)!r} are damaged: one is negative or not finite, or all are 0. "
                "Build the dataset again."
            )
        return weights
