"""Update the spans that held-out files share with train, using the record of an earlier build.

For each held-out file of the earlier build, the record lists the 50-grams that are in train, and the first train file
that contains each. A new train file may contain more 50-grams of the held-out file, or come before the recorded train
file. A removed train file may have been the only file that contained a 50-gram. If a new train file at or before the
removed path contains the 50-gram, it replaces the removed file in the record. Otherwise, the held-out file is compared
with all of train, like a new held-out file. The result is the same as if all held-out files were compared with all
train files.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from gristmill.core.records import AnyStoredText, Cut, PreparedDocument, Range
from gristmill.dedup.signatures import Ids
from gristmill.splits.shared_spans import MIN_DISTINCT_IDS, Positions, expand_ranges, merge_into_ranges
from gristmill.splits.span_join import SharedSpans, StartRuns, pack_starts

MISSING = -1

Documents = Sequence[PreparedDocument]
Identity = bytes
"""Digest of the name and text of a document."""


class CompareFunction(Protocol):
    """Function that returns the spans that each held-out document shares with train, keyed by held-out index.

    With `include_trivial`, the result includes spans with too few distinct ids. They are not cut by themselves, but
    they may be adjacent to spans that are cut.
    """

    def __call__(self, held_out: Documents, train: Documents, *, include_trivial: bool) -> dict[int, SharedSpans]: ...


class TrainText(msgspec.Struct, frozen=True, array_like=True):
    """A train document that shares a span with a held-out document."""

    repo: str
    path: str
    identity: Identity


class KnownSpans(msgspec.Struct, frozen=True, array_like=True):
    """Spans that one held-out document shares with train."""

    cuts: tuple[Cut, ...]
    runs: StartRuns
    """Shared 50-grams. Train documents are given by their index in `ComparisonRecord.matched_texts`."""


class ComparisonRecord(msgspec.Struct, frozen=True, array_like=True):
    """Record of one comparison, for the next build."""

    train: set[Identity]
    matched_texts: list[TrainText]
    held_out: dict[Identity, KnownSpans]


class _SharedStarts(NamedTuple):
    """Shared 50-grams of a document: the start of each, and the index of the first train document that contains it."""

    starts: Positions
    texts: Positions

    @classmethod
    def of(cls, runs: StartRuns) -> "_SharedStarts":
        first, last, text = _rows(runs).T
        counts = last - first + 1
        return cls(expand_ranges(first, counts), np.repeat(text, counts))

    def texts_at(self, starts: Positions) -> Positions:
        texts = np.full(len(starts), MISSING)
        texts[np.searchsorted(starts, self.starts)] = self.texts
        return texts


class _Train:
    """Train documents in path order, and their relation to the train documents of the earlier build."""

    def __init__(self, documents: Documents, before: ComparisonRecord) -> None:
        self.documents = documents
        self.identities = [_identity(document) for document in documents]
        index_by_identity = {identity: index for index, identity in enumerate(self.identities)}
        self.new_indices = np.array(
            [index for index, identity in enumerate(self.identities) if identity not in before.train], np.int64
        )
        self.current_indices = np.array(
            [index_by_identity.get(text.identity, MISSING) for text in before.matched_texts], np.int64
        )
        """Current index of each recorded train document, or MISSING if the document was removed."""
        keys = [document.key for document in documents]
        self.last_not_after = np.array(
            [bisect_right(keys, (text.repo, text.path)) - 1 for text in before.matched_texts], np.int64
        )
        """For each recorded document, the index of the last current document at or before its path."""

    def renumber_if_unchanged(self, old_runs: StartRuns, new_runs: StartRuns) -> StartRuns | None:
        """Return the old runs with current indices, or None if removed documents or the new runs may change them."""
        rows = _rows(old_runs)
        current_indices = self.current_indices[rows[:, 2]]
        if np.any(current_indices == MISSING):  # a matched train document was removed
            return None
        if not new_runs:
            return _with_texts(rows, current_indices)
        if not old_runs:
            return None
        first, last, texts = _rows(new_runs).T
        at = np.searchsorted(rows[:, 0], first, "right") - 1
        is_inside = (at >= 0) & (rows[at, 1] >= last)
        is_still_first = current_indices[at] <= self.new_indices[texts]
        return _with_texts(rows, current_indices) if is_inside.all() and is_still_first.all() else None

    def merge(self, old: _SharedStarts, new: _SharedStarts) -> _SharedStarts | None:
        """Merge the recorded 50-grams with the 50-grams that new train documents share.

        Return None if the first document with a 50-gram cannot be determined.
        """
        starts = _union(old.starts, new.starts)
        recorded, added = old.texts_at(starts), new.texts_at(starts)
        added[added != MISSING] = self.new_indices[added[added != MISSING]]
        was_known = recorded != MISSING
        current = np.full(len(starts), MISSING)
        current[was_known] = self.current_indices[recorded[was_known]]
        is_removed = was_known & (current == MISSING)
        if np.any(added[is_removed] == MISSING) or np.any(
            added[is_removed] > self.last_not_after[recorded[is_removed]]
        ):
            return None
        first = np.where(current == MISSING, added, np.where(added == MISSING, current, np.minimum(current, added)))
        return _SharedStarts(starts, first)


def _union(first: Positions, second: Positions) -> Positions:
    at = np.searchsorted(first, second)
    at[at == len(first)] = 0
    is_new = first[at] != second if len(first) else np.ones(len(second), np.bool_)
    return np.sort(np.concatenate((first, second[is_new])), kind="stable") if is_new.any() else first


def update_comparison(
    before: ComparisonRecord | None,
    held_out: Documents,
    documents: Documents,
    compare: CompareFunction,
    ids_of: Callable[[AnyStoredText], Ids],
) -> tuple[dict[int, tuple[Cut, ...]], ComparisonRecord]:
    """Return the cuts of each held-out document, keyed by index, and the record for the next build.

    `documents` are the train documents. `compare` is called only for pairs that the record does not cover.
    """
    before = before or ComparisonRecord(set(), [], {})
    train = _Train(documents, before)
    identities = [_identity(document) for document in held_out]
    seen = [index for index, identity in enumerate(identities) if identity in before.held_out]
    new_documents = [documents[index] for index in train.new_indices.tolist()]
    found = (
        compare([held_out[index] for index in seen], new_documents, include_trivial=True)
        if seen and new_documents
        else {}
    )
    known: dict[int, KnownSpans] = {}
    for position, index in enumerate(seen):
        recorded = before.held_out[identities[index]]
        added = found[position].runs if position in found else b""
        runs = train.renumber_if_unchanged(recorded.runs, added)
        if runs is not None:
            known[index] = KnownSpans(recorded.cuts, runs)
            continue
        old = _SharedStarts.of(recorded.runs)
        merged = train.merge(old, _SharedStarts.of(added))
        if merged is not None:
            has_grown = len(merged.starts) > len(old.starts)
            ranges = (
                merge_into_ranges(ids_of(held_out[index]), merged.starts, MIN_DISTINCT_IDS)
                if has_grown
                else [(cut.start, cut.end) for cut in recorded.cuts]
            )
            known[index] = _known_spans(ranges, merged, documents)
    remaining = [index for index in range(len(held_out)) if index not in known]
    found = compare([held_out[index] for index in remaining], documents, include_trivial=False) if remaining else {}
    known |= {index: KnownSpans((), b"") for index in remaining}
    known |= {remaining[position]: KnownSpans(shared.cuts, shared.runs) for position, shared in found.items()}
    cuts = {index: spans.cuts for index, spans in sorted(known.items()) if spans.cuts}
    return cuts, _make_record(train, {identities[index]: spans for index, spans in known.items()})


def _known_spans(ranges: Sequence[Range], shared: _SharedStarts, documents: Documents) -> KnownSpans:
    texts = shared.texts[np.searchsorted(shared.starts, [start for start, _ in ranges])].tolist()
    cuts = [Cut(start, end, documents[text].name) for (start, end), text in zip(ranges, texts, strict=True)]
    return KnownSpans(tuple(cuts), pack_starts(*shared) if len(shared.starts) else b"")


def _make_record(train: _Train, known: Mapping[Identity, KnownSpans]) -> ComparisonRecord:
    """Return the record of this comparison. `matched_texts` lists only train documents that share a span."""
    is_matched = np.zeros(len(train.identities), np.bool_)
    for spans in known.values():
        is_matched[_rows(spans.runs)[:, 2]] = True
    positions = np.cumsum(is_matched) - 1
    matched = np.flatnonzero(is_matched).tolist()
    matched_texts = [
        TrainText(train.documents[index].repo, train.documents[index].path, train.identities[index])
        for index in matched
    ]
    held_out = {
        identity: KnownSpans(spans.cuts, _with_texts(rows := _rows(spans.runs), positions[rows[:, 2]]))
        for identity, spans in known.items()
    }
    return ComparisonRecord(set(train.identities), matched_texts, held_out)


def _rows(runs: StartRuns) -> Positions:
    return np.frombuffer(runs, np.int32).reshape(-1, 3).astype(np.int64)


def _with_texts(rows: Positions, texts: Positions) -> StartRuns:
    return np.column_stack((rows[:, :2], texts)).astype(np.int32).tobytes()


def _identity(document: PreparedDocument) -> Identity:
    return hashlib.sha256(f"{document.repo}\0{document.path}\0{document.text_sha256}".encode()).digest()[:16]
