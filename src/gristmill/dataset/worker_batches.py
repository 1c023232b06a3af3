"""How batches come from a worker: as one array through its pipe.

Tensors go through shared memory, and for each of them the reader opens a connection to the worker, with a handshake:
4.5 million tokens a second instead of 7.9 (benchmarks/feeding.md).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from gristmill.dataset.items import Item


@dataclass(frozen=True)
class Packed:
    names: tuple[str, ...]
    arrays: npt.NDArray[Any] | torch.Tensor
    """One below the other; pinned, a tensor."""

    def unpacked(self) -> dict[str, torch.Tensor]:
        stacked = self.arrays if isinstance(self.arrays, torch.Tensor) else torch.from_numpy(self.arrays)
        return dict(zip(self.names, stacked.unbind(), strict=True))

    def pin_memory(self, *_: object) -> "Packed":
        """DataLoader calls it, where its memory is to be pinned."""
        return Packed(self.names, torch.as_tensor(self.arrays).pin_memory())


class Packing:
    """A collator in a worker. A batch that is no dict of like tensors travels as it is."""

    def __init__(self, collate: Callable[[list[Item]], Any]) -> None:
        self._collate = collate

    def __call__(self, items: list[Item]) -> Any:
        batch = self._collate(items)
        if type(batch) is not dict or not batch:
            return batch
        tensors = list(batch.values())
        if not all(isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" for tensor in tensors):
            return batch
        if len({(tensor.dtype, tensor.shape) for tensor in tensors}) > 1:
            return batch
        return Packed(tuple(batch), np.stack([tensor.numpy() for tensor in tensors]))


class PackingLoader(DataLoader[Item]):
    """A DataLoader whose workers pack, and that takes nothing from torch's global generator."""

    def __init__(
        self,
        dataset: Dataset[Item],
        collate: Callable[[list[Item]], Any],
        *,
        seed: int = 0,
        num_workers: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(
            dataset,
            collate_fn=Packing(collate) if num_workers else collate,
            num_workers=num_workers,
            generator=torch.Generator().manual_seed(seed),
            **options,
        )

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override] # more than torch's iterator
        for batch in super().__iter__():
            yield batch.unpacked() if isinstance(batch, Packed) else batch
