"""files.jsonl by itself: `files_table` and `groups`."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gristmill.checks.findings import Faults
from gristmill.checks.requirements import Settings
from gristmill.checks.windows_by_file import Rows
from gristmill.core.files_table import Count, FileRow, VariantRow
from gristmill.core.layout import FILES, MANIFEST
from gristmill.core.manifest import Manifest
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Cut, DropReason, Redaction, Split

CHECK = "files_table"
DIGEST = re.compile(r"[0-9a-f]{64}")
DUPLICATES = frozenset({DropReason.EXACT_DUPLICATE, DropReason.NEAR_DUPLICATE})
MIN_SIMILARITY = 0.7
FileKey = tuple[str, str]


class KeptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A kept file's row, with all that every kept file has."""

    repo: str
    path: str
    split: Split
    group: str
    language: str
    encoding: str
    bytes: Count
    lines: Count
    tokens: Count
    cut_tokens: Count
    windows: Count
    draw: tuple[Count, Count] | None
    left_tokens: Count
    weight: float
    variants: tuple[VariantRow, ...]
    sha256: str | None
    text_sha256: str
    license: str | None
    redactions: tuple[Redaction, ...]
    cuts: tuple[Cut, ...]

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"

    @property
    def shown_tokens(self) -> int:
        """Each once; those in a dropped tail count as shown."""
        return self.tokens - self.cut_tokens - self.left_tokens


class FilesTable(msgspec.Struct, frozen=True):
    kept: dict[FileKey, KeptFile]
    dropped: dict[FileKey, FileRow]

    def __len__(self) -> int:
        return len(self.kept) + len(self.dropped)


def read_files_table(folder: Path, faults: Faults) -> FilesTable:
    """What can be read of it."""
    table = FilesTable({}, {})
    try:
        with open_plain(folder / FILES) as stream:
            content = stream.read()
    except OSError as error:
        faults.add(CHECK, f"cannot be read: {error.strerror}", file=FILES)
        return table
    if not content.endswith(b"\n") or b"\r" in content:
        faults.add(CHECK, "each line ends with a line feed and nothing else; here one does not", file=FILES)
    last: FileKey | None = None
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        try:
            row = _decoder().decode(line)
            for defect in (*_take(row, table), *_defects(row)):
                faults.add(CHECK, defect, file=FILES, row=number, path=row.name)
            if last is not None and row.key < last:
                faults.add(CHECK, "not in path order", file=FILES, row=number, path=row.name)
            last = row.key
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            faults.add(CHECK, str(error), file=FILES, row=number)
    _check_twins(table, faults)
    return table


def _take(row: FileRow, table: FilesTable) -> Iterator[str]:
    """Into the table; what is wrong with that."""
    if row.key in table.kept or row.key in table.dropped:
        yield "the same file twice"
    elif row.status == "dropped":
        table.dropped[row.key] = row
    else:
        kept = msgspec.convert(row, KeptFile, from_attributes=True)
        # A cut beyond the tokens could be of any size: nothing is laid out by it.
        table.kept[row.key] = kept if _are_in_order(row) else msgspec.structs.replace(kept, cuts=())


@cache
def _decoder() -> msgspec.json.Decoder[FileRow]:
    return msgspec.json.Decoder(FileRow)


def _defects(row: FileRow) -> Iterator[str]:
    if any(DIGEST.fullmatch(one) is None for one in (row.sha256, row.text_sha256) if one is not None):
        yield "a digest that is none"
    if row.status == "dropped":
        yield from ["dropped without a reason"] if row.reason is None else []
        yield from ["dropped, but with windows"] if row.windows or row.variants else []
    else:
        yield from [f"kept, but for {row.reason}"] if row.reason is not None else []
        yield from ["kept without a window"] if not row.windows and row.draw != (0, 0) else []
        yield from ["variants of a file that is held out"] if row.variants and row.split is not Split.TRAIN else []
        yield from ["left_tokens without a draw"] if row.left_tokens and row.draw is None else []
        yield from ["cuts that are not in order, or beyond its tokens"] if not _are_in_order(row) else []
        yield from ["sha256 with redactions, or neither"] if (row.sha256 is None) != bool(row.redactions) else []
        yield from ["redactions that are not in order, or beyond its lines"] if not _are_redactions(row) else []


