"""What a training can be told: every setting, default and limit, once."""

from typing import Literal

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
