import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.config import WindowConfig
from gristmill.errors import ConfigError
from gristmill.shaping.windows import WindowShape, cut, lines_of

SHAPES = st.integers(1, 60).flatmap(
    lambda content: st.builds(
        WindowShape,
        st.just(content),
        st.integers(0, content - 1),
        st.sampled_from(["keep", "shift", "drop"]),
        st.integers(1, 40),
    )
)


def naive(num_tokens, shape):
    """Slow and obvious: start at 0, step by the stride until the end is shown."""
    starts = [0]
    while starts[-1] + shape.num_content < num_tokens:
        starts.append(starts[-1] + shape.num_content - shape.overlap)
    return [(start, min(start + shape.num_content, num_tokens)) for start in starts]


@given(st.integers(1, 500), SHAPES)
def test_kept_tails_are_the_naive_windows(num_tokens, shape):
    windows = cut(num_tokens, shape._replace(tail="keep"))
    assert list(zip(windows.starts.tolist(), windows.ends.tolist(), strict=True)) == naive(num_tokens, shape)


@given(st.integers(1, 500), SHAPES)
def test_every_token_is_shown_but_for_a_counted_tail(num_tokens, shape):
    windows = cut(num_tokens, shape)
    shown = np.zeros(num_tokens, bool)
    for start, end, fresh in zip(windows.starts, windows.ends, windows.fresh, strict=True):
        assert 0 < end - start <= shape.num_content
        assert np.count_nonzero(~shown[start:end]) == fresh
        shown[start:end] = True
    assert np.count_nonzero(~shown) == windows.num_tail_tokens_dropped
    assert windows.fresh.sum() + windows.num_tail_tokens_dropped == num_tokens


@given(st.integers(1, 500), SHAPES)
def test_neighbours_share_exactly_the_overlap(num_tokens, shape):
    windows = cut(num_tokens, shape)
    shared = (windows.ends[:-1] - windows.starts[1:]).tolist()
    if shape.tail == "shift" and len(shared):
        assert shared[-1] >= shape.overlap
        shared = shared[:-1]
    assert set(shared) <= {shape.overlap}


@given(st.integers(1, 500), SHAPES)
def test_tails(num_tokens, shape):
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
def test_the_count_is_the_documented_formula(overlap):
    shape = WindowShape.of(WindowConfig(overlap=overlap), 2)
    for num_tokens in range(1, 3000, 7):
        stride = 510 - overlap
        assert len(cut(num_tokens, shape)) == max(1, -(-(num_tokens - overlap) // stride))


def test_an_overlap_that_leaves_no_step_is_refused():
    with pytest.raises(ConfigError, match=r"smaller than window.length - 2 \(510\), got 512. Try --overlap 255"):
        WindowShape.of(WindowConfig(overlap=512), 2)
    with pytest.raises(ConfigError, match="larger than the 2 special tokens"):
        WindowShape.of(WindowConfig(length=2, overlap=0), 2)
    assert WindowShape.of(WindowConfig(length=512, overlap=509), 2).num_content == 510


@given(st.integers(1, 200), SHAPES, st.lists(st.integers(0, 199)))
def test_lines_are_those_of_the_first_and_last_token(num_tokens, shape, newlines):
    newline_tokens = np.array(sorted(index for index in newlines if index < num_tokens), np.int32)
    windows = cut(num_tokens, shape)
    line_of = [1 + sum(newline < token for newline in newline_tokens.tolist()) for token in range(num_tokens)]
    first, last = lines_of(windows, newline_tokens)
    assert first.tolist() == [line_of[start] for start in windows.starts]
    assert last.tolist() == [line_of[end - 1] for end in windows.ends]
