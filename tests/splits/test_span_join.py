"""The fast search for shared spans against a slow, obvious one."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.core.records import StoredText
from gristmill.dedup.signatures import NO_BANDS, end_to_end
from gristmill.pipeline.parts import FileKeys, Part, PartStore, ids_bytes, write_part
from gristmill.splits import span_join
from gristmill.splits.shared_spans import MIN_DISTINCT_IDS, SPAN_TOKENS, anchors_of
from gristmill.splits.span_join import Sides, compare
from support.made_spans import VOCAB_SIZE, made_texts


def grams(texts):
    return {tuple(ids[at : at + SPAN_TOKENS]) for ids in texts for at in range(len(ids) - SPAN_TOKENS + 1)}


def naive_ranges(ids, elsewhere):
    """Every 50-gram that is anywhere on the other side; those that overlap or touch are one range."""
    ranges = []
    for at in range(len(ids) - SPAN_TOKENS + 1):
        if tuple(ids[at : at + SPAN_TOKENS]) in elsewhere:
            if ranges and at <= ranges[-1][1]:
                ranges[-1][1] = at + SPAN_TOKENS
            else:
                ranges.append([at, at + SPAN_TOKENS])
    return [tuple(one) for one in ranges]


def naive_small_ranges(ids, large):
    """What counts: 8 distinct ids."""
    ranges = naive_ranges(ids, grams(large))
    return [(start, end) for start, end in ranges if len(set(ids[start:end])) >= MIN_DISTINCT_IDS]


def naive_large_ranges(ids, small, large):
    """Whatever counts in a small text goes."""
    counted = grams(text[start:end] for text in small for start, end in naive_small_ranges(text, large))
    return naive_ranges(ids, counted)


def store(folder, name, texts):
    stored = []
    blocks = []
    for number, ids in enumerate(texts):
        place = {"part": f"{name}.part", "part_offset": sum(map(len, blocks)), "part_row": number}
        stored.append(StoredText(repo=name, path=str(number), num_tokens=len(ids), **place))
        blocks.append(ids_bytes(np.array(ids, np.uint32), VOCAB_SIZE))
    anchors = anchors_of(*end_to_end([np.array(ids, np.uint16) for ids in texts]))
    write_part(folder / f"{name}.part", Part(blocks, NO_BANDS, anchors, (), (), (), (), FileKeys()))
    return stored


def found_by_compare(folder, small, large, cut, num_partition_bits=0):
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
def test_equals_the_slow_search(tmp_path_factory, seed, cut, num_partition_bits, run_tokens):
    small, large = made_texts(random.Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_join, "RUN_TOKENS", run_tokens)
        for name in ("TWIN_TOKENS_AT_ONCE", "COMPARED_AT_ONCE"):
            patch.setattr(span_join, name, run_tokens)
        found = found_by_compare(tmp_path_factory.mktemp("compare"), small, large, cut, num_partition_bits)
    ours, theirs = (small, large) if cut == "small" else (large, small)
    for number, ids in enumerate(ours):
        cuts = found.get(number, ())
        expected = naive_small_ranges(ids, large) if cut == "small" else naive_large_ranges(ids, small, large)
        assert [(one.start, one.end) for one in cuts] == expected
        for one in cuts:
            twin = theirs[int(one.shared_with.rpartition("/")[2])]
            span = ids[one.start : one.start + SPAN_TOKENS]
            assert any(twin[at : at + SPAN_TOKENS] == span for at in range(len(twin)))


def without(ids, cuts):
    edges = [0, *(edge for one in cuts for edge in (one.start, one.end)), len(ids)]
    return [ids[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**40), st.sampled_from(["small", "large"]))
def test_after_the_cut_nothing_that_counts_is_left(tmp_path_factory, seed, cut):
    sides = dict(zip(("small", "large"), made_texts(random.Random(seed)), strict=True))
    found = found_by_compare(tmp_path_factory.mktemp("compare"), sides["small"], sides["large"], cut)
    sides[cut] = [part for number, ids in enumerate(sides[cut]) for part in without(ids, found.get(number, ()))]
    assert not any(naive_small_ranges(ids, sides["large"]) for ids in sides["small"])


@pytest.mark.parametrize("shift", range(0, 60, 7))
def test_exactly_fifty_tokens_are_found_wherever_they_lie_and_forty_nine_are_not(tmp_path, shift):
    rng = random.Random(shift)
    span = [rng.randrange(VOCAB_SIZE) for _ in range(SPAN_TOKENS)]

    def held_out(piece):
        return [1] * shift + piece + [2] * 30

    def train(piece):
        return [3] * (90 - shift) + piece + [4] * 3

    found = found_by_compare(tmp_path, [held_out(span)], [train(span)], "small")
    assert [(one.start, one.end) for one in found[0]] == [(shift, shift + SPAN_TOKENS)]
    (tmp_path / "less").mkdir()
    assert not found_by_compare(tmp_path / "less", [held_out(span[:-1])], [train(span[:-1])], "small")


def test_a_rule_of_dashes_does_not_count(tmp_path):
    assert not found_by_compare(tmp_path, [[7, 8, 9] * 100], [[7, 8, 9] * 50], "small")


def test_a_header_that_every_file_has_costs_no_pairs(tmp_path, monkeypatch):
    """1,000 held-out and 2,000 train files with one header: as many matches as held-out tokens, not as pairs."""
    rng = random.Random(9)
    header = [rng.randrange(VOCAB_SIZE) for _ in range(80)]
    num_matches = 0
    write_matches = Sides.write_matches

    def counting(self, side, partition, matches):
        nonlocal num_matches
        all_matches = list(matches)
        num_matches += sum(map(len, all_matches))
        write_matches(self, side, partition, all_matches)

    monkeypatch.setattr(Sides, "write_matches", counting)
    small = [header + [rng.randrange(0, VOCAB_SIZE, 2) for _ in range(20)] for _ in range(1000)]
    large = [header + [rng.randrange(1, VOCAB_SIZE, 2) for _ in range(20)] for _ in range(2000)]
    found = found_by_compare(tmp_path, small, large, "small")
    assert {(one.start, one.end) for cuts in found.values() for one in cuts} == {(0, 80)}
    assert num_matches == 1000 * (80 - SPAN_TOKENS + 1)


def test_long_texts_are_done_in_parts_with_the_same_result(tmp_path, monkeypatch):
    from gristmill.splits import shared_spans

    rng = random.Random(1)
    small = [[rng.randrange(VOCAB_SIZE) for _ in range(900)]]
    large = [[7] * 33 + small[0][100:190] + [8] * 400 + small[0][300:700]]
    whole = found_by_compare(tmp_path, small, large, "small")
    monkeypatch.setattr(shared_spans, "PART_TOKENS", 64)
    shared_spans._powers.cache_clear()
    (tmp_path / "parts").mkdir()
    try:
        assert found_by_compare(tmp_path / "parts", small, large, "small") == whole
    finally:
        shared_spans._powers.cache_clear()
    assert [(one.start, one.end) for one in whole[0]] == [(100, 190), (300, 700)]


def test_keys_that_collide_cut_nothing_that_is_not_shared(tmp_path, monkeypatch):
    """With one key for all spans, only what is equal token by token is cut."""
    rng = random.Random(2)
    small = [[rng.randrange(VOCAB_SIZE) for _ in range(120)] for _ in range(3)]
    large = [small[0][10:35] + [rng.randrange(VOCAB_SIZE) for _ in range(100)], [*small[1]]]
    monkeypatch.setattr(span_join, "span_keys", lambda ids, starts: np.zeros(len(starts), np.uint64))
    for cuts in found_by_compare(tmp_path, small, large, "small").values():
        for one in cuts:
            assert small[1][one.start : one.end] == large[1][one.start : one.end]


@pytest.mark.parametrize("most_steps", [0, span_join.MOST_STEPS])
@given(st.lists(st.integers(0, 2**64 - 1)), st.lists(st.integers(0, 2**64 - 1)), st.integers(0, 8))
def test_a_directory_finds_the_keys_that_are_there(most_steps, keys, others, num_common_bits):
    """Also where too many keys begin alike to go from one to the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_join, "MOST_STEPS", most_steps)
        _check_directory(keys, others, num_common_bits)


def _check_directory(keys, others, num_common_bits):
    keys = np.array(sorted({key >> num_common_bits for key in keys}), np.uint64)
    wanted = np.array([*keys.tolist()[::2], *(key >> num_common_bits for key in others)], np.uint64)
    at, numbers = span_join.Directory.of(keys, num_common_bits).places_of(wanted)
    place_of = {key: place for place, key in enumerate(keys.tolist())}
    expected = [(place_of[key], number) for number, key in enumerate(wanted.tolist()) if key in place_of]
    assert list(zip(at.tolist(), numbers.tolist(), strict=True)) == expected


@given(st.lists(st.integers(0, 40).map(lambda number: number * 0x9E3779B97F4A7C15 % 2**64)))
def test_the_first_of_equal_keys_always_stays(keys):
    is_first = span_join._is_first(np.array(keys, np.uint64))
    assert all(is_first[keys.index(key)] for key in keys)
