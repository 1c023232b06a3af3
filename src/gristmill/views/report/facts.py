"""What a report tells of a dataset: plain records, gathered once, that the page, the notebook and the tests read."""

from typing import Literal

import msgspec

from gristmill.core.manifest import FimFacts
from gristmill.core.records import Split

PerSplit = dict[Split, int]
LONGEST_TOLD = 1000
"""Characters. Few names are as long; in a table of files that somebody else has written they may be without end."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Repo and path."""
    detail: str


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the funnel: what came so far."""

    name: str
    files: int
    note: str
    """What happened on the way to it."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why files are not in the dataset."""

    reason: str
    told: str
    files: int
    bytes: int
    """Of those whose size is known."""
    examples: list[Example]


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Kept files of one language or licence."""

    name: str
    files: int
    tokens: PerSplit


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the treemap, with all that is below it; a source is one too."""

    id: str
    """`repo/a/b`, with `~2` at the end of what would be the same twice."""
    parent: str
    """Empty for a source."""
    name: str
    files: int
    tokens: int


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    edges: list[float]
    """One more than there are bars."""
    counts: dict[Split, list[int]]
    median: float
    mean: float
    largest: float


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of two texts side by side. Text is redacted like the dataset."""

    kind: Literal["same", "changed", "removed", "added", "skipped"]
    """`skipped`: lines that are the same in both, which are left out here."""
    left: str = ""
    right: str = ""
    left_number: int | None = None
    right_number: int | None = None
    num_skipped: int = 0


class Twin(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a cluster that another one stands for."""

    name: str
    similarity: float
    is_exact: bool
    """The same text."""
    lines: list[DiffLine]
    """What is in the file that stands for it at the left, its own at the right; none where `why_not` says why."""
    num_lines_left_out: int
    """At the end of `lines`, as there are too many."""
    why_not: str | None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    kept: str
    """The file that stands for the others."""
    num_twins: int
    twins: list[Twin]
    """The first of them."""


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """Of a held-out split: what of it is in train too, as `gristmill check` measured it."""

    split: Split
    l50: float
    """Share of its tokens in spans of 50 and more."""
    gram13: float
    """Share of its 13-grams."""


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """What check.json says; absent where nobody has checked this very dataset."""

    is_ok: bool
    checks: list[tuple[str, str, str]]
    """Name, status, summary."""
    leaks: list[Leak]


class SplitLine(msgspec.Struct, frozen=True, kw_only=True):
    split: Split
    files: int
    groups: int
    windows: int
    tokens: int
    emitted: int
    share: float
    asked_share: float | None
    tokens_cut: int


class Redundancy(msgspec.Struct, frozen=True, kw_only=True):
    """What the ids of a split's rows are."""

    split: Split
    fresh: int
    """Content tokens, each where it is shown first."""
    overlap: int
    """Shown again, as a neighbouring window shows them too."""
    repeats: int
    """In windows that are drawn once more."""
    variants: int
    special: int
    padding: int
    """All of these together are the ids in its rows, or with packing the room of them."""


class Variation(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    chosen: int
    made: int
    windows: int
    tokens: int


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    repo: str
    commit: str | None
    found: int


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """All it takes to have the same once more."""

    command: str
    """With every setting that is not as it is by default; sources by name, as their place is nobody's business."""
    config: str
    """The same as a gristmill.toml."""
    gristmill: str
    versions: dict[str, str]
    tokenizer: list[tuple[str, str]]
    repo_order: str | None
    """In which order the files of a repository stand; None without --pack repo."""
    fingerprint: str
    content_sha256: str
    files: list[tuple[str, int, str]]
    """Name, bytes, sha256."""
    sources: list[Origin]
    started_at: str
    python: str
    platform: str
    workers: int


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    """The folder's own name."""
    found: int
    kept: int
    dropped: int
    rows: int
    is_packed: bool
    """Windows of several files share a row; else each row is a window."""
    windows: int
    repeated: int
    """Those of them that are drawn once more."""
    varied: int
    """Those of variants."""
    num_tail_tokens: int
    """At the ends of files, in no window: each would have brought too few."""
    num_undrawn: int
    """Kept files that no window shows, as none of theirs was drawn."""
    tokens: int
    emitted: int
    data_bytes: int
    source_bytes: int
    has_documents: bool
    """A row is a document's text, without ids."""
    window_length: int
    overlap: int | None
    formats: list[str]
    funnel: list[Stage]
    reasons: list[Reason]
    languages: list[Share]
    licenses: list[Share]
    folders: list[Folder]
    num_folders_left_out: int
    """Small ones, counted in the folder above them."""
    fill: Histogram
    """Share of a row's room that is filled, from 0 to 1."""
    lengths: Histogram
    """Tokens in a file; the edges grow by a factor."""
    redundancy: list[Redundancy]
    clusters: list[Cluster]
    num_clusters: int
    num_clustered: int
    """Files in all of them."""
    num_grouped: int = 0
    """Near-duplicates that are kept, each beside the others in its split, as --near-duplicates group asks for."""
    splits: list[SplitLine]
    decontaminated: str
    """What became of spans that a held-out file and train share: `cut`, `drop`, `train`, or `off`."""
    num_benchmarks: int
    """Whose spans were cut out of train."""
    certificate: Certificate | None
    secrets: dict[str, int]
    """Redacted, by kind."""
    secret_files: list[Example]
    preset: str
    fim: FimFacts | None
    variants: list[Variation]
    seconds: dict[str, float]
    """By phase, without the total."""
    total_seconds: float
    provenance: Provenance
    warnings: list[str]


def brief(text: str) -> str:
    """As much of a name as a page tells."""
    return text if len(text) <= LONGEST_TOLD else f"{text[:LONGEST_TOLD]}…"
