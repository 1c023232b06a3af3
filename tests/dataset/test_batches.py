"""An epoch draws every row once, or rows in proportion to their weights, and divides the draws among all ranks."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.core.errors import ConfigError
from gristmill.dataset.batches import Batches, Draw, Order, draw_counts

sizes = st.integers(0, 60)
worlds = st.integers(1, 5)
batch_sizes = st.integers(1, 9)


def test_order_differs_by_epoch_and_seed_and_is_reproducible():
    orders = {tuple(Order(50, seed=seed).rows(epoch)) for seed in range(3) for epoch in range(4)}
    assert len(orders) == 12
    assert all(sorted(order) == list(range(50)) for order in orders)
    again = Order(50, seed=2)
    later, earlier = again.rows(3), again.rows(0)
    assert tuple(later) in orders
    assert tuple(earlier) in orders
    assert Order(50, shuffle=False).rows(7).tolist() == list(range(50))


def test_shuffling_separates_neighbors():
    rows = Order(10_000).rows(0)
    assert np.abs(np.diff(rows)).mean() == pytest.approx(10_000 / 3, rel=0.05)


@given(
    st.lists(st.floats(0, 9), min_size=1, max_size=40).filter(lambda weights: sum(weights) > 1e-6),
    st.floats(0, 1, exclude_max=True),
)
def test_number_of_draws_of_a_row_is_its_share_rounded_down_or_up(weights, offset):
    shares = np.array(weights) * (len(weights) / sum(weights))
    counts = draw_counts(np.array(weights), offset)
    assert counts.sum() == len(weights)
    assert (counts >= np.floor(shares - 1e-9)).all()
    assert (counts <= np.ceil(shares + 1e-9)).all()


def test_offset_close_to_one_adds_no_draw():
    assert draw_counts(np.array([1.0, 2.0]), np.nextafter(1.0, 0.0)).tolist() == [1, 1]


def test_mean_draws_over_epochs_match_the_weights():
    weights = np.array([0.25, 0.25, 0.5, 1.0, 3.0] * 20)
    order = Order(100, weights=weights, seed=1)
    counts = Counter(row for epoch in range(200) for row in order.rows(epoch).tolist())
    for row, weight in enumerate(weights):
        assert counts[row] / 200 == pytest.approx(weight, abs=0.16)
    unshuffled = Order(100, weights=weights, shuffle=False).rows(0)
    assert (np.diff(unshuffled) >= 0).all()


@given(sizes, worlds, batch_sizes, st.booleans(), st.integers(1, 3))
def test_ranks_together_cover_every_epoch_once(num_rows, world_size, batch_size, across_epochs, epochs):
    order = Order(num_rows, seed=1)
    options = {"world_size": world_size, "epochs": epochs, "across_epochs": across_epochs}
    ranks = [Batches(order, batch_size, rank=rank, **options) for rank in range(world_size)]
    batches = [list(sampler) for sampler in ranks]
    assert [len(sampler) for sampler in ranks] == [len(rank_batches) for rank_batches in batches]
    draws = [draw for rank_batches in batches for batch in rank_batches for draw in batch]
    expected = [
        Draw(epoch, position, row) for epoch in range(epochs) for position, row in enumerate(order.rows(epoch).tolist())
    ]
    assert sorted(draws) == expected
    if across_epochs:
        assert all(len(batch) == batch_size for rank_batches in batches for batch in rank_batches[:-1])


@given(st.integers(1, 40), worlds, batch_sizes)
def test_batches_of_all_ranks_equal_the_larger_batches_of_a_single_rank(num_rows, world_size, batch_size):
    order = Order(num_rows)
    sampler = Batches(order, batch_size * world_size, epochs=None, across_epochs=True, num_batches=7)
    ranks = [
        Batches(order, batch_size, rank=rank, world_size=world_size, epochs=None, across_epochs=True, num_batches=7)
        for rank in range(world_size)
    ]
    for batch, *parts in zip(sampler, *ranks, strict=True):
        assert sorted(batch) == sorted(draw for part in parts for draw in part)


@given(sizes, worlds, batch_sizes)
def test_drop_last_gives_all_ranks_the_same_number_of_batches(num_rows, world_size, batch_size):
    ranks = [
        Batches(Order(num_rows), batch_size, rank=rank, world_size=world_size, drop_last=True)
        for rank in range(world_size)
    ]
    assert len({len(sampler) for sampler in ranks}) == 1
    assert all(len(batch) == batch_size for sampler in ranks for batch in sampler)


def test_batches_resume_from_a_state():
    complete = list(Batches(Order(23), 4, epochs=3, across_epochs=True))
    resumed = Batches(Order(23), 4, epochs=3, across_epochs=True)
    resumed.load_state_dict(Batches(Order(23), 4, epochs=3, across_epochs=True, start=5).state_dict())
    assert list(resumed) == complete[5:]
    assert list(resumed) == complete


@pytest.mark.parametrize("other", [Batches(Order(22), 4), Batches(Order(23, seed=1), 4), Batches(Order(23), 5)])
def test_state_of_different_batches_is_rejected(other):
    with pytest.raises(ConfigError, match="the state does not match these batches"):
        Batches(Order(23), 4).load_state_dict(other.state_dict())
