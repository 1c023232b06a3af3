"""WindowStream: the windows of a split as a stream, for splits that are too large for random access.

1. The rows are divided into blocks of 128 rows. Blocks are in random order, and the rows of a block are read together.
2. The blocks are distributed to the ranks, and then to the workers of each rank.
3. 32 blocks of a worker form a pool (shuffle buffer) of about 10 MB, whose windows are delivered in random order.

for batch in stream.loader(32, stream.masked_collator(), num_workers=2): …
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset, get_worker_info

from gristmill.core.errors import ConfigError
from gristmill.core.seeded_random import SeededRandom, random_fraction
from gristmill.dataset.batches import Draw, Order
from gristmill.dataset.items import DEFAULT_COLUMNS, DRAW_COLUMNS, Item, Row
from gristmill.dataset.torch_split import StackingLoader, TorchSplit

State = dict[str, Any]

BLOCK_ROWS = 128
"""About one frame of a .jsonl.zst file."""
POOL_BLOCKS = 32


class Shard(NamedTuple):
    """Identifies the share of the rows that one worker of one rank reads."""

    rank: int
    world_size: int
    worker: int
    num_workers: int

    def __str__(self) -> str:
        return f"worker {self.worker} of {self.num_workers} on rank {self.rank} of {self.world_size}"


class DrawnItem(NamedTuple):
    draw: Draw
    item: Item
    sort_key: int
    """Random number that determines the position in the pool."""


class WindowStream(TorchSplit, IterableDataset[Item]):
    """The windows of this rank as a stream.

    The windows of an epoch and their masks depend only on the seed and the epoch. The order of the windows also depends
    on the number of ranks and workers. A rank may have up to one block of rows more than another rank.

    If rows have weights, each row is drawn as often as its weight, rounded down or up at random. The `position` of a
    window is the index of its row, plus n times the number of rows for copy n (from 0) of the row.

    With `state_dict` and `load_state_dict`, training can resume within an epoch. Each worker has its own state, which
    must be saved and restored in that worker, as StatefulDataLoader of torchdata does.
    """

    default_columns = (*DEFAULT_COLUMNS, *DRAW_COLUMNS)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take the arguments of TorchSplit."""
        super().__init__(*arguments, **options)
        # In shared memory, so that persistent workers see the new epoch.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call] # share_memory_ is untyped
        self._position = self._resume_at = (0, 0)
        self._shard: Shard | None = None
        self._unrequested_columns = tuple(name for name in DRAW_COLUMNS if name not in self._items.columns)

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. Setting the current epoch again has no effect."""
        if epoch != self.epoch:
            self._epoch.fill_(epoch)
            self._position = self._resume_at = (0, 0)

    def __iter__(self) -> Iterator[Item]:
        epoch, shard = self.epoch, self._current_shard()
        self._position, self._resume_at = self._resume_at, (0, 0)
        first_pool, num_delivered = self._position
        blocks = self._blocks_of(epoch, shard)
        pools = [blocks[at : at + POOL_BLOCKS] for at in range(0, len(blocks), POOL_BLOCKS)]
        for number, pool in enumerate(pools[first_pool:], first_pool):
            items = self._read_pool(pool, epoch)
            for index in range(num_delivered, len(items)):
                self._position = (number, index + 1)
                yield items[index]
            num_delivered = 0
            self._position = (number + 1, 0)

    def loader(
        self, batch_size: int, collate: Callable[[list[Item]], Any], *, num_workers: int = 0, **options: Any
    ) -> StackingLoader:
        """Return a loader for the batches of this rank, with one epoch per iteration.

        `options` are passed to DataLoader.
        """
        return StackingLoader(self, collate, seed=self.seed, batch_size=batch_size, num_workers=num_workers, **options)

    def state_dict(self) -> State:
        pool, num_delivered = self._position
        shard = None if self._shard is None else list(self._shard)
        identity = {"seed": self.seed, "num_rows": len(self.rows)}
        return {"epoch": self.epoch, "pool": pool, "shown": num_delivered, "shard": shard, **identity}

    def load_state_dict(self, state: State) -> None:
        for name, expected in (("seed", self.seed), ("num_rows", len(self.rows))):
            if state.get(name) != expected:
                raise ConfigError(
                    f"the state does not match this stream: its {name} is {state.get(name)}, expected {expected}. "
                    "Resume with the settings and the dataset of the saved state."
                )
        if negative := [name for name in ("epoch", "pool", "shown") if state[name] < 0]:
            raise ConfigError(
                f"the state is damaged: its {negative[0]} is negative ({state[negative[0]]}). Load an earlier state."
            )
        self._epoch.fill_(state["epoch"])
        self._position = self._resume_at = (state["pool"], state["shown"])
        self._shard = None if state["shard"] is None else Shard(*state["shard"])

    def _current_shard(self) -> Shard:
        info = get_worker_info()
        shard = Shard(self.rank, self.world_size, info.id if info else 0, info.num_workers if info else 1)
        if self._resume_at != (0, 0) and self._shard not in {None, shard}:
            raise ConfigError(
                f"the state was saved by {self._shard}, but this process is {shard}. Resume with the same number of "
                "ranks and workers, each with its own state."
            )
        self._shard = shard
        return shard

    def _blocks_of(self, epoch: int, shard: Shard) -> list[int]:
        num_blocks = -(-len(self.rows) // BLOCK_ROWS)
        order = Order(num_blocks, seed=self.seed, shuffle=self.shuffle).rows(epoch)
        return order[shard.rank :: shard.world_size][shard.worker :: shard.num_workers].tolist()  # type: ignore[no-any-return] # tolist is untyped

    def _read_pool(self, blocks: list[int], epoch: int) -> list[Item]:
        drawn = [one for block in blocks for one in self._draw_block(block, epoch)]
        if self.shuffle:
            drawn.sort(key=lambda one: (one.sort_key, one.draw.position))
        return [one.item for one in drawn]

    def _draw_block(self, block: int, epoch: int) -> Iterator[DrawnItem]:
        rows = range(block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, len(self.rows)))
        sort_keys = SeededRandom("feeding", "pool", self.seed, epoch, block).bits_array(len(rows)).tolist()
        for number, sort_key in zip(rows, sort_keys, strict=True):
            row = self.rows[number]
            if row.get("variant", "") in self.without:
                continue
            for copy in range(self._num_copies(row, number, epoch)):
                draw = Draw(epoch, number + copy * len(self.rows), number)
                # Multiples of the golden ratio spread the copies of a row over the pool.
                yield DrawnItem(draw, self._item(row, draw), (sort_key + copy * 0x9E3779B97F4A7C15) % (1 << 64))

    def _num_copies(self, row: Row, number: int, epoch: int) -> int:
        if not self.has_weights:
            return 1
        return int(row["weight"] + 1 - random_fraction("feeding", "copies", self.seed, epoch, number))

    def _item(self, row: Row, draw: Draw) -> Item:
        item = self._items.make_drawn_item(row, draw)
        for name in self._unrequested_columns:
            del item[name]
        return item
