"""Spans that held-out files share with train, when an earlier build has looked for them before.

A held-out file that was there before, and whose twins are all in train still, shares what it shared; and more only if a
file that is new to train has it too. So the known ones are compared with what is new in train, and those that share
anything with it, like those that are not known, with all of train. What comes out is what comparing all gives.
"""

import hashlib
from collections.abc import Sequence
from typing import Protocol

import msgspec

from gristmill.records import Cut, PreparedDocument
from gristmill.steps.compare import Shared
from gristmill.steps.context import Context
from gristmill.steps.remembering import recall, remember

COMPARED = "compared"

Documents = Sequence[PreparedDocument]


class Compare(Protocol):
    """Held-out documents and those of train -> what each of the held-out ones shares, by number.

    `is_any`: also what is too plain to count by itself, as it may touch what counts.
    """

    def __call__(self, held_out: Documents, train: Documents, *, is_any: bool) -> dict[int, Shared]: ...


class KnownShared(msgspec.Struct, frozen=True, array_like=True):
    cuts: tuple[Cut, ...]
    twins: tuple[bytes, ...]


class Compared(msgspec.Struct, frozen=True, array_like=True):
    """By what the documents are: their name and their text."""

    train: set[bytes]
    held_out: dict[bytes, KnownShared]


def compare_again(
    context: Context, held_out: Documents, train: Documents, compare: Compare
) -> dict[int, tuple[Cut, ...]]:
    """For each held-out document, by number, what it shares with train."""
    path = context.folder / COMPARED
    before = recall(path, context.prepare_key, Compared) or Compared(set(), {})
    train_ids = [_identity(document) for document in train]
    ids = [_identity(document) for document in held_out]
    in_train = set(train_ids)
    stable = [number for number, one in enumerate(ids) if one in before.held_out]
    stable = [number for number in stable if in_train.issuperset(before.held_out[ids[number]].twins)]
    new = [document for document, one in zip(train, train_ids, strict=True) if one not in before.train]
    touched: set[int] = set()
    if stable and new:
        found = compare([held_out[number] for number in stable], new, is_any=True)
        touched = {stable[number] for number in found}
    known = {number: before.held_out[ids[number]] for number in stable if number not in touched}
    rest = [number for number in range(len(held_out)) if number not in known]
    if rest:
        found = compare([held_out[number] for number in rest], train, is_any=False)
        for index, number in enumerate(rest):
            shared = found.get(index, Shared((), ()))
            known[number] = KnownShared(shared.cuts, tuple(train_ids[twin] for twin in shared.twins))
    remember(path, context.prepare_key, Compared(in_train, {ids[number]: one for number, one in known.items()}))
    return {number: one.cuts for number, one in sorted(known.items()) if one.cuts}


def _identity(document: PreparedDocument) -> bytes:
    return hashlib.sha256(f"{document.repo}\0{document.path}\0{document.text_sha256}".encode()).digest()[:16]
