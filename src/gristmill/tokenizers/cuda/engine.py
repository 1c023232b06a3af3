"""Text in, ids out: the kernels over chunks, with copies in both directions going on beside them.

             ┌ copy in ┐┌ copy in ┐┌ copy in ┐
                        ┌ kernels ┐┌ kernels ┐┌ kernels ┐
                                   ┌ copy out ┐┌ copy out ┐┌ copy out ┐

A slot holds what belongs to one chunk from the first copy to the last; there are a few, used in turn.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.cuda.card import COMPUTE, COPY_IN, COPY_OUT, Card, Launch, Stage
from gristmill.tokenizers.cuda.merge_tables import EMPTY, NO_ID, RANK_BITS, ExceptionTable, MergeTables
from gristmill.tokenizers.cuda.structs import CHUNK, ENGINE, MARGIN, MERGE, RESULT, TILE, Sizes

Bytes = npt.NDArray[np.uint8]
NUM_SLOTS = 4
THREADS = 256
BLOCKS_PER_PROCESSOR = 8


def merge_entries(tables: MergeTables) -> npt.NDArray[Any]:
    """The table with the product beside the rank: on the card one load of 16 bytes takes as long as one of 8."""
    entries = np.zeros(len(tables.table), MERGE)
    is_used = tables.table != np.uint64(EMPTY)
    ranks = (tables.table & np.uint64((1 << RANK_BITS) - 1)).astype(np.int64)
    entries["pair"] = tables.table >> np.uint64(RANK_BITS)
    entries["rank"] = np.where(is_used, ranks, NO_ID)
    entries["product"][is_used] = tables.products[ranks[is_used]]
    return entries


class Text(NamedTuple):
    """Of one chunk."""

    content: Bytes
    starts: npt.NDArray[np.int64]
    """Where its pieces begin."""


class Done(NamedTuple):
    """One chunk's ids, on the card; good until `receive` is over."""

    ids_address: int
    num_ids: int
    id_offsets: npt.NDArray[np.uint32]
    """Of each piece."""
    flags: npt.NDArray[np.uint8]
    """1 for pieces whose ids here are not to be used."""
    num_new_words: int
    num_clears: int
    """How often the word table has been emptied up to now."""


class _Slot:
    """Addresses on the card, and pinned memory that goes there or comes from there."""

    def __init__(self, card: Card, sizes: Sizes) -> None:
        self.text = card.allocate(sizes.chunk_bytes + TILE + 2 * MARGIN) + MARGIN
        self.ids = card.allocate(sizes.chunk_bytes * sizes.id_bytes + 16)
        head_bytes = CHUNK.itemsize + 4 * sizes.max_documents
        self.head, self.head_here = card.allocate(head_bytes), card.pinned(head_bytes)
        # Written by the kernels themselves: a copy of it would wait for the ids of the chunk before, on the same wire.
        self.answer = card.pinned(RESULT.itemsize + 5 * sizes.max_documents)
        self.num_pieces = 0
        self.computed: Any = None
        self.taken: Any = None

    def describe(self, text: Text) -> Bytes:
        """The chunk's structure and its pieces' starts, as they go to the card."""
        self.num_pieces, num_bytes = len(text.starts), len(text.content)
        head = self.head_here[: CHUNK.itemsize].view(CHUNK)[0]
        head["text"], head["documents"], head["ids"] = self.text, self.head + CHUNK.itemsize, self.ids
        answer, edge = self.answer.ctypes.data, RESULT.itemsize + 4 * self.num_pieces
        head["result"], head["id_offsets"], head["flags"] = answer, answer + RESULT.itemsize, answer + edge
        self.answer[edge : edge + self.num_pieces] = 0
        head["num_bytes"], head["num_documents"] = num_bytes, self.num_pieces
        head["num_tiles"] = num_bytes // TILE + 1
        end = CHUNK.itemsize + 4 * self.num_pieces
        self.head_here[CHUNK.itemsize : end].view(np.uint32)[:] = text.starts
        return self.head_here[:end]

    def done(self) -> Done:
        edge = RESULT.itemsize + 4 * self.num_pieces
        result = self.answer[: RESULT.itemsize].view(RESULT)[0]
        return Done(
            ids_address=self.ids,
            num_ids=int(result["num_ids"]),
            id_offsets=self.answer[RESULT.itemsize : edge].view(np.uint32),
            flags=self.answer[edge : edge + self.num_pieces],
            num_new_words=int(result["num_new_words"]),
            num_clears=int(result["num_clears"]),
        )


