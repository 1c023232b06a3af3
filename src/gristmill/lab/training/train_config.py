"""What a training can be told: every setting, default and limit, once; and how many steps they come to."""

import math
from typing import Literal, NamedTuple

import msgspec

from gristmill.config.validation import at_least, between, check_types
from gristmill.core.errors import ConfigError
from gristmill.core.records import WITH_LABELS

ObjectiveName = Literal["mlm", "causal"]
Device = Literal["auto", "cpu", "cuda"]

FRESH_MODELS = ("tiny", "small", "base")
"""Their weights are random at first; any other name is that of a trained model."""
ALL_LINEAR = "all-linear"
LEFT_OUT = tuple(sorted(WITH_LABELS))
"""Variants that are not trained on: they are for models that read one text and write another."""
NO_EARLY_STOP = 0
MOST_SEEDS = 1 << 32
MOST_STEPS = 1 << 40
MOST_WINDOWS = 1 << 20
"""In a step."""
MOST_LORA = 1 << 16


class Recipe(NamedTuple):
    """Defaults of a kind of training.

    In all of them, the rate falls along a cosine to a tenth, and gradients are clipped at a norm of 1.
    """

    epochs: int
    learning_rate: float | None
    """At its highest; None: by the model's size."""
    warmup_share: float
    """Share of the steps in which the learning rate rises."""
    weight_decay: float
    beta2: float
    """A setting of AdamW; beta1 is 0.9."""


MASKED = Recipe(epochs=200, learning_rate=None, warmup_share=0.05, weight_decay=0.1, beta2=0.98)
MASKED_TRAINED = MASKED._replace(learning_rate=5e-5)
CAUSAL = MASKED
"""From fresh weights, as benchmarks/training measured it."""
CAUSAL_TRAINED = Recipe(epochs=3, learning_rate=2e-5, warmup_share=0.03, weight_decay=0.1, beta2=0.95)
LORA = Recipe(epochs=3, learning_rate=2e-4, warmup_share=0.03, weight_decay=0.0, beta2=0.95)


class TrainConfig(msgspec.Struct, frozen=True, kw_only=True):
    objective: ObjectiveName | None = None
    """`mlm`: predict masked tokens; `causal`: predict the next token. None: by the preset of the dataset;
    for rows that gristmill did not build, mlm if the tokenizer has a mask token."""
    model: str = "tiny"
    """`tiny`, `small` or `base` (CodeBERT's shape, or GPT-2's) with fresh weights; a folder or Hub id (`gpt2`,
    `org/name`, `org/name@revision`): trained ones."""
    epochs: float | None = None
    """Times through train; None: 200, or 3 for a trained causal model and with `lora`."""
    tokens: int | None = None
    """Instead of epochs: how many ids to go through."""
    seed: int = 0
    """Of weights, order, masks and dropout."""
    batch_size: int = 32
    """Windows at once, over all GPUs."""
    accumulate: int = 1
    """Batches in a step: their gradients add up, and the loss is the mean over the tokens of all of them."""
    learning_rate: float | None = None
    """At its highest; None: 2e-4 with `lora`; for other trained models 2e-5 (causal) or 5e-5 (mlm); else by the model's
    size."""
    lora: bool = False
    """Train a LoRA adapter (peft) for a trained model, whose own weights stay as they are."""
    lora_rank: int = 16
    """The width of an adapter: more learns more, and costs more memory."""
    lora_alpha: int = 32
    """The adapter's output is scaled by alpha / rank."""
    lora_dropout: float = 0.0
    """Share of an adapter's inputs that are left out at random."""
    lora_targets: str = ALL_LINEAR
    """Layers with an adapter: `all-linear` (all linear layers except the output layer), or a comma-separated list of
    names: `q_proj,v_proj`."""
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
        for name in ("tokens", "batch_size", "accumulate", "eval_every", "eval_windows", "early_stop", "save_every"):
            value = getattr(self, name)
            if value is not None:
                most = MOST_WINDOWS if name in {"batch_size", "accumulate"} else MOST_STEPS
                at_least(0 if name == "early_stop" else 1, f"--{name.replace('_', '-')}", value, most=most)
        self._check_lora()

    def _check_lora(self) -> None:
        defaults = dict(zip(self.__struct_fields__, self.__struct_defaults__, strict=True))
        for name in ("lora_rank", "lora_alpha", "lora_dropout", "lora_targets"):
            if not self.lora and getattr(self, name) != defaults[name]:
                raise ConfigError(f"--{name.replace('_', '-')} is a setting of --lora: add that, or leave this out.")
        if not self.lora:
            return
        at_least(1, "--lora-rank", self.lora_rank, most=MOST_LORA)
        at_least(1, "--lora-alpha", self.lora_alpha, most=MOST_LORA)
        between(0, 0.9, "--lora-dropout", self.lora_dropout)
        if not all(self.lora_layers):
            raise ConfigError(f"--lora-targets takes all-linear or names of layers, got {self.lora_targets!r}.")
        if self.is_fresh:
            raise ConfigError(
                f"--lora adapts a trained model, and {self.model!r} begins with random weights. Name a model's folder "
                f"with --model (one with that name as ./{self.model}), or leave out --lora."
            )

    @property
    def is_fresh(self) -> bool:
        """The model begins with random weights."""
        return self.model in FRESH_MODELS

    @property
    def lora_layers(self) -> list[str]:
        return [name.strip() for name in self.lora_targets.split(",")]

    @property
    def recipe(self) -> Recipe:
        """Defaults of this kind of training."""
        if self.lora:
            return LORA
        if self.objective == "causal":
            return CAUSAL if self.is_fresh else CAUSAL_TRAINED
        return MASKED if self.is_fresh else MASKED_TRAINED

    @property
    def windows_per_step(self) -> int:
        return self.batch_size * self.accumulate

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
PATIENCE_SHARE = 0.1
LEAST_PATIENCE = 10
"""Evaluations. By the curves in benchmarks/training, every run with a clean split keeps the model it kept without."""


