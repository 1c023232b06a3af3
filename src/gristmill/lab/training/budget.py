"""How long a training is, in steps: from epochs or tokens, with the steps after which it is evaluated.

Batches go on over the end of an epoch, so that all have the same size but the last of all.
"""

import math
from typing import NamedTuple

from gristmill.lab.training.train_config import DEFAULT_EPOCHS, NO_EARLY_STOP, TrainConfig

FEW_EPOCHS = 10
EVALUATIONS_OF_FEW_EPOCHS = 20
WARMUP_SHARE = 0.05
"""Of all steps: the learning rate rises."""
PATIENCE_SHARE = 0.1
LEAST_PATIENCE = 10
"""Evaluations. By the curves in benchmarks/training, every run with a clean split keeps the model it kept without."""


class Budget(NamedTuple):
    windows_per_epoch: int
    ids_per_epoch: int
    """Padding apart."""
    batch_size: int
    num_windows: int
    """Shown in all."""
    eval_every: int | None
    """Steps; None: each epoch."""
    patience: int | None = None
    """Evaluations without a gain on validation after which a training stops; None: it never does."""

    @classmethod
    def of(cls, config: TrainConfig, windows: int, ids: int, world_size: int = 1) -> "Budget":
        epochs: float = DEFAULT_EPOCHS if config.epochs is None else config.epochs
        epochs = epochs if config.tokens is None else config.tokens / ids
        steps = max(1, math.ceil(round(windows * epochs, 6) / config.batch_size))
        # Whole epochs end with a smaller step; any other end has room for a full one. Of a smaller one some of several
        # processes might have nothing, and the others would wait for them.
        is_whole = config.tokens is None and epochs == int(epochs) and world_size == 1
        num_windows = windows * int(epochs) if is_whole else steps * config.batch_size
        every = config.eval_every
        if every is None and num_windows < FEW_EPOCHS * windows:
            every = max(1, steps // EVALUATIONS_OF_FEW_EPOCHS)
        budget = cls(windows, ids, config.batch_size, num_windows, every)
        default = max(LEAST_PATIENCE, math.ceil(PATIENCE_SHARE * budget.num_evaluations))
        patience = default if config.early_stop is None else config.early_stop
        return budget._replace(patience=None if patience == NO_EARLY_STOP else patience)

    @property
    def steps(self) -> int:
        return math.ceil(self.num_windows / self.batch_size)

    @property
    def warmup_steps(self) -> int:
        return math.ceil(WARMUP_SHARE * self.steps)

    @property
    def epochs(self) -> float:
        return self.num_windows / self.windows_per_epoch

    @property
    def num_evaluations(self) -> int:
        """After the first step: how many steps `is_evaluated_at` says yes to."""
        if self.eval_every is not None:
            return math.ceil(self.steps / self.eval_every)
        return min(self.steps, math.ceil(self.epochs))

    def windows_at(self, step: int) -> int:
        return min(step * self.batch_size, self.num_windows)

    def epoch_at(self, step: int) -> float:
        return self.windows_at(step) / self.windows_per_epoch

    def is_evaluated_at(self, step: int) -> bool:
        if step >= self.steps:
            return True
        if self.eval_every is not None:
            return step % self.eval_every == 0
        return int(self.epoch_at(step)) > int(self.epoch_at(step - 1))
