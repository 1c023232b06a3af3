"""Neighbours together, up to so much: batches of files, pieces of the output, runs of texts."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
DRAWS = 1 << 32


def neighbours(
    items: Iterable[Item], size_of: Callable[[Item], int], limit: int, max_items: int | None = None
) -> Iterator[list[Item]]:
    """In order, none empty; what is larger than the limit by itself stands alone."""
    gathered: list[Item] = []
    size = 0
    for item in items:
        if gathered and (size + size_of(item) > limit or len(gathered) == max_items):
            yield gathered
            gathered, size = [], 0
        gathered.append(item)
        size += size_of(item)
    if gathered:
        yield gathered


def steady_neighbours(
    items: Iterable[Item],
    name_of: Callable[[Item], str],
    size_of: Callable[[Item], int],
    limit: int,
    max_items: int | None = None,
) -> Iterator[list[Item]]:
    """The same, but an item that is new or changed moves the edges next to it and no others.

    An item begins a new run if a number drawn from its name says so, the likelier the larger it is: on average the runs
    are half as large as the limit. Only what lies between two such edges is cut at the limit.
    """

    def begins(item: Item) -> bool:
        share = 2 * size_of(item) / limit + (2 / max_items if max_items else 0)
        return zlib.crc32(name_of(item).encode()) < share * DRAWS

    run: list[Item] = []
    for item in items:
        if run and begins(item):
            yield from neighbours(run, size_of, limit, max_items)
            run = []
        run.append(item)
    yield from neighbours(run, size_of, limit, max_items)
