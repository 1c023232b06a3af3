"""Spans that two sides of texts share -> ranges to cut out of one of them. Partition by partition, on disk.

    note    over runs of the small side    its 25-grams at every 26th token
    probe   over runs of the large side    which of them it has; the 50-grams around those, by key
    mark    over runs of the small side    the 50-grams around those, by key
    join    over partitions of the keys    keys on both sides
    verify  over runs of the side to cut   token by token -> ranges, and with what each is shared

The five are plain functions over numbers: texts go by their number, and tables of where each lies are on disk.
grouping.leakage says why nothing is missed.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.grouping.leakage import (
    BLOCK_STEP,
    BLOCK_TOKENS,
    SPAN_TOKENS,
    BlockKeys,
    Blocks,
    Flags,
    Positions,
    gram_keys,
    may_hold,
    ranges_of,
    span_keys,
    spans_around,
    table_of,
)
from gristmill.grouping.signatures import Ids, Keys
from gristmill.progress import MapFunction
from gristmill.records import Cut, StoredText
from gristmill.steps.shards import read_ids

RUN_TOKENS = 1 << 20
"""Tokens that one task looks at; memory per worker is some forty bytes for each."""
PARTITION_TOKENS = 1 << 22
"""Tokens of both sides for each partition of the keys; on real code a tenth of them have a key written down."""
COMPARED_AT_ONCE = 1 << 14

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


class Found(NamedTuple):
    text: int
    ranges: list[tuple[int, int, int]]
    """Start, end, and the number of a text on the other side that has it."""


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

    def read_spans(self, side: SideName, runs: Sequence[Run], partition: int) -> Records:
        parts = [np.zeros(0, SPAN)]
        num_edges = (1 << self.num_partition_bits) + 1
        for run in runs:
            with self._spans_file(side, run).open("rb") as stream:
                edges = np.frombuffer(stream.read(8 * num_edges), np.uint64)
                start, end = int(edges[partition]), int(edges[partition + 1])
                stream.seek(8 * num_edges + start * SPAN.itemsize)
                parts.append(np.frombuffer(stream.read((end - start) * SPAN.itemsize), SPAN))
        return np.concatenate(parts)

    def _partition_of(self, keys: Keys) -> npt.NDArray[np.uint16]:
        if not self.num_partition_bits:
            return np.zeros(len(keys), np.uint16)
        return (keys >> np.uint64(64 - self.num_partition_bits)).astype(np.uint16)

    def _spans_file(self, side: SideName, run: Run) -> Path:
        return self.folder / f"{side}-{run.number:06d}.spans"


def compare(
    small: Sequence[StoredText], large: Sequence[StoredText], sides: Sides, map_tasks: MapFunction, *, cut: SideName
) -> dict[int, tuple[Cut, ...]]:
    """For each text of the side to cut that shares something: its ranges, in order."""
    texts: dict[SideName, Sequence[StoredText]] = {"small": small, "large": large}
    runs: dict[SideName, list[Run]] = {"small": [], "large": []}
    sides.folder.mkdir()
    for side, members in texts.items():
        sides.save(side, _places(members, sides.shards))
        runs[side] = list(_runs(members))
    noted = [np.zeros(0, np.uint32), *map_tasks(partial(note, sides), runs["small"])]
    blocks = Blocks.of(np.concatenate(noted))
    sides.save("keys", blocks.keys)
    sides.save("table", blocks.table)
    is_hit = np.zeros(len(blocks.keys), np.bool_)
    for hits in map_tasks(partial(probe, sides), runs["large"]):
        is_hit[hits] = True
    if not is_hit.any():
        return {}
    sides.save("hits", is_hit)
    for _ in map_tasks(partial(mark, sides), runs["small"]):
        pass
    for _ in map_tasks(partial(join, sides, runs, cut), range(1 << sides.num_partition_bits)):
        pass
    twins = texts["large" if cut == "small" else "small"]
    return {
        found.text: tuple(Cut(start, end, twins[twin].name) for start, end, twin in found.ranges)
        for batch in map_tasks(partial(verify, sides, cut), runs[cut])
        for found in batch
    }


def num_partition_bits(num_tokens: int) -> int:
    return min(14, (num_tokens // PARTITION_TOKENS).bit_length())


class _Texts(NamedTuple):
    """A run's texts one after the other: one look at all costs a tenth of one at each, where files are small."""

    ids: Ids
    edges: Positions
    """Where each begins, and the end."""
    numbers: Positions
    """Of the texts, ascending."""

    @classmethod
    def of(cls, sides: Sides, side: SideName, numbers: npt.ArrayLike) -> "_Texts":
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


def note(sides: Sides, run: Run) -> BlockKeys:
    texts = _Texts.of(sides, "small", range(run.first, run.end))
    return gram_keys(texts.ids)[texts.block_starts()]


def probe(sides: Sides, run: Run) -> Positions:
    """Writes down the 50-grams that may be shared; answers which noted 25-grams are there."""
    blocks = Blocks(sides.load("keys"), sides.load("table"))
    texts = _Texts.of(sides, "large", range(run.first, run.end))
    positions, numbers = blocks.hits_in(texts.ids)
    sides.write_spans("large", run, texts.spans_around(positions))
    return np.flatnonzero(np.bincount(numbers))


