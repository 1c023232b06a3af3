"""How much of the held-out tokens is in train too: spans of 50 tokens and more (L50), and 13-grams.

Every gram of both sides gets a 64-bit key, made by doubling: the key of 2 tokens out of two of 1, of 4 out of two of 2
…, and 50 = 32 + 16 + 2. Keys cost little (5 ns a token) and are made again wherever they are needed. Those of the
held-out side lie in a table; train streams past them in batches. A 50-gram counts only once its ids have been compared
with those at the place in train: a collision of keys never fails a dataset.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.checks.findings import FILES_SHOWN, Faults, Verdict
from gristmill.checks.runs import Run
from gristmill.checks.windows_by_file import Rows
from gristmill.core.records import Split

SPAN_TOKENS = 50
GRAM_TOKENS = 13
MIN_DISTINCT_IDS = 8
HELD_OUT_AT_ONCE = 1 << 24
BATCH_TOKENS = 1 << 15
"""Arrays of a quarter megabyte stay in a core's cache."""
PLACE_BITS = 32
MORE_BITS = 3
"""In the table of tags, which has 8 to 16 entries a key."""
NO_KEY, SEVERAL_KEYS, TAG_BITS = 255, 254, 0x7F
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
    train_batches = list(_batches(train, BATCH_TOKENS))
    with ThreadPoolExecutor(num_threads) as threads:  # NumPy lets go of the GIL
        parts = (_Comparison(part, train_batches, threads).run() for part in _batches(held_out, HELD_OUT_AT_ONCE))
        return list(chain.from_iterable(parts))


class _Comparison:
    """Some of the held-out side against all of train."""

    def __init__(self, held_out: Sequence[Ids], train: list[list[Ids]], threads: ThreadPoolExecutor) -> None:
        self._held_out, self._train, self._threads = list(_batches(held_out, BATCH_TOKENS)), train, threads
        keys = list(threads.map(lambda batch: keys_of(_joined(batch, HELD_OUT_MARK)), self._held_out))
        all_keys = [np.concatenate([one.spans for one in keys]), np.concatenate([one.grams for one in keys])]
        self._spans, self._grams = threads.map(KeyTable.of, all_keys)
        self._is_gram_found = np.zeros(len(self._grams.keys), np.bool_)
        # Batch and place in one number.
        self._train_place = np.full(len(self._spans.keys), -1, np.int64)

    def run(self) -> Iterator[Shared]:
        # Threads only find; one writes, in the order of the batches, so that every run notes the same places.
        for numbers, places in self._threads.map(self._look_up, range(len(self._train))):
            self._train_place[numbers] = places
        numbers = np.flatnonzero(self._train_place >= 0)
        candidates = Candidates(KeyTable.of(self._spans.keys[numbers]), numbers)
        grams = KeyTable.of(self._grams.keys[self._is_gram_found])
        return chain.from_iterable(
            self._threads.map(lambda batch: self._count(batch, candidates, grams), self._held_out)
        )

    def _look_up(self, batch: int) -> tuple[Positions, Positions]:
        """Which held-out 50-grams are in this batch of train, and where; its 13-grams are marked, in any order."""
        keys = keys_of(_joined(self._train[batch], TRAIN_MARK))
        self._is_gram_found[self._grams.find(keys.grams)[1]] = True
        places, numbers = self._spans.find(keys.spans)
        return numbers, (batch << PLACE_BITS) + places

    def _count(self, batch: Sequence[Ids], candidates: "Candidates", grams: "KeyTable") -> list[Shared]:
        joined = _joined(batch, HELD_OUT_MARK)
        keys = keys_of(joined)
        is_gram, is_span = np.zeros(len(joined), np.bool_), np.zeros(len(joined), np.bool_)
        is_gram[grams.find(keys.grams)[0]] = True
        places, found = candidates.table.find(keys.spans)
        is_span[self._confirmed(joined, places, candidates.numbers[found])] = True
        shared: list[Shared] = []
        at = 0
        for ids in batch:
            here = slice(at, at + len(ids))
            num_found, starts = int(np.count_nonzero(is_gram[here])), np.flatnonzero(is_span[here])
            shared.append(Shared(num_span_tokens(ids, starts), max(0, len(ids) - GRAM_TOKENS + 1), num_found))
            at += len(ids) + 1
        return shared

    def _confirmed(self, joined: Keys, places: Positions, numbers: Positions) -> Positions:
        """Those of the places whose 50 ids are the same as at the place in train that has their key."""
        batches, train_places = np.divmod(self._train_place[numbers], 1 << PLACE_BITS)
        is_equal = np.zeros(len(places), np.bool_)
        for batch in np.unique(batches).tolist():
            here = np.flatnonzero(batches == batch)
            train = _joined(self._train[batch], TRAIN_MARK)
            is_equal[here] = _are_equal(joined, places[here], train, train_places[here])
        return places[is_equal]


