"""WindowDataset: the windows of a split by number, for DataLoader or the Trainer of transformers.

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
from gristmill.dataset.batches import Batches, Draw, Order, RowNumbers, State, Weights, can_draw_by
from gristmill.dataset.items import Item
from gristmill.dataset.torch_split import FedSplit, PackingLoader

# WindowLoader: a DataLoader over a WindowDataset that resumes where it was.


class WindowLoader(PackingLoader):
    """As with torch's own samplers, an iteration shows the epoch that was last set, from its first batch.

    Only the first iteration after `load_state_dict` begins further on.
    """

    def __init__(
        self, dataset: "WindowDataset", batches: Batches, collate: Callable[[list[Item]], Any], **options: Any
    ) -> None:
        self.batches = batches
        self._num_delivered = batches.start
        super().__init__(dataset, collate, seed=dataset.seed, batch_sampler=batches, **options)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override] # more than torch's iterator
        self._num_delivered = self.batches.start
        for batch in super().__iter__():
            # Counted before it is handed over: who saves a state after a step has had this batch.
            self._num_delivered += 1
            yield batch

    @property
    def epoch(self) -> int:
        return self.batches.epoch

    def set_epoch(self, epoch: int) -> None:
        """The one that the next iteration shows. To set it again to what it is changes nothing."""
        if epoch != self.batches.epoch:
            self.batches.epoch, self.batches.start, self._num_delivered = epoch, 0, 0

    def state_dict(self) -> State:
        """Of the batches that were delivered, however many more workers have made."""
        return {**self.batches.state_dict(), "batch": self._num_delivered}

    def load_state_dict(self, state: State) -> None:
        self.batches.load_state_dict(state)
        self._num_delivered = self.batches.start


class WindowDataset(FedSplit, torch.utils.data.Dataset[Item]):
    """All ranks see all windows, and `loader` deals them out. By number they come in the order of the split.

    Indexed by a Draw, an item also says `epoch`, `position`, `row` and how many of its tokens are `fresh`.
    """

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: int | Draw) -> Item:
        if isinstance(index, Draw):
            return self._items.drawn(self.rows[index.row], index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        return self._items.item(self.rows[int(self._kept[index])])

    def __getitems__(self, indices: Sequence[int | Draw]) -> list[Item]:
        """A whole batch; DataLoader asks for these."""
        return [self[index] for index in indices]

    @cached_property
    def order(self) -> Order:
        return Order(self._kept, seed=self.seed, shuffle=self.shuffle, weights=self._weights)

    def batches(self, batch_size: int, **options: Any) -> Batches:
        """Of this rank; `options` are those of Batches."""
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
        """Batches of this rank, an epoch in each iteration; `options` are those of DataLoader.

        `across_epochs=True, epochs=None`: without end, and every batch full. See Batches.
        """
        batches = self.batches(
            batch_size, epochs=epochs, across_epochs=across_epochs, drop_last=drop_last, num_batches=num_batches
        )
        return WindowLoader(self, batches, collate, num_workers=num_workers, **options)

    @cached_property
    def _kept(self) -> RowNumbers:
        """The rows that are not left out."""
        if not self.without:
            return np.arange(len(self.rows), dtype=np.int64)
        is_kept = [row.get("variant") not in self.without for row in self.rows]
        return np.flatnonzero(is_kept)

    @cached_property
    def _weights(self) -> Weights | None:
        if not self.has_weights or not len(self):
            return None
        weights = np.array([row["weight"] for row in self.rows], np.float64)[self._kept]
        if not can_draw_by(weights):
            raise DatasetError(f"the weights in {str(self.folder)!r} are damaged. Build the dataset again.")
        return weights
