"""A document's ids -> the keys by which near-duplicates find each other.

The 5-grams of a document's ids are a set. MinHash with 256 permutations is a sketch of it, and 32 bands of 8 values
make 32 keys: two documents whose sets have a Jaccard similarity of 0.8 share at least one of them in 0.997 of all
cases, two of 0.5 in 0.12. Only the keys are kept, 256 bytes a document; who shares one is compared exactly (clusters).
"""

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

NUM_PERMUTATIONS = 256
NUM_BANDS = 32
GRAM_TOKENS = 5
SEED = 0
DOCUMENTS_AT_ONCE = 128
"""Signatures come out of rensa as lists of numbers, ten kilobytes a document."""

GRAMS_AT_ONCE = 1 << 14
"""So that the numbers stay in the processor's cache."""
SIGNATURE = struct.Struct(f"<{NUM_PERMUTATIONS}I")

Keys = npt.NDArray[np.uint64]
Ids = npt.NDArray[Any]
Edges = npt.NDArray[np.int64]
NO_BANDS: Keys = np.zeros((0, NUM_BANDS), np.uint64)
Number = TypeVar("Number", bound=np.integer[Any])

# Odd numbers without a pattern: the multipliers of SplitMix64 and PCG.
GRAM_WEIGHTS = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 0x5851F42D4C957F2D], np.uint64
)
BAND_WEIGHTS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93], np.uint64)


def mixed(numbers: Keys) -> Keys:
    """Every bit of the result depends on every bit of the number."""
    mixed: Keys = (numbers ^ (numbers >> np.uint64(32))) * GRAM_WEIGHTS[0]
    mixed ^= mixed >> np.uint64(29)
    return mixed


def distinct(keys: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Sorted; np.unique takes longer, and loads numpy.ma."""
    keys = np.sort(keys)
    return keys[np.concatenate(([True], keys[1:] != keys[:-1]))] if len(keys) else keys


def end_to_end(documents: Sequence[Ids]) -> tuple[Ids, Edges]:
    """The ids of all, and where each document's begin, with the end."""
    ids = np.concatenate(documents) if documents else np.zeros(0, np.uint16)
    return ids, np.cumsum([0, *map(len, documents)])


def grams_of(ids: Ids) -> Keys:
    """A number for each 5-gram, in order; a document of fewer tokens is one gram."""
    num_grams = max(min(1, len(ids)), len(ids) - GRAM_TOKENS + 1)
    grams = np.empty(num_grams, np.uint64)
    for at in range(0, num_grams, GRAMS_AT_ONCE):
        some = grams[at : at + GRAMS_AT_ONCE]
        numbers = ids[at : at + len(some) + GRAM_TOKENS - 1].astype(np.uint64) + np.uint64(1)
        np.multiply(numbers[: len(some)], GRAM_WEIGHTS[0], out=some)
        for place in range(1, min(GRAM_TOKENS, len(ids))):
            some += numbers[place : place + len(some)] * GRAM_WEIGHTS[place]
        some[:] = mixed(some)
    return grams


def band_keys(ids: Ids, edges: Edges) -> Keys:
    """One row of 32 keys per document. `edges`: where each document's ids begin, and the end."""
    firsts = range(0, len(edges) - 1, DOCUMENTS_AT_ONCE)
    parts = [_band_keys(ids, edges[first : first + DOCUMENTS_AT_ONCE + 1]) for first in firsts]
    return np.concatenate([NO_BANDS, *parts])


def _band_keys(ids: Ids, edges: Edges) -> Keys:
    from rensa import RMinHash  # noqa: PLC0415 - only where near-duplicates are looked for

    grams, offsets = _grams_of_all(ids, edges)
    sketch = RMinHash.digest_matrix_from_flat_token_hashes(grams, offsets, NUM_PERMUTATIONS, SEED)
    values = b"".join([SIGNATURE.pack(*row) for row in sketch.to_rows()])
    pairs = np.frombuffer(values, np.uint64).reshape(len(edges) - 1, NUM_BANDS, -1)
    return mixed((pairs * BAND_WEIGHTS).sum(axis=2, dtype=np.uint64))


def _grams_of_all(ids: Ids, edges: Edges) -> tuple[Keys, Keys]:
    """The grams of each document, one document behind the other, and where each begins. Some may be there twice."""
    sizes = np.diff(edges)
    if len(sizes) and sizes.min() < GRAM_TOKENS:
        grams = [grams_of(ids[start:end]) for start, end in pairwise(edges.tolist())]
        return np.concatenate(grams), np.cumsum([0, *map(len, grams)]).astype(np.uint64)
    every, offsets = grams_of(ids[edges[0] : edges[-1]]), edges - edges[0]
    # In place of grams that reach into the next document, its own last one: a set has it once.
    for before_end in range(1, GRAM_TOKENS):
        every[offsets[1:-1] - before_end] = every[offsets[1:-1] - GRAM_TOKENS]
    offsets[-1] = len(every)
    return every, offsets.astype(np.uint64)
