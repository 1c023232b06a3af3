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
    nats: npt.NDArray[np.float64]
    """By window."""
    num_tokens: int
    num_right: int
    num_bytes: int | None
    """None: the tokenizer does not say which bytes a token stands for."""

    @property
    def loss(self) -> float:
        return float(self.nats.sum()) / self.num_tokens if self.num_tokens else math.nan

    @property
    def accuracy(self) -> float:
        return self.num_right / self.num_tokens if self.num_tokens else math.nan

    @property
    def bits_per_byte(self) -> float | None:
        return float(self.nats.sum()) / math.log(2) / self.num_bytes if self.num_bytes else None


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
    num_bytes = None if lengths is None else int(num_bytes.sum())
    return Score(nats, int(tokens.sum()), int(right.sum()), num_bytes)


def _by_window(objective: Objective, batch: Batch, device: torch.device, lengths: torch.Tensor | None) -> torch.Tensor:
    """For each window: nats, tokens told, those told right, their bytes."""
    there = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
    at, tokens = there["at"], there["tokens"]
    losses, hits = objective.tell(there["input_ids"], Places(at, tokens), there.get("attention_mask"))
    is_told = tokens != IGNORED
    sizes = torch.zeros_like(losses) if lengths is None else lengths[tokens.clamp(min=0)] * is_told
    measured = torch.stack([one.double() for one in (losses, is_told, hits & is_told, sizes)], dim=1)
    windows, width = there["input_ids"].shape
    return measured.new_zeros(windows, measured.shape[1]).index_add(0, at // width, measured)
