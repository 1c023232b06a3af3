"""Spans that held-out files share with train, when an earlier build has looked for them before.

Of a held-out file that was there before, it is known which of its 50-grams train has, and which file of train is the
first to have each. What is new in train may have more of them, or have them first. What is gone from train may have
been the only one: unless something new has taken its place, at the same path or before it, such a held-out file is
compared with all of train, like one that is not known. What comes out is what comparing all with all gives.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from gristmill.core.records import AnyStoredText, Cut, PreparedDocument, Range
from gristmill.dedup.signatures import Ids
from gristmill.splits.shared_spans import MIN_DISTINCT_IDS, Positions, counted_from, ranges_of
from gristmill.splits.span_join import Shared, StartRuns, runs_of_starts

NOBODY = -1

Documents = Sequence[PreparedDocument]
Identity = bytes
"""Of a document: its name and its text."""


class Compare(Protocol):
    """Held-out documents and those of train -> what each of the held-out ones shares, by number.

    `is_any`: also those that share only what is too plain to count by itself, as it may touch what counts.
    """

    def __call__(self, held_out: Documents, train: Documents, *, is_any: bool) -> dict[int, Shared]: ...


class Twin(msgspec.Struct, frozen=True, array_like=True):
    repo: str
    path: str
    identity: Identity


class KnownShared(msgspec.Struct, frozen=True, array_like=True):
    cuts: tuple[Cut, ...]
    runs: StartRuns
    """Twins by their number among all."""


class Compared(msgspec.Struct, frozen=True, array_like=True):
    train: set[Identity]
    twins: list[Twin]
    held_out: dict[Identity, KnownShared]


class _Starts(NamedTuple):
    """A document's shared 50-grams: where each begins, and the number of the first text that has it."""

    starts: Positions
    twins: Positions

    @classmethod
    def of(cls, runs: StartRuns) -> "_Starts":
        first, last, twin = _rows(runs).T
        counts = last - first + 1
        return cls(counted_from(first, counts), np.repeat(twin, counts))

    def twins_at(self, starts: Positions) -> Positions:
        twins = np.full(len(starts), NOBODY)
        twins[np.searchsorted(starts, self.starts)] = self.twins
        return twins


class _Train:
    """Its documents by number, in path order; and what has become of those that it had."""

    def __init__(self, documents: Documents, before: Compared) -> None:
        self.documents = documents
        self.ids = [_identity(document) for document in documents]
        number_of = {one: number for number, one in enumerate(self.ids)}
        self.new = np.array([number for number, one in enumerate(self.ids) if one not in before.train], np.int64)
        self.numbers = np.array([number_of.get(twin.identity, NOBODY) for twin in before.twins], np.int64)
        """Of the twins that are known from before; NOBODY for one that is gone."""
        keys = [document.key for document in documents]
        self.places = np.array([bisect_right(keys, (twin.repo, twin.path)) - 1 for twin in before.twins], np.int64)
        """The last one that is not behind it."""

    def followed(self, old: StartRuns, new: StartRuns) -> StartRuns | None:
        """The old ones with the numbers of today, if the new ones change nothing; None where they may."""
        rows = _rows(old)
        numbers = self.numbers[rows[:, 2]]
        if np.any(numbers == NOBODY):  # a twin is gone
            return None
        if not new:
            return _with_twins(rows, numbers)
        if not old:
            return None
        first, last, twins = _rows(new).T
        at = np.searchsorted(rows[:, 0], first, "right") - 1
        is_inside = (at >= 0) & (rows[at, 1] >= last)
        is_behind = numbers[at] <= self.new[twins]
        return _with_twins(rows, numbers) if is_inside.all() and is_behind.all() else None

    def merged(self, old: _Starts, new: _Starts) -> _Starts | None:
        """Twins of `old` are known ones, of `new` they are new; None: who has a 50-gram first cannot be told."""
        starts = _united(old.starts, new.starts)
        earlier, later = old.twins_at(starts), new.twins_at(starts)
        later[later != NOBODY] = self.new[later[later != NOBODY]]
        was_known = earlier != NOBODY
        still = np.full(len(starts), NOBODY)
        still[was_known] = self.numbers[earlier[was_known]]
        is_gone = was_known & (still == NOBODY)
        if np.any(later[is_gone] == NOBODY) or np.any(later[is_gone] > self.places[earlier[is_gone]]):
            return None
        first = np.where(still == NOBODY, later, np.where(later == NOBODY, still, np.minimum(still, later)))
        return _Starts(starts, first)


