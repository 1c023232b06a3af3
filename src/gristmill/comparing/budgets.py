"""How long each dataset is trained on: the same number of tokens, or the same number of its own epochs."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from gristmill.comparing.frozen import AgainstFacts
from gristmill.training.settings import DEFAULT_EPOCHS, NO_EARLY_STOP, TrainConfig

BudgetKind = Literal["tokens", "epochs"]
EVALUATIONS = 40
"""Of a run, evenly spaced: the curves of two datasets have the same points if they have the same budget."""


def tokens_of(config: TrainConfig, trains: Sequence[AgainstFacts], kind: BudgetKind) -> list[int]:
    """By dataset. Epochs of a budget of tokens are the first dataset's."""
    if config.tokens is not None:
        return [config.tokens] * len(trains)
    epochs = DEFAULT_EPOCHS if config.epochs is None else config.epochs
    own = [max(1, round(epochs * train.ids)) for train in trains]
    return own if kind == "epochs" else own[:1] * len(trains)


def config_of(config: TrainConfig, train: AgainstFacts, tokens: int, seed: int) -> TrainConfig:
    """Of one run, which spends its whole budget."""
    steps = max(1, round(tokens * train.windows / train.ids / config.batch_size))
    every = max(1, steps // EVALUATIONS) if config.eval_every is None else config.eval_every
    return msgspec.structs.replace(
        config, tokens=tokens, epochs=None, seed=seed, eval_every=every, early_stop=NO_EARLY_STOP
    )
