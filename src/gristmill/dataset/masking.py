"""Select the tokens that a masked model must predict, and the ids that replace them.

By default, 15% of the maskable tokens are selected. Of the selected tokens, 80% become the mask token, 10% become a
random token, and 10% remain unchanged. The selection depends only on a hash of the seed, the epoch, the position of the
window in the epoch (`Draw.position`) and the index of the token. So it is the same in any batch, worker, rank and
version of torch.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.seeded_random import STEP, mix, stable_hash
from gristmill.dataset.frame import Flags, Numbers
from gristmill.dataset.token_edges import WordEdges

Bits = npt.NDArray[np.uint64]

MASK_RATE = 0.15
MASKED_SHARE = 0.8
"""Share of the selected tokens that become the mask token."""
REPLACED_SHARE = 0.1
"""Share of the selected tokens that become a random token. The rest of the selected tokens remain unchanged."""


class MaskedBatch(NamedTuple):
    """Ids of a batch after masking, and the selected tokens."""

    ids: Numbers
    """Ids that the model sees."""
    is_selected: Flags
    """True for tokens that the model must predict, including tokens that remain unchanged."""


class Masking(NamedTuple):
    """Settings for masking."""

    mask_id: int
    random_ids: Numbers
    """Ids that may replace a selected token."""
    rate: float = MASK_RATE
    seed: int = 0
    edges: WordEdges | None = None
    """If given, the tokens of an identifier are selected together or not at all."""

    def mask(self, ids: Numbers, is_maskable: Flags, epochs: Numbers, positions: Numbers) -> MaskedBatch:
        """Mask a batch of windows, given the epoch and position of each draw."""
        bits = self._bits(epochs, positions, ids.shape[1])
        selection_bits = (
            bits if self.edges is None else np.take_along_axis(bits, self._identifier_starts(ids, is_maskable), axis=1)
        )
        is_selected = is_maskable & (selection_bits >> np.uint64(11) < np.uint64(round(self.rate * (1 << 53))))
        masked = ids.copy()
        masked[is_selected] = self._replacements(ids[is_selected], bits[is_selected])
        return MaskedBatch(masked, is_selected)

    def _bits(self, epochs: Numbers, positions: Numbers, width: int) -> Bits:
        step = np.uint64(STEP)
        seeds = np.full(len(epochs), stable_hash("feeding", "mask", self.seed), np.uint64)
        epoch_bits = mix(seeds + (epochs.astype(np.uint64) + np.uint64(1)) * step)
        window_bits = mix(epoch_bits + (positions.astype(np.uint64) + np.uint64(1)) * step)
        return mix(window_bits[:, None] + np.arange(1, width + 1, dtype=np.uint64) * step)

    def _identifier_starts(self, ids: Numbers, is_maskable: Flags) -> Numbers:
        """Return, for each token, the index of the first token of its identifier."""
        assert self.edges is not None
        continues = np.zeros(ids.shape, np.bool_)
        continues[:, 1:] = self.edges.ends_in_word.take(ids[:, :-1]) & self.edges.starts_in_word.take(ids[:, 1:])
        continues[:, 1:] &= is_maskable[:, :-1] & is_maskable[:, 1:]
        starts: Numbers = np.maximum.accumulate(np.where(continues, 0, np.arange(ids.shape[1])), axis=1)
        return starts

    def _replacements(self, ids: Numbers, bits: Bits) -> Numbers:
        next_bits = mix(bits + np.uint64(STEP))
        choice = to_fractions(next_bits)
        random_tokens = self.random_ids[
            (to_fractions(mix(next_bits + np.uint64(STEP))) * len(self.random_ids)).astype(np.int64)
        ]
        replaced = np.where(choice < MASKED_SHARE + REPLACED_SHARE, random_tokens, ids)
        return np.where(choice < MASKED_SHARE, self.mask_id, replaced)


def to_fractions(bits: Bits) -> npt.NDArray[np.float64]:
    """Convert 64 random bits to fractions in [0, 1)."""
    fractions: npt.NDArray[np.float64] = (bits >> np.uint64(11)) / (1 << 53)
    return fractions
