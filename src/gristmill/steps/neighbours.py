"""Neighbours together, up to so much: batches of files, pieces of the output, runs of texts."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


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
