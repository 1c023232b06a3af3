"""Measure how much held-out text is also in train: tokens in shared spans of 50 or more (L50), and 13-grams.

Held-out text is the text of validation and test.

Every n-gram of held-out data and of train gets a 64-bit key. Keys are computed by doubling: the key of 2 tokens from
two keys of 1 token, the key of 4 tokens from two keys of 2 tokens, and so on. The key of 50 tokens is made from keys
of 32, 16 and 2 tokens. Keys are computed again instead of stored, because this takes only 5 ns per token. The held-out
keys are in a table, in which the keys of train are looked up batch by batch. A 50-gram is reported only after its ids
have been compared with the ids in train, so a collision of keys never fails a dataset.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.checks.findings import MAX_FILES_LISTED, Faults, Verdict
from gristmill.checks.runs import Run
from gristmill.checks.windows_by_file import Rows
from gristmill.core.records import Split

SPAN_TOKENS = 50
GRAM_TOKENS = 13
MIN_DISTINCT_IDS = 8
HELD_OUT_BATCH_TOKENS = 1 << 24
BATCH_TOKENS = 1 << 15
"""Each array of a batch takes 0.25 MB, which fits into the cache of a core."""
POSITION_BITS = 32
EXTRA_TAG_BITS = 3
"""`KeyTable.tags` is indexed by this many more bits than `KeyTable.first`. With 256 or more keys, `tags` has 4 to 8
entries per key."""
NO_KEY, SEVERAL_KEYS, TAG_MASK = 255, 254, 0x7F
# Separators between sequences. No id has their values, and held-out data and train have different separators, so an
# n-gram that contains a separator never matches.
HELD_OUT_SEPARATOR = np.array([1 << 32], np.uint64)
TRAIN_SEPARATOR = np.array([2 << 32], np.uint64)

Ids = npt.NDArray[Any]
Keys = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Overlap(NamedTuple):
    """Overlap of one held-out sequence with train."""

    num_span_tokens: int
    """Number of tokens in shared spans of 50 or more tokens."""
    num_grams: int
    """Number of 13-grams in the sequence."""
    num_grams_found: int
    """Number of 13-grams that are also in train."""


def measure_overlap(held_out: Sequence[Ids], train: Sequence[Ids], num_threads: int = 1) -> list[Overlap]:
    """Measure the overlap of each held-out sequence of token ids with all train sequences."""
    train_batches = list(_batches(train, BATCH_TOKENS))
    with ThreadPoolExecutor(num_threads) as threads:  # NumPy releases the GIL
        parts = (_Comparison(part, train_batches, threads).run() for part in _batches(held_out, HELD_OUT_BATCH_TOKENS))
        return list(chain.from_iterable(parts))


class _Comparison:
    """Comparison of some held-out sequences with all of train."""

    def __init__(self, held_out: Sequence[Ids], train: list[list[Ids]], threads: ThreadPoolExecutor) -> None:
        self._held_out, self._train, self._threads = list(_batches(held_out, BATCH_TOKENS)), train, threads
        keys = list(threads.map(lambda batch: compute_keys(_join(batch, HELD_OUT_SEPARATOR)), self._held_out))
        all_keys = [np.concatenate([one.grams50 for one in keys]), np.concatenate([one.grams13 for one in keys])]
        self._table50, self._table13 = threads.map(KeyTable.of, all_keys)
        self._is_found13 = np.zeros(len(self._table13.keys), np.bool_)
        # A position in train for each held-out 50-gram (batch in the upper bits, position in the lower 32 bits), or -1.
        self._train_positions = np.full(len(self._table50.keys), -1, np.int64)

    def run(self) -> Iterator[Overlap]:
        """Return the overlap of each held-out sequence with train."""
        # Threads search for 50-grams. One thread stores their positions in batch order, so the result is deterministic.
        for key_indices, positions in self._threads.map(self._look_up, range(len(self._train))):
            self._train_positions[key_indices] = positions
        key_indices = np.flatnonzero(self._train_positions >= 0)
        candidates = Candidates(KeyTable.of(self._table50.keys[key_indices]), key_indices)
        found13 = KeyTable.of(self._table13.keys[self._is_found13])
        return chain.from_iterable(
            self._threads.map(lambda batch: self._count(batch, candidates, found13), self._held_out)
        )

    def _look_up(self, batch: int) -> tuple[Positions, Positions]:
        """Find the held-out 50-grams in a batch of train. Return their indices in the key table and positions in train.

        Also mark the held-out 13-grams that are in the batch. Threads may do so in any order.
        """
        keys = compute_keys(_join(self._train[batch], TRAIN_SEPARATOR))
        self._is_found13[self._table13.find(keys.grams13)[1]] = True
        positions, key_indices = self._table50.find(keys.grams50)
        return key_indices, (batch << POSITION_BITS) + positions

    def _count(self, batch: Sequence[Ids], candidates: "Candidates", found13: "KeyTable") -> list[Overlap]:
        joined = _join(batch, HELD_OUT_SEPARATOR)
        keys = compute_keys(joined)
        is_gram13, is_gram50 = np.zeros(len(joined), np.bool_), np.zeros(len(joined), np.bool_)
        is_gram13[found13.find(keys.grams13)[0]] = True
        positions, found = candidates.table.find(keys.grams50)
        is_gram50[self._confirm(joined, positions, candidates.key_indices[found])] = True
        shared: list[Overlap] = []
        at = 0
        for ids in batch:
            sequence = slice(at, at + len(ids))
            num_found, starts = int(np.count_nonzero(is_gram13[sequence])), np.flatnonzero(is_gram50[sequence])
            shared.append(Overlap(num_span_tokens(ids, starts), max(0, len(ids) - GRAM_TOKENS + 1), num_found))
            at += len(ids) + 1
        return shared

    def _confirm(self, joined: Keys, positions: Positions, key_indices: Positions) -> Positions:
        """Return the positions at which the 50 ids equal the ids in train that have the same key."""
        batches, train_positions = np.divmod(self._train_positions[key_indices], 1 << POSITION_BITS)
        is_equal = np.zeros(len(positions), np.bool_)
        for batch in np.unique(batches).tolist():
            in_batch = np.flatnonzero(batches == batch)
            train = _join(self._train[batch], TRAIN_SEPARATOR)
            is_equal[in_batch] = _equal_spans(joined, positions[in_batch], train, train_positions[in_batch])
        return positions[is_equal]


def num_span_tokens(ids: Ids, starts: Positions) -> int:
    """Count the tokens in the 50-grams that begin at `starts`.

    Adjacent 50-grams form one span. Spans with fewer than 8 distinct ids are ignored.
    """
    if not len(starts):
        return 0
    is_apart = np.diff(starts) > 1
    first = starts[np.concatenate(([True], is_apart))].tolist()
    last = starts[np.concatenate((is_apart, [True]))].tolist()
    num_covered = 0
    counted_until = 0
    for start, end in zip(first, (last_start + SPAN_TOKENS for last_start in last), strict=True):
        if len(set(ids[start:end].tolist())) >= MIN_DISTINCT_IDS:
            num_covered += end - max(start, counted_until)
            counted_until = end
    return num_covered


class GramKeys(NamedTuple):
    """Keys of all 50-grams and 13-grams of a sequence."""

    grams50: Keys
    grams13: Keys


def compute_keys(ids: Keys) -> GramKeys:
    """Compute a key for each 50-gram and each 13-gram."""
    weights = iter(_weights())
    one = ids * next(weights)
    one ^= one >> np.uint64(32)
    one *= next(weights)
    two = _combine(one, one, 1, next(weights))
    four = _combine(two, two, 2, next(weights))
    eight = _combine(four, four, 4, next(weights))
    sixteen = _combine(eight, eight, 8, next(weights))
    thirty_two = _combine(sixteen, sixteen, 16, next(weights))
    grams13 = _combine(_combine(eight, four, 8, next(weights)), one, 12, next(weights))
    grams50 = _combine(_combine(thirty_two, sixteen, 32, next(weights)), two, 48, next(weights))
    return GramKeys(grams50, grams13)


def _combine(left: Keys, right: Keys, distance: int, weight: np.uint64) -> Keys:
    """Combine left[i] and right[i + distance] into one key."""
    num_pairs = max(0, len(right) - distance)
    pairs = left[:num_pairs] * weight
    pairs += right[distance : distance + num_pairs]
    return pairs


@cache
def _weights() -> list[np.uint64]:
    return list(np.random.default_rng(50).integers(0, 1 << 64, 12, np.uint64) | np.uint64(1))


class KeyTable(NamedTuple):
    """Set of keys with a fast lookup."""

    keys: Keys
    """Sorted and distinct."""
    tags: npt.NDArray[np.uint8]
    """Tag for each value of the leading bits: the lowest 7 bits of the key with this value, or NO_KEY or SEVERAL_KEYS.

    One lookup rejects nearly all keys that are not in the table.
    """
    first: npt.NDArray[np.int32]
    """Index of the first key for each value of the leading bits. `tags` uses EXTRA_TAG_BITS more leading bits.

    The last entry is the number of keys.
    """

    @classmethod
    def of(cls, keys: Keys) -> "KeyTable":
        """Build a table of these keys. Sorts `keys` in place."""
        keys.sort()
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))] if len(keys) else keys
        num_bits = max(8, len(keys).bit_length() - 1)
        first = np.zeros((1 << num_bits) + 1, np.int32)
        np.cumsum(np.bincount(_leading(keys, num_bits), minlength=1 << num_bits), out=first[1:])
        tags = np.full(1 << (num_bits + EXTRA_TAG_BITS), NO_KEY, np.uint8)
        slots = _leading(keys, num_bits + EXTRA_TAG_BITS)
        tags[slots] = _tags(keys)
        tags[slots[1:][slots[1:] == slots[:-1]]] = SEVERAL_KEYS
        return cls(keys, tags, first)

    def find(self, keys: Keys) -> tuple[Positions, Positions]:
        """Return the positions in `keys` of all keys that are in the table, and their indices in the table."""
        num_bits = len(self.first).bit_length() - 1
        tags = self.tags[_leading(keys, num_bits + EXTRA_TAG_BITS)]
        positions = np.flatnonzero((tags == _tags(keys)) | (tags == SEVERAL_KEYS))
        sought = keys[positions]
        slots = _leading(sought, num_bits)
        key_indices, stops = self.first[slots].astype(np.int64), self.first[slots + 1]
        found: list[tuple[Positions, Positions]] = [(positions[:0], key_indices[:0])]
        while len(positions):
            is_open = key_indices < stops
            positions, sought, key_indices, stops = (
                positions[is_open],
                sought[is_open],
                key_indices[is_open],
                stops[is_open],
            )
            is_equal = self.keys[key_indices] == sought
            found.append((positions[is_equal], key_indices[is_equal]))
            others = ~is_equal
            positions, sought, key_indices, stops = (
                positions[others],
                sought[others],
                key_indices[others] + 1,
                stops[others],
            )
        return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])


class Candidates(NamedTuple):
    """Keys of 50-grams that are in both held-out data and train."""

    table: KeyTable
    key_indices: Positions
    """Indices of these keys in the table of all held-out keys."""


def _tags(keys: Keys) -> npt.NDArray[np.uint8]:
    return (keys & np.uint64(TAG_MASK)).astype(np.uint8)


def _leading(keys: Keys, num_bits: int) -> Positions:
    """Return the leading bits of each key."""
    return (keys >> np.uint64(64 - num_bits)).view(np.int64)


def _equal_spans(left: Keys, left_positions: Positions, right: Keys, right_positions: Positions) -> Flags:
    """Return, for each pair of positions, whether the same 50 ids begin there."""
    equal = np.ones(len(left_positions), np.bool_)
    for offset in range(SPAN_TOKENS):
        equal &= left[left_positions + offset] == right[right_positions + offset]
    return equal


def _join(sequences: Sequence[Ids], separator: Keys) -> Keys:
    parts: list[npt.NDArray[Any]] = []
    for ids in sequences:
        parts += [ids, separator]
    return np.concatenate(parts, dtype=np.uint64) if parts else np.zeros(0, np.uint64)


def _batches(sequences: Iterable[Ids], num_tokens: int) -> Iterator[list[Ids]]:
    batch, size = list[Ids](), 0
    for ids in sequences:
        batch.append(ids)
        size += len(ids)
        if size >= num_tokens:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# `leakage`: compare the rows of each held-out split with the rows of train.


def check_leakage(rows: Rows, decontaminate: str, num_threads: int, faults: Faults) -> Verdict:
    """Measure the leakage of each held-out split. Leakage is a fault, except with `--decontaminate off`."""
    entries = [entry for runs in (*rows.by_file.values(), *rows.variants.values()) for entry in runs]
    train = [span.ids for one in entries if one.split is Split.TRAIN for span in one.run.spans]
    held_out = [(one.split, one.run) for one in entries if one.split is not Split.TRAIN]
    shared = iter(measure_overlap([span.ids for _, run in held_out for span in run.spans], train, num_threads))
    measured = [(split, run, [next(shared) for _ in run.spans]) for split, run in held_out]
    facts: dict[str, Any] = {
        split: _measure_split([(run, parts) for one, run, parts in measured if one is split])
        for split in Split
        if split is not Split.TRAIN
    }
    leaking: list[dict[str, Any]] = [
        {"name": run.key.name, "split": split, "l50": _fraction_in_spans([(run, parts)])}
        for split, run, parts in measured
        if any(part.num_span_tokens for part in parts)
    ]
    leaking.sort(key=lambda file: (-file["l50"], file["name"]))
    if decontaminate != "off":
        for file in leaking:
            message = f"{file['l50']:.1%} of the tokens are in spans of 50 or more tokens that are also in train"
            faults.add("leakage", message, path=file["name"])
    summary = "; ".join(
        f"{split} shares with train {one['l50']:.2%} of its tokens, in spans of 50 or more, "
        f"and {one['gram13']:.1%} of its 13-grams"
        for split, one in facts.items()
    )
    return Verdict(
        summary, "reported" if decontaminate == "off" else "ok", {**facts, "worst_files": leaking[:MAX_FILES_LISTED]}
    )


def _measure_split(measured: list[tuple[Run, list[Overlap]]]) -> dict[str, float]:
    shared = [part for _, parts in measured for part in parts]
    num_grams = sum(part.num_grams for part in shared)
    gram13 = sum(part.num_grams_found for part in shared) / num_grams if num_grams else 0.0
    return {"l50": _fraction_in_spans(measured), "gram13": gram13}


def _fraction_in_spans(measured: list[tuple[Run, list[Overlap]]]) -> float:
    num_tokens = sum(len(span.ids) for run, _ in measured for span in run.spans)
    num_shared = sum(part.num_span_tokens for _, parts in measured for part in parts)
    return num_shared / num_tokens if num_tokens else 0.0
