"""Words that are one token though merges do not make it, as a table that kernels look new words up in.

Llama 3's `ignore_merges`: a word that is in the vocabulary has that id. Words of one or two bytes have tables of their
own. An entry has where the bytes lie, and they are compared: a hash alone would not be exact.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizing.cuda.merges import MULTIPLIER, Exceptional
from gristmill.tokenizing.cuda.structs import EXCEPTION, SHORT_FROM

EIGHT = 8
HASH_BITS = 64
SECOND_MULTIPLIER = 0xFF51AFD7ED558CCD


class ExceptionTable(NamedTuple):
    entries: npt.NDArray[Any]
    """Open addressing, at most half full; a length of 0 ends a search."""
    content: npt.NDArray[np.uint8]
    """Each word's bytes from a multiple of eight on, with zeros behind them."""
    longest: int
    """Bytes; 0 where there are none."""

    @classmethod
    def of(cls, exceptions: Iterable[Exceptional]) -> "ExceptionTable":
        kept = [token for token in exceptions if len(token.spelled) >= SHORT_FROM]
        padded = [_padded(token.spelled) for token in kept]
        content = np.frombuffer(b"".join(padded) or bytes(EIGHT), np.uint8)
        begins = np.cumsum([0, *map(len, padded)]).tolist()
        longest = max((len(token.spelled) for token in kept), default=0)
        return cls(_entries(kept, begins), content, longest)


def hash_of(word: bytes) -> int:
    """What `hashed` in kernels/word_table.cuh computes."""
    value = len(word)
    for at in range(0, len(word), EIGHT):
        eight = int.from_bytes(word[at : at + EIGHT], "little")
        value = _low_64(_mixed(value, eight) * MULTIPLIER)
    return value


def _mixed(first: int, second: int) -> int:
    value = _low_64((first ^ _low_64(second * MULTIPLIER)) * SECOND_MULTIPLIER)
    return value ^ value >> HASH_BITS // 2


def _low_64(value: int) -> int:
    return value & (1 << HASH_BITS) - 1


def _padded(word: bytes) -> bytes:
    return word.ljust(-(-len(word) // EIGHT) * EIGHT, b"\0")


def _entries(exceptions: list[Exceptional], begins: list[int]) -> npt.NDArray[Any]:
    entries = np.zeros(1 << (2 * len(exceptions)).bit_length(), EXCEPTION)
    for (spelled, index), begin in zip(exceptions, begins, strict=False):
        value = hash_of(spelled)
        slot = (value >> HASH_BITS // 2) % len(entries)
        while entries["num_bytes"][slot]:
            slot = (slot + 1) % len(entries)
        entries[slot] = (value & 0xFFFFFFFF, begin, len(spelled), index)
    return entries
