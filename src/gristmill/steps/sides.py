"""The two sides of a comparison as files: where each text lies, spans by key, matches; and texts read back from them.

Texts go by their number on their side, so that a task is a few numbers and the table of places is read where needed.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.grouping.leakage import MIN_DISTINCT_IDS, BlockKeys, KeyTable, Positions, span_keys, stretches_around
from gristmill.grouping.signatures import Ids
from gristmill.layout import write_atomically
from gristmill.plainfile import open_plain
from gristmill.records import StoredText
from gristmill.shaping.neighbours import neighbours
from gristmill.steps.blocks import read_ids
from gristmill.steps.parts import PartReader

RUN_TOKENS = 1 << 20
"""Of the texts that one task looks at; memory per worker is some forty bytes for each, where all are shared."""

SPAN = np.dtype([("key", np.uint64), ("text", np.uint32), ("start", np.uint32)])
MATCH = np.dtype([("text", np.uint32), ("start", np.uint32), ("twin", np.uint32), ("twin_start", np.uint32)])
PLACE = np.dtype([("part", np.uint32), ("row", np.uint32), ("offset", np.uint64), ("num_tokens", np.uint32)])

BUCKET_BITS = 10
"""Partitions of the keys are made of these: how many there should be is known only once all are written."""

EDGE, TWO_EDGES = struct.Struct("<q"), struct.Struct("<qq")

SideName = Literal["small", "large"]
TableName = Literal["small", "large", "keys", "table", "hits", "hit_table"]
TABLES: dict[TableName, npt.DTypeLike] = {
    "small": PLACE,
    "large": PLACE,
    "keys": np.uint32,
    "table": np.uint8,
    "hits": np.uint32,
    "hit_table": np.uint8,
}
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
    parts: tuple[str, ...]
    vocab_size: int
    min_distinct: int = MIN_DISTINCT_IDS
    """Ids that a range on the small side must have to count."""
    num_partition_bits: int = 0

    def save(self, name: TableName, array: Records) -> None:
        (self.folder / name).write_bytes(array.view(np.uint8).data)  # numpy's own writing says nothing of a full disk

    def load(self, name: TableName) -> Records:
        """Mapped: processes share it, and only what is looked at is read."""
        path = self.folder / name
        return np.asarray(np.memmap(path, TABLES[name], "r")) if path.stat().st_size else np.zeros(0, TABLES[name])

    def texts(self, side: SideName, numbers: npt.ArrayLike) -> Iterator[Ids]:
        places = self.load(side)[np.asarray(numbers, np.int64)]
        stored = [
            StoredText(repo="", path="", part=self.parts[part], part_row=row, part_offset=offset, num_tokens=num_tokens)
            for part, row, offset, num_tokens in places.tolist()
        ]
        return read_ids(self.prepared, stored, self.vocab_size)

    def anchors(self, side: SideName, run: Run, table: KeyTable | None = None) -> "RunAnchors":
        """Read from the parts, which the texts of a run share with their neighbours; those that a table may hold."""
        places = self.load(side)[run.first : run.end]
        texts, positions, keys = [], [], []
        for part, group in groupby(enumerate(places.tolist(), run.first), key=lambda item: item[1][0]):
            numbers, rows = zip(*((number, place[1]) for number, place in group), strict=True)
            anchors = PartReader(self.prepared, self.parts[part]).anchors(rows, table)
            texts.append(np.repeat(numbers, anchors.counts))
            positions.append(anchors.positions)
            keys.append(anchors.keys)
        return RunAnchors(np.concatenate(texts), np.concatenate(positions).astype(np.int64), np.concatenate(keys))

    def write_spans(self, side: SideName, run: Run, spans: Records) -> int:
        """By the leading bits of their keys, with where each bucket begins in front; how many there are."""
        buckets = (spans["key"] >> np.uint64(64 - BUCKET_BITS)).astype(np.uint16)
        order = np.argsort(buckets, kind="stable")  # so few bits take a tenth of the time that whole keys take
        edges = np.zeros((1 << BUCKET_BITS) + 1, np.int64)
        np.cumsum(np.bincount(buckets, minlength=1 << BUCKET_BITS), out=edges[1:])
        write_atomically(self._spans_file(side, run), (edges.tobytes(), spans[order].tobytes()), is_synced=False)
        return len(spans)

    def read_spans(self, side: SideName, run: Run, partition: int | None = None) -> Records:
        """Of one partition of the keys, or all; then by text and start."""
        path = self._spans_file(side, run)
        edges = np.fromfile(path, np.int64, (1 << BUCKET_BITS) + 1)
        if partition is None:
            spans = np.fromfile(path, SPAN, offset=edges.nbytes)
            return spans[np.lexsort((spans["start"], spans["text"]))]
        shift = BUCKET_BITS - self.num_partition_bits
        start, end = int(edges[partition << shift]), int(edges[(partition + 1) << shift])
        return np.fromfile(path, SPAN, end - start, offset=edges.nbytes + start * SPAN.itemsize)

    def write_matches(self, side: SideName, partition: int, matches: Iterable[Records]) -> None:
        """Of one run after the other, with where each begins behind them; a task that is done again begins anew."""
        write_atomically(self._matches_file(side, partition), _with_edges(matches), is_synced=False)

    def matches(self, side: SideName, partition: int, run: Run) -> Records:
        """Read, not mapped: what is looked at of a mapped file counts as memory, with its neighbourhood."""
        with open_plain(self._matches_file(side, partition)) as stream:
            stream.seek(-EDGE.size, os.SEEK_END)
            (num_edges,) = EDGE.unpack(stream.read())
            stream.seek(EDGE.size * (run.number - num_edges - 1), os.SEEK_END)
            start, end = TWO_EDGES.unpack(stream.read(TWO_EDGES.size))
            stream.seek(start * MATCH.itemsize)
            return np.frombuffer(stream.read((end - start) * MATCH.itemsize), MATCH)

    def _matches_file(self, side: SideName, partition: int) -> Path:
        return self.folder / f"{side}-{partition:05d}.matches"

    def _spans_file(self, side: SideName, run: Run) -> Path:
        return self.folder / f"{side}-{run.number:06d}.spans"


def _with_edges(matches: Iterable[Records]) -> Iterator[bytes]:
    edges = [0]
    for some in matches:
        edges.append(edges[-1] + len(some))
        yield some.tobytes()
    yield from map(EDGE.pack, (*edges, len(edges)))


class RunAnchors(NamedTuple):
    texts: Positions
    """Their numbers."""
    positions: Positions
    keys: BlockKeys


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
        places: Positions = self.edges[np.searchsorted(self.numbers, numbers)] + starts
        return places

    def spans_around(self, blocks: Positions) -> Records:
        """The 50-grams around these 25-grams, each inside its text."""
        text = np.searchsorted(self.edges, blocks, "right") - 1
        stretches = stretches_around(blocks, self.edges[text], self.edges[text + 1])
        starts = stretches.starts()
        text = np.repeat(np.searchsorted(self.edges, stretches.first, "right") - 1, stretches.counts())
        spans = np.empty(len(starts), SPAN)
        spans["key"] = span_keys(*stretches.of_their_own(self.ids))
        spans["text"], spans["start"] = self.numbers[text], starts - self.edges[text]
        return spans


def places_of_texts(texts: Sequence[StoredText], parts: Sequence[str]) -> Records:
    number_of = {part: number for number, part in enumerate(parts)}
    rows = [(number_of[text.part], text.part_row, text.part_offset, text.num_tokens) for text in texts]
    return np.array(rows, PLACE)


def runs_of(texts: Sequence[StoredText]) -> Iterator[Run]:
    first = 0
    for number, run in enumerate(neighbours(texts, lambda text: text.num_tokens, RUN_TOKENS)):
        yield Run(number, first, first + len(run))
        first += len(run)
