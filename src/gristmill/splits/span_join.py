"""Spans that two sides of texts share -> ranges to cut out of one of them. Partition by partition, on disk.

    note    over runs of the small side    its anchors
    probe   over runs of the large side    which of them it has; the 50-grams around those, by key
    mark    over runs of the small side    the 50-grams around those, by key
    join    over partitions of the keys    keys on both sides
    verify  over runs of one side          token by token -> ranges, and with what each is shared

What counts is decided on the small side. To cut the large side instead, `narrow` leaves of the small side's 50-grams
those in ranges that count, and these are joined and verified once more, for the large side.
All are plain functions over numbers; shared_spans says why nothing is missed.
"""

import os
import shutil
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.layout import write_atomically
from gristmill.core.partition import neighbours
from gristmill.core.plain_files import open_plain
from gristmill.core.progress import MapFunction
from gristmill.core.records import AnyStoredText, Cut, StoredText
from gristmill.dedup.signatures import Ids, Keys, distinct
from gristmill.splits.shared_spans import (
    MIN_DISTINCT_IDS,
    SPAN_TOKENS,
    Anchors,
    AnyKeys,
    BlockKeys,
    Flags,
    KeyTable,
    Positions,
    ranges_of,
    span_keys,
    stretches_around,
)

# The two sides of a comparison as files: where each text lies, spans by key, matches; and texts read back from
# them.

RUN_TOKENS = 1 << 20
"""Of the texts that one task looks at, at most. Where all are shared, a worker takes some forty bytes for each."""
RUNS_WANTED = 32
"""Of each side, as long as they have FEWEST_RUN_TOKENS: work for many workers, also where little is held out."""
FEWEST_RUN_TOKENS = 1 << 16

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


