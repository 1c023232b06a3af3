"""WindowStream: the windows of a split as they come, for splits that are too large to jump about in.

    blocks of 128 rows, in an order by chance      file by file, so that reading is nearly in order
    dealt out to ranks, and to their workers       block 7 of 2 ranks: the fourth of rank 1
    32 blocks of a worker are a pool               the buffer, some 10 MB, shuffled and then shown

for batch in stream.loader(32, stream.masked_collator(), num_workers=2): …
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset, get_worker_info

from gristmill.core.errors import ConfigError
from gristmill.core.seeded_random import Dice, luck
from gristmill.dataset.batches import Draw, Order
from gristmill.dataset.items import DEFAULT_COLUMNS, DRAW_COLUMNS, Item, Row
from gristmill.dataset.torch_split import FedSplit, PackingLoader

State = dict[str, Any]

BLOCK_ROWS = 128
"""About a frame of a .jsonl.zst."""
POOL_BLOCKS = 32


class Shard(NamedTuple):
    """Who reads: one worker of one rank."""

    rank: int
    world_size: int
    worker: int
    num_workers: int


class Drawn(NamedTuple):
    draw: Draw
    item: Item
    luck: int
    """Decides about its place in the pool."""


class WindowStream(FedSplit, IterableDataset[Item]):
    """Windows of this rank, as they come.

    Which an epoch shows and how each is masked depends on seed and epoch alone; in which order they come, on the
    numbers of ranks and workers too. Ranks may have up to one block of rows more than others.

    Where rows have a weight each comes that often, rounded down or up by chance. `position` is the row's number, and
    that of its nth copy n times the number of rows more.

    `state_dict` and `load_state_dict` resume in the middle of an epoch; under workers each has a state of its own, to
    be taken and given back there, as StatefulDataLoader of torchdata does.
    """

    default_columns = (*DEFAULT_COLUMNS, *DRAW_COLUMNS)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """As FedSplit's."""
        super().__init__(*arguments, **options)
        # In shared memory, so that workers that live on from epoch to epoch hear of it.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call] # torch's
        self._at = self._start = (0, 0)
        self._shard: Shard | None = None
        self._not_asked = tuple(name for name in DRAW_COLUMNS if name not in self._items.columns)

    @property
    def epoch(self) -> int:
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """The one that the next iteration shows. To set it again to what it is changes nothing."""
        if epoch != self.epoch:
            self._epoch.fill_(epoch)
            self._at = self._start = (0, 0)

    def __iter__(self) -> Iterator[Item]:
        epoch, shard = self.epoch, self._shard_here()
        self._at, self._start = self._start, (0, 0)
        first_pool, num_shown = self._at
        blocks = self._blocks_of(epoch, shard)
        pools = [blocks[at : at + POOL_BLOCKS] for at in range(0, len(blocks), POOL_BLOCKS)]
        for number, pool in enumerate(pools[first_pool:], first_pool):
            items = self._pool(pool, epoch)
            for shown in range(num_shown, len(items)):
                self._at = (number, shown + 1)
                yield items[shown]
            num_shown = 0
            self._at = (number + 1, 0)

    def loader(
        self, batch_size: int, collate: Callable[[list[Item]], Any], *, num_workers: int = 0, **options: Any
    ) -> PackingLoader:
        """Batches of this rank, an epoch in each iteration; `options` are those of DataLoader."""
        return PackingLoader(self, collate, seed=self.seed, batch_size=batch_size, num_workers=num_workers, **options)

    def state_dict(self) -> State:
        pool, shown = self._at
        shard = None if self._shard is None else list(self._shard)
        identity = {"seed": self.seed, "num_rows": len(self.rows)}
        return {"epoch": self.epoch, "pool": pool, "shown": shown, "shard": shard, **identity}

    def load_state_dict(self, state: State) -> None:
        for name, here in (("seed", self.seed), ("num_rows", len(self.rows))):
            if state.get(name) != here:
                raise ConfigError(
                    f"this state is of another order: its {name} is {state.get(name)}, here it is {here}."
                )
        if min(state["epoch"], state["pool"], state["shown"]) < 0:
            raise ConfigError(f"this state is damaged: {state}.")
        self._epoch.fill_(state["epoch"])
        self._at = self._start = (state["pool"], state["shown"])
        self._shard = None if state["shard"] is None else Shard(*state["shard"])

    def _shard_here(self) -> Shard:
        info = get_worker_info()
        shard = Shard(self.rank, self.world_size, info.id if info else 0, info.num_workers if info else 1)
        if self._start != (0, 0) and self._shard not in {None, shard}:
            raise ConfigError(
                f"this state is of {self._shard}, and this is {shard}. Resume with as many ranks and workers, each "
                "with its own state."
            )
        self._shard = shard
        return shard

    def _blocks_of(self, epoch: int, shard: Shard) -> list[int]:
        num_blocks = -(-len(self.rows) // BLOCK_ROWS)
        order = Order(num_blocks, seed=self.seed, shuffle=self.shuffle).rows(epoch)
        return order[shard.rank :: shard.world_size][shard.worker :: shard.num_workers].tolist()  # type: ignore[no-any-return] # numpy's

    def _pool(self, blocks: list[int], epoch: int) -> list[Item]:
        drawn = [one for block in blocks for one in self._drawn(block, epoch)]
        if self.shuffle:
            drawn.sort(key=lambda one: (one.luck, one.draw.position))
        return [one.item for one in drawn]

    def _drawn(self, block: int, epoch: int) -> Iterator[Drawn]:
        rows = range(block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, len(self.rows)))
        lucks = Dice("feeding", "pool", self.seed, epoch, block).many_bits(len(rows)).tolist()
        for number, by_chance in zip(rows, lucks, strict=True):
            row = self.rows[number]
            if row.get("variant", "") in self.without:
                continue
            for copy in range(self._num_copies(row, number, epoch)):
                draw = Draw(epoch, number + copy * len(self.rows), number)
                # Copies are far apart: the golden ratio's multiples are.
                yield Drawn(draw, self._item(row, draw), (by_chance + copy * 0x9E3779B97F4A7C15) % (1 << 64))

    def _num_copies(self, row: Row, number: int, epoch: int) -> int:
        if not self.has_weights:
            return 1
        return int(row["weight"] + 1 - luck("feeding", "copies", self.seed, epoch, number))

    def _item(self, row: Row, draw: Draw) -> Item:
        item = self._items.drawn(row, draw)
        for name in self._not_asked:
            del item[name]
        return item
