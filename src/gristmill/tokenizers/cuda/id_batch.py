"""Collect the ids of many documents in one array, in host memory or in GPU memory."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.cuda.engine import ChunkIds
from gristmill.tokenizers.cuda.gpu import COPY_OUT, Gpu

INITIAL_IDS = 1 << 16


class Batch(NamedTuple):
    """Ids of a batch of documents. The ids of document n are `ids[offsets[n] : offsets[n + 1]]`.

    In GPU memory, both arrays are cupy arrays.
    """

    ids: npt.NDArray[Any]
    """uint16 if every id of the tokenizer fits, otherwise uint32."""
    offsets: npt.NDArray[np.int64]
    """Offset of each document's ids, followed by the number of ids."""
    num_on_cpu: int = 0
    """Number of documents, or pieces of large documents, that the CPU encoded.

    The CPU returns the same ids as the GPU. If a batch has more new words than fit into the word table, the number can
    differ between runs, because the GPU's threads fill the table in varying order.
    """


class IdBuffer:
    """Growable buffer of token ids in pinned memory. A full buffer at least doubles its capacity."""

    def __init__(self, gpu: Gpu, dtype: type[np.uint16] | type[np.uint32], expected_ids: int) -> None:
        self._gpu, self._dtype = gpu, np.dtype(dtype)
        self._ids = self._allocate(max(expected_ids, INITIAL_IDS))
        self.num_ids = 0
        self.counts: list[npt.NDArray[np.int64]] = []
        """Number of ids of each piece, one array per chunk."""
        self.flags: list[npt.NDArray[np.bool_]] = []
        """True for each piece that the CPU must encode, one array per chunk."""

    def __call__(self, chunk_ids: ChunkIds) -> None:
        end = self.num_ids + chunk_ids.num_ids
        if end > len(self._ids):
            self._grow(end)
        self._copy(chunk_ids)
        self.num_ids = end
        edges = np.append(chunk_ids.id_offsets.astype(np.int64), chunk_ids.num_ids)
        self.counts.append(edges[1:] - edges[:-1])
        self.flags.append(chunk_ids.flags.astype(bool))

    @property
    def ids(self) -> Any:
        return self._ids[: self.num_ids]

    def _allocate(self, num_ids: int) -> Any:
        return self._gpu.pinned(num_ids * self._dtype.itemsize).view(self._dtype)

    def _copy(self, chunk_ids: ChunkIds) -> None:
        self._gpu.copy_out(self._ids[self.num_ids : self.num_ids + chunk_ids.num_ids], chunk_ids.ids_address, COPY_OUT)

    def _grow(self, num_ids: int) -> None:
        self._gpu.wait(self._gpu.record(COPY_OUT))
        larger = self._allocate(max(2 * len(self._ids), num_ids))
        larger[: self.num_ids] = self._ids[: self.num_ids]
        self._ids = larger


class GpuIdBuffer(IdBuffer):
    """Growable buffer in GPU memory. The ids are a cupy array, which PyTorch can use without a copy (DLPack)."""

    def _allocate(self, num_ids: int) -> Any:
        return self._gpu.array(num_ids, self._dtype)

    def _copy(self, chunk_ids: ChunkIds) -> None:
        to = self._gpu.address_of(self._ids) + self.num_ids * self._dtype.itemsize
        self._gpu.copy_inside(to, chunk_ids.ids_address, chunk_ids.num_ids * self._dtype.itemsize, COPY_OUT)
