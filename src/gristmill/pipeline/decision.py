"""Result of step 2: the kept documents with their splits, and the drops with their reasons."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gristmill.core.manifest import Decontamination, NearDuplicates, PreviousSplits, SamplingFacts
from gristmill.core.records import Drop, FileKey, NotRewritten, NoVariant, PlacedDocument


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    kept: list[PlacedDocument]
    """Kept files in path order, each with its group and split."""
    drops: list[Drop]
    """Documents that were prepared but not kept."""
    previous: PreviousSplits | None
    near_duplicates: NearDuplicates
    cut_away: Sequence[PlacedDocument] = ()
    """Documents dropped because the cuts leave no window. With a different overlap, a window might remain."""
    not_rewritten: Sequence[NotRewritten] = ()
    """Files that were chosen for fill-in-the-middle but remain unchanged."""
    fim_parts: Sequence[str] = ()
    variants: Sequence[PlacedDocument] = ()
    """Variants in the order of their files."""
    no_variants: Sequence[NoVariant] = ()
    """Variants that were chosen but could not be made, with the reason."""
    variant_parts: Sequence[str] = ()
    model: str | None = None
    """Name of the language model that rewrote files, as its endpoint reports it."""

    def in_row_order(self) -> Iterator[PlacedDocument]:
        """Yield the documents in the order of their rows: each file, followed by its variants."""
        variants_of: dict[FileKey, list[PlacedDocument]] = {}
        for one in self.variants:
            variants_of.setdefault(one.key, []).append(one)
        for document in self.kept:
            yield document
            yield from variants_of.get(document.key, ())


class Decided(NamedTuple):
    """Result of steps 1 and 2: kept documents with their splits and cuts, and drops with their reasons."""

    parts: Sequence[str]
    """Names of the parts, in path order. Parts are the files with the results of step 1, including its drops."""
    decision: Decision
    decontamination: Decontamination
    scan_drops: Sequence[Drop]
    """Files dropped during the scan."""
    renamed: Sequence[Drop]
    """Drops of step 1 whose file names contained a secret."""
    sampling: SamplingFacts | None

    def with_segments(self, segments: Mapping[FileKey, int]) -> "Decided":
        """Set each file's number of windows to its number of segments.

        Rows made with --pack repo ignore window boundaries. A segment is a range of the file's tokens in such a row.
        """
        kept = [msgspec.structs.replace(one, num_windows=segments[one.key]) for one in self.decision.kept]
        return self._replace(decision=msgspec.structs.replace(self.decision, kept=kept))
