"""Batches of rows for one of several ranks. The row order, the rank and the index of a batch determine its rows.

Rank r of w takes the positions r, r + w, r + 2w and so on of each epoch. So the n-th batches of an epoch on all ranks
together have the same rows as the n-th batch on a single rank with w times the batch size. With `across_epochs`,
positions are numbered across all epochs, and a batch may contain the end of one epoch and the start of the next epoch.

for draws in Batches(Order(100), batch_size=32): dataset.__getitems__(draws)
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import ConfigError
from gristmill.core.names import counted
from gristmill.core.seeded_random import SeededRandom

# Only the rows, their weights, the seed and the epoch determine the rows of an epoch and their order.

RowIndices = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]

MAX_CACHED_EPOCHS = 2
"""Two, because a batch may extend into the next epoch."""


class Draw(NamedTuple):
    """A row at a position in an epoch. All random choices for a window depend only on its Draw and the seed."""

    epoch: int
    position: int
    """Position in the epoch, counted over all ranks. In a WindowStream, a number for the row and its copy."""
    row: int
    """Index of the row in the split, from 0."""


class Order:
    """Order of the rows in each epoch.

    Without weights, an epoch has each row once. With weights, an epoch has as many draws as rows, distributed in
    proportion to the weights.
    """

    def __init__(
        self, rows: int | RowIndices, *, seed: int = 0, shuffle: bool = True, weights: Weights | None = None
    ) -> None:
        self._rows = np.arange(rows, dtype=np.int64) if isinstance(rows, int) else rows
        self.seed, self.shuffle = seed, shuffle
        self._weights = weights
        self._cache: dict[int, RowIndices] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, epoch: int) -> RowIndices:
        if epoch not in self._cache:
            while len(self._cache) >= MAX_CACHED_EPOCHS:
                del self._cache[min(self._cache)]
            self._cache[epoch] = self._order_rows(epoch)
        return self._cache[epoch]

    def draws(self, epoch: int, positions: range) -> list[Draw]:
        rows = self.rows(epoch)[positions.start : positions.stop : positions.step].tolist()
        return [Draw(epoch, position, row) for position, row in zip(positions, rows, strict=True)]

    def _order_rows(self, epoch: int) -> RowIndices:
        rows = self._rows
        if self._weights is not None and len(rows):
            rows = self._rows[self._draw_indices(self._weights, epoch)]
        return rows[self._permutation("order", epoch)] if self.shuffle else rows

    def _draw_indices(self, weights: Weights, epoch: int) -> RowIndices:
        """Return the indices of the drawn rows in ascending order. A row that is drawn n times appears n times."""
        # Systematic resampling spreads the extra draws evenly over neighbors. A permutation makes the neighbors random.
        permutation = self._permutation("turn", epoch)
        counts = np.empty(len(permutation), np.int64)
        counts[permutation] = draw_counts(
            weights[permutation], SeededRandom("feeding", "draw", self.seed, epoch).fraction()
        )
        return np.repeat(np.arange(len(permutation)), counts)

    def _permutation(self, purpose: str, epoch: int) -> RowIndices:
        bits = SeededRandom("feeding", purpose, self.seed, epoch).bits_array(len(self))
        return np.argsort(bits, kind="stable")


def draw_counts(weights: Weights, offset: float) -> RowIndices:
    """Distribute len(weights) draws in proportion to the weights. Return the number of draws for each weight.

    Each number is rounded down or up. `offset`, at least 0 and below 1, determines which numbers are rounded up.
    """
    shares = weights * (len(weights) / weights.sum())
    floors = np.floor(shares)
    ends = np.cumsum(shares - floors)
    num_remaining = len(weights) - int(floors.sum())
    counts: RowIndices = floors.astype(np.int64)
    if num_remaining == 0:
        return counts
    ends *= num_remaining / ends[-1]
    ends[-1] = num_remaining  # a rounding error must not lose a draw
    steps = np.minimum(np.floor(ends + offset), num_remaining)  # an offset close to 1 must not add a draw
    counts += np.diff(steps, prepend=0.0).astype(np.int64)
    return counts


def are_valid_weights(weights: Weights) -> bool:
    """Return True if all weights are finite and not negative, and at least one is positive."""
    return bool(np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0)


State = dict[str, Any]


class Batches:
    """Batch sampler for DataLoader. The next iteration begins with batch `start`, later iterations with batch 0."""

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
        """`epoch` is the first epoch. `epochs` is the number of epochs, or None for endless epochs.

        `num_batches` is the maximum number of batches, over all epochs.
        """
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
        """Return the number of all batches, including those before `start`."""
        num_batches = self.num_batches
        if num_batches is None:
            raise TypeError("batches without an end have no length")
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
        index, self.start = self.start, 0
        num_batches = self.num_batches
        while num_batches is None or index < num_batches:
            yield self.batch(index)
            index += 1

    def batch(self, index: int) -> list[Draw]:
        """Return the draws of the batch at `index`, counted from 0."""
        if self.across_epochs:
            return self._batch_across_epochs(index)
        num_epochs, index = divmod(index, self._per_epoch)
        return self.order.draws(self.epoch + num_epochs, self._positions(index, len(self.order)))

    def _batch_across_epochs(self, index: int) -> list[Draw]:
        num_rows = len(self.order)
        end = None if self.epochs is None else num_rows * self.epochs
        positions = self._positions(index, end)
        draws: list[Draw] = []
        while positions:
            num_epochs, position = divmod(positions.start, num_rows)
            epoch_positions = range(
                position, min(num_rows, position + positions.stop - positions.start), self.world_size
            )
            draws += self.order.draws(self.epoch + num_epochs, epoch_positions)
            positions = positions[len(epoch_positions) :]
        return draws

    def _positions(self, index: int, end: int | None) -> range:
        first = index * self.batch_size * self.world_size + self.rank
        stop = first + (self.batch_size - 1) * self.world_size + 1
        return range(first, stop if end is None else min(stop, end), self.world_size)

    @property
    def _per_epoch(self) -> int:
        """Number of batches of this rank per epoch. With `drop_last`, it is the same for all ranks."""
        return self._count_batches(len(self.order))

    def _count_batches(self, num_draws: int) -> int:
        if self.drop_last:
            return num_draws // self.world_size // self.batch_size
        num_rank_draws = max(0, -((self.rank - num_draws) // self.world_size))
        return -(-num_rank_draws // self.batch_size)

    def state_dict(self) -> State:
        """Return where the next iteration begins, and the settings that must be the same when the state is loaded."""
        return {"batch": self.start, "epoch": self.epoch, **self._identity}

    def load_state_dict(self, state: State) -> None:
        """Continue from a state. The number of ranks may differ if their total batch size is the same."""
        saved = {name: state.get(name) for name in self._identity}
        if saved != self._identity:
            name, expected = next((name, value) for name, value in self._identity.items() if saved[name] != value)
            raise ConfigError(
                f"the state does not match these batches: its {name} is {saved[name]!r}, expected {expected!r}. "
                "Resume with the settings and the dataset of the saved state."
            )
        start, epoch, end = int(state["batch"]), int(state["epoch"]), self.num_batches
        if start < 0 or epoch < 0:
            raise ConfigError(
                f"the state is damaged: it records batch {start} and epoch {epoch}. Load an earlier state."
            )
        if end is not None and start > end:
            raise ConfigError(
                f"the state continues after {counted(start, 'batch', 'batches')}, but there are only {end:,}. "
                "Resume with the settings of the saved state."
            )
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
