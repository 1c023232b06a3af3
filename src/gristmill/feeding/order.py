"""Which rows an epoch shows, and in which order: a pure function of the rows, the seed and the epoch.

By our own hashing, so that a training can be repeated with another version of torch or numpy.

order = Order(100, seed=1)
order.rows(epoch=0)     # a permutation of 0 … 99
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.shaping.chance import Dice

RowNumbers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]

EPOCHS_KEPT = 2
"""A batch may reach over the end of an epoch."""


class Draw(NamedTuple):
    """One row at one place of an epoch: what is by chance about a window depends on this alone."""

    epoch: int
    position: int
    """In the epoch, over all ranks."""
    row: int
    """As the split has them."""


class Order:
    """With weights, an epoch has as many draws as rows, and each row its share of them, rounded down or up."""

    def __init__(
        self, rows: int | RowNumbers, *, seed: int = 0, shuffle: bool = True, weights: Weights | None = None
    ) -> None:
        self._rows = np.arange(rows, dtype=np.int64) if isinstance(rows, int) else rows
        self.seed, self.shuffle = seed, shuffle
        self._weights = weights
        self._kept: dict[int, RowNumbers] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, epoch: int) -> RowNumbers:
        if epoch not in self._kept:
            while len(self._kept) >= EPOCHS_KEPT:
                del self._kept[min(self._kept)]
            self._kept[epoch] = self._rows_of(epoch)
        return self._kept[epoch]

    def draws(self, epoch: int, positions: range) -> list[Draw]:
        rows = self.rows(epoch)[positions.start : positions.stop : positions.step].tolist()
        return [Draw(epoch, position, row) for position, row in zip(positions, rows, strict=True)]

    def _rows_of(self, epoch: int) -> RowNumbers:
        rows = self._rows
        if self._weights is not None and len(rows):
            rows = self._rows[self._drawn(self._weights, epoch)]
        return rows[self._permutation("order", epoch)] if self.shuffle else rows

    def _drawn(self, weights: Weights, epoch: int) -> RowNumbers:
        """Row indices in ascending order, those drawn several times several times."""
        # Systematic resampling gives neighbours their extra draws by turns; which rows are neighbours is by chance.
        turn = self._permutation("turn", epoch)
        counts = np.empty(len(turn), np.int64)
        counts[turn] = draw_counts(weights[turn], Dice("feeding", "draw", self.seed, epoch).fraction())
        return np.repeat(np.arange(len(turn)), counts)

    def _permutation(self, purpose: str, epoch: int) -> RowNumbers:
        bits = Dice("feeding", purpose, self.seed, epoch).many_bits(len(self))
        return np.argsort(bits, kind="stable")


def draw_counts(weights: Weights, offset: float) -> RowNumbers:
    """As many draws as weights, each by its share rounded down or up; `offset` in [0, 1) decides which."""
    shares = weights * (len(weights) / weights.sum())
    whole = np.floor(shares)
    ends = np.cumsum(shares - whole)
    num_left = len(weights) - int(whole.sum())
    counts: RowNumbers = whole.astype(np.int64)
    if num_left == 0:
        return counts
    ends *= num_left / ends[-1]
    ends[-1] = num_left  # a rounding error must not cost a draw
    steps = np.minimum(np.floor(ends + offset), num_left)  # nor give one more, with an offset next to 1
    counts += np.diff(steps, prepend=0.0).astype(np.int64)
    return counts


def can_draw_by(weights: Weights) -> bool:
    """Whether they are weights at all."""
    return bool(np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0)
