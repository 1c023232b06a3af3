"""Records of a plan: size and cost of a build for each overlap, the content of the dataset, and training steps."""

import msgspec

from gristmill.core.manifest import FimFacts, PreviousSplits, SamplingFacts, VariantFacts
from gristmill.core.records import DropReason, Split, VariantKind


class OverlapPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Estimate of a build with one overlap."""

    overlap: int
    windows: int
    train_windows: int
    """Windows in one epoch of training."""
    validation_windows: int
    test_windows: int
    tokens: int
    """Ids in all rows, including overlaps, special tokens and padding."""
    train_tokens: int
    redundancy: float
    """Mean number of times a source token is shown: content tokens in all windows, divided by distinct tokens."""
    windows_per_token: float
    """Mean number of windows that contain a source token, before windows are drawn: redundancy caused by overlap."""
    is_cut_short: bool
    """True if --max-windows or --target-windows leaves windows out."""
    jsonl_bytes: int
    jsonl_zst_bytes: int
    parquet_bytes: int | None
    """None if pyarrow is not installed."""
    build_seconds: float
    """Estimated duration of a build without compression on this machine, at the speed measured by this plan."""
    steps_per_epoch: int
    """Training steps in one epoch, at the batch size."""
    epochs_for_budget: float | None
    """Number of epochs that process as many ids as the budget. None without a budget, or if train is empty."""


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """Kept files and tokens of a language or a top-level folder."""

    name: str
    files: int
    tokens: int
    share: float
    """Share of all tokens."""


class SplitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a split."""

    split: Split
    files: int
    tokens: int
    """Distinct tokens, without the tokens that are cut."""
    share: float
    """Share of the tokens of all splits."""


class Passes(msgspec.Struct, frozen=True, kw_only=True):
    """Number of epochs and steps for a number of passes over each token, at the recommended overlap."""

    passes: int
    epochs: float
    steps: int


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """Files dropped for one reason."""

    reason: DropReason
    files: int
    bytes: int


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Number of ids that a training run processes."""

    tokens: int
    """Ids including padding: the value of --budget-tokens, or `epochs * sequences * length`."""
    epochs: float | None = None
    sequences: int | None = None
    length: int | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Sample of the files that a plan is based on."""

    files: int
    of: int
    """Number of files to sample from: all files that are neither empty nor excluded by name."""
    error: float
    """Maximum relative error of windows, ids and JSONL bytes. The counts by language, folder and drop reason are less
    exact. Compressed sizes are overestimated, because a sample has fewer similar files next to each other."""


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    """Recommended settings, with the reasons."""

    overlap: int
    compress: bool
    why: list[str]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Estimate of a build. Files, tokens, splits and variants are estimated at the recommended overlap."""

    sources: list[str]
    found: int
    kept: int
    distinct_tokens: int
    """Content tokens of the kept files, each counted once, without the tokens that are cut."""
    cut_tokens: int
    """Tokens that are cut because they are in a span that is also in another split or in a benchmark."""
    one_window_files: int
    """Files that fit into one window."""
    preset: str
    """Name of the preset, with the reason for it."""
    is_packed: bool
    """True if windows are packed, so that all counts of windows are counts of rows."""
    has_documents: bool
    """True if each row is a document with its text, so that all counts of windows are counts of documents."""
    window_length: int
    batch_size: int
    budget: Budget | None
    overlaps: list[OverlapPlan]
    languages: list[Contribution]
    folders: list[Contribution]
    removed: list[Removed]
    splits: list[SplitPlan]
    """Empty for a sample, because a sample is too small to be split like all files."""
    previous_splits: PreviousSplits | None
    """Splits kept from an earlier build."""
    sampling: SamplingFacts | None
    """Effect of weights and requested sizes, as in a manifest. None for a sample, or if every window is used once."""
    fim: FimFacts | None
    variants: dict[VariantKind, VariantFacts]
    """Variants, keyed by configured kind. Empty for a sample."""
    passes: list[Passes]
    pick: Pick
    sample: Sample | None
    """None if all files were read, so that the counts are exact."""
    warnings: list[str]
    """Warnings that a build would print. Empty for a sample."""
    workers: int
    seconds: float
    """Duration of the plan itself."""

    def at(self, overlap: int) -> OverlapPlan:
        """Return the estimate for one overlap."""
        return next(one for one in self.overlaps if one.overlap == overlap)
