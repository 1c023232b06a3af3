"""A model and its training objective as one PyTorch module, and the scoring of held-out windows.

The logits of a model are one number per vocabulary entry and position. They are by far the largest tensor of a small
model, so they are computed only at positions where a token is predicted (15 % of the positions for mlm). If these
logits are still too large for the memory, they are computed in parts, and recomputed during the backward pass.
`select_targets` selects the positions and rounds up their number, so the number rarely changes and code is rarely
recompiled.
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

TARGET_SIZE_STEPS = 16
"""The number of targets is padded to a multiple of 1/16 of the tokens in the batch."""
CPU_LOGITS_BYTES = 256 << 20
GPU_SHARE_FOR_LOGITS = 0.125
HEADS = ("lm_head", "cls")


class Targets(NamedTuple):
    """Tokens to predict in a batch."""

    positions: Tensor | None
    """Indices into the hidden states of the batch, flattened row by row. None means all positions."""
    tokens: Tensor
    """Token to predict at each position, or -100 if no token is predicted there."""


def all_targets(labels: Tensor) -> Targets:
    """Return the targets of a causal model at all positions. Each token is predicted at the position before it."""
    return Targets(None, nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL).reshape(-1))


def select_targets(labels: Tensor, *, is_causal: bool) -> Targets:
    """Return targets for the positions where a token is predicted.

    The targets are padded with distinct positions where no token is predicted.
    """
    tokens = all_targets(labels).tokens if is_causal else labels.reshape(-1)
    is_target = tokens != IGNORED_LABEL
    found, others = is_target.nonzero().squeeze(1), (~is_target).nonzero().squeeze(1)
    unit = max(1, tokens.numel() // TARGET_SIZE_STEPS)
    missing = -len(found) % unit if len(found) else unit
    positions = torch.cat((found, others[:missing]))
    return Targets(positions, tokens[positions])


class Objective(nn.Module):
    """A language model with a masked or causal objective."""

    def __init__(self, model: nn.Module, *, is_causal: bool, max_logits_bytes: int = CPU_LOGITS_BYTES) -> None:
        super().__init__()
        self.model, self.is_causal, self.max_logits_bytes = model, is_causal, max_logits_bytes
        self._has_plain_head = True

    def check_head(self) -> None:
        """Check whether the head (the last layer) alone turns hidden states into the model's logits.

        Some models also process the output of the head, for example by scaling it. Such a model must compute the logits
        at all positions.
        """
        ids = torch.arange(8).unsqueeze(0)
        was_training = self.training
        self.eval()
        with torch.no_grad():
            from_head = self._logits(self._hidden_states(ids, None, None, None))
            from_model: Tensor = self.model(input_ids=ids).logits.flatten(0, 1)
        self.train(was_training)
        self._has_plain_head = from_head.shape == from_model.shape and torch.allclose(
            from_head, from_model, rtol=1e-4, atol=1e-4
        )

    def isolates_segments(self) -> bool:
        """Return True if the model processes each segment of a packed row as if it were alone in the row.

        A segment is a part of the row with tokens of one file. Most models in transformers separate segments by
        `position_ids`. Models that ignore `position_ids` attend to earlier segments.
        """
        ids, alone = torch.arange(8).unsqueeze(0), torch.arange(4, 8).unsqueeze(0)
        was_training = self.training
        self.eval()
        try:
            with torch.no_grad():
                packed = self._hidden_states(ids, None, torch.arange(4).repeat(2).unsqueeze(0), None)[4:]
                is_isolated = torch.allclose(packed, self._hidden_states(alone, None, None, None), rtol=1e-4, atol=1e-4)
        except TypeError:  # the model takes no position_ids
            is_isolated = False
        self.train(was_training)
        return is_isolated

    def compile_loss(self) -> None:
        """Compile logits and loss together, into one pass over the memory. This speeds up every model on a GPU."""
        self._loss_sum = torch.compile(self._loss_sum)  # type: ignore[method-assign]

    def forward(
        self,
        input_ids: Tensor,
        tokens: Tensor,
        *,
        positions: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        num_predicted: Tensor | None = None,
    ) -> Tensor:
        """Return the mean loss over all tokens to predict.

        For a batch that is only a part of a step, the sum of the losses is divided by `num_predicted` instead of the
        number of these tokens.
        """
        hidden = self._hidden_states(input_ids, attention_mask, position_ids, positions)
        parts = self._split_for_memory(hidden, tokens)
        if len(parts) == 1:
            total = self._loss_sum(*parts[0])
        else:
            sums = [checkpoint(self._loss_sum, *part, use_reentrant=False) for part in parts]
            total = torch.stack(sums).sum()
        return total / ((tokens != IGNORED_LABEL).sum().clamp(min=1) if num_predicted is None else num_predicted)

    def score_targets(
        self, input_ids: Tensor, targets: Targets, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of each target, and whether the model ranks the target's token first."""
        hidden = self._hidden_states(input_ids, attention_mask, position_ids, targets.positions)
        losses, hits = [], []
        for states, tokens in self._split_for_memory(hidden, targets.tokens):
            logits = self._logits(states).float()
            losses.append(nn.functional.cross_entropy(logits, tokens, ignore_index=IGNORED_LABEL, reduction="none"))
            hits.append(logits.argmax(-1) == tokens)
        return torch.cat(losses), torch.cat(hits)

    def _hidden_states(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None, positions: Tensor | None
    ) -> Tensor:
        # A causal model never attends to the padding after its tokens. Without a mask, attention is faster.
        mask = None if self.is_causal else attention_mask
        body: Any = self.model.base_model if self._head is not None else self.model
        options: dict[str, Any] = {"use_cache": False} if self.is_causal else {}
        if position_ids is not None:
            options["position_ids"] = position_ids
        output = body(input_ids=input_ids, attention_mask=mask, **options)
        states: Tensor = output[0].flatten(0, 1)
        return states if positions is None else states.index_select(0, positions)

    @property
    def _head(self) -> nn.Module | None:
        """Layer that turns hidden states into logits. None if the model must compute all logits itself."""
        names = HEADS if self._has_plain_head else ()
        return next((getattr(self.model, name) for name in names if hasattr(self.model, name)), None)

    def _logits(self, states: Tensor) -> Tensor:
        logits: Tensor = states if self._head is None else self._head(states)
        return logits

    def _loss_sum(self, states: Tensor, tokens: Tensor) -> Tensor:
        logits = self._logits(states).float()
        return nn.functional.cross_entropy(logits, tokens, ignore_index=IGNORED_LABEL, reduction="sum")

    def _split_for_memory(self, states: Tensor, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
        config: Any = self.model.config
        max_rows = max(1, self.max_logits_bytes // (4 * config.vocab_size))
        return list(zip(torch.split(states, max_rows), torch.split(tokens, max_rows), strict=True))


def logits_bytes_limit(device: torch.device) -> int:
    """Return the maximum number of bytes that logits may occupy on a device at once."""
    if device.type != "cuda":
        return CPU_LOGITS_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory * GPU_SHARE_FOR_LOGITS)


# Scores on held-out windows. Each token of a file is predicted at most once.

Batch = dict[str, torch.Tensor]
Floats = npt.NDArray[np.float64]


class Score(NamedTuple):
    """Sums over the predicted tokens of each window."""

    nats: Floats
    num_tokens: Floats
    num_correct: Floats
    num_bytes: Floats | None
    """Number of bytes that the predicted tokens represent. None if the lengths of the tokens are unknown."""

    @property
    def loss(self) -> float:
        return ratio(self.nats, self.num_tokens)

    @property
    def accuracy(self) -> float:
        return ratio(self.num_correct, self.num_tokens)

    @property
    def bits_per_byte(self) -> float | None:
        return None if self.num_bytes is None else ratio(self.nats, self.num_bytes) / math.log(2)


def ratio(totals: Floats, weights: Floats) -> float:
    return float(totals.sum() / weights.sum()) if weights.any() else math.nan


def score(
    objective: Objective, batches: Iterable[Batch], device: torch.device, bytes_by_id: npt.NDArray[Any] | None
) -> Score:
    """Score the model on batches, without changing its weights or the random state that dropout uses."""
    was_training = objective.training
    objective.eval()
    lengths = None if bytes_by_id is None else torch.from_numpy(np.asarray(bytes_by_id, np.float64)).to(device)
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        parts = [_score_by_window(objective, batch, device, lengths).cpu().numpy() for batch in batches]
    objective.train(was_training)
    nats, num_tokens, num_correct, num_bytes = np.concatenate(parts).T if parts else np.zeros((4, 0))
    return Score(nats, num_tokens, num_correct, None if lengths is None else num_bytes)


def _score_by_window(
    objective: Objective, batch: Batch, device: torch.device, lengths: torch.Tensor | None
) -> torch.Tensor:
    """Return a row per window with the columns nats, predicted tokens, correct predictions and bytes."""
    tensors = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
    positions, tokens = tensors["positions"], tensors["tokens"]
    masks = tensors.get("attention_mask"), tensors.get("position_ids")
    losses, hits = objective.score_targets(tensors["input_ids"], Targets(positions, tokens), *masks)
    is_target = tokens != IGNORED_LABEL
    sizes = torch.zeros_like(losses) if lengths is None else lengths[tokens.clamp(min=0)] * is_target
    columns = torch.stack([one.double() for one in (losses, is_target, hits & is_target, sizes)], dim=1)
    windows, width = tensors["input_ids"].shape
    return columns.new_zeros(windows, columns.shape[1]).index_add(0, positions // width, columns)
