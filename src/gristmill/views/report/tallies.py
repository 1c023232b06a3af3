"""Counts for a report: files and folders from files.jsonl, and ids and windows from the rows."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from gristmill.core.files_table import FileRow
from gristmill.core.names import counted
from gristmill.core.records import DropReason, DropStage, FileKey, Split
from gristmill.dataset.dataset import Dataset
from gristmill.dataset.row_windows import Window, read_windows
from gristmill.views.report.facts import (
    Example,
    Folder,
    Histogram,
    PerSplit,
    Reason,
    Redundancy,
    Share,
    Stage,
    truncate,
)

# Kept files by folder, for a treemap. Small folders are counted in their parent folder.

MAX_FOLDERS = 400
MAX_DEPTH = 12
"""Folders below this depth are counted in their ancestor at this depth. A path may have thousands of slashes."""
OTHER_SOURCES = "other sources"

Parts = tuple[str, ...]
"""Path of a folder: the source, followed by the folder names."""


class _Sizes:
    __slots__ = ("num_files", "num_tokens")

    def __init__(self) -> None:
        self.num_files = self.num_tokens = 0

    def add(self, num_files: int, num_tokens: int) -> None:
        self.num_files += num_files
        self.num_tokens += num_tokens


class Folders:
    """Counts files and tokens by folder."""

    def __init__(self) -> None:
        self._direct: dict[tuple[str, str], _Sizes] = {}
        """Number of files and tokens directly in a folder, keyed by repository and folder."""

    def add(self, row: FileRow) -> None:
        if row.status == "kept":
            folder = row.path.rpartition("/")[0]
            self._direct.setdefault((row.repo, folder), _Sizes()).add(1, row.kept_tokens)

    def tree(self) -> tuple[list[Folder], int]:
        """Return the largest folders, parents first, and the number of omitted folders."""
        sizes, num_too_deep = self._with_parents()
        # A folder is never larger than its parent, so each parent comes before its subfolders.
        order = sorted(sizes, key=lambda parts: (-sizes[parts].num_tokens, -sizes[parts].num_files, len(parts), parts))
        largest = order[:MAX_FOLDERS]
        omitted = order[MAX_FOLDERS:]
        ids = _ids(largest)
        folders = [
            Folder(
                id=ids[parts],
                parent=ids[parts[:-1]] if len(parts) > 1 else "",
                name=parts[-1] or "/",
                files=sizes[parts].num_files,
                tokens=sizes[parts].num_tokens,
            )
            for parts in largest
        ]
        others = [sizes[parts] for parts in omitted if len(parts) == 1]
        if others:
            folders.append(_other_sources(others, set(ids.values())))
        return folders, num_too_deep + len(omitted)

    def _with_parents(self) -> tuple[dict[Parts, _Sizes], int]:
        sizes: dict[Parts, _Sizes] = {}
        num_too_deep = 0
        for (repo, folder), direct in self._direct.items():
            names = folder.split("/") if folder else []
            num_too_deep += len(names) > MAX_DEPTH
            parts = (repo, *names[:MAX_DEPTH])
            for length in range(1, len(parts) + 1):
                sizes.setdefault(parts[:length], _Sizes()).add(direct.num_files, direct.num_tokens)
        return sizes, num_too_deep


def _ids(largest: list[Parts]) -> dict[Parts, str]:
    """Return unique ids. A source `a/b` and the folder `b` of a source `a` get different ids."""
    ids: dict[Parts, str] = {}
    used_ids: set[str] = set()
    for parts in largest:
        prefix = f"{ids[parts[:-1]]}/" if len(parts) > 1 else ""
        ids[parts] = _unique_id(f"{prefix}{parts[-1] or '/'}", used_ids)
        used_ids.add(ids[parts])
    return ids


def _unique_id(name: str, used_ids: set[str]) -> str:
    number, unique = 1, name
    while unique in used_ids:
        number += 1
        unique = f"{name}~{number}"
    return unique


def _other_sources(sizes: list[_Sizes], used_ids: set[str]) -> Folder:
    return Folder(
        id=_unique_id(OTHER_SOURCES, used_ids),
        parent="",
        name=counted(len(sizes), "other source"),
        files=sum(one.num_files for one in sizes),
        tokens=sum(one.num_tokens for one in sizes),
    )


MAX_EXAMPLES = 8


class _DroppedFiles:
    """Files dropped for one reason."""

    def __init__(self) -> None:
        self.num_files = self.num_bytes = 0
        self._first: list[Example] = []
        self._first_by_folder: dict[str, Example] = {}

    def add(self, row: FileRow) -> None:
        self.num_files += 1
        self.num_bytes += row.bytes or 0
        example = Example(name=truncate(row.name), detail=truncate(row.detail or ""))
        if len(self._first) < MAX_EXAMPLES:
            self._first.append(example)
        if len(self._first_by_folder) < MAX_EXAMPLES:
            self._first_by_folder.setdefault(row.name.rstrip("/").rpartition("/")[0], example)

    def examples(self) -> list[Example]:
        """Return up to MAX_EXAMPLES files, sorted by path. The first file of each folder has precedence."""
        chosen = {example.name: example for example in (*self._first_by_folder.values(), *self._first)}
        return sorted(list(chosen.values())[:MAX_EXAMPLES], key=lambda example: example.name)


class Drops:
    """Counts dropped files by reason."""

    def __init__(self) -> None:
        self.num_found = 0
        self._dropped: dict[DropReason, _DroppedFiles] = {}

    def add(self, row: FileRow) -> None:
        self.num_found += 1
        if row.reason is not None:
            self._dropped.setdefault(row.reason, _DroppedFiles()).add(row)

    @property
    def num_dropped(self) -> int:
        return sum(one.num_files for one in self._dropped.values())

    def reasons(self) -> list[Reason]:
        """Return the drop reasons, those with the most files first."""
        order = {reason: number for number, reason in enumerate(DropReason)}
        found = sorted(self._dropped.items(), key=lambda item: (-item[1].num_files, order[item[0]]))
        return [
            Reason(
                reason=reason,
                meaning=reason.meaning,
                files=one.num_files,
                bytes=one.num_bytes,
                examples=one.examples(),
            )
            for reason, one in found
        ]

    def funnel(self, num_sources: int) -> list[Stage]:
        sources = counted(num_sources, "source")
        stages = [Stage(name="found", files=self.num_found, note=f"in {sources}")]
        for stage in DropStage:
            reasons = [reason for reason in DropReason if reason.stage is stage and reason in self._dropped]
            dropped = Counter({reason: self._dropped[reason].num_files for reason in reasons})
            stages.append(
                Stage(
                    name=stage.value, files=stages[-1].files - dropped.total(), note=_drop_note(dropped.most_common())
                )
            )
        return stages


def _drop_note(dropped: Iterable[tuple[DropReason, int]]) -> str:
    """Return drop counts like `250 excluded, 55 binary`."""
    return ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in dropped) or "no files dropped"


# Kept files by language and by license, with their tokens in each split, and files with redacted secrets.

MAX_SECRET_FILES = 20
MAX_NAMED_LINES = 5


class Shares:
    """Counts files and tokens by language and license."""

    def __init__(self) -> None:
        self._languages: dict[str, _Tally] = {}
        self._licenses: dict[str, _Tally] = {}
        self.secret_files: list[Example] = []
        """The first files with redacted secrets."""

    def add(self, row: FileRow) -> None:
        if row.split is None or row.status != "kept":
            return
        for tallies, name in ((self._languages, row.language), (self._licenses, row.license)):
            tallies.setdefault(truncate(name or ""), _Tally()).add(row.split, row.kept_tokens)
        if row.redactions and len(self.secret_files) < MAX_SECRET_FILES:
            self.secret_files.append(Example(name=truncate(row.name), detail=truncate(_redactions_text(row))))

    def languages(self) -> list[Share]:
        return _by_tokens(self._languages)

    def licenses(self) -> list[Share]:
        return _by_tokens(self._licenses)


class _Tally:
    def __init__(self) -> None:
        self.num_files = 0
        self.tokens: PerSplit = dict.fromkeys(Split, 0)

    def add(self, split: Split, num_tokens: int) -> None:
        self.num_files += 1
        self.tokens[split] += num_tokens


def _by_tokens(tallies: dict[str, _Tally]) -> list[Share]:
    """Return the shares, those with the most tokens first."""
    shares = [Share(name=name, files=one.num_files, tokens=one.tokens) for name, one in tallies.items()]
    return sorted(shares, key=lambda share: (-sum(share.tokens.values()), share.name))


def _redactions_text(row: FileRow) -> str:
    """Describe the redactions of a file like `2 private-key in lines 3, 9`, without the secrets."""
    kinds = Counter(one.kind for one in row.redactions)
    lines = sorted({one.line for one in row.redactions})
    named = ", ".join(f"{line:,}" for line in lines[:MAX_NAMED_LINES]) + (", …" if len(lines) > MAX_NAMED_LINES else "")
    counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return f"{counts} in line{'s' if len(lines) > 1 else ''} {named}"


# Histograms of file lengths and of the fill of rows.

FILL_BARS = 20

Values = dict[Split, Counter[int]]
"""For each split, the number of occurrences of each value."""


class Lengths:
    """Counts files by number of tokens."""

    def __init__(self) -> None:
        self._values: Values = {split: Counter() for split in Split}
        self.num_without_windows = 0
        """Number of kept files without a row, because none of their windows were drawn."""

    def add(self, row: FileRow) -> None:
        if row.status == "kept" and row.split is not None:
            self._values[row.split][row.tokens or 0] += 1
            self.num_without_windows += not row.windows

    def histogram(self) -> Histogram:
        """Return a histogram whose edges are powers of two."""
        largest = max((value for values in self._values.values() for value in values), default=1)
        edges = [float(1 << power) for power in range(max(largest, 1).bit_length() + 1)]
        return histogram_of(self._values, edges)


def fill_histogram(row_lengths: Values, window_length: int) -> Histogram:
    return histogram_of(row_lengths, [bar / FILL_BARS for bar in range(FILL_BARS + 1)], window_length)


def histogram_of(values: Values, edges: list[float], unit: int = 1) -> Histogram:
    """Return the histogram of values divided by `unit`. The first and last bar include values outside the edges."""
    bars = {split: [0] * (len(edges) - 1) for split in Split}
    all_counts: Counter[int] = Counter()
    for split, counts in values.items():
        all_counts.update(counts)
        for value, count in counts.items():
            bar = bisect_right(edges, value / unit) - 1
            bars[split][max(0, min(bar, len(edges) - 2))] += count
    total = all_counts.total()
    return Histogram(
        edges=edges,
        counts=bars,
        median=_median(all_counts) / unit,
        mean=math.fsum(value * count for value, count in all_counts.items()) / unit / total if total else 0.0,
        largest=max(all_counts, default=0) / unit,
    )


def _median(counts: Mapping[int, int]) -> float:
    total, passed, below = sum(counts.values()), 0, None
    for value, count in sorted(counts.items()):
        passed += count
        if below is None and 2 * passed >= total:
            below = value
        if below is not None and 2 * passed > total:
            return (below + value) / 2
    return 0.0


ROWS_PER_UPDATE = 1000


class RowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts from reading all rows of a dataset."""

    row_lengths: Values
    """For each split, the number of rows of each length. The length of a row is its number of ids without padding."""
    redundancy: list[Redundancy]
    windows_by_kind: Counter[str]
    """Number of windows of each kind: `fresh`, `repeats` and `variants`."""
    rows_by_file: dict[FileKey, list[int]]
    """For each requested file, the indexes of the rows that contain its windows, without variants and repeats."""


