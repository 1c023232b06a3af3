"""Near-duplicates -> clusters: candidates by shared keys, an exact check of each, union-find.

Within a band, documents of the same key are compared with the first few of them that are not in one cluster yet, not
each with each: ten thousand copies of a file cost ten thousand comparisons.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gristmill.core.records import PreparedDocument
from gristmill.dedup.signatures import Ids, Keys, distinct, grams_of

MIN_JACCARD = 0.7
MAX_REPRESENTATIVES = 16
"""Per key. What is missed by it has other keys to be found by."""
CACHE_BYTES = 32 << 20


Pair = tuple[int, int]
"""Numbers of documents, the smaller one first."""
Group = bytes
"""Numbers of documents that share a key, ascending, as int32: there may be millions."""


class UnionFind:
    """Numbers in sets; a set goes by its smallest number."""

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
        """Each ascending, by their first."""
        members: dict[int, list[int]] = {}
        for item, parent in enumerate(self._parents):
            if parent == item:
                members[item] = [item]
            else:
                members[self.find(item)].append(item)
        return list(members.values())


class Twin(NamedTuple):
    member: int
    jaccard: float
    """To the first of its cluster."""


class Cluster(NamedTuple):
    """Documents connected by similar pairs, by number; `first` is the smallest."""

    first: int
    others: tuple[Twin, ...]


class GramSets:
    """Sorted, distinct grams of a document, the last used of them kept."""

    def __init__(self, ids_of: Callable[[int], Ids]) -> None:
        self._ids_of = ids_of
        self._kept: OrderedDict[int, Keys] = OrderedDict()
        self._num_bytes = 0

    def jaccard(self, one: int, other: int) -> float:
        left, right = self._set(one), self._set(other)
        num_common = _num_common(left, right)
        return num_common / (len(left) + len(right) - num_common)

    def _set(self, document: int) -> Keys:
        if document in self._kept:
            self._kept.move_to_end(document)
            return self._kept[document]
        grams = distinct(grams_of(self._ids_of(document)))
        self._kept[document] = grams
        self._num_bytes += grams.nbytes
        while self._num_bytes > CACHE_BYTES and len(self._kept) > 2:  # noqa: PLR2004 - the two that are compared
            self._num_bytes -= self._kept.popitem(last=False)[1].nbytes
        return grams


def _num_common(left: Keys, right: Keys) -> int:
    both = np.concatenate((left, right))
    both.sort(kind="stable")  # merges two sorted runs in linear time
    return int(np.count_nonzero(both[1:] == both[:-1]))


def jaccards(pairs: Iterable[Pair], ids_of: Callable[[int], Ids]) -> dict[Pair, float]:
    grams = GramSets(ids_of)
    return {pair: grams.jaccard(*pair) for pair in pairs}


def groups_of(bands: Iterable[Keys]) -> list[Group]:
    """`bands`: of each, the documents' keys. The same few share many keys, and are looked at once."""
    return list(dict.fromkeys(group for keys in bands for group in _same_key(keys)))


def find_clusters(groups: Iterable[Group], num_documents: int, similarity: Callable[[Pair], float]) -> list[Cluster]:
    """Clusters of two and more, by their first."""
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
    return Cluster(first, tuple(Twin(member, similarity((first, member))) for member in others))


def _same_key(keys: Keys) -> Iterator[Group]:
    order = np.argsort(keys).astype(np.int32)  # not stable, and a third of the time: few keys are there twice
    ordered = keys[order]
    is_same = np.concatenate(([False], ordered[1:] == ordered[:-1], [False]))
    edges = np.flatnonzero(is_same[1:] != is_same[:-1])
    for first, last in edges.reshape(-1, 2).tolist():
        yield np.sort(order[first : last + 1]).tobytes()


# Exact duplicates, by what is tokenized: the first in path order stays, the others are its copies.

Copies = dict[int, list[PreparedDocument]]
"""By the number, among those that stay, of the document that they are copies of."""


def exact_duplicates(documents: Iterable[PreparedDocument]) -> tuple[list[PreparedDocument], Copies]:
    """Those that stay, and those that go; `documents` in path order."""
    number_of: dict[str, int] = {}
    stay: list[PreparedDocument] = []
    copies: Copies = {}
    for document in documents:
        number = number_of.setdefault(document.text_sha256, len(stay))
        if number == len(stay):
            stay.append(document)
        else:
            copies.setdefault(number, []).append(document)
    return stay, copies
