"""Group consecutive items up to a size limit: batches of files, pieces of the output, runs of texts."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
NUM_HASHES = 1 << 32


def consecutive_groups(
    items: Iterable[Item], size_of: Callable[[Item], int], limit: int, max_items: int | None = None
) -> Iterator[list[Item]]:
    """Yield groups of consecutive items, each of at most `max_items` items with a total size of at most `limit`.

    An item that is larger than `limit` is a group by itself.
    """
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
    """Yield groups of consecutive items. A new or changed item changes only the groups around it.

    A hash of an item's name decides whether the item begins a new group. The probability of a new group is
    proportional to the size of the item, so the average group has half the size of the limit. A group that exceeds the
    limit is divided.
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
