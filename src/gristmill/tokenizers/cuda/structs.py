"""Mirror the structures of kernels/engine.cuh as numpy types, and compute the GPU memory that a chunk of text needs."""

from typing import Literal, NamedTuple

import numpy as np

TILE = 8192
GROUP = 32
WINDOW = 64
STRIDE = 32
IN_TILE = 512
"""Maximum length in bytes of a word that one thread looks up. engine.cuh also explains the constants above."""
MIN_ENTRY_BYTES = 3
"""Length in bytes of the shortest word that has an entry in the word table."""
MIN_WARP_BYTES = 16
"""Length in bytes of the shortest word that a warp merges."""
MAX_CHUNK_BYTES = (1 << 24) - 1
"""Maximum size of a chunk. A word may be as long as its chunk, and the word table stores lengths in 24 bits."""
MARGIN = TILE
"""Number of readable bytes before and after a text."""

ENGINE = np.dtype(
    [
        *((name, np.uint64) for name in (
            "classes", "byte_ids", "pair_ids", "merges", "entries", "arena", "pool", "state", "counters",
            "document_mask", "starts", "codes", "words_before", "words_per_tile", "first_documents", "tile_totals",
            "short_words", "medium_words", "windows", "joins", "long_words", "window_ids", "window_masks",
            "exceptions", "exception_bytes", "arena_bytes",
        )),
        *((name, np.uint32) for name in (
            "pool_ids", "slot_mask", "max_words", "merges_shift", "merges_mask", "is_in_order", "exceptions_mask",
            "longest_exception",
        )),
    ],
    align=True,
)  # fmt: skip
CHUNK = np.dtype(
    [
        *((name, np.uint64) for name in ("text", "documents", "flags", "ids", "id_offsets", "result")),
        *((name, np.uint32) for name in ("num_bytes", "num_documents", "num_tiles")),
    ],
    align=True,
)
MERGE = np.dtype([("pair", np.uint64), ("rank", np.uint32), ("product", np.uint32)])
EXCEPTION = np.dtype([(name, np.uint32) for name in ("hash", "begin", "num_bytes", "id")])
RESULT = np.dtype([(name, np.uint32) for name in ("num_ids", "num_new_words", "num_clears")])
STATE_BYTES, COUNTERS_BYTES, ENTRY_BYTES = 24, 24, 32


class Sizes(NamedTuple):
    """Sizes that depend on the size of a chunk."""

    chunk_bytes: int
    """Maximum number of bytes of text in a chunk."""
    max_documents: int
    """Maximum number of documents in a chunk."""
    num_slots: int
    """Number of entries of the word table."""
    pool_ids: int
    """Capacity of the pool for the ids of words."""
    arena_bytes: int
    """Capacity of the arena for the bytes of words."""
    id_bytes: int
    """Size of one id."""

    @classmethod
    def of(cls, chunk_bytes: int, id_bits: Literal[16, 32], *, num_slots: int | None = None) -> "Sizes":
        """Compute the sizes. By default, a chunk of new words of eight bytes each fills half of the word table."""
        num_slots = num_slots or 1 << max(10, (chunk_bytes // 4 - 1).bit_length())
        return cls(
            chunk_bytes=chunk_bytes,
            max_documents=max(1024, chunk_bytes // 16),
            num_slots=num_slots,
            pool_ids=2 * chunk_bytes,
            arena_bytes=4 * chunk_bytes,
            id_bytes=id_bits // 8,
        )

    @property
    def max_tiles(self) -> int:
        return self.chunk_bytes // TILE + 1

    @property
    def max_words(self) -> int:
        """Number of words above which the table is cleared. If at most 5/8 of its slots are used, a search is short."""
        return self.num_slots * 5 // 8

    @property
    def max_windows(self) -> int:
        return self.chunk_bytes // STRIDE + 2

    def work_array_bytes(self) -> dict[str, int]:
        """Return the size in bytes of each array for work on one chunk, and of the word table."""
        tiles, windows, chunk = self.max_tiles, self.max_windows, self.chunk_bytes
        return {
            "entries": self.num_slots * ENTRY_BYTES,
            "arena": self.arena_bytes + 16,
            "pool": self.pool_ids * self.id_bytes,
            "state": STATE_BYTES,
            "starts": tiles * TILE // 8,
            "codes": tiles * TILE * 4,
            "words_before": tiles * TILE // GROUP * 2,
            "words_per_tile": tiles * 4,
            "first_documents": (tiles + 1) * 4,
            "short_words": (chunk // MIN_ENTRY_BYTES + 1) * 4,
            "medium_words": (chunk // MIN_WARP_BYTES + 1) * 4,
            "windows": windows * 8,
            "joins": (chunk // WINDOW + 1) * 8,
            "long_words": (chunk // IN_TILE + 2) * 8,
            "window_ids": windows * WINDOW * self.id_bytes,
            "window_masks": windows * WINDOW // 8,
        }

    def zeroed_array_bytes(self) -> dict[str, int]:
        """Return the size in bytes of each array that is zeroed before each chunk. The arrays are contiguous."""
        return {
            "counters": -(-COUNTERS_BYTES // 16) * 16,
            "tile_totals": self.max_tiles * 8,
            "mask_margin": GROUP,  # zeros, because the first group also reads the mask of the bytes before it
            "document_mask": self.max_tiles * TILE // 8 + GROUP,
        }
