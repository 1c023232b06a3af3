import random
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.dedup import clusters as clusters_module
from gristmill.dedup.clusters import (
    MAX_REPRESENTATIVES,
    MIN_JACCARD,
    GramSets,
    UnionFind,
    candidate_groups,
    find_clusters,
)
from gristmill.dedup.signatures import GRAM_TOKENS, NUM_BANDS, band_keys, concatenate_ids


def grams(ids):
    """Return the set of n-grams of a text. Slow, obvious reference."""
    return {tuple(ids[at : at + GRAM_TOKENS]) for at in range(max(1, len(ids) - GRAM_TOKENS + 1))}


def jaccard(one, other):
    left, right = grams(one), grams(other)
    return len(left & right) / len(left | right)


def clusters_from_keys(keys, ids_of):
    grams = GramSets(ids_of)
    return find_clusters(candidate_groups(keys.T), len(keys), cache(lambda pair: grams.jaccard(*pair)))


def clusters_of(documents):
    arrays = [np.array(ids, np.uint16) for ids in documents]
    return clusters_from_keys(band_keys(*concatenate_ids(arrays)), arrays.__getitem__)


def mutated(rng, ids, share):
    changed = list(ids)
    for _ in range(max(1, int(len(ids) * share))):
        changed[rng.randrange(len(changed))] = rng.randrange(50_000)
    return changed


def random_ids(rng, length):
    return [rng.randrange(50_000) for _ in range(length)]


def test_recall_is_at_least_099_at_jaccard_08_and_no_pair_below_the_limit_is_joined():
    rng = random.Random(5)
    documents, pairs = [], []
    for _ in range(600):
        original = random_ids(rng, rng.randrange(60, 600))
        documents += [original, mutated(rng, original, rng.uniform(0.005, 0.08))]
        pairs.append((len(documents) - 2, len(documents) - 1))
    joined = {
        (cluster.first, duplicate.member): duplicate.jaccard
        for cluster in clusters_of(documents)
        for duplicate in cluster.others
    }
    near = [pair for pair in pairs if jaccard(*(documents[number] for number in pair)) >= 0.8]
    assert len(near) > 100
    assert sum(pair in joined for pair in near) >= 0.99 * len(near)
    for (first, member), similarity in joined.items():
        assert similarity == pytest.approx(jaccard(documents[first], documents[member]))
        assert similarity >= MIN_JACCARD
    assert any(jaccard(documents[one], documents[other]) < MIN_JACCARD for one, other in pairs)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 12), st.integers(1, 40))
def test_clusters_contain_only_documents_connected_by_similar_pairs(seed, count, length):
    rng = random.Random(seed)
    base = [rng.randrange(6) for _ in range(length)]
    documents = [mutated(rng, base, rng.choice([0, 0.02, 0.1, 0.5])) for _ in range(count)]
    sets = UnionFind(count)
    for one, other in combinations(range(count), 2):
        if jaccard(documents[one], documents[other]) >= MIN_JACCARD:
            sets.join(one, other)
    for cluster in clusters_of(documents):
        for duplicate in cluster.others:
            assert sets.find(duplicate.member) == sets.find(cluster.first)
            assert duplicate.jaccard == pytest.approx(jaccard(documents[cluster.first], documents[duplicate.member]))


def test_chain_is_one_cluster_with_similarities_to_its_first_document():
    rng = random.Random(1)
    first = random_ids(rng, 300)
    middle = first[:270] + random_ids(rng, 30)
    last = middle[40:] + random_ids(rng, 40)
    (cluster,) = clusters_of([first, middle, last])
    assert [duplicate.member for duplicate in cluster.others] == [1, 2]
    assert cluster.others[0].jaccard >= MIN_JACCARD > cluster.others[1].jaccard


@pytest.mark.timeout(60)
def test_ten_thousand_files_in_one_cluster_are_compared_once_each():
    rng = random.Random(2)
    base = random_ids(rng, 200)
    arrays = [np.array(mutated(rng, base, 0.001), np.uint16) for _ in range(10_000)]
    num_reads = 0

    def ids_of(number):
        nonlocal num_reads
        num_reads += 1
        return arrays[number]

    (cluster,) = clusters_from_keys(band_keys(*concatenate_ids(arrays)), ids_of)
    assert len(cluster.others) == 9_999
    assert num_reads < 30_000


def test_tiny_files_cost_a_few_comparisons_each():
    """Many pairs of files are half similar, but each file is compared with only a few other files."""
    rng = random.Random(3)
    arrays = [
        np.array([1, 2, 3, 4, rng.randrange(600), 5, rng.randrange(50), 6][: rng.randrange(5, 9)], np.uint16)
        for _ in range(20_000)
    ]
    num_reads = 0

    def ids_of(number):
        nonlocal num_reads
        num_reads += 1
        return arrays[number]

    keys = np.concatenate([band_keys(*concatenate_ids(arrays[at : at + 1000])) for at in range(0, len(arrays), 1000)])
    clusters = clusters_from_keys(keys, ids_of)
    assert sum(1 + len(cluster.others) for cluster in clusters) > 10_000
    assert num_reads < 60_000, num_reads


def test_dissimilar_documents_with_equal_keys_are_not_all_compared(monkeypatch):
    """A thousand dissimilar documents have the same key in every band."""
    rng = random.Random(4)
    arrays = [np.array(random_ids(rng, 30), np.uint16) for _ in range(1000)]
    compared = set()
    original_jaccard = clusters_module.GramSets.jaccard

    def counted_jaccard(self, one, other):
        compared.add((one, other))
        return original_jaccard(self, one, other)

    monkeypatch.setattr(clusters_module.GramSets, "jaccard", counted_jaccard)
    assert clusters_from_keys(np.zeros((1000, NUM_BANDS), np.uint64), arrays.__getitem__) == []
    assert len(compared) <= 1000 * MAX_REPRESENTATIVES


def test_keys_do_not_depend_on_other_documents_in_the_batch():
    rng = random.Random(6)
    arrays = [np.array(random_ids(rng, length), np.uint32) for length in (1, 3, 5, 6, 700)]
    together = band_keys(*concatenate_ids(arrays))
    assert together.shape == (5, NUM_BANDS)
    assert all((band_keys(*concatenate_ids([ids]))[0] == row).all() for ids, row in zip(arrays, together, strict=True))
    assert band_keys(*concatenate_ids([])).shape == (0, NUM_BANDS)
    assert (band_keys(*concatenate_ids([arrays[3].astype(np.uint16)]))[0] == together[3]).all()
