"""The result of step 2: which documents are in the dataset, where, and why the others are not."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gristmill.core.manifest import Decontamination, NearDuplicates, PreviousSplits, SamplingFacts
from gristmill.core.records import Drop, FileKey, NotRewritten, NoVariant, PlacedDocument


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    kept: list[PlacedDocument]
    """In path order, each with its group and split."""
    drops: list[Drop]
    """Documents that were prepared and are not kept."""
    previous: PreviousSplits | None
    near_duplicates: NearDuplicates
    cut_away: Sequence[PlacedDocument] = ()
    """Dropped because no window of them is left; with another overlap one might be."""
    not_rewritten: Sequence[NotRewritten] = ()
    """Files that were chosen for fill in the middle and stay as they are."""
    fim_parts: Sequence[str] = ()
    variants: Sequence[PlacedDocument] = ()
    """In the order of their files."""
    no_variants: Sequence[NoVariant] = ()
    """Of files that were chosen for one."""
    variant_parts: Sequence[str] = ()
    model: str | None = None
    """That has rewritten files, by the name it goes by at its endpoint."""

    def shown(self) -> Iterator[PlacedDocument]:
        """Files, each with its variants behind it."""
        behind: dict[FileKey, list[PlacedDocument]] = {}
        for one in self.variants:
            behind.setdefault(one.key, []).append(one)
        for document in self.kept:
            yield document
            yield from behind.get(document.key, ())


class Judged(NamedTuple):
    """Steps 1 and 2: who is in, where, with what cut out; and who is not, and why."""

    parts: Sequence[str]
    """In path order; those dropped in step 1 are told there."""
    decision: Decision
    decontamination: Decontamination
    scan_drops: Sequence[Drop]
    renamed: Sequence[Drop]
    """Dropped in step 1, with a secret in their name."""
    sampling: SamplingFacts | None

    def with_segments(self, segments: Mapping[FileKey, int]) -> "Judged":
        """Where rows are cut without regard to windows, a file has as many windows as there are stretches of it."""
        kept = [msgspec.structs.replace(one, num_windows=segments[one.key]) for one in self.decision.kept]
        return self._replace(decision=msgspec.structs.replace(self.decision, kept=kept))
