"""Which process of a training this is, and of how many."""

import os
from typing import NamedTuple

import torch.distributed

from gristmill.errors import ConfigError


class Place(NamedTuple):
    rank: int
    world_size: int


def place_of(rank: int | None = None, world_size: int | None = None) -> Place:
    """As said; else what torch.distributed says, if it is initialised; else RANK and WORLD_SIZE; else the only one."""
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank and world_size go together, got rank={rank} and world_size={world_size}.")
    place = _found() if rank is None or world_size is None else Place(rank, world_size)
    if not 0 <= place.rank < place.world_size:
        raise ConfigError(f"rank must be from 0 to world_size - 1 ({place.world_size - 1}), got {place.rank}.")
    return place


def _found() -> Place:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Place(torch.distributed.get_rank(), torch.distributed.get_world_size())
    named = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    try:
        return Place(int(named[0]), int(named[1]))
    except ValueError:
        raise ConfigError(f"RANK and WORLD_SIZE must be numbers, got {named[0]!r} and {named[1]!r}.") from None
