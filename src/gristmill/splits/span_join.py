"""Find the spans that two sides (sets of texts) share, and the ranges to cut from one side.

Module `shared_spans` defines sides, anchors and keys, and explains why no shared span is missed. A run is a group of
consecutive texts of one side that one task processes. Stored spans are 50-grams, partitioned on disk by key.

    step               tasks                   result
    `collect_anchors`  runs of the small side  anchors of the small side
    `probe`            runs of the large side  anchors that both sides share, and the large side's 50-grams around them
    `mark`             runs of the small side  the small side's 50-grams around these anchors
    `join`             partitions              matches: 50-grams of one side whose key is also on the other side
    `verify`           runs of one side        shared ranges, compared by token, each with a text of the other side

A range is cut only if it has enough distinct ids in the text of the small side. So if the large side is cut, the ranges
of the small side are found first, and `narrow` removes the 50-grams of the small side that are outside of the ranges
with enough distinct ids. The remaining 50-grams are then joined and verified for the large side.
All steps are plain functions of arrays.
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
from gristmill.core.partition import consecutive_groups
from gristmill.core.plain_files import open_plain
from gristmill.core.progress import MapFunction
from gristmill.core.records import AnyStoredText, Cut, StoredText
from gristmill.dedup.signatures import Ids, Keys, distinct
from gristmill.splits.shared_spans import (
    MIN_DISTINCT_IDS,
    SPAN_TOKENS,
    AnchorKeys,
    Anchors,
    AnyKeys,
    Flags,
    KeyTable,
    Positions,
    gram_runs_around,
    merge_into_ranges,
    span_keys,
)

# Files of a comparison: the location of each text, spans by key, and matches.

RUN_TOKENS = 1 << 20
"""Maximum number of tokens in one run. If all tokens are shared, a worker needs about 40 bytes per token."""
TARGET_RUNS = 32
"""Desired number of runs per side, so that many workers are busy. Small sides have fewer runs (MIN_RUN_TOKENS)."""
MIN_RUN_TOKENS = 1 << 16

SPAN = np.dtype([("key", np.uint64), ("text", np.uint32), ("start", np.uint32)])
MATCH = np.dtype([("text", np.uint32), ("start", np.uint32), ("other", np.uint32), ("other_start", np.uint32)])
LOCATION = np.dtype([("part", np.uint32), ("row", np.uint32), ("offset", np.uint64), ("num_tokens", np.uint32)])

BUCKET_BITS = 10
"""Spans are written in 1 << BUCKET_BITS buckets. When the number of spans is known, one or more neighboring buckets
form a partition."""

EDGE, TWO_EDGES = struct.Struct("<q"), struct.Struct("<qq")

SideName = Literal["small", "large"]
TableName = Literal["small", "large", "keys", "table", "hits", "hit_table"]
TABLES: dict[TableName, npt.DTypeLike] = {
    "small": LOCATION,
    "large": LOCATION,
    "keys": np.uint32,
    "table": np.uint8,
    "hits": np.uint32,
    "hit_table": np.uint8,
}
Records = npt.NDArray[Any]


class Run(NamedTuple):
    """Consecutive texts of a side that one task processes: `first` to `end` - 1."""

    run_index: int
    first: int
    end: int


class Store(Protocol):
    """Storage of texts. It must be picklable, because each worker reads the texts itself."""

    def read_ids(self, texts: Sequence[AnyStoredText]) -> Iterator[Ids]:
        """Yield the ids of each text, in the given order."""
        ...

    def anchors(self, part: str, rows: Sequence[int], table: KeyTable | None) -> Anchors:
        """Return the anchors of the texts in these ascending rows of a part. A table filters the anchors by key."""
        ...


class Sides(msgspec.Struct, frozen=True, kw_only=True):
    """Files and settings of one comparison."""

    folder: Path
    store: Store
    parts: tuple[str, ...]
    min_distinct: int = MIN_DISTINCT_IDS
    """Minimum number of distinct ids in a range on the small side. Ranges with fewer ids are not cut."""
    cut: SideName = "small"
    num_partition_bits: int = 0

    def save(self, name: TableName, array: Records) -> None:
        (self.folder / name).write_bytes(array.view(np.uint8).data)  # numpy's own writer does not report a full disk

    def load(self, name: TableName) -> Records:
        """Memory-map an array. Processes share the memory, and only the pages in use are read."""
        path = self.folder / name
        return np.asarray(np.memmap(path, TABLES[name], "r")) if path.stat().st_size else np.zeros(0, TABLES[name])

    def texts(self, side: SideName, indices: npt.ArrayLike) -> Iterator[Ids]:
        locations = self.load(side)[np.asarray(indices, np.int64)]
        stored = [
            StoredText(repo="", path="", part=self.parts[part], part_row=row, part_offset=offset, num_tokens=num_tokens)
            for part, row, offset, num_tokens in locations.tolist()
        ]
        return self.store.read_ids(stored)

    def anchors(self, side: SideName, run: Run, table: KeyTable | None = None) -> "RunAnchors":
        """Read the anchors of a run from its parts. A table filters the anchors by key."""
        locations = self.load(side)[run.first : run.end]
        texts, positions, keys = [], [], []
        for part, group in groupby(enumerate(locations.tolist(), run.first), key=lambda item: item[1][0]):
            indices, rows = zip(*((index, location[1]) for index, location in group), strict=True)
            anchors = self.store.anchors(self.parts[part], rows, table)
            texts.append(np.repeat(indices, anchors.counts))
            positions.append(anchors.positions)
            keys.append(anchors.keys)
        return RunAnchors(np.concatenate(texts), np.concatenate(positions).astype(np.int64), np.concatenate(keys))

    def write_spans(self, side: SideName, run: Run, spans: Records) -> int:
        """Write a table of bucket starts, and then the spans sorted by bucket. Return the number of spans."""
        buckets = (spans["key"] >> np.uint64(64 - BUCKET_BITS)).astype(np.uint16)
        order = np.argsort(buckets, kind="stable")  # sorting by so few bits takes a tenth of the time
        edges = np.zeros((1 << BUCKET_BITS) + 1, np.int64)
        np.cumsum(np.bincount(buckets, minlength=1 << BUCKET_BITS), out=edges[1:])
        write_atomically(self._spans_file(side, run), (edges.tobytes(), spans[order].tobytes()), is_synced=False)
        return len(spans)

    def read_spans(self, side: SideName, run: Run, partition: int | None = None) -> Records:
        """Read the spans of one partition, or, without `partition`, all spans sorted by text and start."""
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
        """Write the matches of each run, and then a table of run starts. A repeated task overwrites the file."""
        write_atomically(self._matches_file(side, partition), _append_edges(matches), is_synced=False)

    def matches(self, side: SideName, partition: int, run: Run) -> Records:
        """Read the matches of one run. The file is not mapped, because mapped pages count as process memory."""
        with open_plain(self._matches_file(side, partition)) as stream:
            stream.seek(-EDGE.size, os.SEEK_END)
            (num_edges,) = EDGE.unpack(stream.read())
            stream.seek(EDGE.size * (run.run_index - num_edges - 1), os.SEEK_END)
            start, end = TWO_EDGES.unpack(stream.read(TWO_EDGES.size))
            stream.seek(start * MATCH.itemsize)
            return np.frombuffer(stream.read((end - start) * MATCH.itemsize), MATCH)

    def _matches_file(self, side: SideName, partition: int) -> Path:
        return self.folder / f"{side}-{partition:05d}.matches"

    def _spans_file(self, side: SideName, run: Run) -> Path:
        return self.folder / f"{side}-{run.run_index:06d}.spans"


def _append_edges(matches: Iterable[Records]) -> Iterator[bytes]:
    edges = [0]
    for batch in matches:
        edges.append(edges[-1] + len(batch))
        yield batch.tobytes()
    yield from map(EDGE.pack, (*edges, len(edges)))


class RunAnchors(NamedTuple):
    """Anchors of one run."""

    texts: Positions
    """Index of the text that contains each anchor."""
    positions: Positions
    keys: AnchorKeys


class Texts(NamedTuple):
    """Several texts of a side, concatenated. One operation on many small texts is much faster than one per text."""

    ids: Ids
    edges: Positions
    """Start of each text in `ids`, and the end of the last text."""
    indices: Positions
    """Indices of the texts on their side, ascending."""

    @classmethod
    def of(cls, sides: Sides, side: SideName, indices: npt.ArrayLike) -> "Texts":
        texts = list(sides.texts(side, indices))
        return cls(np.concatenate(texts), np.cumsum([0, *map(len, texts)]), np.asarray(indices, np.int64))

    def ids_of(self, index: int) -> Ids:
        position = int(np.searchsorted(self.indices, index))
        return self.ids[self.edges[position] : self.edges[position + 1]]

    def offsets_of(self, indices: Records, starts: Records) -> Positions:
        """Convert positions in these texts to positions in `ids`."""
        offsets: Positions = self.edges[np.searchsorted(self.indices, indices)] + starts
        return offsets

    def spans_around(self, grams: Positions, *, first_only: bool) -> Records:
        """Return the 50-grams that contain one of these 25-grams and do not cross a text boundary.

        With `first_only`, most repetitions of a 50-gram are left out.
        """
        text = np.searchsorted(self.edges, grams, "right") - 1
        gram_runs = gram_runs_around(grams, self.edges[text], self.edges[text + 1])
        keys, starts = span_keys(*gram_runs.extract(self.ids)), gram_runs.starts()
        run_of_each = np.repeat(np.arange(len(gram_runs.first)), gram_runs.counts())
        if first_only:
            chosen = np.flatnonzero(_is_first(keys))
            keys, run_of_each, starts = keys[chosen], run_of_each[chosen], starts[chosen]
        text = np.searchsorted(self.edges, gram_runs.first, "right") - 1
        spans = np.empty(len(keys), SPAN)
        spans["key"], spans["text"], spans["start"] = (
            keys,
            self.indices[text][run_of_each],
            starts - self.edges[text][run_of_each],
        )
        return spans


def _is_first(keys: Keys) -> Flags:
    """Return True for the first of equal keys, and for a few repetitions, because each slot stores only one key."""
    slots = (keys & np.uint64((1 << len(keys).bit_length()) - 1)).astype(np.int64)
    indices = np.arange(len(keys))
    first = np.zeros(1 << len(keys).bit_length(), np.int64)
    first[slots[::-1]] = indices[::-1]  # reversed, so that the first key of a slot is stored
    stored = first[slots]
    is_first: Flags = (stored == indices) | (keys[stored] != keys)
    return is_first


def text_locations(texts: Sequence[AnyStoredText], parts: Sequence[str]) -> Records:
    part_indices = {part: index for index, part in enumerate(parts)}
    rows = [(part_indices[text.part], text.part_row, text.part_offset, text.num_tokens) for text in texts]
    return np.array(rows, LOCATION)


def split_into_runs(texts: Sequence[AnyStoredText]) -> Iterator[Run]:
    first = 0
    num_tokens = sum([text.num_tokens for text in texts])
    limit = min(RUN_TOKENS, max(MIN_RUN_TOKENS, num_tokens // TARGET_RUNS))
    for index, run in enumerate(consecutive_groups(texts, lambda text: text.num_tokens, limit)):
        yield Run(index, first, first + len(run))
        first += len(run)


PARTITION_SPANS = 1 << 21
"""Maximum mean number of spans in a partition. The spans of both sides are counted."""
TARGET_PARTITION_BITS = 5
"""Binary logarithm of the desired number of partitions, if each has MIN_PARTITION_SPANS or more."""
MIN_PARTITION_SPANS = 1 << 16
SPANS_PER_BATCH = 1 << 14
MAX_STEPS = 32
"""Maximum length of a linear search among keys with the same leading bits. Only crafted keys exceed it."""
TOKENS_PER_BATCH = 1 << 20

OTHER_SIDE: dict[SideName, SideName] = {"small": "large", "large": "small"}
Runs = dict[SideName, list[Run]]


StartRuns = bytes
"""Packed rows of three int32: the first and last start of consecutive 50-grams, and the index of the first text on the
other side that contains them. The rows remain packed, because there are millions."""


class TextMatches(NamedTuple):
    """Verified matches of one text."""

    text: int
    ranges: list[tuple[int, int, int]]
    """Start, end, and the index of a text on the other side that contains the first 50-gram of the range."""
    runs: StartRuns


class SharedSpans(NamedTuple):
    """Spans that one text shares with the other side."""

    cuts: tuple[Cut, ...]
    """Ranges to cut, in text order."""
    runs: StartRuns
    """Shared 50-grams. On the small side, they include 50-grams in ranges that are not cut."""


def compare(
    small: Sequence[AnyStoredText],
    large: Sequence[AnyStoredText],
    sides: Sides,
    map_tasks: MapFunction,
    *,
    cut: SideName,
) -> dict[int, SharedSpans]:
    """Return the shared spans of the side to cut, keyed by the index of the text.

    Texts that share nothing are left out. A text whose shared spans all have too few distinct ids has no cuts.
    """
    texts: dict[SideName, Sequence[AnyStoredText]] = {"small": small, "large": large}
    runs: Runs = {side: list(split_into_runs(members)) for side, members in texts.items()}
    shutil.rmtree(sides.folder, ignore_errors=True)
    sides.folder.mkdir(parents=True)
    sides = msgspec.structs.replace(sides, cut=cut)
    for side, members in texts.items():
        sides.save(side, text_locations(members, sides.parts))
    num_spans = _write_spans(sides, runs, map_tasks)
    if not num_spans:
        return {}
    sides = msgspec.structs.replace(sides, num_partition_bits=num_partition_bits(num_spans))
    if cut == "large" and sides.min_distinct > 1:  # with 1, every range is cut
        found = _find_ranges(sides, runs, "small", map_tasks)
        for _ in map_tasks(partial(narrow, sides), zip(runs["small"], found, strict=True)):
            pass
    found = _find_ranges(sides, runs, cut, map_tasks)
    others = texts[OTHER_SIDE[cut]]
    return {
        text: SharedSpans(tuple(Cut(start, end, others[other].name) for start, end, other in ranges), runs)
        for batch in found
        for text, ranges, runs in batch
    }


def _write_spans(sides: Sides, runs: Runs, map_tasks: MapFunction) -> int:
    """Write the 50-grams of both sides that may be shared, and return their number."""
    batches = [np.zeros(0, np.uint32), *map_tasks(partial(collect_anchors, sides), runs["small"])]
    keys = distinct(np.concatenate(batches))
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


def _find_ranges(sides: Sides, runs: Runs, side: SideName, map_tasks: MapFunction) -> list[list[TextMatches]]:
    """Return the verified matches of each run of this side."""
    for _ in map_tasks(partial(join, sides, runs, side), range(1 << sides.num_partition_bits)):
        pass
    return list(map_tasks(partial(verify, sides, side), runs[side]))


def num_partition_bits(num_spans: int) -> int:
    needed = (num_spans // PARTITION_SPANS).bit_length()
    target = min(TARGET_PARTITION_BITS, (num_spans // MIN_PARTITION_SPANS).bit_length())
    return min(BUCKET_BITS, max(needed, target))


def collect_anchors(sides: Sides, run: Run) -> AnchorKeys:
    """Return the distinct anchor keys of a run of the small side."""
    return distinct(sides.anchors("small", run).keys)


def probe(sides: Sides, run: Run) -> tuple[Positions, int]:
    """Write the 50-grams of the large side that may be shared.

    Return the indices of the small side's anchor keys that were found, and the number of 50-grams.
    """
    anchors = sides.anchors("large", run, KeyTable(sides.load("table")))
    key_indices, is_hit = _find_keys(sides.load("keys"), anchors.keys)
    num_spans = sides.write_spans("large", run, _spans_around_anchors(sides, "large", anchors, np.flatnonzero(is_hit)))
    return np.flatnonzero(np.bincount(key_indices[is_hit])), num_spans


def mark(sides: Sides, run: Run) -> int:
    """Write the 50-grams of the small side that may be shared, and return their number."""
    anchors = sides.anchors("small", run, KeyTable(sides.load("hit_table")))
    _, is_hit = _find_keys(sides.load("hits"), anchors.keys)
    return sides.write_spans("small", run, _spans_around_anchors(sides, "small", anchors, np.flatnonzero(is_hit)))


def _spans_around_anchors(sides: Sides, side: SideName, anchors: RunAnchors, found: Positions) -> Records:
    """Return the 50-grams around these anchors. Only texts with such an anchor are read."""
    if not len(found):
        return np.zeros(0, SPAN)
    texts = Texts.of(sides, side, distinct(anchors.texts[found]))
    grams = texts.offsets_of(anchors.texts[found], anchors.positions[found])
    # If the small side is cut, it is enough to find a span once on the large side.
    return texts.spans_around(grams, first_only=side == "large" and sides.cut == "small")


def join(sides: Sides, runs: Runs, side: SideName, partition: int) -> None:
    """Write the matches of one partition: spans of this side whose key is also on the other side.

    Each match contains the first occurrence on the other side. To save memory, spans are read run by run: all
    repetitions of a span are in one partition, and a corpus may repeat a span many times.
    """
    keys = distinct(np.concatenate([sides.read_spans(side, run, partition)["key"] for run in runs[side]]))
    occurrences = _first_occurrences(sides, runs[OTHER_SIDE[side]], OTHER_SIDE[side], partition, keys)
    index = KeyIndex.of(occurrences["key"], sides.num_partition_bits)
    matches = (_match_spans(sides.read_spans(side, run, partition), occurrences, index) for run in runs[side])
    sides.write_matches(side, partition, matches)


def _first_occurrences(sides: Sides, runs: Sequence[Run], side: SideName, partition: int, keys: Keys) -> Records:
    """Return the first occurrence of each key on this side. Keys that do not occur are left out."""
    absent = np.iinfo(np.uint64).max
    first = np.full(len(keys), absent, np.uint64)
    index = KeyIndex.of(keys, sides.num_partition_bits)
    for run in runs:
        spans = sides.read_spans(side, run, partition)
        at, indices = index.find(spans["key"])
        is_new = first[at] == absent
        at, spans = at[is_new], spans[indices[is_new]]
        packed = spans["text"].astype(np.uint64) << np.uint64(32) | spans["start"]
        # Runs, and the spans of a key in a run, are in text order. Assigning in reverse order keeps the first span.
        first[at[::-1]] = packed[::-1]
    is_found = first != absent
    occurrences = np.empty(np.count_nonzero(is_found), SPAN)
    occurrences["key"] = keys[is_found]
    occurrences["text"], occurrences["start"] = (
        first[is_found] >> np.uint64(32),
        first[is_found] & np.uint64((1 << 32) - 1),
    )
    return occurrences


def _find_keys(keys: AnyKeys, wanted: AnyKeys) -> tuple[Positions, Flags]:
    """Return the position of each wanted key in the sorted keys, and whether it was found."""
    at = np.searchsorted(keys, wanted)
    at[at == len(keys)] = 0
    return at, keys[at] == wanted if len(keys) else np.zeros(len(wanted), np.bool_)


class KeyIndex(NamedTuple):
    """Index of sorted keys by their leading bits. A lookup takes a third of the time of a binary search."""

    keys: Keys
    first: Positions
    """Index of the first key for each value of the leading bits, followed by the number of keys."""
    max_bucket_size: int
    """Largest number of keys with the same leading bits."""
    shift: np.uint64
    mask: np.uint64

    @classmethod
    def of(cls, keys: Keys, num_common_bits: int) -> "KeyIndex":
        """Index sorted keys. `num_common_bits` is the number of leading bits that are equal in all keys."""
        num_bits = len(keys).bit_length() + 1
        shift, mask = np.uint64(64 - num_common_bits - num_bits), np.uint64((1 << num_bits) - 1)
        counts = np.bincount((keys >> shift & mask).astype(np.int64), minlength=1 << num_bits)
        first = np.concatenate(([0], np.cumsum(counts)))
        return cls(keys, first, int(counts.max()), shift, mask)

    def find(self, wanted: Keys) -> tuple[Positions, Positions]:
        """Find the wanted keys. Return the indices in `keys` and the indices in `wanted` of those that were found."""
        slots = (wanted >> self.shift & self.mask).astype(np.int64)
        at, end = self.first[slots], self.first[slots + 1]
        indices = np.flatnonzero(at < end)
        at, end, wanted = at[indices], end[indices], wanted[indices]
        if self.max_bucket_size > MAX_STEPS:
            at = np.minimum(np.searchsorted(self.keys, wanted), end - 1)
        else:
            for _ in range(self.max_bucket_size - 1):
                at += (self.keys[at] < wanted) & (at + 1 < end)
        is_found = self.keys[at] == wanted
        return at[is_found], indices[is_found]


def _match_spans(spans: Records, occurrences: Records, index: KeyIndex) -> Records:
    at, indices = index.find(spans["key"])
    spans, others = spans[indices], occurrences[at]
    matches = np.empty(len(spans), MATCH)
    matches["text"], matches["start"] = spans["text"], spans["start"]
    matches["other"], matches["other_start"] = others["text"], others["start"]
    return matches


def verify(sides: Sides, side: SideName, run: Run) -> list[TextMatches]:
    """Compare matches token by token, and return those that are equal.

    Different spans have equal keys with a probability of 2 ** -64. Such spans are removed here.
    """
    matches = _read_matches(sides, side, run)
    if not len(matches):
        return []
    texts = Texts.of(sides, side, distinct(matches["text"]))
    matches = matches[_is_equal(texts, matches, sides, OTHER_SIDE[side])]
    min_distinct = sides.min_distinct if side == "small" else 1
    found: list[TextMatches] = []
    edges = np.flatnonzero(np.diff(matches["text"])) + 1
    for text_matches in np.split(matches, edges) if len(matches) else ():
        text_index = int(text_matches["text"][0])
        ranges = merge_into_ranges(texts.ids_of(text_index), text_matches["start"].astype(np.int64), min_distinct)
        others = text_matches["other"][np.searchsorted(text_matches["start"], [start for start, _ in ranges])].tolist()
        ranges_with_others = [(*span, other) for span, other in zip(ranges, others, strict=True)]
        found.append(TextMatches(text_index, ranges_with_others, _start_runs(text_matches)))
    return found


def _start_runs(matches: Records) -> StartRuns:
    return pack_starts(matches["start"].astype(np.int64), matches["other"].astype(np.int64))


def pack_starts(starts: Positions, others: Positions) -> StartRuns:
    edges = np.flatnonzero((np.diff(starts) != 1) | (np.diff(others) != 0)) + 1
    firsts, lasts = np.concatenate(([0], edges)), np.concatenate((edges - 1, [len(starts) - 1]))
    return np.stack((starts[firsts], starts[lasts], others[firsts]), axis=1).astype(np.int32).tobytes()


def narrow(sides: Sides, task: tuple[Run, list[TextMatches]]) -> None:
    """Remove the 50-grams of a run of the small side that are outside of the ranges with enough distinct ids."""
    run, found = task
    spans = sides.read_spans("small", run)
    is_counted = np.zeros(len(spans), np.bool_)
    for text_index, ranges, _ in found:
        if not ranges:
            continue
        first, end = np.searchsorted(spans["text"], [text_index, text_index + 1])
        span_starts = spans["start"][first:end].astype(np.int64)
        starts, ends, _ = np.array(ranges, np.int64).T
        at = np.searchsorted(starts, span_starts, "right") - 1
        is_counted[first:end] = (at >= 0) & (span_starts + SPAN_TOKENS <= ends[at])
    sides.write_spans("small", run, spans[is_counted])


def _read_matches(sides: Sides, side: SideName, run: Run) -> Records:
    partitions = range(1 << sides.num_partition_bits)
    matches = np.concatenate([sides.matches(side, partition, run) for partition in partitions])
    return matches[np.argsort(matches["text"].astype(np.uint64) << np.uint64(32) | matches["start"])]


def _is_equal(texts: Texts, matches: Records, sides: Sides, other: SideName) -> Flags:
    is_equal = np.zeros(len(matches), np.bool_)
    others = distinct(matches["other"])
    sizes = np.cumsum(sides.load(other)["num_tokens"][others], dtype=np.int64)
    for batch in np.split(others, np.flatnonzero(np.diff(sizes // TOKENS_PER_BATCH)) + 1):
        if len(batch):
            selected = np.flatnonzero((matches["other"] >= batch[0]) & (matches["other"] <= batch[-1]))
            other_texts = Texts.of(sides, other, batch)
            starts = texts.offsets_of(matches["text"][selected], matches["start"][selected])
            other_starts = other_texts.offsets_of(matches["other"][selected], matches["other_start"][selected])
            is_equal[selected] = _spans_equal(texts.ids, starts, other_texts.ids, other_starts)
    return is_equal


def _spans_equal(ids: Ids, starts: Positions, other_ids: Ids, other_starts: Positions) -> Flags:
    # If a span begins one token after the previous span, only its last token is new.
    continues = np.zeros(len(starts), np.bool_)
    continues[1:] = (np.diff(starts) == 1) & (np.diff(other_starts) == 1)
    last = SPAN_TOKENS - 1
    is_all_equal = np.array_equal(ids[starts + last], other_ids[other_starts + last]) and all(
        part.all() for part in _compare_batches(ids, starts[~continues], other_ids, other_starts[~continues])
    )
    if is_all_equal:
        return np.ones(len(starts), np.bool_)
    return np.concatenate(list(_compare_batches(ids, starts, other_ids, other_starts)))


def _compare_batches(ids: Ids, starts: Positions, other_ids: Ids, other_starts: Positions) -> Iterator[Flags]:
    """Compare spans token by token, a batch at a time."""
    steps = np.arange(SPAN_TOKENS)
    for at in range(0, len(starts), SPANS_PER_BATCH):
        batch = slice(at, at + SPANS_PER_BATCH)
        yield (ids[starts[batch, None] + steps] == other_ids[other_starts[batch, None] + steps]).all(axis=1)
