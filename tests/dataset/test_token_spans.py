"""Tests that the windows of a text are joined into spans of consecutive ids."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gristmill.dataset.token_spans import TokenSpan, join_spans


@given(st.integers(1, 300), st.lists(st.tuples(st.integers(0, 280), st.integers(1, 60)), max_size=12), st.randoms())
def test_windows_in_any_order_are_joined_into_spans(size, ranges, rng):
    ids = np.arange(size, dtype=np.uint32)
    windows = [TokenSpan(start, ids[start : start + length]) for start, length in ranges if start < size]
    rng.shuffle(windows)
    spans = join_spans(windows)
    covered = sorted({position for window in windows for position in range(window.start, window.end)})
    assert [position for span in spans for position in range(span.start, span.end)] == covered
    assert all((part == ids[start : start + len(part)]).all() for start, part in spans)
    assert all(left.end < right.start for left, right in pairwise(spans))


def test_contradicting_windows_are_not_joined():
    assert join_spans([TokenSpan(0, np.array([1, 2, 3], np.uint32)), TokenSpan(2, np.array([9], np.uint32))]) is None
