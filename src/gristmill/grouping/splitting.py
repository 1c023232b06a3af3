"""Groups -> train / validation / test, before any window is cut. A group is never torn apart.

New groups are dealt out by size, from large to small and in an order within each power of two that the seed decides,
each to the split that lags its share the most. So every split gets its part of the large files and of the small ones,
and the shares are met to within about the smallest groups.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gristmill.records import PreparedDocument, Split

FileKey = tuple[str, str]


class Group(NamedTuple):
    """Documents that must share a split: a file by itself, or near-duplicates together."""

    name: str
    documents: tuple[PreparedDocument, ...]

    @property
    def num_tokens(self) -> int:
        return sum(document.num_tokens for document in self.documents)


class PreviousSplit(NamedTuple):
    """Where an earlier build put its files: by content, so that none crosses over by being moved; else by name."""

    by_key: Mapping[FileKey, Split]
    by_sha256: Mapping[str, Split]

    def of(self, document: PreparedDocument) -> Split | None:
        return self.by_sha256.get(document.sha256) or self.by_key.get(document.key)


NOTHING_BEFORE = PreviousSplit({}, {})


def single_groups(documents: Iterable[PreparedDocument]) -> list[Group]:
    return [Group(f"{document.repo}/{document.path}", (document,)) for document in documents]


def assign_splits(
    groups: Sequence[Group], fractions: Mapping[Split, float], seed: int, previous: PreviousSplit = NOTHING_BEFORE
) -> dict[str, Split]:
    """Group name -> split. A group that was split before stays where its first document was."""
    assigned: dict[str, Split] = {}
    tokens = dict.fromkeys(fractions, 0)
    new: list[Group] = []
    for group in groups:
        split = next((split for document in group.documents if (split := previous.of(document))), None)
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
