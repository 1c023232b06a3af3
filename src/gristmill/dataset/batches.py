"""Batches of rows for one rank of several. Batch 17 is a pure function of the row order and the number 17.

In each epoch, rank r of w takes the positions r, r + w, …. So batch 17 of all ranks together is batch 17 of a single
rank with w times the batch size. Across epochs, positions are consecutive: epoch 1 continues where epoch 0 ends.

for draws in Batches(Order(100), batch_size=32): dataset.__getitems__(draws)
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import ConfigError
from gristmill.core.seeded_random import SeededRandom

# The rows of an epoch and their order are a pure function of the rows, the seed and the epoch.

RowNumbers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]

MAX_CACHED_EPOCHS = 2
"""Two, since a batch may extend into the next epoch."""


class Draw(NamedTuple):
    """A row at a position of an epoch. Everything random about a window depends only on this."""

    epoch: int
    position: int
    """Position in the epoch, counted over all ranks."""
    row: int
    """Row number in the split."""


class Order:
    """Order of the rows in each epoch.

    With weights, an epoch has as many draws as rows, and each row gets its share of them, rounded down or up.
    """

    def __init__(
        self, rows: int | RowNumbers, *, seed: int = 0, shuffle: bool = True, weights: Weights | None = None
    ) -> None:
        self._rows = np.arange(rows, dtype=np.int64) if isinstance(rows, int) else rows
        self.seed, self.shuffle = seed, shuffle
        self._weights = weights
        self._cache: dict[int, RowNumbers] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, epoch: int) -> RowNumbers:
        if epoch not in self._cache:
            while len(self._cache) >= MAX_CACHED_EPOCHS:
                del self._cache[min(self._cache)]
            self._cache[epoch] = self._order_rows(epoch)
        return self._cache[epoch]

    def draws(self, epoch: int, positions: range) -> list[Draw]:
        rows = self.rows(epoch)[positions.start : positions.stop : positions.step].tolist()
        return [Draw(epoch, position, row) for position, row in zip(positions, rows, strict=True)]

    def _order_rows(self, epoch: int) -> RowNumbers:
        rows = self._rows
        if self._weights is not None and len(rows):
            rows = self._rows[self._draw_indices(self._weights, epoch)]
        return rows[self._permutation("order", epoch)] if self.shuffle else rows

    def _draw_indices(self, weights: Weights, epoch: int) -> RowNumbers:
        """Return the indices of the drawn rows in ascending order. A row drawn n times is in it n times."""
        # Systematic resampling spreads the extra draws evenly over neighbors. A permutation makes the neighbors random.
        permutation = self._permutation("turn", epoch)
        counts = np.empty(len(permutation), np.int64)
        counts[permutation] = draw_counts(
            weights[permutation], SeededRandom("feeding", "draw", self.seed, epoch).fraction()
        )
        return np.repeat(np.arange(len(permutation)), counts)

    def _permutation(self, purpose: str, epoch: int) -> RowNumbers:
        bits = SeededRandom("feeding", purpose, self.seed, epoch).bits_array(len(self))
        return np.argsort(bits, kind="stable")


def draw_counts(weights: Weights, offset: float) -> RowNumbers:
    """Distribute as many draws as weights, by share, rounded down or up. `offset` in [0, 1) decides which."""
    shares = weights * (len(weights) / weights.sum())
    floors = np.floor(shares)
    ends = np.cumsum(shares - floors)
    num_left = len(weights) - int(floors.sum())
    counts: RowNumbers = floors.astype(np.int64)
    if num_left == 0:
        return counts
    ends *= num_left / ends[-1]
    ends[-1] = num_left  # a rounding error must not lose a draw
    steps = np.minimum(np.floor(ends + offset), num_left)  # and an offset close to 1 must not add one
    counts += np.diff(steps, prepend=0.0).astype(np.int64)
    return counts


def are_valid_weights(weights: Weights) -> bool:
    """Return True if all weights are finite and not negative, and one is positive."""
    return bool(np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0)


State = dict[str, Any]


class Batches:
    """Batch sampler for DataLoader. An iteration begins with batch `start`, and the next one with the first batch."""

    def __init__(
        self,
        order: Order,
        batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        epoch: int = 0,
        epochs: int | None = 1,
        across_epochs: bool = False,
        drop_last: bool = False,
        num_batches: int | None = None,
        start: int = 0,
    ) -> None:
        """`epoch` is the first epoch, and `epochs` their number, or None for no end. `num_batches` is a limit."""
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}.")
        if not 0 <= rank < world_size:
            raise ConfigError(f"rank must be from 0 to world_size - 1 ({world_size - 1}), got {rank}.")
        self.order, self.batch_size = order, batch_size
        self.rank, self.world_size = rank, world_size
        self.epoch, self.epochs = epoch, epochs
        self.across_epochs, self.drop_last = across_epochs, drop_last
        self.start = start
        self._num_batches = num_batches

    def __len__(self) -> int:
        """Number of batches from the first, independent of `start`."""
        num_batches = self.num_batches
        if num_batches is None:
            raise TypeError("endless batches have no length")
        return num_batches

    @property
    def num_batches(self) -> int | None:
        """Number of batches, or None if there is no end."""
        if not len(self.order) or (self._per_epoch == 0 and not self.across_epochs):
            return 0
        if self.epochs is None:
            return self._num_batches
        num_draws = len(self.order) * self.epochs
        num_found = self._count_batches(num_draws) if self.across_epochs else self._per_epoch * self.epochs
        return num_found if self._num_batches is None else min(num_found, self._num_batches)

    def __iter__(self) -> Iterator[list[Draw]]:
        number, self.start = self.start, 0
        num_batches = self.num_batches
        while num_batches is None or number < num_batches:
            yield self.batch(number)
            number += 1

    def batch(self, number: int) -> list[Draw]:
        """Return the draws of a batch, by its number from 0."""
        if self.across_epochs:
            return self._batch_across_epochs(number)
        num_epochs, number = divmod(number, self._per_epoch)
        return self.order.draws(self.epoch + num_epochs, self._positions(number, len(self.order)))

    def _batch_across_epochs(self, number: int) -> list[Draw]:
        num_rows = len(self.order)
        end = None if self.epochs is None else num_rows * self.epochs
        positions = self._positions(number, end)
        draws: list[Draw] = []
        while positions:
            num_epochs, position = divmod(positions.start, num_rows)
            own = range(position, min(num_rows, position + positions.stop - positions.start), self.world_size)
            draws += self.order.draws(self.epoch + num_epochs, own)
            positions = positions[len(own) :]
        return draws

    def _positions(self, number: int, end: int | None) -> range:
        first = number * self.batch_size * self.world_size + self.rank
        stop = first + (self.batch_size - 1) * self.world_size + 1
        return range(first, stop if end is None else min(stop, end), self.world_size)

    @property
    def _per_epoch(self) -> int:
        """Batches of this rank per epoch. With `drop_last`, all ranks have the same number of full batches."""
        return self._count_batches(len(self.order))

    def _count_batches(self, num_draws: int) -> int:
        if self.drop_last:
            return num_draws // self.world_size // self.batch_size
        num_own = max(0, -((self.rank - num_draws) // self.world_size))
        return -(-num_own // self.batch_size)

    def state_dict(self) -> State:
        """Return the batch that the next iteration begins with, and the settings that must match."""
        return {"batch": self.start, "epoch": self.epoch, **self._identity}

    def load_state_dict(self, state: State) -> None:
        """Continue from a state. The number of ranks may differ, if their total batch size is the same."""
        other = {name: state.get(name) for name in self._identity}
        if other != self._identity:
            name, own = next((name, value) for name, value in self._identity.items() if other[name] != value)
            raise ConfigError(
                f"this state is of other batches: its {name} is {other[name]!r}, but here it is {own!r}. "
                "Resume with the settings and the dataset of the saved state."
            )
        start, epoch, end = int(state["batch"]), int(state["epoch"]), self.num_batches
        if start < 0 or epoch < 0 or (end is not None and start > end):
            raise ConfigError(f"this state is damaged: batch {start} of {end}, epoch {epoch}.")
        self.start, self.epoch = start, epoch

    @property
    def _identity(self) -> State:
        return {
            "num_rows": len(self.order),
            "seed": self.order.seed,
            "shuffle": self.order.shuffle,
            "batch_size_of_all_ranks": self.batch_size * self.world_size,
            "across_epochs": self.across_epochs,
        }
