"""A model and what it is to learn, as one module that gives the loss and nothing else.

Words come out of a model as one number for each token of the vocabulary, at each place: by far the largest thing in a
small model. So they are made only where a token is to be told (15 % of the places for mlm), and where they would fill
the memory, in parts that are made again on the way back. `Places` says where, with a length that hardly ever changes,
as compiled code wants it.
"""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gristmill.core.columns import IGNORED_LABEL

PLACES_STEP = 16
"""Places are filled up to a multiple of a 16th of all tokens in the batch."""
CPU_LOGITS_BYTES = 256 << 20
GPU_SHARE_FOR_LOGITS = 0.125
HEADS = ("lm_head", "cls")


class Places(NamedTuple):
    at: Tensor | None
    """Into all hidden states of a batch, one row after the other; None: everywhere."""
    tokens: Tensor
    """To be told there; -100: none."""


def all_places(labels: Tensor) -> Places:
    """A causal model tells each token one place before it."""
    return Places(None, nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL).reshape(-1))


def some_places(labels: Tensor, *, is_causal: bool) -> Places:
    """Only where a token is to be told, filled up with others; no place comes twice."""
    tokens = all_places(labels).tokens if is_causal else labels.reshape(-1)
    is_wanted = tokens != IGNORED_LABEL
    found, others = is_wanted.nonzero().squeeze(1), (~is_wanted).nonzero().squeeze(1)
    unit = max(1, tokens.numel() // PLACES_STEP)
    missing = -len(found) % unit if len(found) else unit
    at = torch.cat((found, others[:missing]))
    return Places(at, tokens[at])


class Objective(nn.Module):
    def __init__(self, model: nn.Module, *, is_causal: bool, logits_bytes: int = CPU_LOGITS_BYTES) -> None:
        super().__init__()
        self.model, self.is_causal, self.logits_bytes = model, is_causal, logits_bytes
        self._is_head_all = True

    def check_head(self) -> None:
        """Some models do more to their words than the head does (scale them, say): those give words at all places."""
        ids = torch.arange(8).unsqueeze(0)
        was_training = self.training
        self.eval()
        with torch.no_grad():
            ours = self._words(self._hidden(ids, None, None, None))
            theirs: Tensor = self.model(input_ids=ids).logits.flatten(0, 1)
        self.train(was_training)
        self._is_head_all = ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)

    def keeps_apart(self) -> bool:
        """Return whether the model sees each segment of a packed row as if it were alone.

        Most models of transformers do, by `position_ids`. Those that ignore them would see the files before.
        """
        ids, alone = torch.arange(8).unsqueeze(0), torch.arange(4, 8).unsqueeze(0)
        was_training = self.training
        self.eval()
        try:
            with torch.no_grad():
                packed = self._hidden(ids, None, torch.arange(4).repeat(2).unsqueeze(0), None)[4:]
                is_apart = torch.allclose(packed, self._hidden(alone, None, None, None), rtol=1e-4, atol=1e-4)
        except TypeError:  # it takes no position_ids
            is_apart = False
        self.train(was_training)
        return is_apart

    def compile_loss(self) -> None:
        """Words and their loss in one go, through the memory once: worth its seconds on a GPU, whatever the model."""
        self._loss_sum = torch.compile(self._loss_sum)  # type: ignore[method-assign]

    def forward(
        self,
        input_ids: Tensor,
        tokens: Tensor,
        *,
        at: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        num_told: Tensor | None = None,
    ) -> Tensor:
        """Return the mean loss over all tokens to predict.

        `num_told`: the divisor to use instead of their number, if the batch is only part of a step.
        """
        hidden = self._hidden(input_ids, attention_mask, position_ids, at)
        parts = self._in_parts(hidden, tokens)
        if len(parts) == 1:
            total = self._loss_sum(*parts[0])
        else:
            sums = [checkpoint(self._loss_sum, *part, use_reentrant=False) for part in parts]
            total = torch.stack(sums).sum()
        return total / ((tokens != IGNORED_LABEL).sum().clamp(min=1) if num_told is None else num_told)

    def tell(
        self, input_ids: Tensor, places: Places, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """For each place, the loss of its token, and whether it would have been the model's choice."""
        hidden = self._hidden(input_ids, attention_mask, position_ids, places.at)
        losses, hits = [], []
        for some, tokens in self._in_parts(hidden, places.tokens):
            words = self._words(some).float()
            losses.append(nn.functional.cross_entropy(words, tokens, ignore_index=IGNORED_LABEL, reduction="none"))
            hits.append(words.argmax(-1) == tokens)
        return torch.cat(losses), torch.cat(hits)

    def _hidden(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None, at: Tensor | None
    ) -> Tensor:
        # A causal model never looks at the padding behind its tokens: without a mask its attention is the fast one.
        mask = None if self.is_causal else attention_mask
        body: Any = self.model.base_model if self._head is not None else self.model
        more: dict[str, Any] = {"use_cache": False} if self.is_causal else {}
        if position_ids is not None:
            more["position_ids"] = position_ids
        output = body(input_ids=input_ids, attention_mask=mask, **more)
        states: Tensor = output[0].flatten(0, 1)
        return states if at is None else states.index_select(0, at)

    @property
    def _head(self) -> nn.Module | None:
        """From hidden states to words; None: of this class nobody knows, so the model gives words at all places."""
        names = HEADS if self._is_head_all else ()
        return next((getattr(self.model, name) for name in names if hasattr(self.model, name)), None)

    def _words(self, states: Tensor) -> Tensor:
        words: Tensor = states if self._head is None else self._head(states)
        return words

    def _loss_sum(self, states: Tensor, tokens: Tensor) -> Tensor:
        words = self._words(states).float()
        return nn.functional.cross_entropy(words, tokens, ignore_index=IGNORED_LABEL, reduction="sum")

    def _in_parts(self, states: Tensor, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
        config: Any = self.model.config
        at_once = max(1, self.logits_bytes // (4 * config.vocab_size))
        return list(zip(torch.split(states, at_once), torch.split(tokens, at_once), strict=True))


def logits_bytes_on(device: torch.device) -> int:
    if device.type != "cuda":
        return CPU_LOGITS_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory * GPU_SHARE_FOR_LOGITS)


# How well a model tells tokens that it was not trained on: each one once.

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
    masks = there.get("attention_mask"), there.get("position_ids")
    losses, hits = objective.tell(there["input_ids"], Places(at, tokens), *masks)
    is_told = tokens != IGNORED_LABEL
    sizes = torch.zeros_like(losses) if lengths is None else lengths[tokens.clamp(min=0)] * is_told
    measured = torch.stack([one.double() for one in (losses, is_told, hits & is_told, sizes)], dim=1)
    windows, width = there["input_ids"].shape
    return measured.new_zeros(windows, measured.shape[1]).index_add(0, at // width, measured)
