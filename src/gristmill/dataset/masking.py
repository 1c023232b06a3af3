"""Which tokens are hidden from a masked model, and what it sees in their place.

    15 % of all maskable tokens     of these 80 % the mask token, 10 % another token by chance, 10 % themselves

Chance is a hash of seed, epoch, position of the draw and index of the token. So it is the same in any batch, worker,
rank and version of torch.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.seeded_random import STEP, mix, number_of
from gristmill.dataset.frame import Flags, Numbers
from gristmill.dataset.token_edges import Edges

Bits = npt.NDArray[np.uint64]

MASK_RATE = 0.15
MASKED_SHARE = 0.8
REPLACED_SHARE = 0.1
"""The rest stays as it is."""


class Hidden(NamedTuple):
    ids: Numbers
    """What the model sees."""
    is_hidden: Flags
    """What it is asked for, also where a token stands for itself."""


class Masking(NamedTuple):
    mask_id: int
    random_ids: Numbers
    """What may stand in a token's place."""
    rate: float = MASK_RATE
    seed: int = 0
    joins: Edges | None = None
    """With these, tokens that spell one identifier are hidden together or not at all."""

    def hide(self, ids: Numbers, is_maskable: Flags, epochs: Numbers, positions: Numbers) -> Hidden:
        """A batch of windows, and of which draw each is."""
        bits = self._bits(epochs, positions, ids.shape[1])
        deciding = bits if self.joins is None else np.take_along_axis(bits, self._leaders(ids, is_maskable), axis=1)
        is_hidden = is_maskable & (deciding >> np.uint64(11) < np.uint64(round(self.rate * (1 << 53))))
        shown = ids.copy()
        shown[is_hidden] = self._in_place_of(ids[is_hidden], bits[is_hidden])
        return Hidden(shown, is_hidden)

    def _bits(self, epochs: Numbers, positions: Numbers, width: int) -> Bits:
        step = np.uint64(STEP)
        seeds = np.full(len(epochs), number_of("feeding", "mask", self.seed), np.uint64)
        of_epoch = mix(seeds + (epochs.astype(np.uint64) + np.uint64(1)) * step)
        of_window = mix(of_epoch + (positions.astype(np.uint64) + np.uint64(1)) * step)
        return mix(of_window[:, None] + np.arange(1, width + 1, dtype=np.uint64) * step)

    def _leaders(self, ids: Numbers, is_maskable: Flags) -> Numbers:
        """Per token, the index of the first one of its identifier: its own, if it is by itself."""
        assert self.joins is not None
        goes_on = np.zeros(ids.shape, np.bool_)
        goes_on[:, 1:] = self.joins.ends_in_word.take(ids[:, :-1]) & self.joins.begins_in_word.take(ids[:, 1:])
        goes_on[:, 1:] &= is_maskable[:, :-1] & is_maskable[:, 1:]
        leaders: Numbers = np.maximum.accumulate(np.where(goes_on, 0, np.arange(ids.shape[1])), axis=1)
        return leaders

    def _in_place_of(self, ids: Numbers, bits: Bits) -> Numbers:
        again = mix(bits + np.uint64(STEP))
        fate = fractions_of(again)
        others = self.random_ids[(fractions_of(mix(again + np.uint64(STEP))) * len(self.random_ids)).astype(np.int64)]
        replaced = np.where(fate < MASKED_SHARE + REPLACED_SHARE, others, ids)
        return np.where(fate < MASKED_SHARE, self.mask_id, replaced)


def fractions_of(bits: Bits) -> npt.NDArray[np.float64]:
    """From 0 to below 1."""
    fractions: npt.NDArray[np.float64] = (bits >> np.uint64(11)) / (1 << 53)
    return fractions
