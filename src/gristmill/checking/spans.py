"""How much of the held-out tokens is in train too: spans of 50 tokens and more (L50), and 13-grams.

Every gram of both sides gets a 64-bit key, made by doubling: the key of 2 tokens out of two of 1, of 4 out of two of 2 …,
and 50 = 32 + 16 + 2. The held-out keys lie sorted, found through a table by their leading bits; train streams past them
in batches. A 50-gram counts only once its real ids have been compared: a collision of keys never fails a dataset.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

SPAN_TOKENS = 50
GRAM_TOKENS = 13
MIN_DISTINCT_IDS = 8
HELD_OUT_AT_ONCE = 1 << 24
BATCH_TOKENS = 1 << 15
"""Arrays of a quarter megabyte stay in a core's cache."""
# Between two stretches stands what is no id, and not the same on both sides: no gram across it is ever found.
HELD_OUT_MARK = np.array([1 << 32], np.uint64)
TRAIN_MARK = np.array([2 << 32], np.uint64)

Ids = npt.NDArray[Any]
Keys = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Shared(NamedTuple):
    """Of one held-out stretch, what train has too."""

    num_span_tokens: int
    num_grams: int
    num_grams_found: int


def shared_with_train(held_out: Sequence[Ids], train: Sequence[Ids], num_threads: int = 1) -> list[Shared]:
    """One answer per stretch."""
    return [
        shared
        for part in _batches(held_out, HELD_OUT_AT_ONCE)
        for shared in _measure(part, train, num_threads)
    ]


def _measure(held_out: Sequence[Ids], train: Sequence[Ids], num_threads: int) -> Iterator[Shared]:
    joined = _joined(held_out, HELD_OUT_MARK)
    keys = keys_of(joined)
    spans, grams = KeyTable.of(keys.spans), KeyTable.of(keys.grams)
    is_span, is_gram = np.zeros(len(spans.keys), np.bool_), np.zeros(len(grams.keys), np.bool_)
    one_place = np.zeros(len(spans.keys), np.int64)
    one_place[spans.numbers_of(keys.spans)] = np.arange(len(keys.spans))

    def look_up(batch: Sequence[Ids]) -> None:
        train_ids = _joined(batch, TRAIN_MARK)
        train_keys = keys_of(train_ids)
        _, found = grams.find(train_keys.grams)
        is_gram[found] = True
        places, found = spans.find(train_keys.spans)
        is_new = ~is_span[found]
        places, found = places[is_new], found[is_new]
        is_span[found[_are_equal(train_ids, places, joined, one_place[found])]] = True

    with ThreadPoolExecutor(num_threads) as threads:
        for _ in threads.map(look_up, _batches(train, BATCH_TOKENS)):
            pass
    is_shared = _confirmed(joined, keys.spans, spans, is_span, one_place)
    is_gram_found = is_gram[grams.numbers_of(keys.grams)] if len(keys.grams) else np.zeros(0, np.bool_)
    at = 0
    for ids in held_out:
        num_grams = max(0, len(ids) - GRAM_TOKENS + 1)
        num_found = int(np.count_nonzero(is_gram_found[at : at + num_grams]))
        starts = np.flatnonzero(is_shared[at : at + max(0, len(ids) - SPAN_TOKENS + 1)])
        yield Shared(num_span_tokens(ids, starts), num_grams, num_found)
        at += len(ids) + 1


def num_span_tokens(ids: Ids, starts: Positions) -> int:
    """Tokens under the 50-grams that begin here; a run of neighbouring starts over fewer than 8 distinct ids is none."""
    if not len(starts):
        return 0
    is_apart = np.diff(starts) > 1
    first = starts[np.concatenate(([True], is_apart))].tolist()
    last = starts[np.concatenate((is_apart, [True]))].tolist()
    covered = 0
    done = 0
    for start, end in zip(first, (place + SPAN_TOKENS for place in last), strict=True):
        if len(set(ids[start:end].tolist())) >= MIN_DISTINCT_IDS:
            covered += end - max(start, done)
            done = end
    return covered


class GramKeys(NamedTuple):
    spans: Keys
    grams: Keys