def num_span_tokens(ids: Ids, starts: Positions) -> int:
    """Tokens under the 50-grams that begin here, but for runs of neighbours that have fewer than 8 distinct ids."""
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
    tags: npt.NDArray[np.uint8]
    """By a key's leading bits, the tag of the key that has them: one look says no to nearly all others."""
    first: npt.NDArray[np.int32]
    """By fewer leading bits, the number of the first key that has them; one entry more at the end."""

    @classmethod
    def of(cls, keys: Keys) -> "KeyTable":
        """Sorts the keys in place."""
        keys.sort()
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))] if len(keys) else keys
        num_bits = max(8, len(keys).bit_length() - 1)
        first = np.zeros((1 << num_bits) + 1, np.int32)
        np.cumsum(np.bincount(_leading(keys, num_bits), minlength=1 << num_bits), out=first[1:])
        tags = np.full(1 << (num_bits + MORE_BITS), NO_KEY, np.uint8)
        places = _leading(keys, num_bits + MORE_BITS)
        tags[places] = _tags(keys)
        tags[places[1:][places[1:] == places[:-1]]] = SEVERAL_KEYS
        return cls(keys, tags, first)

    def find(self, keys: Keys) -> tuple[Positions, Positions]:
        """Which of these keys are in the table, and their numbers there."""
        num_bits = len(self.first).bit_length() - 1
        tags = self.tags[_leading(keys, num_bits + MORE_BITS)]
        places = np.flatnonzero((tags == _tags(keys)) | (tags == SEVERAL_KEYS))
        wanted = keys[places]
        slots = _leading(wanted, num_bits)
        numbers, stops = self.first[slots].astype(np.int64), self.first[slots + 1]
        found: list[tuple[Positions, Positions]] = [(places[:0], numbers[:0])]
        while len(places):
            is_open = numbers < stops
            places, wanted, numbers, stops = places[is_open], wanted[is_open], numbers[is_open], stops[is_open]
            is_equal = self.keys[numbers] == wanted
            found.append((places[is_equal], numbers[is_equal]))
            others = ~is_equal
            places, wanted, numbers, stops = places[others], wanted[others], numbers[others] + 1, stops[others]
        return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])


class Candidates(NamedTuple):
    """Keys of 50-grams that both sides have."""

    table: KeyTable
    numbers: Positions
    """Theirs in the table of all held-out keys."""


def _tags(keys: Keys) -> npt.NDArray[np.uint8]:
    return (keys & np.uint64(TAG_BITS)).astype(np.uint8)


def _leading(keys: Keys, num_bits: int) -> Positions:
    return (keys >> np.uint64(64 - num_bits)).view(np.int64)


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


# `leakage`: each held-out split against train, as the rows show them (the measure itself: spans).


def check_leakage(rows: Rows, how: str, num_threads: int, faults: Faults) -> Verdict:
    """With `--decontaminate off` leakage is told; otherwise any is a fault."""
    placed = [placed for runs in (*rows.by_file.values(), *rows.variants.values()) for placed in runs]
    train = [stretch.ids for one in placed if one.split is Split.TRAIN for stretch in one.run.stretches]
    held_out = [(one.split, one.run) for one in placed if one.split is not Split.TRAIN]
    shared = iter(shared_with_train([part.ids for _, run in held_out for part in run.stretches], train, num_threads))
    measured = [(split, run, [next(shared) for _ in run.stretches]) for split, run in held_out]
    facts: dict[str, Any] = {
        split: _split_facts([(run, parts) for one, run, parts in measured if one is split])
        for split in Split
        if split is not Split.TRAIN
    }
    leaking: list[dict[str, Any]] = [
        {"name": run.key.name, "split": split, "l50": _share_in_spans([(run, parts)])}
        for split, run, parts in measured
        if any(part.num_span_tokens for part in parts)
    ]
    leaking.sort(key=lambda file: (-file["l50"], file["name"]))
    if how != "off":
        for file in leaking:
            what = f"{file['l50']:.1%} of its tokens are in spans of 50 and more that are in train too"
            faults.add("leakage", what, path=file["name"])
    summary = "; ".join(
        f"{split}: {one['l50']:.2%} of tokens in spans of 50, {one['gram13']:.1%} of 13-grams"
        for split, one in facts.items()
    )
    return Verdict(summary, "reported" if how == "off" else "ok", {**facts, "worst_files": leaking[:FILES_SHOWN]})


def _split_facts(measured: list[tuple[Run, list[Shared]]]) -> dict[str, float]:
    shared = [part for _, parts in measured for part in parts]
    num_grams = sum(part.num_grams for part in shared)
    gram13 = sum(part.num_grams_found for part in shared) / num_grams if num_grams else 0.0
    return {"l50": _share_in_spans(measured), "gram13": gram13}


def _share_in_spans(measured: list[tuple[Run, list[Shared]]]) -> float:
    num_tokens = sum(len(stretch.ids) for run, _ in measured for stretch in run.stretches)
    num_shared = sum(part.num_span_tokens for _, parts in measured for part in parts)
    return num_shared / num_tokens if num_tokens else 0.0
