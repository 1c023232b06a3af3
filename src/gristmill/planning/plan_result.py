"""What a plan says: per overlap what a build would give and cost, who brings what, and what training on it means."""

import msgspec

from gristmill.core.manifest import FimFacts, PreviousSplits, SamplingFacts, VariantFacts
from gristmill.core.records import DropReason, Split, VariantKind


class OverlapPlan(msgspec.Struct, frozen=True, kw_only=True):
    overlap: int
    windows: int
    train_windows: int
    """What an epoch goes through."""
    validation_windows: int
    test_windows: int
    tokens: int
    """Ids in all rows: overlaps, special tokens and padding count again."""
    train_tokens: int
    redundancy: float
    """How often each source token is shown: content tokens in all windows per distinct one."""
    windows_per_token: float
    """In how many places each source token is, whatever is drawn of them: the redundancy that overlap alone makes."""
    is_cut_short: bool
    """--max-windows or --target-windows leaves windows out."""
    jsonl_bytes: int
    jsonl_zst_bytes: int
    parquet_bytes: int | None
    """None: pyarrow is not installed."""
    build_seconds: float
    """That a build without compression would take on this machine, at the rates of this very run."""
    steps_per_epoch: int
    """At the batch size."""
    epochs_for_budget: float | None
    """So many go through as many ids as the budget; None: no budget, or nothing to train on."""


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """What a language or a top folder brings, of what is kept."""

    name: str
    files: int
    tokens: int
    share: float
    """Of all tokens."""


class SplitPlan(msgspec.Struct, frozen=True, kw_only=True):
    split: Split
    files: int
    tokens: int
    """Distinct, less what is cut."""
    share: float
    """Of all of these."""


class Passes(msgspec.Struct, frozen=True, kw_only=True):
    """What going over each token so often means, at the overlap that is picked."""

    passes: int
    epochs: float
    steps: int


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    reason: DropReason
    files: int
    bytes: int


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What another training went through."""

    tokens: int
    """Ids, with padding where there was some: `epochs * sequences * length`, or as named."""
    epochs: float | None = None
    sequences: int | None = None
    length: int | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    files: int
    of: int
    """Files with something in them that were not left out by name."""
    error: float
    """Windows, ids and JSONL bytes of the whole lie within this share of those told. What is told of languages, folders
    and reasons is rougher; compressed sizes come out too large, as files that are alike often lie side by side."""


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    overlap: int
    compress: bool
    why: list[str]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of files, tokens, splits and variants holds at the overlap that is picked."""

    sources: list[str]
    found: int
    kept: int
    distinct_tokens: int
    """Content tokens of what is kept, each once, less what is cut."""
    cut_tokens: int
    """In spans that are in another split too, or in a benchmark."""
    one_window_files: int
    """Files that are one window at overlap 0."""
    preset: str
    """Its name, with the reason for it."""
    is_packed: bool
    """Windows are counted by the rows that they fill."""
    window_length: int
    batch_size: int
    budget: Budget | None
    overlaps: list[OverlapPlan]
    languages: list[Portion]
    folders: list[Portion]
    removed: list[Removed]
    splits: list[SplitPlan]
    """Empty for a sample, which is too small to be dealt out as the whole would be."""
    previous_splits: PreviousSplits | None
    """What an earlier build in the output folder decides."""
    sampling: SamplingFacts | None
    """What came of weights and sizes, as a build says it; None: every window once, or a sample."""
    fim: FimFacts | None
    variants: dict[VariantKind, VariantFacts]
    """Of each kind asked for; empty for a sample."""
    passes: list[Passes]
    pick: Pick
    sample: Sample | None
    """None: everything was read, and counts are exact."""
    warnings: list[str]
    """Those that a build would give; none for a sample."""
    workers: int
    seconds: float
    """That the plan itself took."""

    def at(self, overlap: int) -> OverlapPlan:
        return next(one for one in self.overlaps if one.overlap == overlap)
