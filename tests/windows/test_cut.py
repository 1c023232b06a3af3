import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.config.settings import WindowConfig
from gristmill.core.errors import ConfigError
from gristmill.windows.cut import WindowShape, cut, cut_outside, drop_touched_windows, lines_between

SHAPES = st.integers(1, 60).flatmap(
    lambda content: st.builds(
        WindowShape,
        st.just(content),
        st.integers(0, content - 1),
        st.sampled_from(["keep", "shift", "drop"]),
        st.integers(1, 40),
    )
)


def naive_windows(num_tokens, shape):
    """Return windows from 0 to the end, one stride apart. Slow, obvious reference."""
    starts = [0]
    while starts[-1] + shape.num_content < num_tokens:
        starts.append(starts[-1] + shape.num_content - shape.overlap)
    return [(start, min(start + shape.num_content, num_tokens)) for start in starts]


@given(st.integers(1, 500), SHAPES)
def test_windows_with_kept_tails_equal_the_reference(num_tokens, shape):
    windows = cut(num_tokens, shape._replace(tail="keep"))
    assert list(zip(windows.starts.tolist(), windows.ends.tolist(), strict=True)) == naive_windows(num_tokens, shape)


@given(st.integers(1, 500), SHAPES)
def test_every_token_is_in_a_window_or_in_the_counted_tail(num_tokens, shape):
    windows = cut(num_tokens, shape)
    covered = np.zeros(num_tokens, bool)
    for start, end, fresh in zip(windows.starts, windows.ends, windows.fresh, strict=True):
        assert 0 < end - start <= shape.num_content
        assert np.count_nonzero(~covered[start:end]) == fresh
        covered[start:end] = True
    assert np.count_nonzero(~covered) == windows.num_tail_tokens_dropped
    assert windows.fresh.sum() + windows.num_tail_tokens_dropped == num_tokens


@given(st.integers(1, 500), SHAPES)
def test_consecutive_windows_share_exactly_the_overlap(num_tokens, shape):
    windows = cut(num_tokens, shape)
    shared = (windows.ends[:-1] - windows.starts[1:]).tolist()
    if shape.tail == "shift" and len(shared):
        assert shared[-1] >= shape.overlap
        shared = shared[:-1]
    assert set(shared) <= {shape.overlap}


@given(st.integers(1, 500), SHAPES)
def test_last_window_follows_the_tail_setting(num_tokens, shape):
    windows = cut(num_tokens, shape)
    full = (windows.ends - windows.starts) == shape.num_content
    assert full[:-1].all()
    if shape.tail == "shift" and num_tokens >= shape.num_content:
        assert full.all()
    if shape.tail == "drop" and len(windows) > 1:
        assert windows.fresh[-1] >= min(shape.min_fresh, shape.num_content - shape.overlap)
    if shape.tail != "drop":
        assert windows.num_tail_tokens_dropped == 0


@pytest.mark.parametrize("overlap", [0, 128, 256, 384])
def test_number_of_windows_follows_the_documented_formula(overlap):
    shape = WindowShape.of(WindowConfig(overlap=overlap), 2)
    for num_tokens in range(1, 3000, 7):
        stride = 510 - overlap
        assert len(cut(num_tokens, shape)) == max(1, -(-(num_tokens - overlap) // stride))


def test_overlap_or_special_tokens_without_room_for_content_are_refused():
    with pytest.raises(ConfigError, match=r"smaller than window.length - 2 \(510\), got 512. Try --overlap 255"):
        WindowShape.of(WindowConfig(overlap=512), 2)
    with pytest.raises(ConfigError, match=r"larger than the number of special tokens in each window \(2\)"):
        WindowShape.of(WindowConfig(length=2, overlap=0), 2)
    assert WindowShape.of(WindowConfig(length=512, overlap=509), 2).num_content == 510


@given(st.integers(1, 200), SHAPES, st.lists(st.integers(0, 199)))
def test_lines_range_from_the_first_to_the_last_token(num_tokens, shape, newlines):
    newline_tokens = np.array(sorted(index for index in newlines if index < num_tokens), np.int32)
    windows = cut(num_tokens, shape)
    line_of = [1 + sum(newline < token for newline in newline_tokens.tolist()) for token in range(num_tokens)]
    first, last = lines_between(windows.starts, windows.ends, newline_tokens)
    assert first.tolist() == [line_of[start] for start in windows.starts]
    assert last.tolist() == [line_of[end - 1] for end in windows.ends]


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 400), st.integers(0, 20), st.sampled_from(["keep", "shift", "drop"]))
def test_windows_cover_only_tokens_outside_the_cut_ranges(data, num_tokens, overlap, tail):
    shape = WindowShape(num_content=40, overlap=overlap, tail=tail, min_fresh=5)
    edges = sorted(data.draw(st.sets(st.integers(0, num_tokens), max_size=8)))
    ranges = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=False)] or [(0, num_tokens)]
    windows = cut_outside(num_tokens, ranges, shape)
    cut_tokens = {token for start, end in ranges for token in range(start, end)}
    covered, fresh = set(), 0
    for start, end, num_fresh in zip(windows.starts, windows.ends, windows.fresh, strict=True):
        tokens = set(range(start, end))
        assert 0 < len(tokens) <= 40
        assert not tokens & cut_tokens
        assert num_fresh == len(tokens - covered)
        covered |= tokens
        fresh += num_fresh
    clean = {token for token in range(num_tokens) if token not in cut_tokens}
    runs = [run for run in _runs(sorted(clean)) if len(run) >= 32]
    assert len(covered) == fresh == sum(map(len, runs)) - windows.num_tail_tokens_dropped
    assert tail == "drop" or windows.num_tail_tokens_dropped == 0


def _runs(numbers):
    run = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 400), st.integers(0, 39))
def test_windows_that_overlap_a_range_are_dropped_and_fresh_is_recounted(data, num_tokens, overlap):
    all_windows = cut(num_tokens, WindowShape(num_content=40, overlap=overlap, tail="keep", min_fresh=5))
    start = data.draw(st.integers(0, num_tokens - 1))
    end = data.draw(st.integers(start + 1, num_tokens))
    left = drop_touched_windows(all_windows, [(start, end)])
    expected = [
        (first, last)
        for first, last in zip(all_windows.starts.tolist(), all_windows.ends.tolist(), strict=True)
        if last <= start or first >= end
    ]
    assert list(zip(left.starts.tolist(), left.ends.tolist(), strict=True)) == expected
    covered = set()
    for first, last, num_fresh in zip(left.starts, left.ends, left.fresh, strict=True):
        assert num_fresh == len(set(range(first, last)) - covered)
        covered |= set(range(first, last))
