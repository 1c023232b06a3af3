import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gristmill.core.seeded_random import SeededRandom
from gristmill.variants.noise import Noise

MASK = 999
GOLDEN = [387, 883, 408, 83, 701, 250]


def is_subsequence(part, sequence):
    sequence = iter(sequence)
    return all(one in sequence for one in part)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=300), st.integers(0, 50))
def test_remaining_tokens_keep_their_order(ids, seed):
    noise = Noise(MASK, 0.15, 3.0, 0.05)
    out = noise.corrupt(np.array(ids, np.uint16), SeededRandom(seed))
    if out is None:
        return
    assert len(out) <= len(ids)
    assert out.tolist() != ids
    assert is_subsequence([one for one in out.tolist() if one != MASK], ids)


def test_masked_and_deleted_shares_match_the_settings():
    ids = np.arange(500, dtype=np.uint16)
    masked = spans = deleted = 0
    for seed in range(200):
        out = Noise(MASK, 0.2, 4.0, 0.0).corrupt(ids, SeededRandom(seed))
        masked += 500 - np.count_nonzero(out != MASK)
        spans += np.count_nonzero(out == MASK)
        assert not ((out[1:] == MASK) & (out[:-1] == MASK)).any()
        deleted += 500 - len(Noise(MASK, 0.0, 4.0, 0.1).corrupt(ids, SeededRandom(seed)))
    assert abs(masked / (200 * 500) - 0.2) < 0.002
    assert abs(masked / spans - 4.0) < 0.4
    assert abs(deleted / (200 * 500) - 0.1) < 0.01


def test_noise_is_deterministic_for_a_seed():
    noise, ids = Noise(MASK, 0.3, 3.0, 0.1), np.arange(400, dtype=np.uint32)
    assert noise.corrupt(ids, SeededRandom(3)).tolist() == noise.corrupt(ids, SeededRandom(3)).tolist()
    assert noise.corrupt(ids, SeededRandom(3)).tolist() != noise.corrupt(ids, SeededRandom(4)).tolist()


def test_zero_noise_returns_none():
    assert Noise(MASK, 0.0, 3.0, 0.0).corrupt(np.arange(50, dtype=np.uint16), SeededRandom(0)) is None


def test_random_numbers_are_the_same_one_by_one_in_bulk_and_on_every_machine():
    assert [SeededRandom("a", 1).bits() for _ in range(2)] == [SeededRandom("a", 1).bits()] * 2
    single, bulk = SeededRandom("b"), SeededRandom("b")
    assert [single.fraction() for _ in range(5)] == bulk.fractions(5).tolist()
    assert single.bits() == bulk.bits()
    rng = SeededRandom("rename", 7)
    assert [rng.integer_below(1000) for _ in range(6)] == GOLDEN
    items = list(range(8))
    SeededRandom(1).shuffle(items)
    assert sorted(items) == list(range(8))
    assert items != list(range(8))
