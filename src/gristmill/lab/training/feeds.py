"""Batches for a model: a stream over the epochs of train, and fixed batches of each held-out split."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader

from gristmill.core.columns import POSITION_IDS
from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.records import Split
from gristmill.dataset.collators import CausalCollator, MaskedCollator
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.frame import Frame, Pad
from gristmill.dataset.items import Item
from gristmill.dataset.token_edges import TokenProperties
from gristmill.dataset.torch_split import process_rank
from gristmill.lab.training.objectives import all_targets, select_targets
from gristmill.lab.training.train_config import UNTRAINED_VARIANTS, Budget, TrainConfig

EVALUATION_BATCH_SIZE = 16
GPU_EVALUATION_BATCH_SIZE = 64
MAX_CACHED_WINDOWS = 20_000
"""Held-out batches are the same at every evaluation. If they have at most this many windows (about 200 MB), they are
kept in memory."""
EVALUATION_MASK_SEED = 0
"""Seed for the masks of evaluations. All runs are evaluated with the same masks, regardless of their seeds."""

Batch = dict[str, torch.Tensor]
Collate = Callable[[Sequence[Item]], Batch]


class ScoredWindow(NamedTuple):
    """A window whose last `fresh` tokens are scored, not counting special tokens."""

    ids: npt.NDArray[Any]
    fresh: int

    def item(self, row: int) -> Item:
        """Convert the window to the input of a collator."""
        ids = torch.from_numpy(np.asarray(self.ids, np.int64))
        return {"input_ids": ids, "fresh": self.fresh, "epoch": 0, "position": row}


class TargetCollator:
    """Collator that produces the inputs of an Objective."""

    def __init__(self, collate: Collate, *, is_causal: bool, is_scored: bool) -> None:
        self._collate, self._is_causal, self._is_scored = collate, is_causal, is_scored

    def __call__(self, items: Sequence[Item]) -> Batch:
        batch = self._collate(items)
        labels = batch["labels"]
        # When training, a causal model predicts nearly all tokens. Selecting positions would cost more than it saves.
        is_everywhere = self._is_causal and not self._is_scored
        targets = all_targets(labels) if is_everywhere else select_targets(labels, is_causal=self._is_causal)
        inputs = {"input_ids": batch["input_ids"], "tokens": targets.tokens}
        if targets.positions is not None:
            inputs["positions"] = targets.positions
        # Without padding, no attention mask is needed, and attention is faster.
        if not self._is_causal and not bool(batch["attention_mask"].all()):
            inputs["attention_mask"] = batch["attention_mask"]
        if POSITION_IDS in batch:  # position ids separate the files of packed rows
            inputs[POSITION_IDS] = batch[POSITION_IDS]
        return inputs


class LazyBatches(Sequence[Batch]):
    """Batches that are collated on every access, because there are too many to keep in memory."""

    def __init__(self, items: Any, parts: Sequence[Sequence[Any]], collate: "TargetCollator") -> None:
        self._items, self._parts, self._collate = items, parts, collate

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Batch]:
        # The default iterator of a Sequence would treat an IndexError from a damaged row as the end of the sequence.
        return map(self.__getitem__, range(len(self)))

    @overload
    def __getitem__(self, number: int) -> Batch: ...
    @overload
    def __getitem__(self, number: slice) -> list[Batch]: ...
    def __getitem__(self, number: int | slice) -> Batch | list[Batch]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        return self._collate([self._items[one] for one in self._parts[number]])


class Feeds:
    """Training and evaluation batches of one dataset."""

    def __init__(self, dataset: Dataset, config: TrainConfig, *, is_fixed_width: bool) -> None:
        """Open all splits. With `is_fixed_width`, all batches have the full window length, to avoid recompilation.

        Raises if train or validation has no windows, or if the processes cannot share a batch evenly.
        """
        self._dataset, self._config = dataset, config
        self._process = process_rank()
        if config.batch_size % self._process.world_size:
            raise ConfigError(
                f"--batch-size {config.batch_size} cannot be split evenly among {self._process.world_size} processes. "
                f"Try --batch-size {self._process.world_size * max(1, config.batch_size // self._process.world_size)}."
            )
        self._pad: Pad = "length" if is_fixed_width else "batch"
        # Open all splits now. They remain readable even if the dataset is rebuilt before test is scored.
        held_out = (Split.VALIDATION, Split.TEST)
        self._held_out = {split: dataset.torch(split, shuffle=False, without=UNTRAINED_VARIANTS) for split in held_out}
        self._windows = dataset.torch("train", seed=config.seed, without=UNTRAINED_VARIANTS)
        self.num_windows = len(self._windows.order)
        if not self.num_windows:
            raise DatasetError(
                f"{str(dataset.folder)!r} has no windows in train. "
                "Build it with a larger share for train, for example --split 85/10/5."
            )
        if not len(dataset["validation"]):
            raise DatasetError(
                f"{str(dataset.folder)!r} has no windows in validation, which is needed to choose the best model and "
                "to stop early. Build it from more files, or with a larger share for validation, for example "
                "--split 80/15/5."
            )
        self.num_ids = self._count_ids()
        if self.num_ids < 1:
            raise DatasetError(f"{str(dataset.folder)!r} is damaged: its manifest records no ids. Build it again.")
        self._cached: dict[str, Sequence[Batch]] = {}

    @property
    def bytes_by_id(self) -> npt.NDArray[Any] | None:
        """Number of bytes of each token, or 0 for a special token, to compute bits per byte.

        None if the objective is not causal or the lengths of the tokens are unknown.
        """
        vocabulary = TokenProperties.of(self._dataset.tokenizer)
        if self._config.objective != "causal" or vocabulary.num_bytes is None:
            return None
        return np.where(vocabulary.is_control, 0, vocabulary.num_bytes)

    def batches(self, budget: Budget, first_step: int) -> DataLoader[Any]:
        """Return the batches from `first_step` on. They do not depend on the number of workers or on resuming.

        A step takes `accumulate` batches. The last step takes fewer batches if the last epoch has no more windows.
        """
        is_complete_epochs = budget.num_windows % budget.windows_per_epoch == 0
        loader = self._windows.loader(
            self._config.batch_size // self._process.world_size,
            self._make_collator(fresh_only=False, seed=self._config.seed),
            epochs=budget.num_windows // budget.windows_per_epoch if is_complete_epochs else None,
            across_epochs=True,
            num_batches=budget.steps * self._config.accumulate,
            num_workers=self._config.workers,
            pin_memory=torch.cuda.is_available(),
        )
        first_batch = min(first_step * self._config.accumulate, len(loader.batches))
        loader.load_state_dict({**loader.state_dict(), "batch": first_batch})
        return loader

    def held_out(self, split: Split) -> Sequence[Batch]:
        """Return the batches of a held-out split. They are the same on every call."""
        if split not in self._cached:
            windows = self._held_out[split]
            draws = windows.order.draws(0, range(len(windows)))
            max_windows = self._config.eval_windows if split == Split.VALIDATION else None
            if max_windows is not None and max_windows < len(draws):
                draws = [draws[number * len(draws) // max_windows] for number in range(max_windows)]
            self._cached[split] = self._evaluation_batches(windows, draws)
        return self._cached[split]

    def frozen(self, windows: Sequence[ScoredWindow]) -> Sequence[Batch]:
        """Return batches of the given windows, such as the frozen test set of a comparison."""
        return self._evaluation_batches([one.item(row) for row, one in enumerate(windows)], range(len(windows)))

    def _evaluation_batches(self, items: Any, numbers: Sequence[Any]) -> Sequence[Batch]:
        size = GPU_EVALUATION_BATCH_SIZE if self._pad == "length" else EVALUATION_BATCH_SIZE
        parts = [numbers[at : at + size] for at in range(0, len(numbers), size)]
        lazy = LazyBatches(items, parts, self._make_collator(fresh_only=True, seed=EVALUATION_MASK_SEED))
        return list(lazy) if len(numbers) <= MAX_CACHED_WINDOWS else lazy

    def _make_collator(self, *, fresh_only: bool, seed: int) -> TargetCollator:
        frame = Frame.of(self._dataset.record)
        if self._config.objective == "causal":
            causal = CausalCollator(frame, fresh_only=fresh_only, pad=self._pad)
            return TargetCollator(causal, is_causal=True, is_scored=fresh_only)
        masked = MaskedCollator(
            frame,
            self._dataset.tokenizer,
            seed=seed,
            rate=self._config.mask_rate,
            whole_identifiers=self._config.whole_identifiers,
            fresh_only=fresh_only,
            pad=self._pad,
        )
        return TargetCollator(masked, is_causal=False, is_scored=fresh_only)

    def _count_ids(self) -> int:
        """Count the token ids in an epoch, without padding."""
        columns, facts = self._dataset.record.columns, self._dataset.record.splits[Split.TRAIN]
        if not {"attention_mask", "weight"} & set(columns) and self.num_windows == facts.windows:
            return facts.emitted_tokens
        # If windows are drawn by weight, epochs differ slightly. Only the first epoch is counted.
        draws = self._windows.order.draws(0, range(self.num_windows))
        return sum(len(self._windows[draw]["input_ids"]) for draw in draws)
