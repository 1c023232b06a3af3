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

from gristmill.columns import IGNORED_LABEL
from gristmill.training.objectives import Objective, Places

Batch = dict[str, torch.Tensor]
Floats = npt.NDArray[np.float64]


class Score(NamedTuple):
    """All by window."""

    nats: Floats
    tokens: Floats
    """How many were told."""
    right: Floats
    bytes: Floats | None
    """That these tokens stand for; None: nobody can say."""

    @property
    def loss(self) -> float:
        return ratio(self.nats, self.tokens)

    @property
    def accuracy(self) -> float:
        return ratio(self.right, self.tokens)

    @property
    def bits_per_byte(self) -> float | None:
        return None if self.bytes is None else ratio(self.nats, self.bytes) / math.log(2)


def ratio(totals: Floats, weights: Floats) -> float:
    return float(totals.sum() / weights.sum()) if weights.any() else math.nan


def score(
    objective: Objective, batches: Iterable[Batch], device: torch.device, bytes_by_id: npt.NDArray[Any] | None
) -> Score:
    """Weights stay as they are, and so does the chance that dropout draws from."""
    was_training = objective.training
    objective.eval()
    lengths = None if bytes_by_id is None else torch.from_numpy(np.asarray(bytes_by_id, np.float64)).to(device)
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        parts = [_by_window(objective, batch, device, lengths).cpu().numpy() for batch in batches]
    objective.train(was_training)
    nats, tokens, right, num_bytes = np.concatenate(parts).T if parts else np.zeros((4, 0))
    return Score(nats, tokens, right, None if lengths is None else num_bytes)


def _by_window(objective: Objective, batch: Batch, device: torch.device, lengths: torch.Tensor | None) -> torch.Tensor:
    """For each window: nats, tokens told, those told right, their bytes."""
    there = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
    at, tokens = there["at"], there["tokens"]
    losses, hits = objective.tell(there["input_ids"], Places(at, tokens), there.get("attention_mask"))
    is_told = tokens != IGNORED_LABEL
    sizes = torch.zeros_like(losses) if lengths is None else lengths[tokens.clamp(min=0)] * is_told
    measured = torch.stack([one.double() for one in (losses, is_told, hits & is_told, sizes)], dim=1)
    windows, width = there["input_ids"].shape
    return measured.new_zeros(windows, measured.shape[1]).index_add(0, at // width, measured)
