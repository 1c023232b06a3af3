"""Step 2, once, and the only one that looks at more than one document: duplicates · groups · splits · places."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import astuple

from gristmill.cleaning.clean import without_secret, without_secrets
from gristmill.cleaning.folder_licenses import HEADER, TABLE, FolderLicenses, LicenseFiles, license_of
from gristmill.cleaning.licenses import NOASSERTION, AllowList
from gristmill.config.config import Config
from gristmill.core.errors import ConfigError, NothingToBuildError
from gristmill.core.manifest import NearDuplicates, PreviousSplits
from gristmill.core.names import counted, printable
from gristmill.core.partition import neighbours
from gristmill.core.progress import MapFunction, Progress
from gristmill.core.records import (
    Drop,
    DropReason,
    PlacedDocument,
    PreparedDocument,
    Split,
    TokenizedDocument,
    TokenizedText,
)
from gristmill.dedup.clusters import MIN_JACCARD, Cluster, exact_duplicates
from gristmill.dedup.signatures import NUM_BANDS, Keys
from gristmill.dedup.similarity import clusters_of
from gristmill.formats.jsonl_rows import num_more_bytes
from gristmill.pipeline.cache import recall, remember
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision, Judged
from gristmill.pipeline.decontaminate import decontaminate
from gristmill.pipeline.document_rows import measure_again
from gristmill.pipeline.facts import sampling_facts
from gristmill.pipeline.intake import Intake
from gristmill.pipeline.parts import PartReader
from gristmill.runners.runner import Runner
from gristmill.sources.addresses import without_credentials
from gristmill.sources.benchmark_files import Benchmark
from gristmill.splits.assign import Group, assign_splits, make_groups
from gristmill.splits.previous import PreviousSplit, read_previous_splits
from gristmill.windows.draw import Drawing, draw, num_windows

SIMILAR = "similar"
DRAWN = "drawn"
MAX_BAND_BYTES = 1 << 25
"""Of the keys of near-duplicates in memory: those of 131,072 documents."""
REPO, LANGUAGE, NUM_ROW_BYTES = map(TokenizedText.__struct_fields__.index, ("repo", "language", "num_row_bytes"))


class PartTables:
    """The tables of parts that step 2 needs, read as the parts arrive or when they are asked for."""

    def __init__(self, context: Context) -> None:
        self._folder, self._needs_bands = context.prepared, context.config.duplicates.near != "keep"
        self._read: dict[str, _Tables] = {}
        self._bands: dict[str, Keys] = {}
        self._num_band_bytes = 0

    def read(self, part: str) -> None:
        reader = PartReader(self._folder, part)
        self._read[part] = _Tables(reader.documents(), reader.renamed())
        if self._needs_bands and self._num_band_bytes < MAX_BAND_BYTES:
            self._bands[part] = reader.bands()
            self._num_band_bytes += self._bands[part].nbytes

    def pop(self, part: str) -> "_Tables":
        if part not in self._read:
            self.read(part)
        return self._read.pop(part)

    def pop_bands(self, part: str) -> Keys:
        return self._bands.pop(part) if part in self._bands else PartReader(self._folder, part).bands()


class _Tables(NamedTuple):
    documents: list[TokenizedDocument]
    renamed: list[Drop]


def decide(
    context: Context,
    intake: Intake,
    parts: Sequence[str],
    runner: Runner,
    progress: Progress,
    *,
    tables: PartTables | None = None,
) -> Judged:
    """Step 2: who is in, where, with what cut out; and who is not, and why. `tables`: those that are read already."""
    judged = settle(context, intake, parts, runner, progress, tables=tables)
    return show(context, judged, intake.benchmarks, runner, progress)


def settle(
    context: Context,
    intake: Intake,
    parts: Sequence[str],
    runner: Runner,
    progress: Progress,
    *,
    tables: PartTables | None = None,
) -> Judged:
    """The first half of step 2: files, splits and cuts, with every window shown once."""
    config = context.config
    with progress.phase("decide"):
        licenses, tables = _Licenses(intake.licenses, config), tables or PartTables(context)
        documents: list[PreparedDocument] = []
        renamed: list[Drop] = []
        for part in parts:
            read = tables.pop(part)
            documents += _prepared(context, part, read.documents, licenses)
            renamed += read.renamed
        intake.found.warnings.extend(licenses.warnings())
        documents, not_allowed = _allowed(documents, config)
        _require(documents, context, parts, [*intake.found.drops, *renamed, *not_allowed])
        decision = place(context, documents, runner.map, tables)
    with progress.phase("compare", unit="tasks") as step:
        decision, decontamination = decontaminate(context, decision, intake.benchmarks, step.counting(runner.map))
    drops = [without_secrets(drop, config.secrets) for drop in (*not_allowed, *decision.drops)]
    decision = msgspec.structs.replace(decision, drops=drops)
    _require(decision.kept, context, parts, [*intake.found.drops, *renamed, *drops])
    scan_drops = [without_secrets(drop, config.secrets) for drop in intake.found.drops]
    return Judged(parts, decision, decontamination, scan_drops, renamed, None)


def show(
    context: Context, judged: Judged, benchmarks: Sequence[Benchmark], runner: Runner, progress: Progress
) -> Judged:
    """The second half of step 2: fill in the middle, how often each window is shown, variants beside the files."""
    config, decision = context.config, judged.decision
    if config.fim.is_on:
        from gristmill.pipeline.fim import with_fim  # noqa: PLC0415 - many builds do without, and it has much to load

        decision = with_fim(context, decision, runner, progress)
    with progress.phase("compare", unit="tasks") as step:
        drawing = draw(decision.kept, config.sampling)
        if drawing is not None:
            kept = _drawn(context, decision.kept, drawing, step.counting(runner.map))
            decision = msgspec.structs.replace(decision, kept=kept)
    if config.variants.rates:
        from gristmill.pipeline.vary import with_variants  # noqa: PLC0415 - many builds do without, and it has much to load

        decision = with_variants(context, decision, benchmarks, runner, progress)
    return judged._replace(decision=decision, sampling=sampling_facts(drawing, decision, config.sampling))


def _drawn(
    context: Context, documents: Sequence[PlacedDocument], drawing: Drawing, map_tasks: MapFunction
) -> list[PlacedDocument]:
    changed = measure_again(context, drawing.changed(documents), map_tasks, name=DRAWN)
    again = {document.key: document for document in changed}
    drawn = [again.get(document.key, document) for document in documents]
    if not num_windows(drawn):
        raise ConfigError("no window is left to show: all of train weighs 0, and nothing is held out. See --weight.")
    return drawn


def _prepared(
    context: Context, part: str, documents: Sequence[TokenizedDocument], licenses: "_Licenses"
) -> list[PreparedDocument]:
    """A part's documents, in path order. Words that many have in common are one in memory."""
    more = num_more_bytes(context.window_schema)
    num_shared = len(TokenizedText.__struct_fields__)
    offset = 0
    rows = []
    for row, one in enumerate(documents):
        spdx, found_in = licenses.of(one)
        facts = list(astuple(one)[:num_shared])
        facts[REPO], facts[LANGUAGE] = sys.intern(one.repo), sys.intern(one.language)
        facts[NUM_ROW_BYTES] += one.num_windows * more
        rows.append((*facts, part, offset, row, sys.intern(spdx), found_in))
        offset += one.part_bytes
    return msgspec.convert(rows, list[PreparedDocument])  # far faster than a call for each