def read_rows(dataset: Dataset, files: Collection[FileKey], advance: Callable[[int], None]) -> RowCounts:
    """Read all rows once. Count their ids and windows, and record which rows contain windows of `files`."""
    counts = RowCounts(row_lengths={}, redundancy=[], windows_by_kind=Counter(), rows_by_file={})
    for split in Split:
        if split in dataset.manifest.splits:
            tally = _SplitTally(dataset, split, files)
            tally.read(advance)
            counts.row_lengths[split] = tally.row_lengths
            counts.redundancy.append(tally.redundancy())
            counts.windows_by_kind.update(tally.windows_by_kind)
            counts.rows_by_file.update(tally.rows_by_file)
    return counts


class _SplitTally:
    def __init__(self, dataset: Dataset, split: Split, files: Collection[FileKey]) -> None:
        self._dataset, self._split, self._files = dataset, split, files
        self.row_lengths: Counter[int] = Counter()
        self.windows_by_kind: Counter[str] = Counter()
        self.rows_by_file: dict[FileKey, list[int]] = {}
        self._fresh = self._overlap = self._repeats = self._variants = self._special = 0

    def read(self, advance: Callable[[int], None]) -> None:
        index = -1
        for index, (num_ids, windows) in enumerate(read_windows(self._dataset, self._split)):
            self.row_lengths[num_ids] += 1
            self._special += num_ids - sum(window.length for window in windows)
            for window in windows:
                self._count(window)
                if not (window.variant or window.repeat) and window.file in self._files:
                    self._record_row(window.file, index)
            if index % ROWS_PER_UPDATE == ROWS_PER_UPDATE - 1:
                advance(ROWS_PER_UPDATE)
        advance((index + 1) % ROWS_PER_UPDATE)

    def _count(self, window: Window) -> None:
        self.windows_by_kind["variants" if window.variant else "repeats" if window.repeat else "fresh"] += 1
        if window.variant:
            self._variants += window.length
        elif window.repeat:
            self._repeats += window.length
        elif window.fim:
            num_fresh = min(window.fresh, window.length)
            self._fresh += num_fresh
            self._special += window.length - num_fresh
        else:
            self._fresh += window.fresh
            self._overlap += window.length - window.fresh

    def _record_row(self, key: FileKey, index: int) -> None:
        rows = self.rows_by_file.setdefault(key, [])
        if not rows or rows[-1] != index:
            rows.append(index)

    def redundancy(self) -> Redundancy:
        manifest = self._dataset.manifest
        num_ids = sum(length * count for length, count in self.row_lengths.items())
        has_capacity = manifest.packing is not None or "attention_mask" in manifest.columns
        capacity = self.row_lengths.total() * manifest.window_length
        return Redundancy(
            split=self._split,
            fresh=self._fresh,
            overlap=self._overlap,
            repeats=self._repeats,
            variants=self._variants,
            special=self._special,
            padding=max(0, capacity - num_ids) if has_capacity else 0,
        )
