"""Documents -> groups -> train / validation / test, before any window is cut. A group is never torn apart.

New groups are dealt out by size, from large to small and in an order within each power of two that the seed decides,
each to the split that lags its share the most. So every split gets its part of the large files and of the small ones,
and the shares are met to within about the smallest groups.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from gristmill.core.records import PreparedDocument, Split
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
        return sum([document.num_tokens for document in self.documents])


NO_COPIES: Mapping[int, Sequence[PreparedDocument]] = {}


def make_groups(
    documents: Sequence[PreparedDocument],
    clusters: Iterable[Sequence[int]],
    dropped: Collection[int],
    by: str,
    copies: Mapping[int, Sequence[PreparedDocument]] = NO_COPIES,
) -> list[Group]:
    """`clusters`, `dropped` and `copies` go by number. `by`: file, directory or repo. A group is named for its first.

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
        kept = [documents[number] for number in members if number not in dropped]
        gone = [documents[number] for number in members if number in dropped] if len(kept) < len(members) else []
        gone += [copy for number in members if number in copies for copy in copies[number]]
        groups.append(Group(_unit(documents[members[0]], by), tuple(kept), tuple(gone)))
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
    new: list[tuple[int, bytes, int]] = []
    sizes = [group.num_tokens for group in groups]
    for number, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        known = previous.of_all((*group.documents, *group.dropped))
        if not known:
            new.append((-size.bit_length(), _draw(group.name, seed), number))
            continue
        split = Split.TRAIN if train_wins and len(set(known)) > 1 else known[0]
        assigned[group.name] = split
        tokens[split] += size
    splits, shares, given = list(fractions), list(fractions.values()), list(tokens.values())
    total = sum(given)
    for *_, number in sorted(new):
        total += sizes[number]
        lags = [share * total - count for share, count in zip(shares, given, strict=True)]
        lagging = lags.index(max(lags))
        assigned[groups[number].name] = splits[lagging]
        given[lagging] += sizes[number]
    return assigned


def _draw(name: str, seed: int) -> bytes:
    """A number from the seed and the name alone: adding a file does not reshuffle the others."""
    return hashlib.sha256(f"{seed}\0{name}".encode()).digest()
