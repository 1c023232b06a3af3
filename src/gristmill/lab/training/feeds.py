"""What a model is given: batches of train without end, and of each held-out split the same ones every time."""

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
from gristmill.dataset.token_edges import Vocabulary
from gristmill.dataset.torch_split import place_of
from gristmill.lab.training.objectives import all_places, some_places
from gristmill.lab.training.train_config import LEFT_OUT, Budget, TrainConfig

SCORED_AT_ONCE = 16
SCORED_AT_ONCE_ON_A_GPU = 64
KEPT_WINDOWS = 20_000
"""Batches of held-out windows are the same at every evaluation: up to here, some 200 MB, they are kept in memory."""
MASKS_OF_EVALUATIONS = 0
"""A seed: the same masks for every run, whatever its own."""

Batch = dict[str, torch.Tensor]
Collate = Callable[[Sequence[Item]], Batch]


class Scored(NamedTuple):
    """A window of which the last `fresh` content tokens are scored."""

    ids: npt.NDArray[Any]
    fresh: int

    def item(self, row: int) -> Item:
        """As a collator takes it."""
        ids = torch.from_numpy(np.asarray(self.ids, np.int64))
        return {"input_ids": ids, "fresh": self.fresh, "epoch": 0, "position": row}


class ToPlaces:
    """A batch as an Objective takes it."""

    def __init__(self, collate: Collate, *, is_causal: bool, is_scored: bool) -> None:
        self._collate, self._is_causal, self._is_scored = collate, is_causal, is_scored

    def __call__(self, items: Sequence[Item]) -> Batch:
        batch = self._collate(items)
        labels = batch["labels"]
        # In training a causal model tells nearly all tokens: choosing places would cost more than it saves.
        is_everywhere = self._is_causal and not self._is_scored
        places = all_places(labels) if is_everywhere else some_places(labels, is_causal=self._is_causal)
        given = {"input_ids": batch["input_ids"], "tokens": places.tokens}
        if places.at is not None:
            given["at"] = places.at
        # Without padding there is nothing to mask, and attention takes its fast way.
        if not self._is_causal and not bool(batch["attention_mask"].all()):
            given["attention_mask"] = batch["attention_mask"]
        if POSITION_IDS in batch:  # of packed rows, whose files they keep apart
            given[POSITION_IDS] = batch[POSITION_IDS]
        return given


