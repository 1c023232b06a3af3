"""What a plan says: per overlap what a build would give and cost, who brings what, and what training on it means."""

import msgspec

from gristmill.records import DropReason


class OverlapPlan(msgspec.Struct, frozen=True, kw_only=True):
    overlap: int
    windows: int
    train_windows: int
    """What an epoch goes through."""
    tokens: int
    """Ids in all rows: overlaps and special tokens count again."""
    train_tokens: int
    redundancy: float
    """How often each source token is shown: content tokens in all windows per distinct one."""
    jsonl_bytes: int
    jsonl_zst_bytes: int
    parquet_bytes: int | None
    """None: pyarrow is not installed."""
    seconds: float
    """That a build would take on this machine, at the rates of this very run."""
    steps: int
    """Per epoch, at the batch size."""
    epochs: float | None
    """That show as many ids as the budget."""


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """What a language or a top folder brings, of what is kept."""

    name: str
    files: int
    tokens: int
    share: float
    """Of all tokens."""


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    reason: DropReason
    files: int
    bytes: int


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """So many ids, padding included where it was: what another training run went through."""

    tokens: int
    epochs: float | None = None
    sequences: int | None = None
    length: int | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    files: int
    of: int
    """Files that were not left out by name."""
    error: float
    """What is counted lies within this share of the estimate, in 997 of 1,000 samples."""


class Pick(msgspec.Struct, frozen=True, kw_only=True):
    overlap: int
    compress: bool
    why: list[str]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    sources: list[str]
    found: int
    kept: int
    tokens: int
    """Distinct content tokens of what is kept, less what is cut."""
    cut_tokens: int
    """Of held-out files, for spans that train has too, or of train for benchmarks."""
    one_window_files: int
    """Kept files that fit into one window: no overlap changes anything for them."""
    window: int
    batch_size: int
    budget: Budget | None
    overlaps: list[OverlapPlan]
    languages: list[Portion]
    folders: list[Portion]
    removed: list[Removed]
    pick: Pick
    sample: Sample | None
    """None: everything was read, and counts are exact."""
    workers: int
    seconds: float
    """That the plan itself took."""

    def at(self, overlap: int) -> OverlapPlan:
        return next(one for one in self.overlaps if one.overlap == overlap)
