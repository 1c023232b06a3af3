"""Compute keys from a document's ids such that near-duplicates probably share a key.

The 5-grams of a document's ids form a set. MinHash with 256 permutations reduces the set to 256 values, and each of 32
bands of 8 values gives a key. The probability that two documents share at least one key is 0.997 for a Jaccard
similarity of 0.8, and 0.12 for a similarity of 0.5. Only the keys are stored, 256 bytes per document. Documents that
share a key are compared exactly (clusters.py).
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
"""Documents per call of rensa, which returns each signature as a list of numbers that takes ten kilobytes."""

GRAMS_AT_ONCE = 1 << 14
"""Number of 5-grams that are hashed at a time. They fit into the processor's cache."""
SIGNATURE = struct.Struct(f"<{NUM_PERMUTATIONS}I")

Keys = npt.NDArray[np.uint64]
Ids = npt.NDArray[Any]
Edges = npt.NDArray[np.int64]
NO_BANDS: Keys = np.zeros((0, NUM_BANDS), np.uint64)
Number = TypeVar("Number", bound=np.integer[Any])

# Odd numbers with irregular bits, most of them constants of SplitMix64 and PCG.
GRAM_WEIGHTS = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 0x5851F42D4C957F2D], np.uint64
)
BAND_WEIGHTS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93], np.uint64)


def mix_bits(numbers: Keys) -> Keys:
    """Mix the bits of each number, so that many bits of the result depend on each bit of the number."""
    mixed: Keys = (numbers ^ (numbers >> np.uint64(32))) * GRAM_WEIGHTS[0]
    mixed ^= mixed >> np.uint64(29)
    return mixed


def distinct(keys: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return the distinct values in ascending order. np.unique takes longer and loads numpy.ma."""
    keys = np.sort(keys)
    return keys[np.concatenate(([True], keys[1:] != keys[:-1]))] if len(keys) else keys


def concatenate_ids(documents: Sequence[Ids]) -> tuple[Ids, Edges]:
    """Concatenate the ids of documents. The second array has the start of each document, followed by the end."""
    ids = np.concatenate(documents) if documents else np.zeros(0, np.uint16)
    return ids, np.cumsum([0, *map(len, documents)])


def grams_of(ids: Ids) -> Keys:
    """Return a hash of each 5-gram, in the order of the ids. A document of 1 to 4 tokens has one gram."""
    num_grams = max(min(1, len(ids)), len(ids) - GRAM_TOKENS + 1)
    grams = np.empty(num_grams, np.uint64)
    for at in range(0, num_grams, GRAMS_AT_ONCE):
        some = grams[at : at + GRAMS_AT_ONCE]
        numbers = ids[at : at + len(some) + GRAM_TOKENS - 1].astype(np.uint64) + np.uint64(1)
        np.multiply(numbers[: len(some)], GRAM_WEIGHTS[0], out=some)
        for position in range(1, min(GRAM_TOKENS, len(ids))):
            some += numbers[position : position + len(some)] * GRAM_WEIGHTS[position]
        some[:] = mix_bits(some)
    return grams


def band_keys(ids: Ids, edges: Edges) -> Keys:
    """Return a row of 32 keys for each document. `edges` has the start of each document, followed by the end."""
    firsts = range(0, len(edges) - 1, DOCUMENTS_AT_ONCE)
    parts = [_band_keys(ids, edges[first : first + DOCUMENTS_AT_ONCE + 1]) for first in firsts]
    return np.concatenate([NO_BANDS, *parts])


def _band_keys(ids: Ids, edges: Edges) -> Keys:
    from rensa import RMinHash  # noqa: PLC0415 - needed only to find near-duplicates

    grams, offsets = _grams_of_documents(ids, edges)
    sketch = RMinHash.digest_matrix_from_flat_token_hashes(grams, offsets, NUM_PERMUTATIONS, SEED)
    values = b"".join([SIGNATURE.pack(*row) for row in sketch.to_rows()])
    pairs = np.frombuffer(values, np.uint64).reshape(len(edges) - 1, NUM_BANDS, -1)
    return mix_bits((pairs * BAND_WEIGHTS).sum(axis=2, dtype=np.uint64))


def _grams_of_documents(ids: Ids, edges: Edges) -> tuple[Keys, Keys]:
    """Return the grams of all documents, repeats included, and the start of each document, followed by the end."""
    sizes = np.diff(edges)
    if len(sizes) and sizes.min() < GRAM_TOKENS:
        grams = [grams_of(ids[start:end]) for start, end in pairwise(edges.tolist())]
        return np.concatenate(grams), np.cumsum([0, *map(len, grams)]).astype(np.uint64)
    every, offsets = grams_of(ids[edges[0] : edges[-1]]), edges - edges[0]
    # A gram that reaches into the next document is replaced by the last gram of its document. The set stays the same.
    for before_end in range(1, GRAM_TOKENS):
        every[offsets[1:-1] - before_end] = every[offsets[1:-1] - GRAM_TOKENS]
    offsets[-1] = len(every)
    return every, offsets.astype(np.uint64)