def part_drops(context: Context, parts: Iterable[str]) -> Iterator[Drop]:
    """Files that were dropped in step 1."""
    for part in parts:
        yield from PartReader(context.prepared, part).drops()


def _require(
    documents: Sequence[PreparedDocument], context: Context, parts: Sequence[str], drops: Sequence[Drop]
) -> None:
    if not documents:
        raise _nothing_to_build(context.config, [*drops, *part_drops(context, parts)])


def _nothing_to_build(config: Config, drops: Iterable[Drop]) -> NothingToBuildError:
    """An empty result has a reason: say it."""
    where = ", ".join(repr(without_credentials(source)) for source in config.sources)
    counts: Counter[str] = Counter()
    first: dict[str, Drop] = {}
    for drop in drops:
        counts[drop.reason] += 1
        first.setdefault(drop.reason, drop)
    if not counts:
        return NothingToBuildError(
            f"there are no files in {where}. Check the path, and what its .gitignore leaves out."
        )
    reasons = counts.most_common(3)
    listed = ", ".join(f"{count} {reason}" for reason, count in reasons)
    one = without_secrets(first[reasons[0][0]], config.secrets)
    example = printable(f"{one.path}: {one.detail}")
    return NothingToBuildError(
        f"nothing to build from in {where}: {counted(counts.total(), 'file')} found, all dropped ({listed}). "
        f"For example {example}."
    )