def mark(sides: Sides, run: Run) -> None:
    keys, is_hit = sides.load("keys"), sides.load("hits")
    texts = _Texts.of(sides, "small", range(run.first, run.end))
    starts = texts.block_starts()
    is_found = is_hit[np.searchsorted(keys, gram_keys(texts.ids)[starts])]
    sides.write_spans("small", run, texts.spans_around(starts[is_found]))


def join(sides: Sides, runs: dict[SideName, list[Run]], cut: SideName, partition: int) -> None:
    """Keys on both sides; of several texts on the other side that have it, the first is the twin."""
    other: SideName = "large" if cut == "small" else "small"
    ours = sides.read_spans(cut, runs[cut], partition)
    theirs = sides.read_spans(other, runs[other], partition)
    theirs = theirs[may_hold(table_of(ours["key"]), theirs["key"])]  # few are left to sort
    order = np.argsort(theirs["key"], kind="stable")
    theirs = theirs[order]
    at = np.searchsorted(theirs["key"], ours["key"])
    at[at == len(theirs)] = 0
    is_shared = theirs["key"][at] == ours["key"] if len(theirs) else np.zeros(len(ours), np.bool_)
    ours, twins = ours[is_shared], theirs[at[is_shared]]
    matches = np.empty(len(ours), MATCH)
    matches["text"], matches["start"] = ours["text"], ours["start"]
    matches["twin"], matches["twin_start"] = twins["text"], twins["start"]
    sides.save(f"matches-{partition:05d}", matches)


def verify(sides: Sides, cut: SideName, run: Run) -> list[Found]:
    """Equal keys are equal spans but for one chance in 2 ** 64; here that chance is taken away."""
    matches = _matches_of(sides, run)
    texts = _Texts.of(sides, cut, range(run.first, run.end))
    matches = matches[_is_equal(texts, matches, sides, "large" if cut == "small" else "small")]
    found: list[Found] = []
    numbers, edges = np.unique(matches["text"], return_index=True)
    for number, own in zip(numbers.tolist(), np.split(matches, edges[1:]), strict=False):
        twin_at = dict(zip(own["start"].tolist(), own["twin"].tolist(), strict=True))
        ids = texts.ids_of(number)
        ranges = [(start, end, twin_at[start]) for start, end in ranges_of(ids, own["start"].astype(np.int64))]
        if ranges:
            found.append(Found(number, ranges))
    return found


def _matches_of(sides: Sides, run: Run) -> Records:
    parts = []
    for partition in range(1 << sides.num_partition_bits):
        matches = sides.load(f"matches-{partition:05d}")
        start, end = np.searchsorted(matches["text"], [run.first, run.end])
        parts.append(matches[start:end])
    matches = np.concatenate(parts)
    return matches[np.lexsort((matches["start"], matches["text"]))]


def _is_equal(texts: "_Texts", matches: Records, sides: Sides, other: SideName) -> Flags:
    is_equal = np.zeros(len(matches), np.bool_)
    twins = np.unique(matches["twin"])
    sizes = np.cumsum(sides.load(other)["num_tokens"][twins], dtype=np.int64)
    for some in np.split(twins, np.flatnonzero(np.diff(sizes // RUN_TOKENS)) + 1):
        if len(some):
            chosen = np.flatnonzero((matches["twin"] >= some[0]) & (matches["twin"] <= some[-1]))
            theirs = _Texts.of(sides, other, some)
            starts = texts.places_of(matches["text"][chosen], matches["start"][chosen])
            twin_starts = theirs.places_of(matches["twin"][chosen], matches["twin_start"][chosen])
            is_equal[chosen] = _spans_equal(texts.ids, starts, theirs.ids, twin_starts)
    return is_equal


def _spans_equal(ids: Ids, starts: Positions, twin_ids: Ids, twin_starts: Positions) -> Flags:
    # Of a span that goes on from the one before, only the last token is new.
    goes_on = np.zeros(len(starts), np.bool_)
    goes_on[1:] = (np.diff(starts) == 1) & (np.diff(twin_starts) == 1)
    last = SPAN_TOKENS - 1
    is_all_equal = np.array_equal(ids[starts + last], twin_ids[twin_starts + last]) and all(
        part.all() for part in _compared(ids, starts[~goes_on], twin_ids, twin_starts[~goes_on])
    )
    if is_all_equal:
        return np.ones(len(starts), np.bool_)
    return np.concatenate(list(_compared(ids, starts, twin_ids, twin_starts)))


def _compared(ids: Ids, starts: Positions, twin_ids: Ids, twin_starts: Positions) -> Iterator[Flags]:
    """Some at a time, token by token."""
    steps = np.arange(SPAN_TOKENS)
    for at in range(0, len(starts), COMPARED_AT_ONCE):
        some = slice(at, at + COMPARED_AT_ONCE)
        yield (ids[starts[some, None] + steps] == twin_ids[twin_starts[some, None] + steps]).all(axis=1)


def _places(texts: Sequence[StoredText], shards: Sequence[str]) -> Records:
    number_of = {shard: number for number, shard in enumerate(shards)}
    rows = [(number_of[text.shard], text.shard_offset, text.num_tokens) for text in texts]
    return np.array(rows, PLACE)


def _runs(texts: Sequence[StoredText]) -> Iterator[Run]:
    run, first, num_tokens = 0, 0, 0
    for number, text in enumerate(texts):
        if number > first and num_tokens + text.num_tokens > RUN_TOKENS:
            yield Run(run, first, number)
            run, first, num_tokens = run + 1, number, 0
        num_tokens += text.num_tokens
    if texts:
        yield Run(run, first, len(texts))