class LazyBatches(Sequence[Batch]):
    """Made again whenever they are asked for: there are too many to keep."""

    def __init__(self, items: Any, parts: Sequence[Sequence[Any]], collate: "ToPlaces") -> None:
        self._items, self._parts, self._collate = items, parts, collate

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Batch]:
        # A Sequence's own would take an IndexError of a damaged row for the end.
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
    def __init__(self, dataset: Dataset, config: TrainConfig, *, is_fixed_width: bool) -> None:
        """`is_fixed_width`: every batch is as wide as a window may be, so that nothing is compiled twice."""
        self._dataset, self._config = dataset, config
        self._place = place_of()
        if config.batch_size % self._place.world_size:
            raise ConfigError(
                f"--batch-size {config.batch_size} cannot be shared by {self._place.world_size} processes evenly. "
                f"Try --batch-size {self._place.world_size * max(1, config.batch_size // self._place.world_size)}."
            )
        self._pad: Pad = "length" if is_fixed_width else "batch"
        # All splits now: what is open stays, even if the dataset is rebuilt before test is scored.
        held_out = (Split.VALIDATION, Split.TEST)
        self._held_out = {split: dataset.torch(split, shuffle=False, without=LEFT_OUT) for split in held_out}
        self._windows = dataset.torch("train", seed=config.seed, without=LEFT_OUT)
        self.num_windows = len(self._windows.order)
        if not self.num_windows:
            raise DatasetError(
                f"{str(dataset.folder)!r} has no windows in train. Build it with more for train, like --split 85/10/5."
            )
        if not len(dataset["validation"]):
            raise DatasetError(
                f"{str(dataset.folder)!r} has no windows in validation: nothing would say which model is best, or when "
                "to stop. Build it from more files, or with a larger share: --split 80/15/5."
            )
        self.num_ids = self._count_ids()
        if self.num_ids < 1:
            raise DatasetError(f"{str(dataset.folder)!r} is damaged: its manifest counts no ids. Build it again.")
        self._kept: dict[str, Sequence[Batch]] = {}

    @property
    def bytes_by_id(self) -> npt.NDArray[Any] | None:
        """Bytes of each token, for bits per byte; 0 for special tokens. None if the model is not causal."""
        vocabulary = Vocabulary.of(self._dataset.tokenizer)
        if self._config.objective != "causal" or vocabulary.num_bytes is None:
            return None
        return np.where(vocabulary.is_control, 0, vocabulary.num_bytes)

    def batches(self, budget: Budget, first_step: int) -> DataLoader[Any]:
        """Return the batches from `first_step` on; they do not depend on the number of workers or on a resume.

        A step takes `accumulate` batches; the last step takes fewer if train ends before.
        """
        is_whole = budget.num_windows % budget.windows_per_epoch == 0
        loader = self._windows.loader(
            self._config.batch_size // self._place.world_size,
            self._collate(fresh_only=False, seed=self._config.seed),
            epochs=budget.num_windows // budget.windows_per_epoch if is_whole else None,
            across_epochs=True,
            num_batches=budget.steps * self._config.accumulate,
            num_workers=self._config.workers,
            pin_memory=torch.cuda.is_available(),
        )
        first_batch = min(first_step * self._config.accumulate, len(loader.batches))
        loader.load_state_dict({**loader.state_dict(), "batch": first_batch})
        return loader

    def held_out(self, split: Split) -> Sequence[Batch]:
        """The same ones every time."""
        if split not in self._kept:
            windows = self._held_out[split]
            draws = windows.order.draws(0, range(len(windows)))
            most = self._config.eval_windows if split == Split.VALIDATION else None
            if most is not None and most < len(draws):
                draws = [draws[number * len(draws) // most] for number in range(most)]
            self._kept[split] = self._to_score(windows, draws)
        return self._kept[split]

    def frozen(self, windows: Sequence[Scored]) -> Sequence[Batch]:
        return self._to_score([one.item(row) for row, one in enumerate(windows)], range(len(windows)))

    def _to_score(self, items: Any, numbers: Sequence[Any]) -> Sequence[Batch]:
        size = SCORED_AT_ONCE_ON_A_GPU if self._pad == "length" else SCORED_AT_ONCE
        parts = [numbers[at : at + size] for at in range(0, len(numbers), size)]
        lazy = LazyBatches(items, parts, self._collate(fresh_only=True, seed=MASKS_OF_EVALUATIONS))
        return list(lazy) if len(numbers) <= KEPT_WINDOWS else lazy

    def _collate(self, *, fresh_only: bool, seed: int) -> ToPlaces:
        frame = Frame.of(self._dataset.record)
        if self._config.objective == "causal":
            causal = CausalCollator(frame, fresh_only=fresh_only, pad=self._pad)
            return ToPlaces(causal, is_causal=True, is_scored=fresh_only)
        collate = MaskedCollator(
            frame,
            self._dataset.tokenizer,
            seed=seed,
            rate=self._config.mask_rate,
            whole_identifiers=self._config.whole_identifiers,
            fresh_only=fresh_only,
            pad=self._pad,
        )
        return ToPlaces(collate, is_causal=False, is_scored=fresh_only)

    def _count_ids(self) -> int:
        """Of an epoch, padding apart."""
        columns, facts = self._dataset.record.columns, self._dataset.record.splits[Split.TRAIN]
        if not {"attention_mask", "weight"} & set(columns) and self.num_windows == facts.windows:
            return facts.emitted_tokens
        # Drawn by weights, epochs differ a little; the first one stands for all.
        draws = self._windows.order.draws(0, range(self.num_windows))
        return sum(len(self._windows[draw]["input_ids"]) for draw in draws)