def _united(some: Positions, others: Positions) -> Positions:
    at = np.searchsorted(some, others)
    at[at == len(some)] = 0
    is_new = some[at] != others if len(some) else np.ones(len(others), np.bool_)
    return np.sort(np.concatenate((some, others[is_new])), kind="stable") if is_new.any() else some


def compare_again(
    before: Compared | None,
    held_out: Documents,
    documents: Documents,
    compare: Compare,
    ids_of: Callable[[AnyStoredText], Ids],
) -> tuple[dict[int, tuple[Cut, ...]], Compared]:
    """For each held-out document, by number, what it shares with the documents of train; and what to remember."""
    before = before or Compared(set(), [], {})
    train = _Train(documents, before)
    ids = [_identity(document) for document in held_out]
    stable = [number for number, one in enumerate(ids) if one in before.held_out]
    new = [documents[number] for number in train.new.tolist()]
    found = compare([held_out[number] for number in stable], new, is_any=True) if stable and new else {}
    known: dict[int, KnownShared] = {}
    for index, number in enumerate(stable):
        was = before.held_out[ids[number]]
        more = found[index].runs if index in found else b""
        runs = train.followed(was.runs, more)
        if runs is not None:
            known[number] = KnownShared(was.cuts, runs)
            continue
        old = _Starts.of(was.runs)
        merged = train.merged(old, _Starts.of(more))
        if merged is not None:
            has_grown = len(merged.starts) > len(old.starts)
            ranges = (
                ranges_of(ids_of(held_out[number]), merged.starts, MIN_DISTINCT_IDS)
                if has_grown
                else [(cut.start, cut.end) for cut in was.cuts]
            )
            known[number] = _known(ranges, merged, documents)
    rest = [number for number in range(len(held_out)) if number not in known]
    found = compare([held_out[number] for number in rest], documents, is_any=False) if rest else {}
    known |= {number: KnownShared((), b"") for number in rest}
    known |= {rest[index]: KnownShared(shared.cuts, shared.runs) for index, shared in found.items()}
    cuts = {number: one.cuts for number, one in sorted(known.items()) if one.cuts}
    return cuts, _compared(train, {ids[number]: one for number, one in known.items()})


def _known(ranges: Sequence[Range], shared: _Starts, documents: Documents) -> KnownShared:
    twins = shared.twins[np.searchsorted(shared.starts, [start for start, _ in ranges])].tolist()
    cuts = [Cut(start, end, documents[twin].name) for (start, end), twin in zip(ranges, twins, strict=True)]
    return KnownShared(tuple(cuts), runs_of_starts(*shared) if len(shared.starts) else b"")


def _compared(train: _Train, known: Mapping[Identity, KnownShared]) -> Compared:
    """With twins by their number among those that are twins of any."""
    is_twin = np.zeros(len(train.ids), np.bool_)
    for one in known.values():
        is_twin[_rows(one.runs)[:, 2]] = True
    places = np.cumsum(is_twin) - 1
    numbers = np.flatnonzero(is_twin).tolist()
    twins = [Twin(train.documents[one].repo, train.documents[one].path, train.ids[one]) for one in numbers]
    held_out = {
        identity: KnownShared(one.cuts, _with_twins(rows := _rows(one.runs), places[rows[:, 2]]))
        for identity, one in known.items()
    }
    return Compared(set(train.ids), twins, held_out)


def _rows(runs: StartRuns) -> Positions:
    return np.frombuffer(runs, np.int32).reshape(-1, 3).astype(np.int64)


def _with_twins(rows: Positions, twins: Positions) -> StartRuns:
    return np.column_stack((rows[:, :2], twins)).astype(np.int32).tobytes()


def _identity(document: PreparedDocument) -> Identity:
    return hashlib.sha256(f"{document.repo}\0{document.path}\0{document.text_sha256}".encode()).digest()[:16]