def keys_of(ids: Keys) -> GramKeys:
    """A key for each 50-gram and each 13-gram."""
    weights = iter(_weights())
    one = ids * next(weights)
    one ^= one >> np.uint64(32)
    one *= next(weights)
    two = _pairs(one, one, 1, next(weights))
    four = _pairs(two, two, 2, next(weights))
    eight = _pairs(four, four, 4, next(weights))
    sixteen = _pairs(eight, eight, 8, next(weights))
    thirty_two = _pairs(sixteen, sixteen, 16, next(weights))
    grams = _pairs(_pairs(eight, four, 8, next(weights)), one, 12, next(weights))
    spans = _pairs(_pairs(thirty_two, sixteen, 32, next(weights)), two, 48, next(weights))
    return GramKeys(spans, grams)


def _pairs(left: Keys, right: Keys, distance: int, weight: np.uint64) -> Keys:
    """left[i] and right[i + distance] in one number."""
    num_pairs = max(0, len(right) - distance)
    pairs = left[:num_pairs] * weight
    pairs += right[distance : distance + num_pairs]
    return pairs


@cache
def _weights() -> list[np.uint64]:
    return list(np.random.default_rng(50).integers(0, 1 << 64, 12, np.uint64) | np.uint64(1))


class KeyTable(NamedTuple):
    keys: Keys
    """Sorted, distinct."""
    first: npt.NDArray[np.int64]
    """By a key's leading bits, the number of the first key that has them; one entry more at the end."""
    shift: np.uint64

    @classmethod
    def of(cls, keys: Keys) -> "KeyTable":
        keys = np.sort(keys)
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))] if len(keys) else keys
        num_bits = max(8, (2 * len(keys)).bit_length())
        shift = np.uint64(64 - num_bits)
        first = np.zeros((1 << num_bits) + 1, np.int32)
        np.cumsum(np.bincount((keys >> shift).astype(np.int64), minlength=1 << num_bits), out=first[1:])
        return cls(keys, first, shift)

    def find(self, keys: Keys) -> tuple[Positions, Positions]:
        """Which of these keys are in the table, and their numbers there."""
        slots = (keys >> self.shift).view(np.int64)
        numbers, stops = self.first[slots], self.first[slots + 1]
        places = np.flatnonzero(numbers < stops)
        numbers, stops = numbers[places].astype(np.int64), stops[places]
        found: list[tuple[Positions, Positions]] = [(places[:0], numbers[:0])]
        while len(places):
            is_equal = self.keys[numbers] == keys[places]
            found.append((places[is_equal], numbers[is_equal]))
            numbers += 1
            goes_on = ~is_equal & (numbers < stops)
            places, numbers, stops = places[goes_on], numbers[goes_on], stops[goes_on]
        return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])

    def numbers_of(self, keys: Keys) -> Positions:
        """For keys that are all in the table."""
        numbers = np.zeros(len(keys), np.int64)
        places, found = self.find(keys)
        numbers[places] = found
        return numbers


def _confirmed(joined: Keys, keys: Keys, table: KeyTable, is_span: Flags, one_place: Positions) -> Flags:
    """Where a shared 50-gram begins: its key is one that was found, and its ids are those that were compared."""
    is_shared = np.zeros(len(keys), np.bool_)
    if is_span.any():
        numbers = table.numbers_of(keys)
        for places in np.array_split(np.flatnonzero(is_span[numbers]), 1 + len(keys) // BATCH_TOKENS):
            is_shared[places] = _are_equal(joined, places, joined, one_place[numbers[places]])
    return is_shared


def _are_equal(left: Keys, left_places: Positions, right: Keys, right_places: Positions) -> Flags:
    """Whether the 50 ids from here are the 50 ids from there."""
    equal = np.ones(len(left_places), np.bool_)
    for offset in range(SPAN_TOKENS):
        equal &= left[left_places + offset] == right[right_places + offset]
    return equal


def _joined(stretches: Sequence[Ids], mark: Keys) -> Keys:
    parts: list[npt.NDArray[Any]] = []
    for ids in stretches:
        parts += [ids, mark]
    return np.concatenate(parts, dtype=np.uint64) if parts else np.zeros(0, np.uint64)


def _batches(stretches: Iterable[Ids], num_tokens: int) -> Iterator[list[Ids]]:
    gathered, size = list[Ids](), 0
    for ids in stretches:
        gathered.append(ids)
        size += len(ids)
        if size >= num_tokens:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered
