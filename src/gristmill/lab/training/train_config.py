"""Settings of a training run with their defaults and limits, and the resulting number of steps."""

import math
from typing import Literal, NamedTuple

import msgspec

from gristmill.config.validation import check_types, require_at_least, require_between
from gristmill.core.errors import ConfigError
from gristmill.core.records import LABELED_KINDS

ObjectiveName = Literal["mlm", "causal"]
Device = Literal["auto", "cpu", "cuda"]

FRESH_MODELS = ("tiny", "small", "base")
"""Models that start with random weights. Any other name refers to a pretrained model."""
ALL_LINEAR = "all-linear"
UNTRAINED_VARIANTS = tuple(sorted(LABELED_KINDS))
"""Variants that are excluded from training. They are meant for models that translate one text into another."""
NO_EARLY_STOP = 0
NUM_SEEDS = 1 << 32
MAX_COUNT = 1 << 40
MAX_BATCH_SIZE = 1 << 20
MAX_LORA_SETTING = 1 << 16


class Recipe(NamedTuple):
    """Default settings for one kind of training.

    In every recipe, the learning rate decays along a cosine to a tenth of its peak, and gradients are clipped at a
    norm of 1.
    """

    epochs: int
    learning_rate: float | None
    """Peak learning rate. None if it depends on the size of the model."""
    warmup_share: float
    """Share of the steps during which the learning rate rises."""
    weight_decay: float
    beta2: float
    """Second beta of AdamW. The first is 0.9."""


MASKED = Recipe(epochs=200, learning_rate=None, warmup_share=0.05, weight_decay=0.1, beta2=0.98)
MASKED_PRETRAINED = MASKED._replace(learning_rate=5e-5)
CAUSAL = MASKED
"""Recipe for a causal model with random initial weights. Its settings were measured in benchmarks/training."""
CAUSAL_PRETRAINED = Recipe(epochs=3, learning_rate=2e-5, warmup_share=0.03, weight_decay=0.1, beta2=0.95)
LORA = Recipe(epochs=3, learning_rate=2e-4, warmup_share=0.03, weight_decay=0.0, beta2=0.95)


class TrainConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a training run. Raises ConfigError for values that are invalid or contradict each other."""

    objective: ObjectiveName | None = None
    """`mlm` predicts masked tokens, `causal` predicts the next token. Defaults to `causal` for packed rows, for the
    presets `causal` and `fim`, and for tokenizers without a mask token, otherwise to `mlm`."""
    model: str = "tiny"
    """`tiny`, `small` or `base` for a model with random weights, in the shape of CodeBERT (`mlm`) or GPT-2 (`causal`).
    A folder or Hub id (`gpt2`, `org/name`, `org/name@revision`) for a pretrained model."""
    epochs: float | None = None
    """Number of passes over train. Defaults to 200, or to 3 with `lora` or a pretrained causal model."""
    tokens: int | None = None
    """Number of token ids to train on, instead of `epochs`."""
    seed: int = 0
    """Seed for weights, order, masks and dropout."""
    batch_size: int = 32
    """Number of windows in a batch, over all GPUs."""
    accumulate: int = 1
    """Number of batches in a step. The gradients add up, and the loss is the mean over the tokens of all batches."""
    learning_rate: float | None = None
    """Peak learning rate. Defaults to 2e-4 with `lora`, to 2e-5 (causal) or 5e-5 (mlm) for other pretrained models, and
    to 1e-3 for `tiny`, 6e-4 for `small` and 2e-4 for `base`."""
    lora: bool = False
    """Train a LoRA adapter (peft) for a pretrained model and leave the model's own weights unchanged."""
    lora_rank: int = 16
    """Rank of the adapter matrices. A higher rank learns more and needs more memory."""
    lora_alpha: int = 32
    """Scale of the adapter: the output of the adapter is multiplied by alpha / rank."""
    lora_dropout: float = 0.0
    """Share of an adapter's inputs that are dropped at random."""
    lora_targets: str = ALL_LINEAR
    """Layers that get an adapter: `all-linear` (all linear layers except the output layer), or a comma-separated list
    of names such as `q_proj,v_proj`."""
    mask_rate: float = 0.15
    """Share of tokens to predict, for `mlm`."""
    whole_identifiers: bool = False
    """Mask either all tokens of an identifier or none, for `mlm`."""
    eval_every: int | None = None
    """Number of steps between two evaluations. By default, a run is evaluated after each epoch, or 20 times if it has
    fewer than ten epochs."""
    eval_windows: int | None = None
    """Number of validation windows to score, spread evenly over the split. Fewer windows make evaluations faster. By
    default, all windows are scored. The test split is always scored completely."""
    early_stop: int | None = None
    """Stop after this many evaluations in a row that together lower the validation loss by less than 0.1 %. 0 disables
    early stopping. Defaults to a tenth of all evaluations, but at least 10. Evaluations during the warm-up are not
    counted."""
    save_every: int | None = None
    """Number of steps between two checkpoints. By default, an evaluation writes a checkpoint if the last checkpoint is
    at least a minute old."""
    device: Device = "auto"
    workers: int = 0
    """Number of processes that prefetch windows. With 0, the training process reads the windows itself."""
    compile: bool | None = None
    """Use of torch.compile on a GPU: True compiles the complete model, False compiles nothing. By default, `base` is
    compiled completely, because it is large enough to benefit, and for other models only the loss is compiled."""

    def __post_init__(self) -> None:
        check_types(self, "")
        if self.epochs is not None and self.tokens is not None:
            raise ConfigError(
                f"--epochs {self.epochs:g} and --tokens {self.tokens} are both given. Give only one of them."
            )
        if self.epochs is not None and not 0 < self.epochs <= 1_000_000:  # noqa: PLR2004
            raise ConfigError(f"--epochs must be above 0 and at most 1,000,000, got {self.epochs:g}.")
        if self.learning_rate is not None and not 0 < self.learning_rate <= 1:
            raise ConfigError(f"--learning-rate must be above 0 and at most 1, got {self.learning_rate:g}.")
        require_between(0.01, 0.9, "--mask-rate", self.mask_rate)
        require_at_least(0, "--seed", self.seed, most=NUM_SEEDS - 1)
        require_at_least(0, "--workers", self.workers, most=1024)
        for name in ("tokens", "batch_size", "accumulate", "eval_every", "eval_windows", "early_stop", "save_every"):
            value = getattr(self, name)
            if value is not None:
                most = MAX_BATCH_SIZE if name in {"batch_size", "accumulate"} else MAX_COUNT
                require_at_least(0 if name == "early_stop" else 1, f"--{name.replace('_', '-')}", value, most=most)
        self._check_lora()

    def _check_lora(self) -> None:
        defaults = dict(zip(self.__struct_fields__, self.__struct_defaults__, strict=True))
        for name in ("lora_rank", "lora_alpha", "lora_dropout", "lora_targets"):
            if not self.lora and getattr(self, name) != defaults[name]:
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option} requires --lora. Add --lora, or leave out {option}.")
        if not self.lora:
            return
        require_at_least(1, "--lora-rank", self.lora_rank, most=MAX_LORA_SETTING)
        require_at_least(1, "--lora-alpha", self.lora_alpha, most=MAX_LORA_SETTING)
        require_between(0, 0.9, "--lora-dropout", self.lora_dropout)
        if not all(self.lora_layers):
            raise ConfigError(
                "--lora-targets must be all-linear or a comma-separated list of layer names, got "
                f"{self.lora_targets!r}."
            )
        if self.is_fresh:
            raise ConfigError(
                f"--lora requires a pretrained model, but {self.model!r} starts with random weights. Pass a model "
                f"folder with --model (./{self.model} for a folder of that name), or leave out --lora."
            )

    @property
    def is_fresh(self) -> bool:
        """True if the model starts with random weights."""
        return self.model in FRESH_MODELS

    @property
    def lora_layers(self) -> list[str]:
        return [name.strip() for name in self.lora_targets.split(",")]

    @property
    def recipe(self) -> Recipe:
        """Default settings for this objective and model."""
        if self.lora:
            return LORA
        if self.objective == "causal":
            return CAUSAL if self.is_fresh else CAUSAL_PRETRAINED
        return MASKED if self.is_fresh else MASKED_PRETRAINED

    @property
    def windows_per_step(self) -> int:
        return self.batch_size * self.accumulate

    @property
    def is_compiled(self) -> bool:
        """True if the complete model is compiled when training on a GPU."""
        return self.model == "base" if self.compile is None else self.compile

    @property
    def compiles_loss(self) -> bool:
        """True if only the loss is compiled when training on a GPU."""
        return self.compile is None and not self.is_compiled


