"""Facts of a report as plain records. They are gathered once, and read by the page, notebooks and tests."""

from typing import Literal

import msgspec

from gristmill.core.manifest import FimFacts
from gristmill.core.records import Split

PerSplit = dict[Split, int]
MAX_NAME_LENGTH = 1000
"""Maximum length of a displayed name, in characters. If gristmill did not write files.jsonl, names may be longer."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A file named in the report."""

    name: str
    """Repository and path."""
    detail: str


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of the funnel from found to kept files."""

    name: str
    files: int
    """Number of files that reach this stage."""
    note: str
    """Number of files dropped before this stage, by reason. In the first stage, the number of sources."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A drop reason with its files."""

    reason: str
    meaning: str
    files: int
    bytes: int
    """Total size of the files whose size is known."""
    examples: list[Example]


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Number of kept files and tokens of one language or license."""

    name: str
    files: int
    tokens: PerSplit


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder or source in the treemap. Counts include its subfolders."""

    id: str
    """Path like `repo/a/b`. If two folders have the same path, the id of the second ends in `~2`."""
    parent: str
    """Id of the parent folder. Empty for a source."""
    name: str
    files: int
    tokens: int


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    edges: list[float]
    """Edges of the bars: n bars have n + 1 edges."""
    counts: dict[Split, list[int]]
    median: float
    mean: float
    largest: float


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of two texts side by side. Secrets are redacted as in the dataset."""

    kind: Literal["same", "changed", "removed", "added", "skipped"]
    """`skipped` replaces several equal lines."""
    left: str = ""
    right: str = ""
    left_number: int | None = None
    right_number: int | None = None
    num_skipped: int = 0


class Duplicate(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a cluster that was dropped because it duplicates the kept file."""

    name: str
    similarity: float
    is_exact: bool
    """True if the text equals that of the kept file."""
    lines: list[DiffLine]
    """Kept file on the left, this file on the right. Empty if `no_diff_reason` is set."""
    num_lines_left_out: int
    """Number of lines omitted after `lines`."""
    no_diff_reason: str | None
    """Reason why there is no diff, or None if there is a diff."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Files with the same or nearly the same text. One of the files is kept."""

    kept: str
    """Name of the file that is kept."""
    num_duplicates: int
    """Number of dropped files."""
    duplicates: list[Duplicate]
    """Some of the dropped files, near-duplicates first."""


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of a held-out split that are also in train, as measured by `gristmill check`."""

    split: Split
    l50: float
    """Share of tokens in shared spans of at least 50 tokens."""
    gram13: float
    """Share of 13-grams that are also in train."""


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Results of `gristmill check` in check.json."""

    is_ok: bool
    checks: list[tuple[str, str, str]]
    """Name, status and summary of each check."""
    leaks: list[Leak]


class SplitLine(msgspec.Struct, frozen=True, kw_only=True):
    split: Split
    files: int
    groups: int
    windows: int
    tokens: int
    emitted: int
    share: float
    requested_share: float | None
    tokens_cut: int


class Redundancy(msgspec.Struct, frozen=True, kw_only=True):
    """Number of ids in the rows of a split, by origin. With packing or padding, the sum is the capacity of the rows."""

    split: Split
    fresh: int
    """Content tokens that no earlier window of the file contains."""
    overlap: int
    """Content tokens that the previous window of the file also contains."""
    repeats: int
    """Content tokens in repeated windows."""
    variants: int
    special: int
    padding: int


class VariantCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one kind of variant."""

    kind: str
    chosen: int
    made: int
    windows: int
    tokens: int


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """A source of the dataset."""

    repo: str
    commit: str | None
    found: int
    """Number of files found."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Information needed to reproduce the dataset."""

    command: str
    """Build command with every setting that differs from its default. Sources are named without their paths."""
    config: str
    """The same settings in the format of gristmill.toml."""
    gristmill: str
    versions: dict[str, str]
    tokenizer: list[tuple[str, str]]
    repo_order: str | None
    """Order of the files in a repository, or None without --pack repo."""
    fingerprint: str
    content_sha256: str
    files: list[tuple[str, int, str]]
    """Name, number of bytes, and sha256 of each file."""
    sources: list[Origin]
    started_at: str
    python: str
    platform: str
    workers: int


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts of a report."""

    title: str
    """Name of the dataset folder."""
    found: int
    kept: int
    dropped: int
    rows: int
    is_packed: bool
    """True if a row can contain several windows, False if each row is one window."""
    windows: int
    repeat_windows: int
    """Number of repeated windows."""
    variant_windows: int
    """Number of windows of variants."""
    num_tail_tokens: int
    """Number of tokens at the ends of files that are in no window, because they were too few for a window."""
    num_without_windows: int
    """Number of kept files without a row, because sampling drew none of their windows."""
    tokens: int
    emitted: int
    data_bytes: int
    source_bytes: int
    has_documents: bool
    """True if a row is the text of a document, without ids."""
    window_length: int
    overlap: int | None
    formats: list[str]
    funnel: list[Stage]
    reasons: list[Reason]
    languages: list[Share]
    licenses: list[Share]
    folders: list[Folder]
    num_folders_left_out: int
    """Number of small or deep folders that are not in `folders`. Their files are counted in a parent folder."""
    fill: Histogram
    """Filled share of the rows, from 0 to 1."""
    lengths: Histogram
    """Number of tokens per file. Each edge is twice the previous edge."""
    redundancy: list[Redundancy]
    clusters: list[Cluster]
    num_clusters: int
    num_clustered: int
    """Number of files in all clusters."""
    num_grouped: int = 0
    """Number of near-duplicates that --near-duplicates group kept in the same split."""
    splits: list[SplitLine]
    decontamination: str
    """Treatment of spans shared by train and a held-out split: `cut`, `drop`, `train`, or `off`."""
    num_benchmarks: int
    """Number of benchmarks whose spans were removed from train."""
    certificate: Certificate | None
    """Check results, or None if this version of the dataset has not been checked."""
    secrets: dict[str, int]
    """Number of redacted secrets by kind."""
    secret_files: list[Example]
    preset: str
    fim: FimFacts | None
    variants: list[VariantCounts]
    seconds: dict[str, float]
    """Duration of each phase of the build, without the total."""
    total_seconds: float
    provenance: Provenance
    warnings: list[str]


def truncate(text: str) -> str:
    """Return the text, cut to MAX_NAME_LENGTH characters."""
    return text if len(text) <= MAX_NAME_LENGTH else f"{text[:MAX_NAME_LENGTH]}…"
