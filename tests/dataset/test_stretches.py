"""Windows of a text, joined again."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gristmill.dataset.stretches import Stretch, join


@given(st.integers(1, 300), st.lists(st.tuples(st.integers(0, 280), st.integers(1, 60)), max_size=12), st.randoms())
def test_windows_in_any_order_make_the_text_again(size, places, chance):
    ids = np.arange(size, dtype=np.uint32)
    windows = [Stretch(start, ids[start : start + length]) for start, length in places if start < size]
    chance.shuffle(windows)
    stretches = join(windows)
    shown = sorted({place for window in windows for place in range(window.start, window.end)})
    assert [one for stretch in stretches for one in range(stretch.start, stretch.end)] == shown
    assert all((part == ids[start : start + len(part)]).all() for start, part in stretches)
    assert all(left.end < right.start for left, right in pairwise(stretches))


def test_windows_that_contradict_are_of_another_text():
    assert join([Stretch(0, np.array([1, 2, 3], np.uint32)), Stretch(2, np.array([9], np.uint32))]) is None
