"""A document's ids -> the keys by which near-duplicates find each other.

The 5-grams of a document's ids are a set. MinHash with 256 permutations is a sketch of it, and 32 bands of 8 values
make 32 keys: two documents whose sets have a Jaccard similarity of 0.8 share at least one of them in 0.997 of all
cases, two of 0.5 in 0.12. Only the keys are kept, 256 bytes a document; who shares one is compared exactly (clusters).
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

NUM_PERMUTATIONS = 256
NUM_BANDS = 32
GRAM_TOKENS = 5
SEED = 0
DOCUMENTS_AT_ONCE = 128
"""Signatures come out of rensa as lists of numbers, ten kilobytes a document."""

Keys = npt.NDArray[np.uint64]
Ids = npt.NDArray[Any]
Number = TypeVar("Number", np.uint32, np.uint64)

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
    """Sorted; np.unique hashes first, which takes longer."""
    keys = np.sort(keys)
    return keys[np.concatenate(([True], keys[1:] != keys[:-1]))] if len(keys) else keys


def grams_of(ids: Ids) -> Keys:
    """A number for each 5-gram, in order; a document of fewer tokens is one gram."""
    num_grams = max(1, len(ids) - GRAM_TOKENS + 1)
    numbers = ids.astype(np.uint64) + np.uint64(1)
    grams = numbers[:num_grams] * GRAM_WEIGHTS[0]
    for place in range(1, min(GRAM_TOKENS, len(ids))):
        grams += numbers[place : place + num_grams] * GRAM_WEIGHTS[place]
    return mixed(grams)


def band_keys(documents: Sequence[Ids]) -> Keys:
    """One row of 32 keys per document."""
    parts = [_band_keys(documents[at : at + DOCUMENTS_AT_ONCE]) for at in range(0, len(documents), DOCUMENTS_AT_ONCE)]
    return np.concatenate([np.zeros((0, NUM_BANDS), np.uint64), *parts])


def _band_keys(documents: Sequence[Ids]) -> Keys:
    from rensa import RMinHash  # noqa: PLC0415 - only where near-duplicates are looked for

    grams = [grams_of(ids) for ids in documents]
    offsets = np.zeros(len(grams) + 1, np.uint64)
    np.cumsum([len(one) for one in grams], out=offsets[1:])
    sketch = RMinHash.digest_matrix_from_flat_token_hashes(np.concatenate(grams), offsets, NUM_PERMUTATIONS, SEED)
    rows = np.array(sketch.to_rows(), np.uint32).reshape(len(grams), NUM_BANDS, -1)
    pairs = rows.view(np.uint64)
    return mixed((pairs * BAND_WEIGHTS).sum(axis=2, dtype=np.uint64))
