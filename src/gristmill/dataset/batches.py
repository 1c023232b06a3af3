"""The batches of an order, for one rank of several: batch 17 is a pure function of the order and of 17.

Of each epoch rank r of w takes the positions r, r + w, …, so that the batches number 17 of all ranks together are one
batch of a single rank that takes w times as many. Across epochs, positions count on: epoch 1 goes on where 0 ends.

for draws in Batches(Order(100), batch_size=32): dataset.__getitems__(draws)
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import ConfigError
from gristmill.core.seeded_random import Dice

# Which rows an epoch shows, and in which order: a pure function of the rows, the seed and the epoch.

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


State = dict[str, Any]


class Batches:
    """A batch sampler for DataLoader. Each iteration goes from `start` to the end, and the next one from the first."""

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
        """`epoch` is the first; `epochs`: how many, None: without end. `num_batches`: no more than these."""
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
        """From the first, wherever an iteration starts."""
        num_batches = self.num_batches
        if num_batches is None:
            raise TypeError("batches without end have no length")
        return num_batches

    @property
    def num_batches(self) -> int | None:
        """None: there is no end."""
        if not len(self.order) or (self._per_epoch == 0 and not self.across_epochs):
            return 0
        if self.epochs is None:
            return self._num_batches
        num_draws = len(self.order) * self.epochs
        found = self._count(num_draws) if self.across_epochs else self._per_epoch * self.epochs
        return found if self._num_batches is None else min(found, self._num_batches)

    def __iter__(self) -> Iterator[list[Draw]]:
        number, self.start = self.start, 0
        num_batches = self.num_batches
        while num_batches is None or number < num_batches:
            yield self.batch(number)
            number += 1

    def batch(self, number: int) -> list[Draw]:
        """The draws of one batch, by its number from 0."""
        if self.across_epochs:
            return self._across(number)
        past, number = divmod(number, self._per_epoch)
        return self.order.draws(self.epoch + past, self._positions(number, len(self.order)))

    def _across(self, number: int) -> list[Draw]:
        num_rows = len(self.order)
        end = None if self.epochs is None else num_rows * self.epochs
        places = self._positions(number, end)
        draws: list[Draw] = []
        while places:
            past, position = divmod(places.start, num_rows)
            here = range(position, min(num_rows, position + places.stop - places.start), self.world_size)
            draws += self.order.draws(self.epoch + past, here)
            places = places[len(here) :]
        return draws

    def _positions(self, number: int, end: int | None) -> range:
        first = number * self.batch_size * self.world_size + self.rank
        stop = first + (self.batch_size - 1) * self.world_size + 1
        return range(first, stop if end is None else min(stop, end), self.world_size)

    @property
    def _per_epoch(self) -> int:
        """Batches of this rank in each epoch. With `drop_last` all ranks have the same number of full ones."""
        return self._count(len(self.order))

    def _count(self, num_draws: int) -> int:
        if self.drop_last:
            return num_draws // self.world_size // self.batch_size
        num_own = max(0, -((self.rank - num_draws) // self.world_size))
        return -(-num_own // self.batch_size)

    def state_dict(self) -> State:
        """Where the next iteration starts, and of what."""
        return {"batch": self.start, "epoch": self.epoch, **self._identity}

    def load_state_dict(self, state: State) -> None:
        """Another number of ranks may go on from it, if all of them together take as many in one batch."""
        other = {name: state.get(name) for name in self._identity}
        if other != self._identity:
            wrong, here = next((name, value) for name, value in self._identity.items() if other[name] != value)
            raise ConfigError(
                f"this state is of other batches: {wrong} is {other[wrong]!r} in it and {here!r} here. "
                "Resume with the settings and the dataset that it was saved with."
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
