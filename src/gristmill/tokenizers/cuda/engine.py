"""Run the kernels over one chunk of text while other chunks are copied to and from the GPU.

             ┌ copy in ┐┌ copy in ┐┌ copy in ┐
                        ┌ kernels ┐┌ kernels ┐┌ kernels ┐
                                   ┌ copy out ┐┌ copy out ┐┌ copy out ┐

A slot holds the buffers of one chunk, from the copy in to the copy out. NUM_SLOTS slots are used in turn.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.cuda.gpu import COMPUTE, COPY_IN, COPY_OUT, Gpu, Launch, Stage
from gristmill.tokenizers.cuda.merge_tables import EMPTY, NO_ID, RANK_BITS, ExceptionTable, MergeTables
from gristmill.tokenizers.cuda.structs import CHUNK, ENGINE, MARGIN, MERGE, RESULT, TILE, Sizes

Bytes = npt.NDArray[np.uint8]
NUM_SLOTS = 4
THREADS = 256
BLOCKS_PER_PROCESSOR = 8


def merge_entries(tables: MergeTables) -> npt.NDArray[Any]:
    """Return the merge table. Each entry includes the product of the merge: a GPU loads 16 bytes as fast as 8."""
    entries = np.zeros(len(tables.table), MERGE)
    is_used = tables.table != np.uint64(EMPTY)
    ranks = (tables.table & np.uint64((1 << RANK_BITS) - 1)).astype(np.int64)
    entries["pair"] = tables.table >> np.uint64(RANK_BITS)
    entries["rank"] = np.where(is_used, ranks, NO_ID)
    entries["product"][is_used] = tables.products[ranks[is_used]]
    return entries


class Text(NamedTuple):
    """Text of one chunk."""

    content: Bytes
    starts: npt.NDArray[np.int64]
    """Offset of each piece. A piece is a document, or a part of a large document."""


class ChunkIds(NamedTuple):
    """Ids of one chunk in GPU memory. They are valid until the callback of `Engine.run` returns."""

    ids_address: int
    num_ids: int
    id_offsets: npt.NDArray[np.uint32]
    """Offset of each piece's ids."""
    flags: npt.NDArray[np.uint8]
    """1 for each piece whose ids are invalid. The CPU must encode these pieces."""
    num_new_words: int
    num_clears: int
    """Number of times that the word table has been cleared so far."""


class _Slot:
    """GPU buffers of one chunk, and the pinned memory that is copied to or from them."""

    def __init__(self, gpu: Gpu, sizes: Sizes) -> None:
        self.text = gpu.allocate(sizes.chunk_bytes + TILE + 2 * MARGIN) + MARGIN
        self.ids = gpu.allocate(sizes.chunk_bytes * sizes.id_bytes + 16)
        head_bytes = CHUNK.itemsize + 4 * sizes.max_documents
        self.head, self.pinned_header = gpu.allocate(head_bytes), gpu.pinned(head_bytes)
        # The kernels write directly to this memory. A copy would have to wait for the ids of the previous chunk.
        self.answer = gpu.pinned(RESULT.itemsize + 5 * sizes.max_documents)
        self.num_pieces = 0
        self.kernels_done: Any = None
        self.copy_out_done: Any = None

    def write_header(self, text: Text) -> Bytes:
        """Write the chunk's structure and the starts of its pieces, and return the bytes to copy to the GPU."""
        self.num_pieces, num_bytes = len(text.starts), len(text.content)
        head = self.pinned_header[: CHUNK.itemsize].view(CHUNK)[0]
        head["text"], head["documents"], head["ids"] = self.text, self.head + CHUNK.itemsize, self.ids
        answer, edge = self.answer.ctypes.data, RESULT.itemsize + 4 * self.num_pieces
        head["result"], head["id_offsets"], head["flags"] = answer, answer + RESULT.itemsize, answer + edge
        self.answer[edge : edge + self.num_pieces] = 0
        head["num_bytes"], head["num_documents"] = num_bytes, self.num_pieces
        head["num_tiles"] = num_bytes // TILE + 1
        end = CHUNK.itemsize + 4 * self.num_pieces
        self.pinned_header[CHUNK.itemsize : end].view(np.uint32)[:] = text.starts
        return self.pinned_header[:end]

    def chunk_ids(self) -> ChunkIds:
        edge = RESULT.itemsize + 4 * self.num_pieces
        result = self.answer[: RESULT.itemsize].view(RESULT)[0]
        return ChunkIds(
            ids_address=self.ids,
            num_ids=int(result["num_ids"]),
            id_offsets=self.answer[RESULT.itemsize : edge].view(np.uint32),
            flags=self.answer[edge : edge + self.num_pieces],
            num_new_words=int(result["num_new_words"]),
            num_clears=int(result["num_clears"]),
        )


