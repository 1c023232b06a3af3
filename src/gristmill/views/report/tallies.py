"""Counts of a report: files and folders from files.jsonl, rows and how full they are."""

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
from gristmill.views.report.facts import Example, Folder, Histogram, PerSplit, Reason, Redundancy, Share, Stage, brief

# Kept files by folder, for a treemap: what is small is counted in the folder above it.

MOST_FOLDERS = 400
DEEPEST = 12
"""Below it, a folder is counted in the one above: a path may have two thousand slashes."""
OTHERS = "other sources"

Parts = tuple[str, ...]
"""Of a folder: its source, then the names on its way."""


class _Sizes:
    __slots__ = ("num_files", "num_tokens")

    def __init__(self) -> None:
        self.num_files = self.num_tokens = 0

    def add(self, num_files: int, num_tokens: int) -> None:
        self.num_files += num_files
        self.num_tokens += num_tokens


class Folders:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self._own: dict[tuple[str, str], _Sizes] = {}
        """By repo and folder: files right there."""

    def add(self, row: FileRow) -> None:
        if row.status == "kept":
            folder = row.path.rpartition("/")[0]
            self._own.setdefault((row.repo, folder), _Sizes()).add(1, row.shown_tokens)

    def tree(self) -> tuple[list[Folder], int]:
        """Parents first, the largest of each first; and how many folders are not among them."""
        sizes, num_too_deep = self._with_parents()
        # A folder is never larger than the one it is in, so a parent always comes before what is below it.
        order = sorted(sizes, key=lambda parts: (-sizes[parts].num_tokens, -sizes[parts].num_files, len(parts), parts))
        shown = order[:MOST_FOLDERS]
        left_out = order[MOST_FOLDERS:]
        ids = _ids(shown)
        folders = [
            Folder(
                id=ids[parts],
                parent=ids[parts[:-1]] if len(parts) > 1 else "",
                name=parts[-1] or "/",
                files=sizes[parts].num_files,
                tokens=sizes[parts].num_tokens,
            )
            for parts in shown
        ]
        others = [sizes[parts] for parts in left_out if len(parts) == 1]
        if others:
            folders.append(_others(others, set(ids.values())))
        return folders, num_too_deep + len(left_out)

    def _with_parents(self) -> tuple[dict[Parts, _Sizes], int]:
        sizes: dict[Parts, _Sizes] = {}
        num_too_deep = 0
        for (repo, folder), own in self._own.items():
            names = folder.split("/") if folder else []
            num_too_deep += len(names) > DEEPEST
            parts = (repo, *names[:DEEPEST])
            for length in range(1, len(parts) + 1):
                sizes.setdefault(parts[:length], _Sizes()).add(own.num_files, own.num_tokens)
        return sizes, num_too_deep


def _ids(shown: list[Parts]) -> dict[Parts, str]:
    """Names may be anything: a source `a/b` and the folder `b` of a source `a` must not be one."""
    ids: dict[Parts, str] = {}
    taken: set[str] = set()
    for parts in shown:
        above = f"{ids[parts[:-1]]}/" if len(parts) > 1 else ""
        ids[parts] = _free(f"{above}{parts[-1] or '/'}", taken)
        taken.add(ids[parts])
    return ids


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    return free


def _others(sizes: list[_Sizes], taken: set[str]) -> Folder:
    return Folder(
        id=_free(OTHERS, taken),
        parent="",
        name=f"{len(sizes):,} {OTHERS}",
        files=sum(one.num_files for one in sizes),
        tokens=sum(one.num_tokens for one in sizes),
    )


MOST_EXAMPLES = 8


class _Dropped:
    """Files of one reason."""

    def __init__(self) -> None:
        self.num_files = self.num_bytes = 0
        self._first: list[Example] = []
        self._of_folders: dict[str, Example] = {}

    def add(self, row: FileRow) -> None:
        self.num_files += 1
        self.num_bytes += row.bytes or 0
        example = Example(name=brief(row.name), detail=brief(row.detail or ""))
        if len(self._first) < MOST_EXAMPLES:
            self._first.append(example)
        if len(self._of_folders) < MOST_EXAMPLES:
            self._of_folders.setdefault(row.name.rstrip("/").rpartition("/")[0], example)

    def examples(self) -> list[Example]:
        """The first of each folder, then the first of all, in path order."""
        chosen = {example.name: example for example in (*self._of_folders.values(), *self._first)}
        return sorted(list(chosen.values())[:MOST_EXAMPLES], key=lambda example: example.name)