def place(
    context: Context,
    documents: Sequence[PreparedDocument],
    map_tasks: MapFunction,
    tables: PartTables | None = None,
) -> Decision:
    """Duplicates, groups and splits; `documents` in path order."""
    config = context.config
    distinct, copies = exact_duplicates(documents)
    clusters = []
    if config.duplicates.near != "keep":
        clusters = _clusters(context, distinct, tables or PartTables(context), map_tasks)
    near_twins = _to_drop(clusters) if config.duplicates.near == "drop" else {}
    members = [(cluster.first, *(twin.member for twin in cluster.others)) for cluster in clusters]
    groups = make_groups(distinct, members, near_twins, config.split.by, copies)
    before, digest = read_previous_splits(config)
    split_of_group = assign_splits(
        groups, config.split.fractions(), config.split.seed, before, train_wins=config.duplicates.near == "group"
    )
    placed = {document.key: document for document in _placed(groups, split_of_group, before)}

    def drop(document: PreparedDocument, twin: PreparedDocument, reason: DropReason, detail: str, like: float) -> Drop:
        return Drop.of(placed[document.key], reason, detail, twin=twin.name, similarity=round(like, 6))

    drops = [
        drop(copy, distinct[number], DropReason.EXACT_DUPLICATE, f"same text as {distinct[number].name}", 1.0)
        for number, own in sorted(copies.items())
        for copy in own
    ]
    for number, (first, jaccard) in near_twins.items():
        detail = f"similarity of {jaccard:.3f} to {distinct[first].name}, limit {MIN_JACCARD}"
        drops.append(drop(distinct[number], distinct[first], DropReason.NEAR_DUPLICATE, detail, jaccard))
    kept = [placed[document.key] for number, document in enumerate(distinct) if number not in near_twins]
    return Decision(
        kept=kept,
        drops=drops,
        previous=PreviousSplits(
            sha256=digest,
            num_files_kept_in_place=sum(one.moved_from is None and before.of(one) is not None for one in kept),
            num_files_moved=sum(one.moved_from is not None for one in placed.values()),
        )
        if digest
        else None,
        near_duplicates=NearDuplicates(clusters=len(clusters), files=sum(map(len, members)), dropped=len(near_twins)),
    )


def _placed(
    groups: Iterable[Group], split_of_group: Mapping[str, Split], before: PreviousSplit
) -> list[PlacedDocument]:
    rows = []
    for group in groups:
        split = split_of_group[group.name]
        for document in (*group.documents, *group.dropped):
            was = before.of(document)
            rows.append((*astuple(document), group.name, split, was if was is not split else None))
    return msgspec.convert(rows, list[PlacedDocument])


def _to_drop(clusters: Iterable[Cluster]) -> dict[int, tuple[int, float]]:
    """Those that are near enough to the first of their cluster, by number: that one, and how near."""
    twins = ((cluster.first, twin) for cluster in clusters for twin in cluster.others)
    return {twin.member: (first, twin.jaccard) for first, twin in twins if twin.jaccard >= MIN_JACCARD}


