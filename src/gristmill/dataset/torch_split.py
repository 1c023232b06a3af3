"""What both ways of feeding PyTorch share: the split, its collators, the loader, and which process this is."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed
from torch.utils.data import DataLoader, Dataset

from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.manifest import RowsRecord
from gristmill.core.records import VariantKind
from gristmill.dataset.collators import CausalCollator, MaskedCollator
from gristmill.dataset.frame import Frame, Pad
from gristmill.dataset.items import DEFAULT_COLUMNS, Item, ItemFormat, StoredRows
from gristmill.dataset.masking import MASK_RATE
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_in

# How batches come from a worker: as one array through its pipe. Tensors would go through shared memory, and for each of
# them the reader would open a connection to the worker, with a handshake: 4.5 million tokens a second instead of 7.9
# (benchmarks/feeding.md).


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


# Which process of a training this is, and of how many.


class Place(NamedTuple):
    rank: int
    world_size: int


def place_of(rank: int | None = None, world_size: int | None = None) -> Place:
    """As said; else what torch.distributed says, if it is initialised; else RANK and WORLD_SIZE; else the only one."""
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank and world_size go together, got rank={rank} and world_size={world_size}.")
    place = _found() if rank is None or world_size is None else Place(rank, world_size)
    if not 0 <= place.rank < place.world_size:
        raise ConfigError(f"rank must be from 0 to world_size - 1 ({place.world_size - 1}), got {place.rank}.")
    return place


def _found() -> Place:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Place(torch.distributed.get_rank(), torch.distributed.get_world_size())
    named = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    try:
        return Place(int(named[0]), int(named[1]))
    except ValueError:
        raise ConfigError(f"RANK and WORLD_SIZE must be numbers, got {named[0]!r} and {named[1]!r}.") from None


# The split itself.


class FedSplit:
    default_columns: tuple[str, ...] = DEFAULT_COLUMNS

    def __init__(
        self,
        rows: StoredRows,
        record: RowsRecord,
        folder: Path,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        pad: Pad = "batch",
        without: Collection[str] = (),
        columns: Sequence[str] | None = None,
    ) -> None:
        """`folder` is the dataset's, for its tokenizer; `without`: kinds of variants that are left out."""
        if wrong := set(without).difference(VariantKind):
            raise ConfigError(f"there are no variants {min(wrong)!r}: there are {', '.join(VariantKind)}.")
        self.rows, self.record, self.folder = rows, record, folder
        self.shuffle, self.seed, self.pad = shuffle, seed, pad
        self.without = frozenset(without if "variant" in record.columns else ())
        self.rank, self.world_size = place_of(rank, world_size)
        self._items = ItemFormat.of(record, pad, self.default_columns if columns is None else columns)

    @property
    def frame(self) -> Frame:
        return self._items.frame

    @property
    def tokenizer(self) -> Tokenizer:
        found = tokenizer_in(self.folder)
        if found.definition.sha256 != self.record.tokenizer.sha256:
            raise DatasetError(
                f"{str(self.folder)!r} has another tokenizer than when it was opened: it was rebuilt. Open it again."
            )
        return found

    @property
    def has_weights(self) -> bool:
        return "weight" in self.record.columns

    def masked_collator(
        self,
        *,
        rate: float = MASK_RATE,
        whole_identifiers: bool = False,
        fresh_only: bool = False,
        seed: int | None = None,
        multiple_of: int = 1,
    ) -> MaskedCollator:
        return MaskedCollator(
            self.frame,
            self.tokenizer,
            seed=self.seed if seed is None else seed,
            rate=rate,
            whole_identifiers=whole_identifiers,
            fresh_only=fresh_only,
            pad=self.pad,
            multiple_of=multiple_of,
        )

    def causal_collator(self, *, fresh_only: bool = False, multiple_of: int = 1) -> CausalCollator:
        return CausalCollator(self.frame, fresh_only=fresh_only, pad=self.pad, multiple_of=multiple_of)