class Drops:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self.num_found = 0
        self._dropped: dict[DropReason, _Dropped] = {}

    def add(self, row: FileRow) -> None:
        self.num_found += 1
        if row.reason is not None:
            self._dropped.setdefault(row.reason, _Dropped()).add(row)

    @property
    def num_dropped(self) -> int:
        return sum(one.num_files for one in self._dropped.values())

    def reasons(self) -> list[Reason]:
        """Most files first."""
        order = {reason: number for number, reason in enumerate(DropReason)}
        found = sorted(self._dropped.items(), key=lambda item: (-item[1].num_files, order[item[0]]))
        return [
            Reason(
                reason=reason,
                told=reason.meaning,
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
            gone = Counter({reason: self._dropped[reason].num_files for reason in reasons})
            stages.append(
                Stage(name=stage.value, files=stages[-1].files - gone.total(), note=_note(gone.most_common()))
            )
        return stages


def _note(gone: Iterable[tuple[DropReason, int]]) -> str:
    """`250 excluded, 55 binary`"""
    return ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in gone) or "nothing dropped"


# Kept files by language and by licence, with their tokens in each split; and those that secrets were taken out of.

SECRET_FILES = 20
LINES_NAMED = 5


class Shares:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self._languages: dict[str, _Tally] = {}
        self._licenses: dict[str, _Tally] = {}
        self.secret_files: list[Example] = []
        """The first of them."""

    def add(self, row: FileRow) -> None:
        if row.split is None or row.status != "kept":
            return
        for tallies, name in ((self._languages, row.language), (self._licenses, row.license)):
            tallies.setdefault(brief(name or ""), _Tally()).add(row.split, row.shown_tokens)
        if row.redactions and len(self.secret_files) < SECRET_FILES:
            self.secret_files.append(Example(name=brief(row.name), detail=brief(_redacted(row))))

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
    """Most first."""
    shares = [Share(name=name, files=one.num_files, tokens=one.tokens) for name, one in tallies.items()]
    return sorted(shares, key=lambda share: (-sum(share.tokens.values()), share.name))


def _redacted(row: FileRow) -> str:
    """`2 private-key in lines 3, 9`: never what was there."""
    kinds = Counter(one.kind for one in row.redactions)
    lines = sorted({one.line for one in row.redactions})
    named = ", ".join(f"{line:,}" for line in lines[:LINES_NAMED]) + (", …" if len(lines) > LINES_NAMED else "")
    told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return f"{told} in line{'s' if len(lines) > 1 else ''} {named}"


# How long files are, and how full rows: counts by value -> bars for each split.

FILL_BARS = 20

Values = dict[Split, Counter[int]]
"""By split, how often there is which value."""


class Lengths:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self._values: Values = {split: Counter() for split in Split}
        self.num_undrawn = 0
        """Files without a window."""

    def add(self, row: FileRow) -> None:
        if row.status == "kept" and row.split is not None:
            self._values[row.split][row.tokens or 0] += 1
            self.num_undrawn += not row.windows

    def histogram(self) -> Histogram:
        """Each bar reaches twice as far as the one before."""
        largest = max((value for values in self._values.values() for value in values), default=1)
        edges = [float(1 << power) for power in range(max(largest, 1).bit_length() + 1)]
        return histogram_of(self._values, edges)


def fill_histogram(num_ids: Values, window_length: int) -> Histogram:
    return histogram_of(num_ids, [bar / FILL_BARS for bar in range(FILL_BARS + 1)], window_length)


def histogram_of(values: Values, edges: list[float], unit: int = 1) -> Histogram:
    """`unit`: what a value is divided by. What lies beyond the edges is in the bar next to it."""
    bars = {split: [0] * (len(edges) - 1) for split in Split}
    every: Counter[int] = Counter()
    for split, counts in values.items():
        every.update(counts)
        for value, count in counts.items():
            bar = bisect_right(edges, value / unit) - 1
            bars[split][max(0, min(bar, len(edges) - 2))] += count
    total = every.total()
    return Histogram(
        edges=edges,
        counts=bars,
        median=_median(every) / unit,
        mean=math.fsum(value * count for value, count in every.items()) / unit / total if total else 0.0,
        largest=max(every, default=0) / unit,
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


ROWS_AT_ONCE = 1000


class RowsTold(msgspec.Struct, frozen=True, kw_only=True):
    num_ids: Values
    """Of rows, without padding."""
    redundancy: list[Redundancy]
    num_windows: Counter[str]
    """Those that show a stretch of a file for the first time, repeats and variants, by their fields in Redundancy."""
    rows_of: dict[FileKey, list[int]]
    """Of the files that were asked for: the rows, by number in their split, that show them."""


def read_rows(dataset: Dataset, wanted: Collection[FileKey], advance: Callable[[int], None]) -> RowsTold:
    told = RowsTold(num_ids={}, redundancy=[], num_windows=Counter(), rows_of={})
    for split in Split:
        if split in dataset.manifest.splits:
            tally = _SplitTally(dataset, split, wanted)
            tally.read(advance)
            told.num_ids[split] = tally.num_ids
            told.redundancy.append(tally.redundancy())
            told.num_windows.update(tally.num_windows)
            told.rows_of.update(tally.rows_of)
    return told


class _SplitTally:
    def __init__(self, dataset: Dataset, split: Split, wanted: Collection[FileKey]) -> None:
        self._dataset, self._split, self._wanted = dataset, split, wanted
        self.num_ids: Counter[int] = Counter()
        self.num_windows: Counter[str] = Counter()
        self.rows_of: dict[FileKey, list[int]] = {}
        self._fresh = self._overlap = self._repeats = self._variants = self._special = 0

    def read(self, advance: Callable[[int], None]) -> None:
        number = -1
        for number, (num_ids, windows) in enumerate(read_windows(self._dataset, self._split)):
            self.num_ids[num_ids] += 1
            self._special += num_ids - sum(window.length for window in windows)
            for window in windows:
                self._take(window)
                if not (window.variant or window.repeat) and window.file in self._wanted:
                    self._note(window.file, number)
            if number % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
                advance(ROWS_AT_ONCE)
        advance((number + 1) % ROWS_AT_ONCE)

    def _take(self, window: Window) -> None:
        self.num_windows["variants" if window.variant else "repeats" if window.repeat else "fresh"] += 1
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

    def _note(self, key: FileKey, number: int) -> None:
        rows = self.rows_of.setdefault(key, [])
        if not rows or rows[-1] != number:
            rows.append(number)

    def redundancy(self) -> Redundancy:
        manifest = self._dataset.manifest
        num_ids = sum(num * count for num, count in self.num_ids.items())
        has_room = manifest.packing is not None or "attention_mask" in manifest.columns
        room = self.num_ids.total() * manifest.window_length
        return Redundancy(
            split=self._split,
            fresh=self._fresh,
            overlap=self._overlap,
            repeats=self._repeats,
            variants=self._variants,
            special=self._special,
            padding=max(0, room - num_ids) if has_room else 0,
        )
