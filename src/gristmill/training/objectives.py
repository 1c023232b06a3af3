"""A model and what it is to learn, as one module that gives the loss and nothing else.

Words come out of a model as one number for each token of the vocabulary, at each place: by far the largest thing in a
small model. So they are made only where a token is to be told (15 % of the places for mlm), and where they would fill
the memory, in parts that are made again on the way back. `Places` says where, with a length that hardly ever changes,
as compiled code wants it.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

IGNORED = -100
PLACES_STEP = 16
"""Places are filled up to a multiple of a 16th of all tokens in the batch."""
CPU_LOGITS_BYTES = 256 << 20
GPU_SHARE_FOR_LOGITS = 0.125
HEADS = {"lm_head": "lm_head", "cls": "cls"}


class Places(NamedTuple):
    at: Tensor
    """Into all hidden states of a batch, one row after the other."""
    tokens: Tensor
    """To be told there; -100: none, a place that fills up."""


def places_of(labels: Tensor, *, is_causal: bool) -> Places:
    """Where a token is to be told; a causal model tells it one place before."""
    flat = labels.reshape(-1)
    is_wanted = flat != IGNORED
    if is_causal:
        is_wanted.view(labels.shape)[:, 0] = False
    found = is_wanted.nonzero().squeeze(1)
    unit = max(1, flat.numel() // PLACES_STEP)
    missing = -len(found) % unit if len(found) else unit
    at = nn.functional.pad(found - 1 if is_causal else found, (0, missing))
    return Places(at, nn.functional.pad(flat[found], (0, missing), value=IGNORED))


class Objective(nn.Module):
    def __init__(self, model: nn.Module, *, is_causal: bool, logits_bytes: int = CPU_LOGITS_BYTES) -> None:
        super().__init__()
        self.model, self.is_causal, self.logits_bytes = model, is_causal, logits_bytes

    def forward(self, input_ids: Tensor, at: Tensor, tokens: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The mean loss over all places where a token is to be told."""
        hidden = self._hidden(input_ids, attention_mask)[at]
        parts = self._in_parts(hidden, tokens)
        if len(parts) == 1:
            total = self._loss_sum(*parts[0])
        else:
            sums = [checkpoint(self._loss_sum, *part, use_reentrant=False) for part in parts]
            total = torch.stack(sums).sum()
        return total / (tokens != IGNORED).sum().clamp(min=1)

    def tell(self, input_ids: Tensor, places: Places, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """For each place, the loss of its token, and whether it would have been the model's choice."""
        hidden = self._hidden(input_ids, attention_mask)[places.at]
        losses, hits = [], []
        for some, tokens in self._in_parts(hidden, places.tokens):
            words = self._words(some).float()
            losses.append(nn.functional.cross_entropy(words, tokens, ignore_index=IGNORED, reduction="none"))
            hits.append(words.argmax(-1) == tokens)
        return torch.cat(losses), torch.cat(hits)

    def _hidden(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        # A causal model never looks at the padding behind its tokens: without a mask its attention is the fast one.
        mask = None if self.is_causal else attention_mask
        body: Any = self.model.base_model if self._head is not None else self.model
        output = body(input_ids=input_ids, attention_mask=mask, **({"use_cache": False} if self.is_causal else {}))
        states: Tensor = output[0]
        return states.reshape(-1, states.shape[-1])

    @property
    def _head(self) -> nn.Module | None:
        """From hidden states to words; None: of this class nobody knows, so that the model gives words at all places."""
        return next((getattr(self.model, name) for name in HEADS if hasattr(self.model, name)), None)

    def _words(self, states: Tensor) -> Tensor:
        words: Tensor = states if self._head is None else self._head(states)
        return words

    def _loss_sum(self, states: Tensor, tokens: Tensor) -> Tensor:
        words = self._words(states).float()
        return nn.functional.cross_entropy(words, tokens, ignore_index=IGNORED, reduction="sum")

    def _in_parts(self, states: Tensor, tokens: Tensor) -> list[tuple[Tensor, Tensor]]:
        config: Any = self.model.config
        at_once = max(1, self.logits_bytes // (4 * config.vocab_size))
        return list(zip(states.split(at_once), tokens.split(at_once), strict=True))


def logits_bytes_on(device: torch.device) -> int:
    if device.type != "cuda":
        return CPU_LOGITS_BYTES
    return int(torch.cuda.get_device_properties(device).total_memory * GPU_SHARE_FOR_LOGITS)
