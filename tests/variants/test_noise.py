import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gristmill.core.seeded_random import Dice
from gristmill.variants.noise import Noise

MASK = 999
GOLDEN = [387, 883, 408, 83, 701, 250]


def is_subsequence(some, every):
    every = iter(every)
    return all(one in every for one in some)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=300), st.integers(0, 50))
def test_what_is_left_is_in_order_and_every_span_has_its_own_mask(ids, seed):
    noise = Noise(MASK, 0.15, 3.0, 0.05)
    out = noise.corrupt(np.array(ids, np.uint16), Dice(seed))
    if out is None:
        return
    assert len(out) <= len(ids)
    assert out.tolist() != ids
    assert is_subsequence([one for one in out.tolist() if one != MASK], ids)


def test_as_much_is_masked_and_deleted_as_was_asked_for():
    ids = np.arange(500, dtype=np.uint16)
    masked = spans = deleted = 0
    for seed in range(200):
        out = Noise(MASK, 0.2, 4.0, 0.0).corrupt(ids, Dice(seed))
        masked += 500 - np.count_nonzero(out != MASK)
        spans += np.count_nonzero(out == MASK)
        assert not ((out[1:] == MASK) & (out[:-1] == MASK)).any()
        deleted += 500 - len(Noise(MASK, 0.0, 4.0, 0.1).corrupt(ids, Dice(seed)))
    assert abs(masked / (200 * 500) - 0.2) < 0.002
    assert abs(masked / spans - 4.0) < 0.4
    assert abs(deleted / (200 * 500) - 0.1) < 0.01


def test_the_same_dice_make_the_same_noise():
    noise, ids = Noise(MASK, 0.3, 3.0, 0.1), np.arange(400, dtype=np.uint32)
    assert noise.corrupt(ids, Dice(3)).tolist() == noise.corrupt(ids, Dice(3)).tolist()
    assert noise.corrupt(ids, Dice(3)).tolist() != noise.corrupt(ids, Dice(4)).tolist()


def test_no_noise_is_no_variant():
    assert Noise(MASK, 0.0, 3.0, 0.0).corrupt(np.arange(50, dtype=np.uint16), Dice(0)) is None


def test_dice_fall_the_same_one_by_one_or_all_at_once_and_on_every_machine():
    assert [Dice("a", 1).bits() for _ in range(2)] == [Dice("a", 1).bits()] * 2
    one_by_one, at_once = Dice("b"), Dice("b")
    assert [one_by_one.fraction() for _ in range(5)] == at_once.fractions(5).tolist()
    assert one_by_one.bits() == at_once.bits()
    dice = Dice("rename", 7)
    assert [dice.below(1000) for _ in range(6)] == GOLDEN
    items = list(range(8))
    Dice(1).shuffle(items)
    assert sorted(items) == list(range(8))
    assert items != list(range(8))
