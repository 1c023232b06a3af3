"""How similar two documents are: measured over pairs that may be near-duplicates, and known again by their texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import Protocol

from gristmill.core.partition import neighbours
from gristmill.core.progress import MapFunction
from gristmill.core.records import AnyStoredText, PreparedDocument, StoredText
from gristmill.dedup.clusters import Cluster, GramSets, Pair, UnionFind, find_clusters, groups_of, jaccards
from gristmill.dedup.signatures import Ids, Keys

PAIR_TOKENS = 1 << 17
"""One task measures pairs of documents that have this many tokens together, which takes about ten milliseconds."""
ASSUMED = 1.0
ROUNDS = 2


class Reader(Protocol):
    def ids_of(self, text: AnyStoredText) -> Ids: ...


class Store(Protocol):
    """Where the ids of texts are read from. Picklable: every worker reads for itself."""

    def open(self) -> AbstractContextManager[Reader]: ...


class _Similarities:
    """Of pairs of documents, by number: known from before, measured now, or not yet known."""

    def __init__(self, documents: Sequence[PreparedDocument], before: Mapping[bytes, float]) -> None:
        self._documents, self._before = documents, before
        self.known: dict[Pair, float] = {}
        self.missing: set[Pair] = set()

    def assumed(self, pair: Pair) -> float:
        """Near, where it is not known: it is noted, and nothing else is asked for in its place."""
        value = self._look_up(pair)
        if value is None:
            self.missing.add(pair)
            return ASSUMED
        return value

    def measured(self, grams: GramSets, pair: Pair) -> float:
        value = self._look_up(pair)
        if value is None:
            value = self.known[pair] = grams.jaccard(*pair)
        return value

    def to_remember(self) -> dict[bytes, float]:
        return {self._name(pair): value for pair, value in self.known.items()}

    def _look_up(self, pair: Pair) -> float | None:
        if pair not in self.known:
            value = self._before.get(self._name(pair))
            if value is None:
                return None
            self.known[pair] = value
        return self.known[pair]

    def _name(self, pair: Pair) -> bytes:
        return b"".join(sorted(bytes.fromhex(self._documents[number].text_sha256)[:16] for number in pair))


def clusters_of(
    store: Store,
    documents: Sequence[PreparedDocument],
    bands: Iterable[Keys],
    known: Mapping[bytes, float],
    map_tasks: MapFunction,
) -> tuple[list[Cluster], dict[bytes, float]]:
    """In rounds: pairs that are asked for and not known count as near, and are measured all at once, over processes.

    What is still asked for after a few of them, or is little, is measured as it is asked for. `known`: by the texts of
    a pair, what was measured before; what is of use now comes back beside the clusters.
    """
    similar = _Similarities(documents, known)
    groups = groups_of(bands)
    clusters = find_clusters(groups, len(documents), similar.assumed)
    for _ in range(ROUNDS):
        tasks = _tasks(documents, sorted(similar.missing))
        first_two = list(islice(tasks, 2))
        if len(first_two) <= 1:
            break
        for measured in map_tasks(partial(measure, store), chain(first_two, tasks)):
            similar.known |= measured
        similar.missing.clear()
        clusters = find_clusters(groups, len(documents), similar.assumed)
    if similar.missing:
        with store.open() as reader:
            grams = GramSets(lambda number: reader.ids_of(documents[number]))
            clusters = find_clusters(groups, len(documents), partial(similar.measured, grams))
    return clusters, similar.to_remember()


def measure(store: Store, places: dict[Pair, tuple[StoredText, StoredText]]) -> dict[Pair, float]:
    place_of = {number: place for pair, both in places.items() for number, place in zip(pair, both, strict=True)}
    with store.open() as reader:
        return jaccards(places, lambda number: reader.ids_of(place_of[number]))


def _tasks(
    documents: Sequence[PreparedDocument], pairs: Sequence[Pair]
) -> Iterator[dict[Pair, tuple[StoredText, StoredText]]]:
    """Pairs that share documents go into one task, which sorts the grams of each document once."""
    sets = UnionFind(len(documents))
    for pair in pairs:
        sets.join(*pair)
    together = sorted(pairs, key=lambda pair: (sets.find(pair[0]), pair))
    for some in neighbours(_with_new_tokens(documents, together), itemgetter(1), PAIR_TOKENS):
        yield {pair: (_place(documents[pair[0]]), _place(documents[pair[1]])) for pair, _ in some}


def _with_new_tokens(documents: Sequence[PreparedDocument], pairs: Iterable[Pair]) -> Iterator[tuple[Pair, int]]:
    """Each pair with the tokens of those of its documents that no pair before it has."""
    counted: set[int] = set()
    for pair in pairs:
        yield pair, sum(documents[number].num_tokens for number in pair if number not in counted)
        counted.update(pair)


def _place(document: PreparedDocument) -> StoredText:
    """No more than it takes to read it."""
    return StoredText(
        repo="",
        path="",
        num_tokens=document.num_tokens,
        part=document.part,
        part_offset=document.part_offset,
        part_row=document.part_row,
    )
