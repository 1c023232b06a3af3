"""Similarity of documents that may be near-duplicates, measured in workers and cached by the texts of a pair."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import Protocol

from gristmill.core.partition import consecutive_groups
from gristmill.core.progress import MapFunction
from gristmill.core.records import AnyStoredText, PreparedDocument, StoredText
from gristmill.dedup.clusters import Cluster, GramSets, Pair, UnionFind, candidate_groups, find_clusters, jaccards
from gristmill.dedup.signatures import Ids, Keys

PAIR_TOKENS = 1 << 17
"""Maximum number of tokens in the documents of one task, which takes about ten milliseconds."""
ASSUMED_SIMILARITY = 1.0
"""Similarity of a pair that is not measured yet."""
MAX_ROUNDS = 2


class Reader(Protocol):
    def ids_of(self, text: AnyStoredText) -> Ids: ...


class Store(Protocol):
    """Storage of the ids of texts. It is picklable, because every worker opens it."""

    def open(self) -> AbstractContextManager[Reader]: ...


class _Similarities:
    """Similarities of pairs of documents, given by number: cached, measured, or missing."""

    def __init__(self, documents: Sequence[PreparedDocument], cached: Mapping[bytes, float]) -> None:
        self._documents, self._cached = documents, cached
        self.known: dict[Pair, float] = {}
        self.missing: set[Pair] = set()

    def assumed(self, pair: Pair) -> float:
        """Return the similarity of a pair, or a high one if it is unknown.

        An unknown pair is recorded as missing. Assuming that it is similar avoids requests for other pairs instead.
        """
        value = self._look_up(pair)
        if value is None:
            self.missing.add(pair)
            return ASSUMED_SIMILARITY
        return value

    def measured(self, grams: GramSets, pair: Pair) -> float:
        """Return the similarity of a pair. Measure it if it is unknown."""
        value = self._look_up(pair)
        if value is None:
            value = self.known[pair] = grams.jaccard(*pair)
        return value

    def to_cache(self) -> dict[bytes, float]:
        """Return the known similarities, keyed by the texts of the pair."""
        return {self._cache_key(pair): value for pair, value in self.known.items()}

    def _look_up(self, pair: Pair) -> float | None:
        if pair not in self.known:
            value = self._cached.get(self._cache_key(pair))
            if value is None:
                return None
            self.known[pair] = value
        return self.known[pair]

    def _cache_key(self, pair: Pair) -> bytes:
        return b"".join(sorted(bytes.fromhex(self._documents[number].text_sha256)[:16] for number in pair))


def cluster_near_duplicates(
    store: Store,
    documents: Sequence[PreparedDocument],
    bands: Iterable[Keys],
    known: Mapping[bytes, float],
    map_tasks: MapFunction,
) -> tuple[list[Cluster], dict[bytes, float]]:
    """Find the clusters of near-duplicates, and return them with the similarities to cache.

    In a few rounds, pairs of unknown similarity are assumed to be similar and then measured all at once by the workers.
    Pairs that remain unknown, or that are too few for two tasks, are measured here. `known` has the similarities of an
    earlier build, keyed by the texts of a pair.
    """
    similar = _Similarities(documents, known)
    groups = candidate_groups(bands)
    clusters = find_clusters(groups, len(documents), similar.assumed)
    for _ in range(MAX_ROUNDS):
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
    return clusters, similar.to_cache()


def measure(store: Store, texts: dict[Pair, tuple[StoredText, StoredText]]) -> dict[Pair, float]:
    """Measure the similarity of pairs, in a worker."""
    text_of = {number: text for pair, both in texts.items() for number, text in zip(pair, both, strict=True)}
    with store.open() as reader:
        return jaccards(texts, lambda number: reader.ids_of(text_of[number]))


def _tasks(
    documents: Sequence[PreparedDocument], pairs: Sequence[Pair]
) -> Iterator[dict[Pair, tuple[StoredText, StoredText]]]:
    """Divide pairs into tasks. Pairs that share documents are in one task, which sorts their grams only once."""
    sets = UnionFind(len(documents))
    for pair in pairs:
        sets.join(*pair)
    sorted_pairs = sorted(pairs, key=lambda pair: (sets.find(pair[0]), pair))
    for some in consecutive_groups(_with_new_tokens(documents, sorted_pairs), itemgetter(1), PAIR_TOKENS):
        yield {pair: (_stored_text(documents[pair[0]]), _stored_text(documents[pair[1]])) for pair, _ in some}


def _with_new_tokens(documents: Sequence[PreparedDocument], pairs: Iterable[Pair]) -> Iterator[tuple[Pair, int]]:
    """Yield each pair with the number of tokens in its documents, without those of documents in earlier pairs."""
    counted: set[int] = set()
    for pair in pairs:
        yield pair, sum(documents[number].num_tokens for number in pair if number not in counted)
        counted.update(pair)


def _stored_text(document: PreparedDocument) -> StoredText:
    """Return only the fields that are needed to read the ids."""
    return StoredText(
        repo="",
        path="",
        num_tokens=document.num_tokens,
        part=document.part,
        part_offset=document.part_offset,
        part_row=document.part_row,
    )
