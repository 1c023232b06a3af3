"""Tests of sampling by size and by weight. A new file changes few draws of other files."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.core.records import Draw
from gristmill.core.seeded_random import random_fraction
from gristmill.windows.cut import WindowShape, cut
from gristmill.windows.sampling import (
    FileToSample,
    WeightedGroup,
    apportion,
    draw_from_files,
    drawn_windows,
    group_epochs,
)

SHAPE = WindowShape(510, 256, "keep", 32)
SIZES = st.lists(st.integers(0, 400), min_size=1, max_size=30)


@given(SIZES, st.integers(0, 5000), st.integers(0, 9))
def test_shares_are_rounded_and_add_up_to_the_total(sizes, total, seed):
    counts = apportion(total, sizes, [random_fraction(seed, str(number)) for number in range(len(sizes))])
    num_all = sum(sizes)
    if total >= num_all:
        assert counts == sizes
        return
    assert sum(counts) == total
    for size, count in zip(sizes, counts, strict=True):
        assert total * size // num_all <= count <= -(-total * size // num_all)


def test_probability_of_rounding_up_is_the_fractional_part():
    totals = np.zeros(3)
    for seed in range(3000):
        totals += apportion(50, [10, 45, 245], [random_fraction(seed, name) for name in "abc"])
    assert np.allclose(totals / 3000, [50 / 30, 50 * 45 / 300, 50 * 245 / 300], atol=0.05)


def water_fill(groups, num_windows, max_epochs):
    """Return the epochs of each group: `level * weight`, but at most `max_epochs`. Slow, obvious reference.

    The level is found by bisection, so that all groups together have `num_windows` windows.
    """
    low, high = 0.0, 1e9
    for _ in range(300):
        level = (low + high) / 2
        total = sum(min(max_epochs, level * group.weight) * group.num_windows for group in groups)
        low, high = (low, level) if total >= num_windows else (level, high)
    return [min(max_epochs, high * group.weight) if group.num_windows else 0.0 for group in groups]


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 50.0]), st.integers(0, 500)), min_size=1, max_size=8),
    st.integers(1, 3000),
    st.sampled_from([1.0, 2.5, 4.0]),
)
def test_epochs_equal_water_filling_with_a_limit(pairs, num_windows, max_epochs):
    groups = [WeightedGroup(*pair) for pair in pairs]
    epochs = group_epochs(groups, num_windows, max_epochs)
    max_windows = sum(max_epochs * group.num_windows for group in groups if group.weight)
    drawn = sum(one * group.num_windows for one, group in zip(epochs, groups, strict=True))
    assert drawn == pytest.approx(min(num_windows, max_windows))
    assert max(epochs) <= max_epochs
    assert [one for one, group in zip(epochs, groups, strict=True) if not group.weight] == [0] * sum(
        not group.weight for group in groups
    )
    if num_windows < max_windows:
        assert epochs == pytest.approx(water_fill(groups, num_windows, max_epochs), abs=1e-6)


@given(st.integers(1, 20_000), st.integers(0, 3), st.integers(0, 40), st.integers(0, 3))
def test_draw_repeats_every_window_and_some_once_more(num_tokens, passes, extra, seed):
    windows = cut(num_tokens, SHAPE)
    extra = min(extra, len(windows))
    drawn, repeats = drawn_windows(windows, Draw(passes, extra, seed), ("repo", "a.py"))
    assert len(drawn) == passes * len(windows) + extra
    for repeat in range(passes):
        assert drawn.starts[repeats == repeat].tolist() == windows.starts.tolist()
    last = drawn.starts[repeats == passes].tolist()
    assert len(last) == extra
    assert last == sorted(set(last))
    assert set(last) <= set(windows.starts.tolist())
    seen = np.zeros(num_tokens, bool)
    for start, end, fresh in zip(drawn.starts, drawn.ends, drawn.fresh, strict=True):
        assert fresh == np.count_nonzero(~seen[start:end])
        seen[start:end] = True


def files(*sizes):
    return [FileToSample(("repo", f"{number}.py"), f"group {number // 2}", size) for number, size in enumerate(sizes)]


@given(SIZES, st.integers(0, 2000), st.integers(0, 5))
def test_groups_and_files_get_their_share_of_a_sample(sizes, num_windows, seed):
    members = files(*sizes)
    draws = draw_from_files(members, num_windows, seed)
    num_all = sum(sizes)
    counts = [one.passes * size + one.extra for one, size in zip(draws, sizes, strict=True)]
    assert sum(counts) == (num_windows if num_all else 0)
    for group in {file.group for file in members}:
        in_group = [number for number, file in enumerate(members) if file.group == group]
        exact = num_windows * sum(sizes[number] for number in in_group) / max(num_all, 1)
        assert abs(sum(counts[number] for number in in_group) - exact) < 1 + 1e-9


def test_different_seed_draws_different_windows_and_a_new_file_changes_few():
    before = files(*[30] * 200)
    first, other = (draw_from_files(before, 1000, seed) for seed in (0, 1))
    windows = cut(254 * 30, SHAPE)
    drawn = [
        drawn_windows(windows, one, file.key).windows.starts.tolist() for one, file in zip(first, before, strict=True)
    ]
    again = [
        drawn_windows(windows, one, file.key).windows.starts.tolist() for one, file in zip(other, before, strict=True)
    ]
    assert drawn != again
    after = [*before, FileToSample(("repo", "new.py"), "new", 30)]
    same = sum(a == b for a, b in zip(first, draw_from_files(after, 1005, 0), strict=False))
    assert same >= 190