def _are_in_order(row: FileRow) -> bool:
    edges = [0, *(edge for cut in row.cuts for edge in (cut.start, cut.end)), row.tokens or 0]
    return edges == sorted(edges)


def _are_redactions(row: FileRow) -> bool:
    edges = [0, *(edge for one in row.redactions for edge in (one.start, one.end))]
    lines = [1, *(one.line for one in row.redactions), row.lines or 0]
    return not row.redactions or (edges == sorted(edges) and lines == sorted(lines))


def _check_twins(table: FilesTable, faults: Faults) -> None:
    """A duplicate's twin is in the table, and as like as it must be."""
    names = {f"{repo}/{path}" for repo, path in (*table.kept, *table.dropped)}
    for row in table.dropped.values():
        if row.reason not in DUPLICATES:
            continue
        if row.twin not in names or row.twin == row.name:
            faults.add(CHECK, f"its twin {row.twin!r} is not in the table", file=FILES, path=row.name)
        if not MIN_SIMILARITY <= (row.similarity or 0) <= 1:
            faults.add(CHECK, f"a {row.reason}, with a similarity of {row.similarity}", file=FILES, path=row.name)


def check_groups(table: FilesTable, faults: Faults) -> None:
    split_of: dict[str, KeptFile] = {}
    for file in table.kept.values():
        first = split_of.setdefault(file.group, file)
        if first.split is not file.split:
            what = f"in {file.split}, but {first.name} of the same group is in {first.split}"
            faults.add("groups", what, file=FILES, path=file.name)


# The manifest's counts against files.jsonl (`files_table`).


def check_counts(table: FilesTable, manifest: Manifest, faults: Faults) -> None:
    for name, said, found in (*_counts(table, manifest), *_decontamination(table, manifest)):
        if said != found:
            faults.add(CHECK, f"{name}: {_difference(said, found)}", file=MANIFEST)


