"""Group documents and assign each group to train, validation or test, before windows are cut. Groups are never divided.

New groups are assigned by size, from large to small. The seed decides the order of groups whose sizes are between the
same powers of two. Each group is assigned to the split with the largest deficit of tokens. Every split therefore gets
its share of large and of small files, and the deviation from the shares is about the size of the smallest groups.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gristmill.core.records import PreparedDocument, Split
from gristmill.dedup.clusters import UnionFind
from gristmill.splits.previous import NO_PREVIOUS_SPLIT, PreviousSplit


class Group(NamedTuple):
    """Documents that must be in the same split: a single file, near-duplicates, or all files of a folder or source."""

    name: str
    documents: tuple[PreparedDocument, ...]
    dropped: tuple[PreparedDocument, ...] = ()
    """Dropped duplicates of the documents. They are used only for their splits in an earlier build."""

    @property
    def num_tokens(self) -> int:
        return sum([document.num_tokens for document in self.documents])


NO_COPIES: Mapping[int, Sequence[PreparedDocument]] = {}


def make_groups(
    documents: Sequence[PreparedDocument],
    clusters: Iterable[Sequence[int]],
    dropped: Collection[int],
    by: str,
    copies: Mapping[int, Sequence[PreparedDocument]] = NO_COPIES,
) -> list[Group]:
    """Group the documents that must be in the same split.

    `by` is `file`, `directory` or `repo`. A group is named after its first document, or the folder or repo of that
    document. `clusters` contains the indices of near-duplicates, and `dropped` the indices of documents to drop.
    `copies` contains exact duplicates, keyed by the index of the document. Copies do not join two folders into one
    group, but an earlier build may have assigned them to a split.
    """
    sets = UnionFind(len(documents))
    first_in_unit: dict[str, int] = {}
    if by != "file":  # with `file`, each document is a separate unit
        for index, document in enumerate(documents):
            sets.join(first_in_unit.setdefault(_unit_name(document, by), index), index)
    for members in clusters:
        for member in members[1:]:
            sets.join(members[0], member)
    groups: list[Group] = []
    for members in sets.sets():
        kept = [documents[index] for index in members if index not in dropped]
        excluded = [documents[index] for index in members if index in dropped] if len(kept) < len(members) else []
        excluded += [copy for index in members if index in copies for copy in copies[index]]
        groups.append(Group(_unit_name(documents[members[0]], by), tuple(kept), tuple(excluded)))
    return groups


def _unit_name(document: PreparedDocument, by: str) -> str:
    if by == "repo":
        return document.repo
    return document.name if by == "file" else f"{document.repo}/{document.path.rpartition('/')[0]}".rstrip("/") + "/"


def assign_splits(
    groups: Sequence[Group],
    fractions: Mapping[Split, float],
    seed: int,
    previous: PreviousSplit = NO_PREVIOUS_SPLIT,
    *,
    train_wins: bool = False,
) -> dict[str, Split]:
    """Return the split of each group, keyed by group name.

    A group with documents from an earlier build keeps the split of the first of these documents. With `train_wins`, a
    group whose documents were in several splits is assigned to train.
    """
    assigned: dict[str, Split] = {}
    tokens = dict.fromkeys(fractions, 0)
    new_groups: list[tuple[int, bytes, int]] = []
    sizes = [group.num_tokens for group in groups]
    for index, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        earlier = previous.find_all((*group.documents, *group.dropped))
        if not earlier:
            new_groups.append((-size.bit_length(), _random_key(group.name, seed), index))
            continue
        split = Split.TRAIN if train_wins and len(set(earlier)) > 1 else earlier[0]
        assigned[group.name] = split
        tokens[split] += size
    splits, fraction_of_each, num_assigned = list(fractions), list(fractions.values()), list(tokens.values())
    total = sum(num_assigned)
    for *_, index in sorted(new_groups):
        total += sizes[index]
        deficits = [fraction * total - count for fraction, count in zip(fraction_of_each, num_assigned, strict=True)]
        neediest = deficits.index(max(deficits))
        assigned[groups[index].name] = splits[neediest]
        num_assigned[neediest] += sizes[index]
    return assigned


def _random_key(name: str, seed: int) -> bytes:
    """Return a pseudorandom sort key. It depends only on seed and name, so a new file does not reorder the groups."""
    return hashlib.sha256(f"{seed}\0{name}".encode()).digest()
