"""Held-out files that are near-duplicates of a train file: found by the build's own rule, as train streams past.

Candidates share one of 32 keys (grouping.signatures), and the exact Jaccard similarity of their 5-grams decides. Within
one build near-duplicates are in one split already; a test set from elsewhere may bring a copy of what train has.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from gristmill.comparing.reading import Ids
from gristmill.comparing.stretches import Stretch
from gristmill.grouping.clusters import MIN_JACCARD
from gristmill.grouping.signatures import DOCUMENTS_AT_ONCE, Keys, band_keys, distinct, grams_of
from gristmill.records import BY_THEMSELVES


class Twins:
    def __init__(self, texts: Sequence[Ids]) -> None:
        self._texts = texts
        self._by_key: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for number, keys in enumerate(band_keys(texts).tolist()):
            for place in enumerate(keys):
                self._by_key[place].append(number)

    def watching(self, stretches: Iterable[Stretch], found: set[int]) -> Iterator[Stretch]:
        """The same stretches; behind the last of them `found` has the numbers of texts with a near-duplicate there."""
        documents: list[Ids] = []
        for text, parts in groupby(stretches, lambda stretch: stretch.text):
            ids = []
            for part in parts:
                ids.append(part.ids)
                yield part
            if text.variant not in BY_THEMSELVES:
                documents.append(np.concatenate(ids))
            if len(documents) == DOCUMENTS_AT_ONCE:
                self._look_at(documents, found)
                documents = []
        self._look_at(documents, found)

    def _look_at(self, documents: Sequence[Ids], found: set[int]) -> None:
        for ids, keys in zip(documents, band_keys(documents).tolist(), strict=True):
            candidates = {number for place in enumerate(keys) for number in self._by_key.get(place, ())} - found
            if candidates:
                grams = distinct(grams_of(ids))
                found |= {one for one in candidates if _jaccard(self._texts[one], grams) >= MIN_JACCARD}


def _jaccard(text: Ids, grams: Keys) -> float:
    own = distinct(grams_of(text))
    num_common = len(np.intersect1d(own, grams, assume_unique=True))
    return num_common / (len(own) + len(grams) - num_common)
