"""`noise`: mask spans and delete tokens in windows, for a model that learns to restore the clean window.

Each masked span becomes one mask token, so the model must also predict the length of the span. Some other tokens are
deleted. BART introduced both methods, as text infilling and token deletion (Lewis et al. 2020).
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.seeded_random import SeededRandom

Ids = npt.NDArray[Any]


class Noise(NamedTuple):
    """Settings of the noise: the fractions of tokens to mask and to delete, and the mean length of a masked span."""

    mask_id: int
    mask_share: float
    mean_span: float
    delete_share: float

    def corrupt(self, ids: Ids, rng: SeededRandom) -> Ids | None:
        """Return the window with noise, or None if the noise changes nothing or removes all tokens."""
        is_span_start, is_removed = self._draw_spans(len(ids), rng)
        is_removed |= rng.fractions(len(ids)) < self.delete_share
        out = np.where(is_span_start, np.array(self.mask_id, ids.dtype), ids)[~is_removed | is_span_start]
        return out if len(out) and not np.array_equal(out, ids) else None

    def _draw_spans(self, num_tokens: int, rng: SeededRandom) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Draw spans. Return two boolean arrays: one marks the first token of each span, the other all of its tokens.

        No two spans are adjacent, so each span becomes a separate mask token.
        """
        is_span_start, is_removed = np.zeros(num_tokens, np.bool_), np.zeros(num_tokens, np.bool_)
        num_left = round(self.mask_share * num_tokens)
        num_tries = 4 * num_tokens if num_left else 0
        while num_left > 0 and num_tries:
            num_tries -= 1
            length = min(_draw_span_length(self.mean_span, rng), num_left)
            start = rng.integer_below(max(num_tokens - length + 1, 1))
            if not is_removed[max(start - 1, 0) : start + length + 1].any():
                is_span_start[start] = True
                is_removed[start : start + length] = True
                num_left -= length
        return is_span_start, is_removed


def _draw_span_length(mean: float, rng: SeededRandom) -> int:
    """Draw a length of at least 1 from a Poisson distribution. Knuth's method is fast for a small mean."""
    limit, product, count = math.exp(-mean), 1.0, 0
    while (product := product * rng.fraction()) > limit:
        count += 1
    return max(count, 1)