class Budget(NamedTuple):
    windows_per_epoch: int
    ids_per_epoch: int
    """Padding apart."""
    windows_per_step: int
    num_windows: int
    """Shown in all."""
    eval_every: int | None
    """Steps; None: each epoch."""
    warmup_share: float = MASKED.warmup_share
    """Share of the steps in which the learning rate rises."""
    patience: int | None = None
    """Evaluations without a gain on validation after which a training stops; None: it never does."""

    @classmethod
    def of(cls, config: TrainConfig, windows: int, ids: int, world_size: int = 1) -> "Budget":
        per_step, recipe = config.windows_per_step, config.recipe
        epochs: float = recipe.epochs if config.epochs is None else config.epochs
        epochs = epochs if config.tokens is None else config.tokens / ids
        steps = max(1, math.ceil(round(windows * epochs, 6) / per_step))
        # Whole epochs end with a smaller step; any other end has room for a full one. Of a smaller one some of several
        # processes might have nothing, and the others would wait for them.
        is_whole = config.tokens is None and epochs == int(epochs) and world_size == 1
        num_windows = windows * int(epochs) if is_whole else steps * per_step
        every = config.eval_every
        if every is None and num_windows < FEW_EPOCHS * windows:
            every = max(1, steps // EVALUATIONS_OF_FEW_EPOCHS)
        budget = cls(windows, ids, per_step, num_windows, every, recipe.warmup_share)
        default = max(LEAST_PATIENCE, math.ceil(PATIENCE_SHARE * budget.num_evaluations))
        patience = default if config.early_stop is None else config.early_stop
        return budget._replace(patience=None if patience == NO_EARLY_STOP else patience)

    @property
    def steps(self) -> int:
        return math.ceil(self.num_windows / self.windows_per_step)

    @property
    def warmup_steps(self) -> int:
        return math.ceil(self.warmup_share * self.steps)

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
        return min(step * self.windows_per_step, self.num_windows)

    def epoch_at(self, step: int) -> float:
        return self.windows_at(step) / self.windows_per_epoch

    def is_evaluated_at(self, step: int) -> bool:
        if step >= self.steps:
            return True
        if self.eval_every is not None:
            return step % self.eval_every == 0
        return int(self.epoch_at(step)) > int(self.epoch_at(step - 1))
