"""Many documents' ids in one array, as they come from the card."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.cuda.card import COPY_OUT, Card
from gristmill.tokenizers.cuda.engine import Done

FIRST_IDS = 1 << 16


class Batch(NamedTuple):
    """`batch.ids[batch.offsets[n] : batch.offsets[n + 1]]` are document n's. On the card, both are cupy's arrays."""

    ids: npt.NDArray[Any]
    """uint16 where every id fits, else uint32."""
    offsets: npt.NDArray[np.int64]
    num_on_cpu: int = 0
    """Documents, or pieces of large ones, that the CPU did. The ids are the same, but the number can differ from run to
    run when more words are new than the word table has room for: which of them find room depends on the card's threads.
    """


class Gathered:
    """Ids of chunk after chunk, in pinned memory; it doubles when they do not fit."""

    def __init__(self, card: Card, kind: type[np.uint16] | type[np.uint32], expected_ids: int) -> None:
        self._card, self._kind = card, np.dtype(kind)
        self._ids = self._room(max(expected_ids, FIRST_IDS))
        self.num_ids = 0
        self.counts: list[npt.NDArray[np.int64]] = []
        """Ids of each piece."""
        self.flags: list[npt.NDArray[np.bool_]] = []

    def __call__(self, done: Done) -> None:
        end = self.num_ids + done.num_ids
        if end > len(self._ids):
            self._grow(end)
        self._copy(done)
        self.num_ids = end
        edges = np.append(done.id_offsets.astype(np.int64), done.num_ids)
        self.counts.append(edges[1:] - edges[:-1])
        self.flags.append(done.flags.astype(bool))

    @property
    def ids(self) -> Any:
        return self._ids[: self.num_ids]

    def _room(self, num_ids: int) -> Any:
        return self._card.pinned(num_ids * self._kind.itemsize).view(self._kind)

    def _copy(self, done: Done) -> None:
        self._card.copy_out(self._ids[self.num_ids : self.num_ids + done.num_ids], done.ids_address, COPY_OUT)

    def _grow(self, num_ids: int) -> None:
        self._card.wait(self._card.record(COPY_OUT))
        larger = self._room(max(2 * len(self._ids), num_ids))
        larger[: self.num_ids] = self._ids[: self.num_ids]
        self._ids = larger


class GatheredOnCard(Gathered):
    """The same in the card's memory: arrays of cupy, which torch takes without a copy (DLPack)."""

    def _room(self, num_ids: int) -> Any:
        return self._card.array(num_ids, self._kind)

    def _copy(self, done: Done) -> None:
        to = self._card.address_of(self._ids) + self.num_ids * self._kind.itemsize
        self._card.copy_inside(to, done.ids_address, done.num_ids * self._kind.itemsize, COPY_OUT)