# Length of a training run in steps, computed from epochs or tokens, and the steps after which the model is evaluated.
# Batches continue across epoch boundaries, so all batches except the very last have the same size.


FEW_EPOCHS = 10
EVALUATIONS_FOR_FEW_EPOCHS = 20
PATIENCE_SHARE = 0.1
MIN_PATIENCE = 10
"""Smallest default of `early_stop`. With this default, no run in benchmarks/training stops before its best model."""


class Budget(NamedTuple):
    """Length of a training run and its evaluation schedule."""

    windows_per_epoch: int
    ids_per_epoch: int
    """Number of token ids without padding."""
    windows_per_step: int
    num_windows: int
    """Number of windows trained on, over all epochs."""
    eval_every: int | None
    """Number of steps between evaluations. None for an evaluation after each epoch."""
    warmup_share: float = MASKED.warmup_share
    """Share of the steps during which the learning rate rises."""
    patience: int | None = None
    """Number of evaluations without a gain on validation after which the run stops. None if it never stops early."""

    @classmethod
    def of(cls, config: TrainConfig, windows: int, ids: int, world_size: int = 1) -> "Budget":
        """Compute the budget for epochs of `windows` windows with `ids` token ids in total."""
        per_step, recipe = config.windows_per_step, config.recipe
        epochs: float = recipe.epochs if config.epochs is None else config.epochs
        epochs = epochs if config.tokens is None else config.tokens / ids
        steps = max(1, math.ceil(round(windows * epochs, 6) / per_step))
        # In a single process, a run of complete epochs may end with a smaller step. Any other run is rounded up to full
        # steps. With several processes, a smaller step could leave some processes without windows, and the other
        # processes would wait for them.
        is_complete_epochs = config.tokens is None and epochs == int(epochs) and world_size == 1
        num_windows = windows * int(epochs) if is_complete_epochs else steps * per_step
        every = config.eval_every
        if every is None and num_windows < FEW_EPOCHS * windows:
            every = max(1, steps // EVALUATIONS_FOR_FEW_EPOCHS)
        budget = cls(windows, ids, per_step, num_windows, every, recipe.warmup_share)
        default = max(MIN_PATIENCE, math.ceil(PATIENCE_SHARE * budget.num_evaluations))
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
        """Number of steps for which `is_evaluated_at` is true. The evaluation before the first step is not included."""
        if self.eval_every is not None:
            return math.ceil(self.steps / self.eval_every)
        return min(self.steps, math.ceil(self.epochs))

    def windows_at(self, step: int) -> int:
        """Return the number of windows trained on after `step` steps."""
        return min(step * self.windows_per_step, self.num_windows)

    def epoch_at(self, step: int) -> float:
        return self.windows_at(step) / self.windows_per_epoch

    def is_evaluated_at(self, step: int) -> bool:
        if step >= self.steps:
            return True
        if self.eval_every is not None:
            return step % self.eval_every == 0
        return int(self.epoch_at(step)) > int(self.epoch_at(step - 1))