def _clusters(
    context: Context, documents: Sequence[PreparedDocument], tables: PartTables, map_tasks: MapFunction
) -> list[Cluster]:
    """Near-duplicates, by their number among the documents."""
    bands = _bands(context, documents, tables)
    known = recall(context.folder / SIMILAR, context.prepare_key, dict[bytes, float]) or {}
    clusters, similar = clusters_of(context.store, documents, bands, known, map_tasks)
    remember(context.folder / SIMILAR, context.prepare_key, similar)
    return clusters


def _bands(context: Context, documents: Sequence[PreparedDocument], tables: PartTables) -> Iterator[Keys]:
    """The documents' keys, band by band; by document they lie in the parts. Too many for memory go through a file."""
    rows = (
        tables.pop_bands(part)[[document.part_row for document in group]]
        for part, group in groupby(documents, key=lambda document: document.part)
    )
    blocks = map(np.concatenate, neighbours(rows, lambda some: some.nbytes, MAX_BAND_BYTES))
    first = next(blocks)
    if len(first) == len(documents):
        yield from np.ascontiguousarray(first.T)
        return
    path, num_before = context.scratch / "bands", 0
    offsets = [band * first.itemsize * len(documents) for band in range(NUM_BANDS)]
    with path.open("wb") as stream:
        for block in chain((first,), blocks):
            for offset, column in zip(offsets, block.T, strict=True):
                stream.seek(offset + num_before * block.itemsize)
                stream.write(column.tobytes())
            num_before += len(block)
    for offset in offsets:
        yield np.fromfile(path, np.uint64, len(documents), offset=offset)


class _Licenses:
    """The licence of each document: by its first lines, its table, or the licence files in its folder and above."""

    def __init__(self, license_files: Mapping[str, LicenseFiles], config: Config) -> None:
        self._folders = {repo: FolderLicenses(files) for repo, files in license_files.items()}
        self._nothing = FolderLicenses(LicenseFiles({}))
        self._secrets = config.secrets
        self._places: dict[str | None, str] = {}
        self._contradictions: Counter[str] = Counter()

    def of(self, document: TokenizedDocument) -> tuple[str, str | None]:
        """An SPDX expression or NOASSERTION, and where it was found."""
        folder = self._folders.get(document.repo, self._nothing)
        found = license_of(
            document.path, document.header_license, document.named_license, folder, document.declared_license
        )
        place = self._places.get(found.found_in)
        if place is None and found.found_in is not None:
            place = self._places[found.found_in] = without_secret(found.found_in, self._secrets)
        if found.is_contradiction:
            self._contradictions[f"{document.repo}: {place}"] += 1
        return found.spdx, place

    def warnings(self) -> Iterator[str]:
        if self._contradictions:
            [first, *others] = self._contradictions
            more = f", and {len(others):,} more such in files.jsonl" if others else ""
            yield (
                f"the licence of {counted(self._contradictions.total(), 'file')} is unknown, as a manifest contradicts "
                f"another one or a licence text. In {first}{more}."
            )


def _allowed(documents: list[PreparedDocument], config: Config) -> tuple[list[PreparedDocument], list[Drop]]:
    """Those that --license-allow lets in, and those that it does not."""
    if not config.licenses.allow:
        return documents, []
    allowed = AllowList.of(config.licenses.allow)
    kept: list[PreparedDocument] = []
    drops: list[Drop] = []
    for document in documents:
        if allowed.allows(document.license):
            kept.append(document)
        else:
            detail = f"{document.license}, {_place(document.license, document.license_from)}"
            drops.append(Drop.of(document, DropReason.LICENSE_NOT_ALLOWED, detail))
    return kept, drops


def _place(spdx: str, found_in: str | None) -> str:
    if found_in == HEADER:
        return "by what its first lines say"
    if found_in == TABLE:
        return "by what its table says"
    if found_in is None:
        return "no licence file in its folder or above"
    return f"left open by {found_in}" if spdx == NOASSERTION else f"by {found_in}"
