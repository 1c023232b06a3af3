"""Random numbers that are the same on every machine. Python's own generator may change between versions.

rng = SeededRandom(seed, "rename", "src/app.py")
rng.integer_below(6)
"""

import hashlib
from collections.abc import MutableSequence, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Item = TypeVar("Item")

MASK = (1 << 64) - 1
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def stable_hash(*names: object) -> int:
    """Hash the names to a 64-bit number, the same on every machine."""
    text = "\0".join(map(str, names))
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


def random_fraction(*names: object) -> float:
    """Hash the names to a number that is greater than 0 and at most 1."""
    return (stable_hash(*names) + 1) / (1 << 64)


def mix(states: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the output of SplitMix64 for each state."""
    bits: npt.NDArray[np.uint64] = states ^ (states >> np.uint64(30))
    bits *= np.uint64(FIRST)
    bits ^= bits >> np.uint64(27)
    bits *= np.uint64(SECOND)
    bits ^= bits >> np.uint64(31)
    return bits


class SeededRandom:
    """The random number generator SplitMix64 (Steele, Lea and Flood 2014), which takes a few operations per number."""

    def __init__(self, *seeds: object) -> None:
        self._state = stable_hash(*seeds)

    def bits(self) -> int:
        """Return the next 64 random bits."""
        self._state = (self._state + STEP) & MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * FIRST) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * SECOND) & MASK
        return mixed ^ (mixed >> 31)

    def bits_array(self, count: int) -> npt.NDArray[np.uint64]:
        """Return an array of `count` numbers, each with 64 random bits."""
        states = np.uint64(self._state) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(STEP)
        self._state = (self._state + count * STEP) & MASK
        return mix(states)

    def integer_below(self, limit: int) -> int:
        """Return an integer from 0 to limit - 1. The bias, below limit / 2 ** 64, is negligible."""
        return (self.bits() * limit) >> 64

    def fraction(self) -> float:
        """Return a float with 53 random bits, at least 0 and below 1."""
        return (self.bits() >> 11) / (1 << 53)

    def fractions(self, count: int) -> npt.NDArray[np.float64]:
        fractions: npt.NDArray[np.float64] = (self.bits_array(count) >> np.uint64(11)) / (1 << 53)
        return fractions

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.integer_below(len(items))]

    def shuffle(self, items: MutableSequence[Item]) -> None:
        for last in range(len(items) - 1, 0, -1):
            other = self.integer_below(last + 1)
            items[last], items[other] = items[other], items[last]
