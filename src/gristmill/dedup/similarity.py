"""Similarity of documents that may be near-duplicates, measured in workers and cached for later builds."""

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
"""Maximum number of tokens in the documents of one task. Such a task takes about ten milliseconds."""
ASSUMED_SIMILARITY = 1.0
"""Similarity that is assumed until a pair is measured."""
MAX_ROUNDS = 2


class Reader(Protocol):
    def ids_of(self, text: AnyStoredText) -> Ids: ...


class Store(Protocol):
    """Storage of the ids of texts. A store must be picklable, because every worker opens it."""

    def open(self) -> AbstractContextManager[Reader]: ...


class _Similarities:
    """Similarities of pairs of documents, which are given by index: cached, measured, or missing."""

    def __init__(self, documents: Sequence[PreparedDocument], cached: Mapping[bytes, float]) -> None:
        self._documents, self._cached = documents, cached
        self.values_by_pair: dict[Pair, float] = {}
        self.missing: set[Pair] = set()

    def get_or_assume(self, pair: Pair) -> float:
        """Return the similarity of a pair. If it is unknown, add the pair to `missing` and return ASSUMED_SIMILARITY.

        If unknown pairs were assumed to differ, find_clusters would request further pairs in their place.
        """
        value = self._look_up(pair)
        if value is None:
            self.missing.add(pair)
            return ASSUMED_SIMILARITY
        return value

    def get_or_measure(self, grams: GramSets, pair: Pair) -> float:
        """Return the similarity of a pair. Measure it now if it is unknown."""
        value = self._look_up(pair)
        if value is None:
            value = self.values_by_pair[pair] = grams.jaccard(*pair)
        return value

    def to_cache(self) -> dict[bytes, float]:
        """Return all known similarities, keyed by the digests of the two texts."""
        return {self._cache_key(pair): value for pair, value in self.values_by_pair.items()}

    def _look_up(self, pair: Pair) -> float | None:
        if pair not in self.values_by_pair:
            value = self._cached.get(self._cache_key(pair))
            if value is None:
                return None
            self.values_by_pair[pair] = value
        return self.values_by_pair[pair]

    def _cache_key(self, pair: Pair) -> bytes:
        return b"".join(sorted(bytes.fromhex(self._documents[index].text_sha256)[:16] for index in pair))


def cluster_near_duplicates(
    store: Store,
    documents: Sequence[PreparedDocument],
    bands: Iterable[Keys],
    cached: Mapping[bytes, float],
    map_tasks: MapFunction,
) -> tuple[list[Cluster], dict[bytes, float]]:
    """Return the clusters of near-duplicates, and the similarities to cache.

    In each of at most two rounds, pairs of unknown similarity are assumed to be similar, and the workers then measure
    these pairs. Pairs that are still unknown, or that are too few for two tasks, are measured in this process. `cached`
    has the similarities of an earlier build, keyed by the digests of the two texts.
    """
    similarities = _Similarities(documents, cached)
    groups = candidate_groups(bands)
    clusters = find_clusters(groups, len(documents), similarities.get_or_assume)
    for _ in range(MAX_ROUNDS):
        tasks = _tasks(documents, sorted(similarities.missing))
        first_two = list(islice(tasks, 2))
        if len(first_two) <= 1:
            break
        for measured in map_tasks(partial(measure, store), chain(first_two, tasks)):
            similarities.values_by_pair |= measured
        similarities.missing.clear()
        clusters = find_clusters(groups, len(documents), similarities.get_or_assume)
    if similarities.missing:
        with store.open() as reader:
            grams = GramSets(lambda index: reader.ids_of(documents[index]))
            clusters = find_clusters(groups, len(documents), partial(similarities.get_or_measure, grams))
    return clusters, similarities.to_cache()


def measure(store: Store, texts: dict[Pair, tuple[StoredText, StoredText]]) -> dict[Pair, float]:
    """Measure the similarity of each pair, in a worker."""
    text_of = {index: text for pair, both in texts.items() for index, text in zip(pair, both, strict=True)}
    with store.open() as reader:
        return jaccards(texts, lambda index: reader.ids_of(text_of[index]))


def _tasks(
    documents: Sequence[PreparedDocument], pairs: Sequence[Pair]
) -> Iterator[dict[Pair, tuple[StoredText, StoredText]]]:
    """Divide pairs into tasks. Pairs that share documents are adjacent, so a task sorts a document's grams once."""
    sets = UnionFind(len(documents))
    for pair in pairs:
        sets.join(*pair)
    sorted_pairs = sorted(pairs, key=lambda pair: (sets.find(pair[0]), pair))
    for some in consecutive_groups(_with_new_tokens(documents, sorted_pairs), itemgetter(1), PAIR_TOKENS):
        yield {pair: (_stored_text(documents[pair[0]]), _stored_text(documents[pair[1]])) for pair, _ in some}


def _with_new_tokens(documents: Sequence[PreparedDocument], pairs: Iterable[Pair]) -> Iterator[tuple[Pair, int]]:
    """Yield each pair with the number of tokens in its documents, not counting documents of earlier pairs."""
    earlier_documents: set[int] = set()
    for pair in pairs:
        yield pair, sum(documents[index].num_tokens for index in pair if index not in earlier_documents)
        earlier_documents.update(pair)


def _stored_text(document: PreparedDocument) -> StoredText:
    """Return a record with only the fields that are needed to read the ids."""
    return StoredText(
        repo="",
        path="",
        num_tokens=document.num_tokens,
        part=document.part,
        part_offset=document.part_offset,
        part_row=document.part_row,
    )