def _counts(table: FilesTable, manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    kept, dropped, counts = table.kept.values(), table.dropped.values(), manifest.counts
    by_reason = _tally(row.reason for row in dropped)
    by_language: dict[str, dict[Split, int]] = {}
    for file in kept:
        by_split = by_language.setdefault(file.language, dict.fromkeys(Split, 0))
        by_split[file.split] += file.shown_tokens
    num_near = by_reason.get(DropReason.NEAR_DUPLICATE, 0)
    yield "counts.found", counts.found, len(table)
    yield "counts.kept", counts.kept, len(kept)
    yield "counts.dropped", counts.dropped, len(dropped)
    yield "counts.dropped_by_reason", counts.dropped_by_reason, by_reason
    yield "counts.licenses", counts.licenses, _tally(file.license or "" for file in kept)
    yield "counts.redactions", counts.redactions, _tally(one.kind for file in kept for one in file.redactions)
    yield "tokens_by_language", manifest.tokens_by_language, by_language
    yield from _sources(table, manifest)
    yield "near_duplicates.dropped", manifest.near_duplicates.dropped, num_near


def _decontamination(table: FilesTable, manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """Kept files with their cuts, and those of which nothing was left."""
    said = manifest.decontamination
    before, cut, files = (dict.fromkeys(Split, 0) for _ in range(3))
    for file in table.kept.values():
        before[file.split] += file.tokens
        cut[file.split] += file.cut_tokens
        files[file.split] += file.cut_tokens > 0
    for row in table.dropped.values():
        if row.reason is DropReason.CONTAMINATED and row.split is not None:
            before[row.split] += row.tokens or 0
            cut[row.split] += row.tokens or 0
            files[row.split] += 1
    yield "decontamination.how", said.how, manifest.settings["split"].get("decontaminate")
    yield "decontamination.tokens_before", said.tokens_before, before
    yield "decontamination.tokens_cut", said.tokens_cut, cut
    yield "decontamination.files_cut", said.files_cut, files


def _tally(names: Iterable[Any]) -> dict[Any, int]:
    return dict(Counter(names))


def _sources(table: FilesTable, manifest: Manifest) -> Iterator[tuple[str, Any, Any]]:
    """Files per source. The rows of a table may name any repository, so those of all tables are counted together."""
    found = _tally(repo for repo, _ in (*table.kept, *table.dropped))
    trees = {one.repo: one.found for one in manifest.sources if not one.is_table}
    yield "sources", {repo: said for repo, said in trees.items() if said}, _only(found, trees)
    num_rows = sum(found.values()) - sum(_only(found, trees).values())
    yield "sources that are tables", sum(one.found for one in manifest.sources if one.is_table), num_rows


def _only(counts: Mapping[str, int], names: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name in names}


def _difference(said: Any, found: Any) -> str:
    if not isinstance(said, Mapping):
        return f"it says {said}, files.jsonl has {found}"
    names = [name for name in dict.fromkeys((*said, *found)) if said.get(name) != found.get(name)]
    return f"it says {said.get(names[0])} for {str(names[0])!r}, files.jsonl has {found.get(names[0])}"


# What the manifest tells of sampling, variants and epochs, against files.jsonl and the rows (`files_table`).

NUM_DIGITS = 6
ROUNDING = 2e-6


def check_told(rows: Rows, table: FilesTable, settings: Settings, faults: Faults) -> None:
    manifest = settings.manifest
    for name, said, found in (*_variants(table, settings), *_sampling(rows, settings)):
        if said != found:
            faults.add(CHECK, f"{name} is {said}, and it should be {found}", file=MANIFEST)
    epochs = manifest.epochs
    if epochs is not None:
        effective = epochs.shown + epochs.variant_worth * epochs.varied
        if abs(effective - epochs.effective) > ROUNDING or epochs.most < 0:
            faults.add(CHECK, f"epochs.effective is {epochs.effective}, and not {effective:.6f}", file=MANIFEST)


def _variants(table: FilesTable, settings: Settings) -> Iterator[tuple[str, Any, Any]]:
    said = settings.manifest.variants
    rows = [row for file in table.kept.values() for row in file.variants]
    yield "variants", sorted(said), sorted(settings.variants.rates)
    for kind, facts in said.items():
        own = [row for row in rows if row.kind == kind]
        made = [row for row in own if row.missing is None]
        yield f"variants.{kind}.made", facts.made, len(made)
        yield f"variants.{kind}.windows", facts.windows, sum(row.windows for row in made)
        yield f"variants.{kind}.missing", facts.missing, dict(Counter(row.missing for row in own if row.missing))
        yield f"variants.{kind}.chosen", facts.chosen, len(own)


def _sampling(rows: Rows, settings: Settings) -> Iterator[tuple[str, Any, Any]]:
    facts = settings.manifest.sampling
    if facts is None:
        return
    windows = dict.fromkeys(Split, 0)
    largest = 0
    for runs in rows.by_file.values():
        for placed in runs:
            windows[placed.split] += len(placed.run.windows)
            largest = max(largest, placed.run.repeat)
    yield "sampling.windows", facts.windows, windows
    if facts.groups:
        yield "sampling.groups: windows", sum(one.windows for one in facts.groups), windows[Split.TRAIN]
        yield "sampling.groups: largest_repeat", max(one.largest_repeat for one in facts.groups), largest
        total = sum(one.realised_share for one in facts.groups)
        is_whole = abs(total - 1) < NUM_DIGITS * len(facts.groups) * ROUNDING or not windows[Split.TRAIN]
        yield "sampling.groups: shares", is_whole, True
