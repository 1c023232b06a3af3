"""WindowLoader: a DataLoader over a WindowDataset that resumes where it was.

    loader = windows.loader(32, windows.masked_collator(), num_workers=2)
    for epoch in range(loader.epoch, 3):
        loader.set_epoch(epoch)
        for batch in loader: …             # loader.state_dict(), at any batch

    loader.load_state_dict(state)          # and the same loop goes on with the next batch

Batches are the same for any number of workers. An iteration takes nothing from torch's global generator, so dropout is
the same in a training that was resumed.
"""

from collections.abc import Callable, Iterator
from typing import Any

from gristmill.feeding.batches import Batches, State
from gristmill.feeding.items import Item
from gristmill.feeding.packing import PackingLoader
from gristmill.feeding.windows import WindowDataset


class WindowLoader(PackingLoader):
    """As with torch's own samplers, an iteration shows the epoch that was last set, from its first batch.

    Only the first iteration after `load_state_dict` begins further on.
    """

    def __init__(
        self, dataset: WindowDataset, batches: Batches, collate: Callable[[list[Item]], Any], **options: Any
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