class Store(Protocol):
    """Texts by where they lie. Picklable: every worker reads for itself."""

    def read_ids(self, texts: Sequence[AnyStoredText]) -> Iterator[Ids]:
        """In the order given."""
        ...

    def anchors(self, part: str, rows: Sequence[int], table: KeyTable | None) -> Anchors:
        """Of the texts in these rows of a part, ascending; with a table, only those that it may hold."""
        ...


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one comparison."""

    folder: Path
    store: Store
    parts: tuple[str, ...]
    min_distinct: int = MIN_DISTINCT_IDS
    """Ids that a range on the small side must have to count."""
    cut: SideName = "small"
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
        return self.store.read_ids(stored)

    def anchors(self, side: SideName, run: Run, table: KeyTable | None = None) -> "RunAnchors":
        """Read from the parts, which the texts of a run share with their neighbours; those that a table may hold."""
        places = self.load(side)[run.first : run.end]
        texts, positions, keys = [], [], []
        for part, group in groupby(enumerate(places.tolist(), run.first), key=lambda item: item[1][0]):
            numbers, rows = zip(*((number, place[1]) for number, place in group), strict=True)
            anchors = self.store.anchors(self.parts[part], rows, table)
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
        num_edge_bytes = EDGE.size * ((1 << BUCKET_BITS) + 1)
        shift = BUCKET_BITS - self.num_partition_bits
        with self._spans_file(side, run).open("rb") as stream:
            if partition is None:
                spans = np.fromfile(stream, SPAN, offset=num_edge_bytes)
                return spans[np.lexsort((spans["start"], spans["text"]))]
            stream.seek(EDGE.size * (partition << shift))
            edges = np.frombuffer(stream.read(EDGE.size * ((1 << shift) + 1)), np.int64)
            stream.seek(num_edge_bytes + int(edges[0]) * SPAN.itemsize)
            return np.fromfile(stream, SPAN, int(edges[-1] - edges[0]))

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

    def spans_around(self, blocks: Positions, *, is_first_enough: bool) -> Records:
        """The 50-grams around these 25-grams, each inside its text; or the first ones of most that are alike."""
        text = np.searchsorted(self.edges, blocks, "right") - 1
        stretches = stretches_around(blocks, self.edges[text], self.edges[text + 1])
        keys, starts = span_keys(*stretches.of_their_own(self.ids)), stretches.starts()
        of = np.repeat(np.arange(len(stretches.first)), stretches.counts())
        if is_first_enough:
            chosen = np.flatnonzero(_is_first(keys))
            keys, of, starts = keys[chosen], of[chosen], starts[chosen]
        text = np.searchsorted(self.edges, stretches.first, "right") - 1
        spans = np.empty(len(keys), SPAN)
        spans["key"], spans["text"], spans["start"] = keys, self.numbers[text][of], starts - self.edges[text][of]
        return spans


def _is_first(keys: Keys) -> Flags:
    """True for the first of those that are alike. Some others pass too: each slot remembers one key."""
    slots = (keys & np.uint64((1 << len(keys).bit_length()) - 1)).astype(np.int64)
    numbers = np.arange(len(keys))
    first = np.zeros(1 << len(keys).bit_length(), np.int64)
    first[slots[::-1]] = numbers[::-1]  # written from the end, the first one stays
    remembered = first[slots]
    is_first: Flags = (remembered == numbers) | (keys[remembered] != keys)
    return is_first


def places_of_texts(texts: Sequence[AnyStoredText], parts: Sequence[str]) -> Records:
    number_of = {part: number for number, part in enumerate(parts)}
    rows = [(number_of[text.part], text.part_row, text.part_offset, text.num_tokens) for text in texts]
    return np.array(rows, PLACE)


def runs_of(texts: Sequence[AnyStoredText]) -> Iterator[Run]:
    first = 0
    num_tokens = sum([text.num_tokens for text in texts])
    limit = min(RUN_TOKENS, max(FEWEST_RUN_TOKENS, num_tokens // RUNS_WANTED))
    for number, run in enumerate(neighbours(texts, lambda text: text.num_tokens, limit)):
        yield Run(number, first, first + len(run))
        first += len(run)


PARTITION_SPANS = 1 << 21
"""Of both sides, for each partition of the keys, at most."""
PARTITION_BITS_WANTED = 5
"""As long as a partition has FEWEST_PARTITION_SPANS."""
FEWEST_PARTITION_SPANS = 1 << 16
COMPARED_AT_ONCE = 1 << 14
MOST_STEPS = 32
"""From the first key with the same leading bits. Only keys that somebody made up have more that begin alike."""
TWIN_TOKENS_AT_ONCE = 1 << 20

OTHER_SIDE: dict[SideName, SideName] = {"small": "large", "large": "small"}
Runs = dict[SideName, list[Run]]


StartRuns = bytes
"""Rows of three int32: 50-grams that begin one after the other, from the first to the last, and the number of the first
text on the other side that has each of them. There are millions, so they stay packed."""


class Found(NamedTuple):
    text: int
    ranges: list[tuple[int, int, int]]
    """Start, end, and the number of a text on the other side that has it."""
    runs: StartRuns


class Shared(NamedTuple):
    cuts: tuple[Cut, ...]
    """In order."""
    runs: StartRuns
    """All shared 50-grams, also in ranges that do not count."""


def compare(
    small: Sequence[AnyStoredText],
    large: Sequence[AnyStoredText],
    sides: Sides,
    map_tasks: MapFunction,
    *,
    cut: SideName,
) -> dict[int, Shared]:
    """For each text of the side to cut that shares something: what. If none of it counts, there is nothing to cut."""
    texts: dict[SideName, Sequence[AnyStoredText]] = {"small": small, "large": large}
    runs: Runs = {side: list(runs_of(members)) for side, members in texts.items()}
    shutil.rmtree(sides.folder, ignore_errors=True)
    sides.folder.mkdir(parents=True)
    sides = msgspec.structs.replace(sides, cut=cut)
    for side, members in texts.items():
        sides.save(side, places_of_texts(members, sides.parts))
    num_spans = _write_spans(sides, runs, map_tasks)
    if not num_spans:
        return {}
    sides = msgspec.structs.replace(sides, num_partition_bits=num_partition_bits(num_spans))
    if cut == "large" and sides.min_distinct > 1:  # else all of it counts
        found = _shared_ranges(sides, runs, "small", map_tasks)
        for _ in map_tasks(partial(narrow, sides), zip(runs["small"], found, strict=True)):
            pass
    found = _shared_ranges(sides, runs, cut, map_tasks)
    twins = texts[OTHER_SIDE[cut]]
    return {
        text: Shared(tuple(Cut(start, end, twins[twin].name) for start, end, twin in ranges), runs)
        for batch in found
        for text, ranges, runs in batch
    }


def _write_spans(sides: Sides, runs: Runs, map_tasks: MapFunction) -> int:
    """The 50-grams of both sides that may be shared; how many there are."""
    noted = [np.zeros(0, np.uint32), *map_tasks(partial(note, sides), runs["small"])]
    keys = distinct(np.concatenate(noted))
    sides.save("keys", keys)
    sides.save("table", KeyTable.of([keys], len(keys)).bits)
    is_hit = np.zeros(len(keys), np.bool_)
    num_spans = 0
    for hits, count in map_tasks(partial(probe, sides), runs["large"]):
        is_hit[hits] = True
        num_spans += count
    if not num_spans:
        return 0
    hits = keys[is_hit]
    sides.save("hits", hits)
    sides.save("hit_table", KeyTable.of([hits], len(hits)).bits)
    return num_spans + sum(map_tasks(partial(mark, sides), runs["small"]))


def _shared_ranges(sides: Sides, runs: Runs, side: SideName, map_tasks: MapFunction) -> list[list[Found]]:
    """Per run of this side."""
    for _ in map_tasks(partial(join, sides, runs, side), range(1 << sides.num_partition_bits)):
        pass
    return list(map_tasks(partial(verify, sides, side), runs[side]))


def num_partition_bits(num_spans: int) -> int:
    needed = (num_spans // PARTITION_SPANS).bit_length()
    wanted = min(PARTITION_BITS_WANTED, (num_spans // FEWEST_PARTITION_SPANS).bit_length())
    return min(BUCKET_BITS, max(needed, wanted))


def note(sides: Sides, run: Run) -> BlockKeys:
    return distinct(sides.anchors("small", run).keys)


def probe(sides: Sides, run: Run) -> tuple[Positions, int]:
    """Writes down the 50-grams that may be shared; answers which of the noted anchors are there, and how many."""
    anchors = sides.anchors("large", run, KeyTable(sides.load("table")))
    numbers, is_there = _places_among(sides.load("keys"), anchors.keys)
    num_spans = sides.write_spans("large", run, _spans(sides, "large", anchors, np.flatnonzero(is_there)))
    return np.flatnonzero(np.bincount(numbers[is_there])), num_spans


def mark(sides: Sides, run: Run) -> int:
    anchors = sides.anchors("small", run, KeyTable(sides.load("hit_table")))
    _, is_hit = _places_among(sides.load("hits"), anchors.keys)
    return sides.write_spans("small", run, _spans(sides, "small", anchors, np.flatnonzero(is_hit)))


def _spans(sides: Sides, side: SideName, anchors: RunAnchors, found: Positions) -> Records:
    """The 50-grams around these anchors: only texts that have one are read."""
    if not len(found):
        return np.zeros(0, SPAN)
    texts = Texts.of(sides, side, distinct(anchors.texts[found]))
    blocks = texts.places_of(anchors.texts[found], anchors.positions[found])
    # Where the small side is cut, the large one only has to have a span somewhere.
    return texts.spans_around(blocks, is_first_enough=side == "large" and sides.cut == "small")


def join(sides: Sides, runs: Runs, side: SideName, partition: int) -> None:
    """Keys on both sides; of several texts on the other side that have it, the first is the twin.

    Run by run: a corpus that repeats one span without end has all of its records in one partition.
    """
    keys = distinct(np.concatenate([sides.read_spans(side, run, partition)["key"] for run in runs[side]]))
    theirs = _first_places(sides, runs[OTHER_SIDE[side]], OTHER_SIDE[side], partition, keys)
    directory = Directory.of(theirs["key"], sides.num_partition_bits)
    matches = (_matched(sides.read_spans(side, run, partition), theirs, directory) for run in runs[side])
    sides.write_matches(side, partition, matches)


def _first_places(sides: Sides, runs: Sequence[Run], side: SideName, partition: int, keys: Keys) -> Records:
    """By key, where it is found first on this side; keys that it does not have are left out."""
    nowhere = np.iinfo(np.uint64).max
    first = np.full(len(keys), nowhere, np.uint64)
    directory = Directory.of(keys, sides.num_partition_bits)
    for run in runs:
        spans = sides.read_spans(side, run, partition)
        at, numbers = directory.places_of(spans["key"])
        is_new = first[at] == nowhere
        at, spans = at[is_new], spans[numbers[is_new]]
        places = spans["text"].astype(np.uint64) << np.uint64(32) | spans["start"]
        # Runs, and the spans of one key in a run, are in order: written from the end, the first of them stays.
        first[at[::-1]] = places[::-1]
    is_found = first != nowhere
    theirs = np.empty(np.count_nonzero(is_found), SPAN)
    theirs["key"] = keys[is_found]
    theirs["text"], theirs["start"] = first[is_found] >> np.uint64(32), first[is_found] & np.uint64((1 << 32) - 1)
    return theirs


def _places_among(keys: AnyKeys, wanted: AnyKeys) -> tuple[Positions, Flags]:
    """Where in these sorted keys each would be, and whether it is there."""
    at = np.searchsorted(keys, wanted)
    at[at == len(keys)] = 0
    return at, keys[at] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)


class Directory(NamedTuple):
    """Sorted keys, and where those with the same leading bits begin: a third of the time of a binary search."""

    keys: Keys
    first: Positions
    """By leading bits, with the end."""
    num_alike: int
    """At most so many begin with the same bits."""
    shift: np.uint64
    mask: np.uint64

    @classmethod
    def of(cls, keys: Keys, num_common_bits: int) -> "Directory":
        """`num_common_bits`: in front, in which all of them are alike."""
        num_bits = len(keys).bit_length() + 1
        shift, mask = np.uint64(64 - num_common_bits - num_bits), np.uint64((1 << num_bits) - 1)
        counts = np.bincount((keys >> shift & mask).astype(np.int64), minlength=1 << num_bits)
        first = np.concatenate(([0], np.cumsum(counts)))
        return cls(keys, first, int(counts.max()), shift, mask)

    def places_of(self, wanted: Keys) -> tuple[Positions, Positions]:
        """Places of the wanted keys that are there, and their numbers among the wanted."""
        slots = (wanted >> self.shift & self.mask).astype(np.int64)
        at, end = self.first[slots], self.first[slots + 1]
        numbers = np.flatnonzero(at < end)
        at, end, wanted = at[numbers], end[numbers], wanted[numbers]
        if self.num_alike > MOST_STEPS:
            at = np.minimum(np.searchsorted(self.keys, wanted), end - 1)
        else:
            for _ in range(self.num_alike - 1):
                at += (self.keys[at] < wanted) & (at + 1 < end)
        is_there = self.keys[at] == wanted
        return at[is_there], numbers[is_there]


def _matched(ours: Records, theirs: Records, directory: Directory) -> Records:
    at, numbers = directory.places_of(ours["key"])
    ours, twins = ours[numbers], theirs[at]
    matches = np.empty(len(ours), MATCH)
    matches["text"], matches["start"] = ours["text"], ours["start"]
    matches["twin"], matches["twin_start"] = twins["text"], twins["start"]
    return matches


def verify(sides: Sides, side: SideName, run: Run) -> list[Found]:
    """Equal keys are equal spans but for one chance in 2 ** 64: what is not equal token by token is never cut."""
    matches = _matches_of(sides, side, run)
    if not len(matches):
        return []
    texts = Texts.of(sides, side, distinct(matches["text"]))
    matches = matches[_is_equal(texts, matches, sides, OTHER_SIDE[side])]
    min_distinct = sides.min_distinct if side == "small" else 1
    found: list[Found] = []
    edges = np.flatnonzero(np.diff(matches["text"])) + 1
    for own in np.split(matches, edges) if len(matches) else ():
        number = int(own["text"][0])
        ranges = ranges_of(texts.ids_of(number), own["start"].astype(np.int64), min_distinct)
        twins = own["twin"][np.searchsorted(own["start"], [start for start, _ in ranges])].tolist()
        with_twins = [(*one, twin) for one, twin in zip(ranges, twins, strict=True)]
        found.append(Found(number, with_twins, _runs(own)))
    return found


def _runs(matches: Records) -> StartRuns:
    return runs_of_starts(matches["start"].astype(np.int64), matches["twin"].astype(np.int64))


def runs_of_starts(starts: Positions, twins: Positions) -> StartRuns:
    edges = np.flatnonzero((np.diff(starts) != 1) | (np.diff(twins) != 0)) + 1
    firsts, lasts = np.concatenate(([0], edges)), np.concatenate((edges - 1, [len(starts) - 1]))
    return np.stack((starts[firsts], starts[lasts], twins[firsts]), axis=1).astype(np.int32).tobytes()


def narrow(sides: Sides, task: tuple[Run, list[Found]]) -> None:
    """Of a run's 50-grams of the small side, only those in its ranges stay."""
    run, found = task
    spans = sides.read_spans("small", run)
    is_counted = np.zeros(len(spans), np.bool_)
    for number, ranges, _ in found:
        if not ranges:
            continue
        first, end = np.searchsorted(spans["text"], [number, number + 1])
        own = spans["start"][first:end].astype(np.int64)
        starts, ends, _ = np.array(ranges, np.int64).T
        at = np.searchsorted(starts, own, "right") - 1
        is_counted[first:end] = (at >= 0) & (own + SPAN_TOKENS <= ends[at])
    sides.write_spans("small", run, spans[is_counted])


def _matches_of(sides: Sides, side: SideName, run: Run) -> Records:
    partitions = range(1 << sides.num_partition_bits)
    matches = np.concatenate([sides.matches(side, partition, run) for partition in partitions])
    return matches[np.argsort(matches["text"].astype(np.uint64) << np.uint64(32) | matches["start"])]


def _is_equal(texts: Texts, matches: Records, sides: Sides, other: SideName) -> Flags:
    is_equal = np.zeros(len(matches), np.bool_)
    twins = distinct(matches["twin"])
    sizes = np.cumsum(sides.load(other)["num_tokens"][twins], dtype=np.int64)
    for some in np.split(twins, np.flatnonzero(np.diff(sizes // TWIN_TOKENS_AT_ONCE)) + 1):
        if len(some):
            chosen = np.flatnonzero((matches["twin"] >= some[0]) & (matches["twin"] <= some[-1]))
            theirs = Texts.of(sides, other, some)
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
