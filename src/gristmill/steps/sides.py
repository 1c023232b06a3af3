"""The two sides of a comparison as files: where each text lies, spans by key, matches; and texts read back from them.

Texts go by their number on their side, so that a task is a few numbers and the table of places is read where needed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.grouping.leakage import BLOCK_STEP, BLOCK_TOKENS, SPAN_TOKENS, Positions, span_keys, spans_around
from gristmill.grouping.signatures import Ids, Keys
from gristmill.records import StoredText
from gristmill.steps.shards import read_ids

RUN_TOKENS = 1 << 20
"""Tokens that one task looks at; memory per worker is some forty bytes for each."""

SPAN = np.dtype([("key", np.uint64), ("text", np.uint32), ("start", np.uint32)])
PLACE = np.dtype([("shard", np.uint32), ("offset", np.uint64), ("num_tokens", np.uint32)])

SideName = Literal["small", "large"]
Records = npt.NDArray[Any]


class Run(NamedTuple):
    """Some neighbouring texts of a side."""

    number: int
    first: int
    end: int


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one comparison."""

    folder: Path
    prepared: Path
    shards: tuple[str, ...]
    vocab_size: int
    num_partition_bits: int

    def save(self, name: str, array: Records) -> None:
        np.save(self.folder / f"{name}.npy", array)

    def load(self, name: str) -> Records:
        """Mapped: processes share it, and only what is looked at is read."""
        return np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="r"))

    def texts(self, side: SideName, numbers: npt.ArrayLike) -> Iterator[Ids]:
        places = self.load(side)[np.asarray(numbers, np.int64)]
        stored = [
            StoredText(repo="", path="", shard=self.shards[shard], shard_offset=offset, num_tokens=num_tokens)
            for shard, offset, num_tokens in places.tolist()
        ]
        return read_ids(self.prepared, stored, self.vocab_size)

    def write_spans(self, side: SideName, run: Run, records: Records) -> None:
        """Grouped by partition, with where each begins in front."""
        partitions = self._partition_of(records["key"])
        order = np.argsort(partitions, kind="stable")
        edges = np.searchsorted(partitions[order], np.arange((1 << self.num_partition_bits) + 1))
        with self._spans_file(side, run).open("wb") as stream:
            stream.write(edges.astype(np.uint64).tobytes())
            stream.write(records[order].tobytes())

    def read_spans(self, side: SideName, runs: Sequence[Run], partition: int | None = None) -> Records:
        """By text and start; of one partition of the keys, or all."""
        parts = [np.zeros(0, SPAN)]
        num_edges = (1 << self.num_partition_bits) + 1
        for run in runs:
            with self._spans_file(side, run).open("rb") as stream:
                edges = np.frombuffer(stream.read(8 * num_edges), np.uint64)
                first, end = (0, num_edges - 1) if partition is None else (partition, partition + 1)
                start, stop = int(edges[first]), int(edges[end])
                stream.seek(8 * num_edges + start * SPAN.itemsize)
                parts.append(np.frombuffer(stream.read((stop - start) * SPAN.itemsize), SPAN))
        spans = np.concatenate(parts)
        return spans if partition is not None else spans[np.lexsort((spans["start"], spans["text"]))]

    def _partition_of(self, keys: Keys) -> npt.NDArray[np.uint16]:
        if not self.num_partition_bits:
            return np.zeros(len(keys), np.uint16)
        return (keys >> np.uint64(64 - self.num_partition_bits)).astype(np.uint16)

    def _spans_file(self, side: SideName, run: Run) -> Path:
        return self.folder / f"{side}-{run.number:06d}.spans"


class Texts(NamedTuple):
    """A run's texts one after the other: one look at all costs a tenth of one at each, where files are small."""

    ids: Ids
    edges: Positions
    """Where each begins, and the end."""
    numbers: Positions
    """Of the texts, ascending."""

    @classmethod
    def of(cls, sides: Sides, side: SideName, numbers: npt.ArrayLike) -> "Texts":
        texts = list(sides.texts(side, numbers))
        return cls(np.concatenate(texts), np.cumsum([0, *map(len, texts)]), np.asarray(numbers, np.int64))

    def ids_of(self, number: int) -> Ids:
        index = int(np.searchsorted(self.numbers, number))
        return self.ids[self.edges[index] : self.edges[index + 1]]

    def places_of(self, numbers: Records, starts: Records) -> Positions:
        """Among all ids, where it is that far into these texts."""
        return self.edges[np.searchsorted(self.numbers, numbers)] + starts

    def inside(self, starts: Positions, num_tokens: int) -> Positions:
        """Those from which so many tokens belong to one text."""
        ends = self.edges[np.searchsorted(self.edges, starts, "right")]
        return starts[starts + num_tokens <= ends]

    def block_starts(self) -> Positions:
        """Every 26th token. That they are counted over the texts does not matter: 26 neighbours still hold one."""
        return self.inside(np.arange(0, len(self.ids), BLOCK_STEP), BLOCK_TOKENS)

    def spans_around(self, blocks: Positions) -> Records:
        starts = self.inside(spans_around(blocks, len(self.ids)), SPAN_TOKENS)
        text = np.searchsorted(self.edges, starts, "right") - 1
        spans = np.empty(len(starts), SPAN)
        spans["key"], spans["text"], spans["start"] = (
            span_keys(self.ids, starts),
            self.numbers[text],
            starts - self.edges[text],
        )
        return spans


def places_of_texts(texts: Sequence[StoredText], shards: Sequence[str]) -> Records:
    number_of = {shard: number for number, shard in enumerate(shards)}
    rows = [(number_of[text.shard], text.shard_offset, text.num_tokens) for text in texts]
    return np.array(rows, PLACE)


def runs_of(texts: Sequence[StoredText]) -> Iterator[Run]:
    run, first, num_tokens = 0, 0, 0
    for number, text in enumerate(texts):
        if number > first and num_tokens + text.num_tokens > RUN_TOKENS:
            yield Run(run, first, number)
            run, first, num_tokens = run + 1, number, 0
        num_tokens += text.num_tokens
    if texts:
        yield Run(run, first, len(texts))
