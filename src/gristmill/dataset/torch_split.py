"""Common parts of WindowDataset and WindowStream: the split, its collators, the loader, and the rank of the process."""

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

# A worker sends a batch through its pipe as one array, at 7.9 million tokens a second. With tensors, it would be 4.5
# million: tensors are sent through shared memory, and for each tensor the training process opens a connection to the
# worker, with a handshake (benchmarks/feeding.md).


@dataclass(frozen=True)
class StackedBatch:
    """A batch of tensors of the same shape and type, stacked into one array."""

    names: tuple[str, ...]
    arrays: npt.NDArray[Any] | torch.Tensor
    """A numpy array, or a tensor after pinning."""

    def unstack(self) -> dict[str, torch.Tensor]:
        stacked = self.arrays if isinstance(self.arrays, torch.Tensor) else torch.from_numpy(self.arrays)
        return dict(zip(self.names, stacked.unbind(), strict=True))

    def pin_memory(self, *_: object) -> "StackedBatch":
        """Return a copy in pinned memory. DataLoader calls this method if its option `pin_memory` is set."""
        return StackedBatch(self.names, torch.as_tensor(self.arrays).pin_memory())


class StackingCollator:
    """Collator for a worker process. If a batch is a dict of CPU tensors of the same shape and type, it is stacked."""

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
        return StackedBatch(tuple(batch), np.stack([tensor.numpy() for tensor in tensors]))


class StackingLoader(DataLoader[Item]):
    """DataLoader whose workers send stacked batches. The loader does not use the global random generator of torch."""

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
            collate_fn=StackingCollator(collate) if num_workers else collate,
            num_workers=num_workers,
            generator=torch.Generator().manual_seed(seed),
            **options,
        )

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override] # a generator, not torch's iterator
        for batch in super().__iter__():
            yield batch.unstack() if isinstance(batch, StackedBatch) else batch


# The rank of this process in a training run.


class ProcessRank(NamedTuple):
    rank: int
    world_size: int


def process_rank(rank: int | None = None, world_size: int | None = None) -> ProcessRank:
    """Return rank and world size as given, or detect them.

    They are detected from torch.distributed if it is initialized, and otherwise from the environment variables RANK and
    WORLD_SIZE. The default is rank 0 of 1. Raises ConfigError if the values are invalid.
    """
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank and world_size must be given together, got rank={rank} and world_size={world_size}.")
    process = _detect_rank() if rank is None or world_size is None else ProcessRank(rank, world_size)
    if not 0 <= process.rank < process.world_size:
        raise ConfigError(f"rank must be from 0 to world_size - 1 ({process.world_size - 1}), got {process.rank}.")
    return process


def _detect_rank() -> ProcessRank:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return ProcessRank(torch.distributed.get_rank(), torch.distributed.get_world_size())
    values = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    try:
        return ProcessRank(int(values[0]), int(values[1]))
    except ValueError:
        raise ConfigError(f"RANK and WORLD_SIZE must be integers, got {values[0]!r} and {values[1]!r}.") from None


# The base class of the two kinds of splits.


class TorchSplit:
    """A split for PyTorch: base class of WindowDataset and WindowStream."""

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
        """`folder` contains the dataset and its tokenizer. `without` names kinds of variants to leave out."""
        if unknown := set(without).difference(VariantKind):
            raise ConfigError(f"there is no kind of variant {min(unknown)!r}: the kinds are {', '.join(VariantKind)}.")
        self.rows, self.record, self.folder = rows, record, folder
        self.shuffle, self.seed, self.pad = shuffle, seed, pad
        self.without = frozenset(without if "variant" in record.columns else ())
        self.rank, self.world_size = process_rank(rank, world_size)
        self._items = ItemFormat.of(record, pad, self.default_columns if columns is None else columns)

    @property
    def frame(self) -> Frame:
        return self._items.frame

    @property
    def tokenizer(self) -> Tokenizer:
        tokenizer = tokenizer_in(self.folder)
        if tokenizer.definition.sha256 != self.record.tokenizer.sha256:
            raise DatasetError(
                f"the dataset in {str(self.folder)!r} was rebuilt with a different tokenizer. Open it again."
            )
        return tokenizer

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
        """Return a collator for masked models.

        `rate` is the share of tokens to predict. `whole_identifiers` masks the tokens of an identifier together.
        `fresh_only`, for evaluation, limits labels to tokens that no earlier window of the file contains. `seed`
        defaults to the seed of the split. With `pad="batch"`, the padded length is rounded up to a multiple of
        `multiple_of`.
        """
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
        """Return a collator for causal models.

        `fresh_only`, for evaluation, limits labels to tokens that no earlier window of the file contains. With
        `pad="batch"`, the padded length is rounded up to a multiple of `multiple_of`.
        """
        return CausalCollator(self.frame, fresh_only=fresh_only, pad=self.pad, multiple_of=multiple_of)
