"""The search for shared spans finds the same spans as a slow, obvious reference."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.core.records import StoredText
from gristmill.dedup.signatures import NO_BANDS, concatenate_ids
from gristmill.pipeline.parts import FileKeys, Part, PartStore, ids_bytes, write_part
from gristmill.splits import span_join
from gristmill.splits.shared_spans import MIN_DISTINCT_IDS, SPAN_TOKENS, find_anchors
from gristmill.splits.span_join import Sides, compare
from support.made_spans import VOCAB_SIZE, made_texts


def grams(texts):
    return {tuple(ids[at : at + SPAN_TOKENS]) for ids in texts for at in range(len(ids) - SPAN_TOKENS + 1)}


def naive_ranges(ids, other_grams):
    """Find every 50-gram that is in `other_grams`, and merge ranges that overlap or touch."""
    ranges = []
    for at in range(len(ids) - SPAN_TOKENS + 1):
        if tuple(ids[at : at + SPAN_TOKENS]) in other_grams:
            if ranges and at <= ranges[-1][1]:
                ranges[-1][1] = at + SPAN_TOKENS
            else:
                ranges.append([at, at + SPAN_TOKENS])
    return [tuple(one) for one in ranges]


def naive_small_ranges(ids, large):
    """Return the ranges of a small text whose 50-grams are in the large texts and that have 8 or more distinct ids."""
    ranges = naive_ranges(ids, grams(large))
    return [(start, end) for start, end in ranges if len(set(ids[start:end])) >= MIN_DISTINCT_IDS]


def naive_large_ranges(ids, small, large):
    """Return the ranges of a large text whose 50-grams are in the ranges from naive_small_ranges()."""
    grams_to_cut = grams(text[start:end] for text in small for start, end in naive_small_ranges(text, large))
    return naive_ranges(ids, grams_to_cut)


def store(folder, name, texts):
    stored = []
    blocks = []
    for number, ids in enumerate(texts):
        location = {"part": f"{name}.part", "part_offset": sum(map(len, blocks)), "part_row": number}
        stored.append(StoredText(repo=name, path=str(number), num_tokens=len(ids), **location))
        blocks.append(ids_bytes(np.array(ids, np.uint32), VOCAB_SIZE))
    anchors = find_anchors(*concatenate_ids([np.array(ids, np.uint16) for ids in texts]))
    write_part(folder / f"{name}.part", Part(blocks, NO_BANDS, anchors, (), (), (), (), FileKeys()))
    return stored


def compare_texts(folder, small, large, cut, num_partition_bits=0):
    sides = Sides(
        folder=folder / "work",
        store=PartStore(folder, VOCAB_SIZE),
        parts=("small.part", "large.part"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_join, "num_partition_bits", lambda _: num_partition_bits)
        found = compare(store(folder, "small", small), store(folder, "large", large), sides, map, cut=cut)
        return {number: shared.cuts for number, shared in found.items() if shared.cuts}


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**40), st.sampled_from(["small", "large"]), st.sampled_from([0, 1, 4]), st.sampled_from([60, 10**6])
)
def test_result_equals_the_slow_search(tmp_path_factory, seed, cut, num_partition_bits, run_tokens):
    small, large = made_texts(random.Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_join, "RUN_TOKENS", run_tokens)
        for name in ("TOKENS_PER_BATCH", "SPANS_PER_BATCH"):
            patch.setattr(span_join, name, run_tokens)
        found = compare_texts(tmp_path_factory.mktemp("compare"), small, large, cut, num_partition_bits)
    cut_side, other_side = (small, large) if cut == "small" else (large, small)
    for number, ids in enumerate(cut_side):
        cuts = found.get(number, ())
        expected = naive_small_ranges(ids, large) if cut == "small" else naive_large_ranges(ids, small, large)
        assert [(one.start, one.end) for one in cuts] == expected
        for one in cuts:
            other = other_side[int(one.shared_with.rpartition("/")[2])]
            span = ids[one.start : one.start + SPAN_TOKENS]
            assert any(other[at : at + SPAN_TOKENS] == span for at in range(len(other)))


def remove_cuts(ids, cuts):
    edges = [0, *(edge for one in cuts for edge in (one.start, one.end)), len(ids)]
    return [ids[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**40), st.sampled_from(["small", "large"]))
def test_cutting_removes_every_shared_span_with_enough_distinct_ids(tmp_path_factory, seed, cut):
    sides = dict(zip(("small", "large"), made_texts(random.Random(seed)), strict=True))
    found = compare_texts(tmp_path_factory.mktemp("compare"), sides["small"], sides["large"], cut)
    sides[cut] = [part for number, ids in enumerate(sides[cut]) for part in remove_cuts(ids, found.get(number, ()))]
    assert not any(naive_small_ranges(ids, sides["large"]) for ids in sides["small"])


@pytest.mark.parametrize("shift", range(0, 60, 7))
def test_fifty_shared_tokens_are_found_at_any_position_and_forty_nine_are_not(tmp_path, shift):
    rng = random.Random(shift)
    span = [rng.randrange(VOCAB_SIZE) for _ in range(SPAN_TOKENS)]

    def held_out(piece):
        return [1] * shift + piece + [2] * 30

    def train(piece):
        return [3] * (90 - shift) + piece + [4] * 3

    found = compare_texts(tmp_path, [held_out(span)], [train(span)], "small")
    assert [(one.start, one.end) for one in found[0]] == [(shift, shift + SPAN_TOKENS)]
    (tmp_path / "less").mkdir()
    assert not compare_texts(tmp_path / "less", [held_out(span[:-1])], [train(span[:-1])], "small")


def test_span_with_few_distinct_ids_is_not_cut(tmp_path):
    assert not compare_texts(tmp_path, [[7, 8, 9] * 100], [[7, 8, 9] * 50], "small")


def test_common_header_causes_no_quadratic_number_of_matches(tmp_path, monkeypatch):
    """1,000 held-out and 2,000 train files share a header. Each held-out 50-gram matches only once."""
    rng = random.Random(9)
    header = [rng.randrange(VOCAB_SIZE) for _ in range(80)]
    num_matches = 0
    write_matches = Sides.write_matches

    def count_matches(self, side, partition, matches):
        nonlocal num_matches
        all_matches = list(matches)
        num_matches += sum(map(len, all_matches))
        write_matches(self, side, partition, all_matches)

    monkeypatch.setattr(Sides, "write_matches", count_matches)
    small = [header + [rng.randrange(0, VOCAB_SIZE, 2) for _ in range(20)] for _ in range(1000)]
    large = [header + [rng.randrange(1, VOCAB_SIZE, 2) for _ in range(20)] for _ in range(2000)]
    found = compare_texts(tmp_path, small, large, "small")
    assert {(one.start, one.end) for cuts in found.values() for one in cuts} == {(0, 80)}
    assert num_matches == 1000 * (80 - SPAN_TOKENS + 1)


def test_long_texts_split_into_parts_give_the_same_result(tmp_path, monkeypatch):
    from gristmill.splits import shared_spans

    rng = random.Random(1)
    small = [[rng.randrange(VOCAB_SIZE) for _ in range(900)]]
    large = [[7] * 33 + small[0][100:190] + [8] * 400 + small[0][300:700]]
    unsplit = compare_texts(tmp_path, small, large, "small")
    monkeypatch.setattr(shared_spans, "PART_TOKENS", 64)
    shared_spans._powers.cache_clear()
    (tmp_path / "parts").mkdir()
    try:
        assert compare_texts(tmp_path / "parts", small, large, "small") == unsplit
    finally:
        shared_spans._powers.cache_clear()
    assert [(one.start, one.end) for one in unsplit[0]] == [(100, 190), (300, 700)]


def test_only_equal_spans_are_cut_if_keys_collide(tmp_path, monkeypatch):
    """With one key for all spans, only spans that are equal token by token are cut."""
    rng = random.Random(2)
    small = [[rng.randrange(VOCAB_SIZE) for _ in range(120)] for _ in range(3)]
    large = [small[0][10:35] + [rng.randrange(VOCAB_SIZE) for _ in range(100)], [*small[1]]]
    monkeypatch.setattr(span_join, "span_keys", lambda ids, starts: np.zeros(len(starts), np.uint64))
    for cuts in compare_texts(tmp_path, small, large, "small").values():
        for one in cuts:
            assert small[1][one.start : one.end] == large[1][one.start : one.end]


@pytest.mark.parametrize("max_steps", [0, span_join.MAX_STEPS])
@given(st.lists(st.integers(0, 2**64 - 1)), st.lists(st.integers(0, 2**64 - 1)), st.integers(0, 8))
def test_key_index_finds_the_existing_keys(max_steps, keys, others, num_common_bits):
    """With max_steps 0, every search is binary. Otherwise, only many keys with equal leading bits cause a binary search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_join, "MAX_STEPS", max_steps)
        check_key_index(keys, others, num_common_bits)


def check_key_index(keys, others, num_common_bits):
    keys = np.array(sorted({key >> num_common_bits for key in keys}), np.uint64)
    wanted = np.array([*keys.tolist()[::2], *(key >> num_common_bits for key in others)], np.uint64)
    at, numbers = span_join.KeyIndex.of(keys, num_common_bits).find(wanted)
    position_by_key = {key: position for position, key in enumerate(keys.tolist())}
    expected = [(position_by_key[key], number) for number, key in enumerate(wanted.tolist()) if key in position_by_key]
    assert list(zip(at.tolist(), numbers.tolist(), strict=True)) == expected


@given(st.lists(st.integers(0, 40).map(lambda number: number * 0x9E3779B97F4A7C15 % 2**64)))
def test_first_of_equal_keys_is_always_marked(keys):
    is_first = span_join._is_first(np.array(keys, np.uint64))
    assert all(is_first[keys.index(key)] for key in keys)
