"""Find clusters of near-duplicates: compare documents that share a key (signatures.py), and join similar documents.

A document is compared only with the first few documents of each key that are in different clusters. So ten thousand
near-duplicates need only ten thousand comparisons.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gristmill.core.records import PreparedDocument
from gristmill.dedup.signatures import Ids, Keys, distinct, grams_of

MIN_JACCARD = 0.7
MAX_REPRESENTATIVES = 16
"""Maximum number of documents per key to compare a document with. A pair that is missed may be found by another key."""
CACHE_BYTES = 32 << 20


Pair = tuple[int, int]
"""Indices of two documents, the smaller index first."""
Group = bytes
"""Indices of documents that share a key, in ascending order. Stored as int32 in bytes, because there may be millions
of groups."""


class UnionFind:
    """Disjoint sets of numbers. The smallest number represents its set."""

    def __init__(self, size: int) -> None:
        self._parents = list(range(size))

    def find(self, item: int) -> int:
        parents = self._parents
        root = item
        while parents[root] != root:
            root = parents[root]
        while parents[item] != root:
            parents[item], item = root, parents[item]
        return root

    def join(self, one: int, other: int) -> None:
        one, other = self.find(one), self.find(other)
        self._parents[max(one, other)] = min(one, other)

    def sets(self) -> list[list[int]]:
        """Return the sets, ordered by their smallest number. The numbers in a set are in ascending order."""
        members: dict[int, list[int]] = {}
        for item, parent in enumerate(self._parents):
            if parent == item:
                members[item] = [item]
            else:
                members[self.find(item)].append(item)
        return list(members.values())


class NearDuplicate(NamedTuple):
    """A document of a cluster, other than the first document of the cluster."""

    member: int
    """Index of the document."""
    jaccard: float
    """Similarity to the first document of the cluster."""


class Cluster(NamedTuple):
    """Documents that are connected by similar pairs. `first` is the smallest index of these documents."""

    first: int
    others: tuple[NearDuplicate, ...]


class GramSets:
    """Sorted distinct 5-grams of documents, with a cache of the most recently used documents."""

    def __init__(self, ids_of: Callable[[int], Ids]) -> None:
        self._ids_of = ids_of
        self._cache: OrderedDict[int, Keys] = OrderedDict()
        self._num_bytes = 0

    def jaccard(self, one: int, other: int) -> float:
        """Return the Jaccard similarity of two documents: the share of all their grams that both documents have."""
        left, right = self._set(one), self._set(other)
        num_common = _num_common(left, right)
        return num_common / (len(left) + len(right) - num_common)

    def _set(self, document: int) -> Keys:
        if document in self._cache:
            self._cache.move_to_end(document)
            return self._cache[document]
        grams = distinct(grams_of(self._ids_of(document)))
        self._cache[document] = grams
        self._num_bytes += grams.nbytes
        while self._num_bytes > CACHE_BYTES and len(self._cache) > 2:  # noqa: PLR2004 - the two that are compared
            self._num_bytes -= self._cache.popitem(last=False)[1].nbytes
        return grams


def _num_common(left: Keys, right: Keys) -> int:
    both = np.concatenate((left, right))
    both.sort(kind="stable")  # merges two sorted runs in linear time
    return int(np.count_nonzero(both[1:] == both[:-1]))


def jaccards(pairs: Iterable[Pair], ids_of: Callable[[int], Ids]) -> dict[Pair, float]:
    """Measure the Jaccard similarity of each pair."""
    grams = GramSets(ids_of)
    return {pair: grams.jaccard(*pair) for pair in pairs}


def candidate_groups(bands: Iterable[Keys]) -> list[Group]:
    """Return the groups of documents that share a key. A group that shares keys in several bands is returned once.

    `bands` yields, for each band, the keys of all documents.
    """
    return list(dict.fromkeys(group for keys in bands for group in _same_key(keys)))


def find_clusters(groups: Iterable[Group], num_documents: int, similarity: Callable[[Pair], float]) -> list[Cluster]:
    """Return the clusters of two or more documents, ordered by their first document."""
    sets = UnionFind(num_documents)
    for group in groups:
        representatives: list[int] = []
        for member in np.frombuffer(group, np.int32).tolist():
            if representatives and sets.find(member) in map(sets.find, representatives):
                continue
            for one in representatives:
                if similarity((one, member)) >= MIN_JACCARD:
                    sets.join(one, member)
                    break
            else:
                if len(representatives) < MAX_REPRESENTATIVES:
                    representatives.append(member)
    return [_cluster(members, similarity) for members in sets.sets() if len(members) > 1]


def _cluster(members: Sequence[int], similarity: Callable[[Pair], float]) -> Cluster:
    first, *others = members
    return Cluster(first, tuple(NearDuplicate(member, similarity((first, member))) for member in others))


def _same_key(keys: Keys) -> Iterator[Group]:
    order = np.argsort(keys).astype(np.int32)  # unstable, which takes a third of the time; groups are sorted below
    ordered = keys[order]
    is_same = np.concatenate(([False], ordered[1:] == ordered[:-1], [False]))
    edges = np.flatnonzero(is_same[1:] != is_same[:-1])
    for first, last in edges.reshape(-1, 2).tolist():
        yield np.sort(order[first : last + 1]).tobytes()


# Exact duplicates have the same tokenized text. The first document in path order is kept, the others are copies.

Copies = dict[int, list[PreparedDocument]]
"""Copies of kept documents, keyed by the index of the kept document."""


def separate_exact_duplicates(documents: Iterable[PreparedDocument]) -> tuple[list[PreparedDocument], Copies]:
    """Return the documents to keep, and their copies. `documents` must be in path order."""
    index_of: dict[str, int] = {}
    kept: list[PreparedDocument] = []
    copies: Copies = {}
    for document in documents:
        index = index_of.setdefault(document.text_sha256, len(kept))
        if index == len(kept):
            kept.append(document)
        else:
            copies.setdefault(index, []).append(document)
    return kept, copies