class Engine:
    """A tokenizer's tables on a GPU, with the kernels that use them."""

    def __init__(self, gpu: Gpu, tables: MergeTables, classes: npt.NDArray[np.uint8], sizes: Sizes) -> None:
        self.gpu, self.sizes = gpu, sizes
        exceptions = ExceptionTable.of(tables.exceptions)
        fields = {
            "classes": self._upload(classes),
            "byte_ids": self._upload(tables.byte_ids),
            "pair_ids": self._upload(tables.pair_ids),
            "merges": self._upload(merge_entries(tables)),
            "exceptions": self._upload(exceptions.entries),
            "exception_bytes": self._upload(exceptions.content),
            "arena_bytes": sizes.arena_bytes,
            "pool_ids": sizes.pool_ids,
            "slot_mask": sizes.num_slots - 1,
            "max_words": sizes.max_words,
            "merges_shift": 64 - tables.table_bits,
            "merges_mask": len(tables.table) - 1,
            "is_in_order": tables.is_in_order,
            "exceptions_mask": len(exceptions.entries) - 1,
            "longest_exception": exceptions.longest,
        }
        fields |= {name: gpu.allocate(num_bytes) for name, num_bytes in sizes.work_array_bytes().items()}
        self._zeroed, at = gpu.allocate(sum(sizes.zeroed_array_bytes().values())), 0
        for name, num_bytes in sizes.zeroed_array_bytes().items():
            if name in (ENGINE.names or ()):
                fields[name] = self._zeroed + at
            at += num_bytes
        self._num_zeroed = at
        structure = np.zeros(1, ENGINE)
        for name, value in fields.items():
            structure[name] = value
        self._state, self._entries = fields["state"], fields["entries"]
        self._engine = self._upload(structure)
        num_blocks = gpu.num_processors * BLOCKS_PER_PROCESSOR
        self._stages = _stages(num_blocks, sizes.max_tiles, has_exceptions=exceptions.longest > 0)
        self.num_clears = 0
        """Number of times that the word table has been cleared, as of the last finished chunk."""
        self._slots = [_Slot(gpu, sizes) for _ in range(NUM_SLOTS)]
        gpu.wait(gpu.record(COMPUTE))

    def run(self, texts: Iterable[Text], receive: Callable[[ChunkIds], None]) -> None:
        """Encode chunks, and call `receive` for each chunk in the order of `texts`.

        `receive` may queue copies in the stream COPY_OUT.
        """
        in_flight: deque[_Slot] = deque()
        with ExitStack() as stack:
            if isinstance(texts, Generator):  # the generator must not fill its buffers during the next run
                stack.callback(texts.close)
            stack.callback(self._wait_for_all)  # queued copies still read memory that the next run overwrites
            for index, text in enumerate(texts):
                if len(in_flight) == NUM_SLOTS - 1:
                    self._collect(in_flight.popleft(), receive)
                slot = self._slots[index % NUM_SLOTS]
                self._submit(slot, text)
                in_flight.append(slot)
            while in_flight:
                self._collect(in_flight.popleft(), receive)

    def _wait_for_all(self) -> None:
        for stream in (COPY_IN, COMPUTE, COPY_OUT):
            self.gpu.wait(self.gpu.record(stream))

    def forget(self) -> None:
        """Clear the word table."""
        self.gpu.zero(self._entries, self.sizes.work_array_bytes()["entries"], COMPUTE)
        self.gpu.zero(self._state, self.sizes.work_array_bytes()["state"], COMPUTE)
        self.gpu.wait(self.gpu.record(COMPUTE))

    def stage_seconds(self, texts: Iterable[Text]) -> dict[str, float]:
        """Measure the total time of each kernel over all chunks, without copies and without overlap."""
        gpu = self.gpu
        seconds: dict[str, float] = {}
        slot = self._slots[0]
        for text in texts:
            gpu.copy_in(slot.head, slot.write_header(text), COMPUTE)
            gpu.copy_in(slot.text, text.content, COMPUTE)
            # Zeroing takes longer than queuing the launches, so no kernel waits for its launch.
            gpu.zero(self._zeroed, self._num_zeroed, COMPUTE)
            marks = [gpu.mark(COMPUTE)]
            launches = [launch for stage in self._stages for branch in stage for launch in branch]
            for launch in launches:
                gpu.launch(*launch, self._engine, slot.head)
                marks.append(gpu.mark(COMPUTE))
            for (kernel, *_), first, last in zip(launches, marks, marks[1:], strict=False):
                seconds[kernel] = seconds.get(kernel, 0.0) + gpu.seconds_between(first, last)
        return seconds

    def _submit(self, slot: _Slot, text: Text) -> None:
        gpu = self.gpu
        if slot.kernels_done is not None:
            gpu.hold(COPY_IN, slot.kernels_done)
        if slot.copy_out_done is not None:
            gpu.hold(COMPUTE, slot.copy_out_done)
        gpu.copy_in(slot.head, slot.write_header(text), COPY_IN)
        gpu.copy_in(slot.text, text.content, COPY_IN)
        arrived = gpu.record(COPY_IN)
        gpu.zero(self._zeroed, self._num_zeroed, COMPUTE)
        gpu.hold(COMPUTE, arrived)
        gpu.launch_all(self._stages, self._engine, slot.head)
        slot.kernels_done = gpu.record(COMPUTE)

    def _collect(self, slot: _Slot, receive: Callable[[ChunkIds], None]) -> None:
        self.gpu.wait(slot.kernels_done)
        chunk_ids = slot.chunk_ids()
        self.num_clears = chunk_ids.num_clears
        receive(chunk_ids)
        slot.copy_out_done = self.gpu.record(COPY_OUT)

    def _upload(self, array: npt.NDArray[Any]) -> int:
        address = self.gpu.allocate(array.nbytes)
        self.gpu.copy_in(address, array, COMPUTE)
        self.gpu.wait(self.gpu.record(COMPUTE))
        return address


def _stages(num_blocks: int, max_tiles: int, *, has_exceptions: bool) -> list[Stage]:
    """Return the launches for one chunk.

    Kernels that work on tiles (parts of TILE bytes) have a block for each tile of the largest chunk. All other kernels
    have a fixed number of blocks, which loop over lists of any length.
    """
    return [
        [[Launch("begin_chunk", num_blocks, THREADS)]],
        [[Launch("word_starts", max_tiles, THREADS)]],
        [[Launch("look_up_words", max_tiles, THREADS)]],
        [[Launch("look_up_long_words", num_blocks, THREADS)]],
        [
            [Launch("merge_words", 2 * num_blocks, THREADS // 2)],
            [Launch("merge_windows", num_blocks, THREADS // 2), Launch("join_windows", num_blocks, 32)],
        ],
        *([[[Launch("apply_exceptions", num_blocks, THREADS)]]] if has_exceptions else []),
        [[Launch("emit", max_tiles, THREADS)]],
        [[Launch("end_chunk", num_blocks // 4 + 1, THREADS)]],
    ]
