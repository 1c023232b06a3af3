"""How well a model tells tokens that it was not trained on: each one once.

Bits per byte of causal models: the nats of all tokens told, in bits, over the bytes that these tokens stand for. It
does not depend on the tokenizer, so figures of different ones can be held against each other.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from gristmill.training.objectives import IGNORED, Objective, Places

Batch = dict[str, torch.Tensor]


class Score(NamedTuple):
    nats: float
    num_tokens: int
    num_right: int
    num_bytes: int | None
    """None: the tokenizer does not say which bytes a token stands for."""

    @property
    def loss(self) -> float:
        return self.nats / self.num_tokens if self.num_tokens else math.nan

    @property
    def accuracy(self) -> float:
        return self.num_right / self.num_tokens if self.num_tokens else math.nan

    @property
    def bits_per_byte(self) -> float | None:
        return self.nats / math.log(2) / self.num_bytes if self.num_bytes else None


def score(
    objective: Objective, batches: Iterable[Batch], device: torch.device, bytes_by_id: npt.NDArray[Any] | None
) -> Score:
    """Weights stay as they are, and so does the chance that dropout draws from."""
    was_training = objective.training
    objective.eval()
    nats, num_tokens, num_right, num_bytes = 0.0, 0, 0, 0
    lengths = None if bytes_by_id is None else torch.from_numpy(np.asarray(bytes_by_id, np.int64)).to(device)
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        for batch in batches:
            there = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
            places = Places(there["at"], there["tokens"])
            losses, hits = objective.tell(there["input_ids"], places, there.get("attention_mask"))
            is_told = places.tokens != IGNORED
            nats += float(losses.double().sum())
            num_tokens += int(is_told.sum())
            num_right += int((hits & is_told).sum())
            num_bytes += 0 if lengths is None else int(lengths[places.tokens[is_told]].sum())
    objective.train(was_training)
    return Score(nats, num_tokens, num_right, None if lengths is None else num_bytes)
