"""Group consecutive items up to a size limit: batches of files, pieces of the output, runs of texts."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
NUM_HASHES = 1 << 32


def consecutive_groups(
    items: Iterable[Item], size_of: Callable[[Item], int], limit: int, max_items: int | None = None
) -> Iterator[list[Item]]:
    """Yield non-empty groups of consecutive items, up to `limit` in size. A larger item is a group by itself."""
    group: list[Item] = []
    size = 0
    for item in items:
        if group and (size + size_of(item) > limit or len(group) == max_items):
            yield group
            group, size = [], 0
        group.append(item)
        size += size_of(item)
    if group:
        yield group


def stable_groups(
    items: Iterable[Item],
    name_of: Callable[[Item], str],
    size_of: Callable[[Item], int],
    limit: int,
    max_items: int | None = None,
) -> Iterator[list[Item]]:
    """Yield groups of consecutive items. A new or changed item changes only the groups next to it.

    A hash of an item's name decides whether the item begins a new group. The probability of a new group grows with the
    size of the item, so groups are half as large as the limit on average. A group that exceeds the limit is divided.
    """

    def begins_run(item: Item) -> bool:
        probability = 2 * size_of(item) / limit + (2 / max_items if max_items else 0)
        return zlib.crc32(name_of(item).encode()) < probability * NUM_HASHES

    run: list[Item] = []
    for item in items:
        if run and begins_run(item):
            yield from consecutive_groups(run, size_of, limit, max_items)
            run = []
        run.append(item)
    yield from consecutive_groups(run, size_of, limit, max_items)