class Engine:
    def __init__(self, card: Card, tables: MergeTables, classes: npt.NDArray[np.uint8], sizes: Sizes) -> None:
        self.card, self.sizes = card, sizes
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
        fields |= {name: card.allocate(num_bytes) for name, num_bytes in sizes.scratch().items()}
        self._zeroed, at = card.allocate(sum(sizes.zeroed().values())), 0
        for name, num_bytes in sizes.zeroed().items():
            if name in (ENGINE.names or ()):
                fields[name] = self._zeroed + at
            at += num_bytes
        self._num_zeroed = at
        structure = np.zeros(1, ENGINE)
        for name, value in fields.items():
            structure[name] = value
        self._state, self._entries = fields["state"], fields["entries"]
        self._engine = self._upload(structure)
        many = card.num_processors * BLOCKS_PER_PROCESSOR
        self._stages = _stages(many, sizes.max_tiles, has_exceptions=exceptions.longest > 0)
        self.num_clears = 0
        """How often the word table has been emptied, as far as chunks that are done tell."""
        self._slots = [_Slot(card, sizes) for _ in range(NUM_SLOTS)]
        card.wait(card.record(COMPUTE))

    def run(self, texts: Iterable[Text], receive: Callable[[Done], None]) -> None:
        """`receive` is called for each chunk in turn; it may copy from the card in the stream COPY_OUT."""
        under_way: deque[_Slot] = deque()
        with ExitStack() as stack:
            if isinstance(texts, Generator):  # whoever fills memory for it is done before the next run
                stack.callback(texts.close)
            stack.callback(self._wait_for_all)  # what is under way reads memory that the next run writes
            for number, text in enumerate(texts):
                if len(under_way) == NUM_SLOTS - 1:
                    self._take(under_way.popleft(), receive)
                slot = self._slots[number % NUM_SLOTS]
                self._give(slot, text)
                under_way.append(slot)
            while under_way:
                self._take(under_way.popleft(), receive)

    def _wait_for_all(self) -> None:
        for stream in (COPY_IN, COMPUTE, COPY_OUT):
            self.card.wait(self.card.record(stream))

    def forget(self) -> None:
        """Empties the word table."""
        self.card.zero(self._entries, self.sizes.scratch()["entries"], COMPUTE)
        self.card.zero(self._state, self.sizes.scratch()["state"], COMPUTE)
        self.card.wait(self.card.record(COMPUTE))

    def stage_seconds(self, texts: Iterable[Text]) -> dict[str, float]:
        """What each kernel takes over all chunks, one after the other, with the text on the card already."""
        card = self.card
        seconds: dict[str, float] = {}
        slot = self._slots[0]
        for text in texts:
            card.copy_in(slot.head, slot.describe(text), COMPUTE)
            card.copy_in(slot.text, text.content, COMPUTE)
            card.zero(self._zeroed, self._num_zeroed, COMPUTE)  # all this takes longer than to say what comes next
            marks = [card.mark(COMPUTE)]
            launches = [launch for stage in self._stages for branch in stage for launch in branch]
            for launch in launches:
                card.launch(*launch, self._engine, slot.head)
                marks.append(card.mark(COMPUTE))
            for (kernel, *_), first, last in zip(launches, marks, marks[1:], strict=False):
                seconds[kernel] = seconds.get(kernel, 0.0) + card.seconds_between(first, last)
        return seconds

    def _give(self, slot: _Slot, text: Text) -> None:
        card = self.card
        if slot.computed is not None:
            card.hold(COPY_IN, slot.computed)
        if slot.taken is not None:
            card.hold(COMPUTE, slot.taken)
        card.copy_in(slot.head, slot.describe(text), COPY_IN)
        card.copy_in(slot.text, text.content, COPY_IN)
        arrived = card.record(COPY_IN)
        card.zero(self._zeroed, self._num_zeroed, COMPUTE)
        card.hold(COMPUTE, arrived)
        card.launch_all(self._stages, self._engine, slot.head)
        slot.computed = card.record(COMPUTE)

    def _take(self, slot: _Slot, receive: Callable[[Done], None]) -> None:
        self.card.wait(slot.computed)
        done = slot.done()
        self.num_clears = done.num_clears
        receive(done)
        slot.taken = self.card.record(COPY_OUT)

    def _upload(self, array: npt.NDArray[Any]) -> int:
        address = self.card.allocate(array.nbytes)
        self.card.copy_in(address, array, COMPUTE)
        self.card.wait(self.card.record(COMPUTE))
        return address


def _stages(many: int, max_tiles: int, *, has_exceptions: bool) -> list[Stage]:
    """A block for each tile that a chunk may have; what is not a tile's goes by lists of any length."""
    return [
        [[Launch("begin_chunk", many, THREADS)]],
        [[Launch("word_starts", max_tiles, THREADS)]],
        [[Launch("look_up_words", max_tiles, THREADS)]],
        [[Launch("look_up_long_words", many, THREADS)]],
        [
            [Launch("merge_words", 2 * many, THREADS // 2)],
            [Launch("merge_windows", many, THREADS // 2), Launch("join_windows", many, 32)],
        ],
        *([[[Launch("apply_exceptions", many, THREADS)]]] if has_exceptions else []),
        [[Launch("emit", max_tiles, THREADS)]],
        [[Launch("end_chunk", many // 4 + 1, THREADS)]],
    ]
