"""The structures of kernels/engine.cuh as numpy sees them, and what memory a chunk of text needs on the card."""

from typing import Literal, NamedTuple

import numpy as np

TILE = 8192
GROUP = 32
WINDOW = 64
STRIDE = 32
IN_TILE = 512
SHORT_FROM = 3
MEDIUM_FROM = 16
"""Bytes of the shortest word that takes an entry, and of the shortest that a warp merges."""
LONGEST_CHUNK = (1 << 24) - 1
"""A word may be as long as the chunk, and the table has 24 bits for a length."""
MARGIN = TILE
"""Bytes that may be read before and behind a text."""

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
    """Of everything whose size goes by the chunk's."""

    chunk_bytes: int
    """Of text in one chunk, at most."""
    max_documents: int
    """In one chunk."""
    num_slots: int
    """Entries of the word table."""
    pool_ids: int
    arena_bytes: int
    id_bytes: int

    @classmethod
    def of(cls, chunk_bytes: int, id_bits: Literal[16, 32], *, num_slots: int | None = None) -> "Sizes":
        """A chunk of new words alone, eight bytes each, fills half of the table."""
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
        """Five eighths full: searches are still short."""
        return self.num_slots * 5 // 8

    @property
    def max_windows(self) -> int:
        return self.chunk_bytes // STRIDE + 2

    def scratch(self) -> dict[str, int]:
        """Bytes of each of the engine's arrays that hold what is known of one chunk, and of the word table."""
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
            "short_words": (chunk // SHORT_FROM + 1) * 4,
            "medium_words": (chunk // MEDIUM_FROM + 1) * 4,
            "windows": windows * 8,
            "joins": (chunk // WINDOW + 1) * 8,
            "long_words": (chunk // IN_TILE + 2) * 8,
            "window_ids": windows * WINDOW * self.id_bytes,
            "window_masks": windows * WINDOW // 8,
        }

    def zeroed(self) -> dict[str, int]:
        """What is zeroed before each chunk; these lie one behind the other."""
        return {
            "counters": -(-COUNTERS_BYTES // 16) * 16,
            "tile_totals": self.max_tiles * 8,
            "mask_margin": GROUP,  # the first group looks at the one before it, and finds no document there
            "document_mask": self.max_tiles * TILE // 8 + GROUP,
        }
