"""What a training can be told: every setting, default and limit, once; and how many steps they come to."""

import math
from typing import Literal, NamedTuple

import msgspec

from gristmill.config.validation import at_least, between, check_types
from gristmill.core.errors import ConfigError
from gristmill.core.records import WITH_LABELS

ObjectiveName = Literal["mlm", "causal"]
Device = Literal["auto", "cpu", "cuda"]

DEFAULT_EPOCHS = 200
LEFT_OUT = tuple(sorted(WITH_LABELS))
"""Variants that are not trained on: they are for models that read one text and write another."""
NO_EARLY_STOP = 0
MOST_SEEDS = 1 << 32
MOST_STEPS = 1 << 40
MOST_WINDOWS = 1 << 20
"""In a step."""


class TrainConfig(msgspec.Struct, frozen=True, kw_only=True):
    objective: ObjectiveName | None = None
    """`mlm`: tell what masked tokens were; `causal`: tell the next one. None: mlm if the tokenizer has a mask token."""
    model: str = "tiny"
    """`tiny`, `small` or `base` (CodeBERT's shape, or GPT-2's) with fresh weights; a folder or Hub id (`gpt2`,
    `org/name`, `org/name@revision`): trained ones."""
    epochs: float | None = None
    """Times through train; 200 if nothing is said."""
    tokens: int | None = None
    """Instead of epochs: how many ids to go through."""
    seed: int = 0
    """Of weights, order, masks and dropout."""
    batch_size: int = 32
    """Windows in a step, over all GPUs."""
    learning_rate: float | None = None
    """At its highest; None: what suits the model's size."""
    mask_rate: float = 0.15
    """With mlm: of all tokens, those to be told."""
    whole_identifiers: bool = False
    """With mlm: mask all tokens of a name, or none."""
    eval_every: int | None = None
    """Steps between two evaluations; None: an epoch, or a twentieth of a run of less than ten."""
    eval_windows: int | None = None
    """Score so many windows of validation, evenly spread, instead of all: for a quick look. Test is scored whole."""
    early_stop: int | None = None
    """Stop once so many evaluations in a row have lowered the loss on validation by less than 0.1 % in all; 0: never.
    None: a tenth of all evaluations, 10 at least. Those of the warm-up do not count."""
    save_every: int | None = None
    """Steps between two checkpoints; None: one a minute, at an evaluation."""
    device: Device = "auto"
    workers: int = 0
    """Processes that read windows ahead; 0: the training itself reads."""
    compile: bool | None = None
    """torch.compile on a GPU: the whole model, or nothing. None: all of `base`, where it pays; of others the loss."""

    def __post_init__(self) -> None:
        check_types(self, "")
        if self.epochs is not None and self.tokens is not None:
            raise ConfigError(f"--epochs {self.epochs:g} and --tokens {self.tokens} are two budgets. Give one of them.")
        if self.epochs is not None and not 0 < self.epochs <= 1_000_000:  # noqa: PLR2004
            raise ConfigError(f"--epochs must be above 0 and at most 1,000,000, got {self.epochs:g}.")
        if self.learning_rate is not None and not 0 < self.learning_rate <= 1:
            raise ConfigError(f"--learning-rate must be above 0 and at most 1, got {self.learning_rate:g}.")
        between(0.01, 0.9, "--mask-rate", self.mask_rate)
        at_least(0, "--seed", self.seed, most=MOST_SEEDS - 1)
        at_least(0, "--workers", self.workers, most=1024)
        for name in ("tokens", "batch_size", "eval_every", "eval_windows", "early_stop", "save_every"):
            value = getattr(self, name)
            if value is not None:
                most = MOST_WINDOWS if name == "batch_size" else MOST_STEPS
                at_least(0 if name == "early_stop" else 1, f"--{name.replace('_', '-')}", value, most=most)

    @property
    def is_compiled(self) -> bool:
        """On a GPU."""
        return self.model == "base" if self.compile is None else self.compile

    @property
    def compiles_loss(self) -> bool:
        return self.compile is None and not self.is_compiled


# How long a training is, in steps: from epochs or tokens, with the steps after which it is evaluated.
# Batches go on over the end of an epoch, so that all have the same size but the last of all.


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
