"""The two sides of a comparison as files: where each text lies, spans by key, matches; and texts read back from them.

Texts go by their number on their side, so that a task is a few numbers and the table of places is read where needed.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.grouping.leakage import BLOCK_STEP, BLOCK_TOKENS, SPAN_TOKENS, Positions, span_keys, spans_around
from gristmill.grouping.signatures import Ids, Keys
from gristmill.records import StoredText
from gristmill.steps.neighbours import neighbours
from gristmill.steps.shards import read_ids

RUN_TOKENS = 1 << 20
"""Tokens that one task looks at; memory per worker is some forty bytes for each."""

SPAN = np.dtype([("key", np.uint64), ("text", np.uint32), ("start", np.uint32)])
MATCH = np.dtype([("text", np.uint32), ("start", np.uint32), ("twin", np.uint32), ("twin_start", np.uint32)])
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
        content = io.BytesIO()
        np.save(content, array)  # not to the file: on a full disk numpy's own writing does not say so
        (self.folder / f"{name}.npy").write_bytes(content.getbuffer())

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
            stream.write(edges.astype(np.int64).tobytes())
            stream.write(records[order].tobytes())

    def num_spans(self, side: SideName, runs: Sequence[Run], partition: int) -> int:
        return sum(int(np.diff(self._edges(side, run)[partition : partition + 2])[0]) for run in runs)

    def read_spans(self, side: SideName, run: Run, partition: int | None = None) -> Records:
        """By text and start; of one partition of the keys, or all."""
        edges = self._edges(side, run)
        start, end = (0, edges[-1]) if partition is None else edges[partition : partition + 2]
        offset = edges.nbytes + int(start) * SPAN.itemsize
        spans = np.fromfile(self._spans_file(side, run), SPAN, int(end) - int(start), offset=offset)
        return spans if partition is not None else spans[np.lexsort((spans["start"], spans["text"]))]

    def add_matches(self, side: SideName, partition: int, matches: Records) -> None:
        with self._matches_file(side, partition).open("ab") as stream:
            stream.write(matches.tobytes())

    def matches(self, side: SideName, partition: int) -> Records:
        """By text."""
        path = self._matches_file(side, partition)
        return np.asarray(np.memmap(path, MATCH, "r")) if path.stat().st_size else np.zeros(0, MATCH)

    def _edges(self, side: SideName, run: Run) -> Positions:
        return np.fromfile(self._spans_file(side, run), np.int64, (1 << self.num_partition_bits) + 1)

    def _matches_file(self, side: SideName, partition: int) -> Path:
        return self.folder / f"{side}-{partition:05d}.matches"

    def _partition_of(self, keys: Keys) -> npt.NDArray[np.uint16]:
        if not self.num_partition_bits:
            return np.zeros(len(keys), np.uint16)
        return (keys >> np.uint64(64 - self.num_partition_bits)).astype(np.uint16)

    def _spans_file(self, side: SideName, run: Run) -> Path:
        return self.folder / f"{side}-{run.number:06d}.spans"


class Texts(NamedTuple):
    """A run's texts one after the other: one look at all, where files are small, costs far less than one at each."""

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
    first = 0
    for number, run in enumerate(neighbours(texts, lambda text: text.num_tokens, RUN_TOKENS)):
        yield Run(number, first, first + len(run))
        first += len(run)
