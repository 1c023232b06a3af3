"""Documents -> groups -> train / validation / test, before any window is cut. A group is never torn apart.

New groups are dealt out by size, from large to small and in an order within each power of two that the seed decides,
each to the split that lags its share the most. So every split gets its part of the large files and of the small ones,
and the shares are met to within about the smallest groups.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gristmill.core.records import FileKey, PreparedDocument, Split
from gristmill.dedup.clusters import UnionFind
from gristmill.splits.previous import NOTHING_BEFORE, PreviousSplit


class Group(NamedTuple):
    """Documents that must share a split: a file by itself, near-duplicates together, or a whole folder or source."""

    name: str
    documents: tuple[PreparedDocument, ...]
    dropped: tuple[PreparedDocument, ...] = ()
    """Duplicates of one of them: they take no place, but an earlier build may have given them one."""

    @property
    def num_tokens(self) -> int:
        return sum(document.num_tokens for document in self.documents)


NO_COPIES: Mapping[FileKey, Sequence[PreparedDocument]] = {}


def make_groups(
    documents: Sequence[PreparedDocument],
    clusters: Iterable[Sequence[int]],
    dropped: Collection[int],
    by: str,
    copies: Mapping[FileKey, Sequence[PreparedDocument]] = NO_COPIES,
) -> list[Group]:
    """`clusters` and `dropped` by number; `by` is file, directory or repo. A group goes by the name of its first.

    `copies` are exact duplicates of a document: they join no folders, but they too may have had a split.
    """
    sets = UnionFind(len(documents))
    first_of_unit: dict[str, int] = {}
    if by != "file":  # else each is a unit of its own
        for number, document in enumerate(documents):
            sets.join(first_of_unit.setdefault(_unit(document, by), number), number)
    for members in clusters:
        for member in members[1:]:
            sets.join(members[0], member)
    groups: list[Group] = []
    for members in sets.sets():
        kept = tuple(documents[number] for number in members if number not in dropped)
        gone = [documents[number] for number in members if number in dropped]
        gone += [copy for number in members for copy in copies.get(documents[number].key, ())]
        groups.append(Group(_unit(documents[members[0]], by), kept, tuple(gone)))
    return groups


def _unit(document: PreparedDocument, by: str) -> str:
    if by == "repo":
        return document.repo
    return document.name if by == "file" else f"{document.repo}/{document.path.rpartition('/')[0]}".rstrip("/") + "/"


def assign_splits(
    groups: Sequence[Group],
    fractions: Mapping[Split, float],
    seed: int,
    previous: PreviousSplit = NOTHING_BEFORE,
    *,
    train_wins: bool = False,
) -> dict[str, Split]:
    """Group name -> split. A group that was split before stays where its first document was.

    `train_wins`: one whose documents were in several splits goes to train.
    """
    assigned: dict[str, Split] = {}
    tokens = dict.fromkeys(fractions, 0)
    new: list[Group] = []
    for group in groups:
        known = [split for document in (*group.documents, *group.dropped) if (split := previous.of(document))]
        split = known[0] if known else None
        if train_wins and len(set(known)) > 1:
            split = Split.TRAIN
        if split is None:
            new.append(group)
        else:
            assigned[group.name] = split
            tokens[split] += group.num_tokens
    for group in sorted(new, key=lambda group: (-group.num_tokens.bit_length(), _draw(group.name, seed))):
        total = sum(tokens.values()) + group.num_tokens
        split = max(fractions, key=lambda split: fractions[split] * total - tokens[split])
        assigned[group.name] = split
        tokens[split] += group.num_tokens
    return assigned


def _draw(name: str, seed: int) -> bytes:
    """A number from the seed and the name alone: adding a file does not reshuffle the others."""
    return hashlib.sha256(f"{seed}\0{name}".encode()).digest()
