"""`noise`: windows with spans masked and tokens taken out, for a model that learns to give the clean window back.

A span of some three tokens becomes one mask token (so the model must also say how long it was), others are just gone:
text infilling and token deletion, as BART was trained (Lewis et al. 2020).
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.seeded_random import Dice

Ids = npt.NDArray[Any]


class Noise(NamedTuple):
    mask_id: int
    mask_share: float
    mean_span: float
    delete_share: float

    def corrupt(self, ids: Ids, dice: Dice) -> Ids | None:
        """The window with noise in it, never longer and never empty; None where nothing has come of it."""
        is_span_start, is_gone = self._spans(len(ids), dice)
        is_gone |= dice.fractions(len(ids)) < self.delete_share
        out = np.where(is_span_start, np.array(self.mask_id, ids.dtype), ids)[~is_gone | is_span_start]
        return out if len(out) and not np.array_equal(out, ids) else None

    def _spans(self, num_tokens: int, dice: Dice) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Where one begins, and what lies in one; two never touch, so that each keeps its own mask."""
        is_start, is_gone = np.zeros(num_tokens, np.bool_), np.zeros(num_tokens, np.bool_)
        left = round(self.mask_share * num_tokens)
        tries = 4 * num_tokens if left else 0
        while left > 0 and tries:
            tries -= 1
            length = min(_span_length(self.mean_span, dice), left)
            at = dice.below(max(num_tokens - length + 1, 1))
            if not is_gone[max(at - 1, 0) : at + length + 1].any():
                is_start[at] = True
                is_gone[at : at + length] = True
                left -= length
        return is_start, is_gone


def _span_length(mean: float, dice: Dice) -> int:
    """Poisson around the mean, from 1 on (Knuth's way: few numbers for a small mean)."""
    limit, product, count = math.exp(-mean), 1.0, 0
    while (product := product * dice.fraction()) > limit:
        count += 1
    return max(count, 1)
