"""Step 2, once, and the only one that looks at more than one document: duplicates · groups · splits · places."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import msgspec
import numpy as np

from gristmill.cleaning.clean import without_secret, without_secrets
from gristmill.cleaning.folder_licenses import HEADER, TABLE, FolderLicenses, LicenseFiles, license_of
from gristmill.cleaning.licenses import NOASSERTION, AllowList
from gristmill.config.config import Config
from gristmill.core.errors import ConfigError, NothingToBuildError
from gristmill.core.manifest import NearDuplicates, PreviousSplits
from gristmill.core.names import counted, printable
from gristmill.core.progress import MapFunction, Progress
from gristmill.core.records import Drop, DropReason, FileKey, PlacedDocument, PreparedDocument, Split, TokenizedDocument
from gristmill.dedup.clusters import MIN_JACCARD, Cluster, exact_duplicates
from gristmill.dedup.signatures import NUM_BANDS
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
from gristmill.splits.assign import assign_splits, make_groups
from gristmill.splits.previous import PreviousSplit, read_previous_splits
from gristmill.windows.draw import Drawing, draw, num_windows

SIMILAR = "similar"
DRAWN = "drawn"


def decide(context: Context, intake: Intake, parts: Sequence[str], runner: Runner, progress: Progress) -> Judged:
    """Step 2: who is in, where, with what cut out; and who is not, and why."""
    judged = settle(context, intake, parts, runner, progress)
    return show(context, judged, intake.benchmarks, runner, progress)


def settle(context: Context, intake: Intake, parts: Sequence[str], runner: Runner, progress: Progress) -> Judged:
    """The first half of step 2: files, splits and cuts, with every window shown once."""
    config = context.config
    with progress.phase("decide"):
        licenses = _Licenses(intake.licenses, config)
        documents = [document for part in parts for document in _documents_of(context, part, licenses)]
        renamed = [drop for part in parts for drop in PartReader(context.prepared, part).renamed()]
        intake.found.warnings.extend(licenses.warnings())
        documents, not_allowed = _allowed(documents, config)
        _require(documents, context, parts, [*intake.found.drops, *renamed, *not_allowed])
        decision = place(context, documents, runner.map)
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
    """The second half of step 2: how often each window is shown, and the variants beside the files."""
    config, decision = context.config, judged.decision
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


def _documents_of(context: Context, part: str, licenses: "_Licenses") -> Iterator[PreparedDocument]:
    """A part's documents, in path order. Words that many have in common are one in memory."""
    more = num_more_bytes(context.window_schema)
    part_offset = 0
    for part_row, one in enumerate(PartReader(context.prepared, part).documents()):
        spdx, found_in = licenses.of(one)
        yield PreparedDocument(
            repo=sys.intern(one.repo),
            path=one.path,
            num_tokens=one.num_tokens,
            part=part,
            part_offset=part_offset,
            part_row=part_row,
            language=sys.intern(one.language),
            size=one.size,
            text_sha256=one.text_sha256,
            num_newlines=one.num_newlines,
            part_bytes=one.part_bytes,
            num_windows=one.num_windows,
            num_emitted_tokens=one.num_emitted_tokens,
            num_shown_tokens=one.num_shown_tokens,
            num_tail_tokens_dropped=one.num_tail_tokens_dropped,
            num_row_bytes=one.num_row_bytes + one.num_windows * more,
            license=sys.intern(spdx),
            license_from=found_in,
        )
        part_offset += one.part_bytes


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


def place(context: Context, documents: Sequence[PreparedDocument], map_tasks: MapFunction) -> Decision:
    """Duplicates, groups and splits; `documents` in path order."""
    config = context.config
    distinct, copies = exact_duplicates(documents)
    clusters = [] if config.duplicates.near == "keep" else _clusters(context, distinct, map_tasks)
    near_twins = _to_drop(clusters) if config.duplicates.near == "drop" else {}
    members = [(cluster.first, *(twin.member for twin in cluster.others)) for cluster in clusters]
    groups = make_groups(distinct, members, near_twins, config.split.by, copies)
    before, digest = read_previous_splits(config)
    split_of_group = assign_splits(
        groups, config.split.fractions(), config.split.seed, before, train_wins=config.duplicates.near == "group"
    )
    placed: dict[FileKey, PlacedDocument] = {}
    for group in groups:
        for document in (*group.documents, *group.dropped):
            placed[document.key] = _placed(document, group.name, split_of_group[group.name], before)

    def drop(document: PreparedDocument, twin: PreparedDocument, reason: DropReason, detail: str, like: float) -> Drop:
        return Drop.of(placed[document.key], reason, detail, twin=twin.name, similarity=round(like, 6))

    drops = [
        drop(copy, document, DropReason.EXACT_DUPLICATE, f"same text as {document.name}", 1.0)
        for document in distinct
        for copy in copies.get(document.key, ())
    ]
    for number, (first, jaccard) in near_twins.items():
        detail = f"similarity of {jaccard:.3f} to {distinct[first].name}, limit {MIN_JACCARD}"
        drops.append(drop(distinct[number], distinct[first], DropReason.NEAR_DUPLICATE, detail, jaccard))
    kept = [placed[document.key] for number, document in enumerate(distinct) if number not in near_twins]
    moved = [document for document in placed.values() if document.moved_from]
    was = [document for document in kept if before.of(document)]
    return Decision(
        kept=kept,
        drops=drops,
        previous=PreviousSplits(
            sha256=digest,
            num_files_kept_in_place=sum(document.moved_from is None for document in was),
            num_files_moved=len(moved),
        )
        if digest
        else None,
        near_duplicates=NearDuplicates(clusters=len(clusters), files=sum(map(len, members)), dropped=len(near_twins)),
    )


def _placed(document: PreparedDocument, group: str, split: Split, before: PreviousSplit) -> PlacedDocument:
    was = before.of(document)
    moved_from = was if was is not split else None
    return PlacedDocument(**msgspec.structs.asdict(document), group=group, split=split, moved_from=moved_from)


def _to_drop(clusters: Iterable[Cluster]) -> dict[int, tuple[int, float]]:
    """Those that are near enough to the first of their cluster, by number: that one, and how near."""
    twins = ((cluster.first, twin) for cluster in clusters for twin in cluster.others)
    return {twin.member: (first, twin.jaccard) for first, twin in twins if twin.jaccard >= MIN_JACCARD}


def _clusters(context: Context, documents: Sequence[PreparedDocument], map_tasks: MapFunction) -> list[Cluster]:
    """Near-duplicates, by their number among the documents."""
    path = context.scratch / "bands"
    _write_columns(path, context, documents)
    bands = (np.fromfile(path, np.uint64, len(documents), offset=at) for at in _band_offsets(documents))
    known = recall(context.folder / SIMILAR, context.prepare_key, dict[bytes, float]) or {}
    clusters, similar = clusters_of(context.store, documents, bands, known, map_tasks)
    remember(context.folder / SIMILAR, context.prepare_key, similar)
    return clusters


def _write_columns(path: Path, context: Context, documents: Sequence[PreparedDocument]) -> None:
    """Keys lie by document in the parts, and are wanted band by band, one in memory at a time."""
    first = 0
    with path.open("wb") as stream:
        for part, group in groupby(documents, key=lambda document: document.part):
            rows = PartReader(context.prepared, part).bands()[[document.part_row for document in group]]
            for offset, column in zip(_band_offsets(documents), rows.T, strict=True):
                stream.seek(offset + first * rows.itemsize)
                stream.write(column.tobytes())
            first += len(rows)


def _band_offsets(documents: Sequence[PreparedDocument]) -> range:
    num_bytes = 8 * len(documents)
    return range(0, NUM_BANDS * num_bytes, num_bytes)


class _Licenses:
    """The licence of each document: by its first lines, its table, or the licence files in its folder and above."""

    def __init__(self, license_files: Mapping[str, LicenseFiles], config: Config) -> None:
        self._folders = {repo: FolderLicenses(files) for repo, files in license_files.items()}
        self._nothing = FolderLicenses(LicenseFiles({}))
        self._secrets = config.secrets
        self._places: dict[str | None, str | None] = {None: None}
        self._contradictions: Counter[str] = Counter()

    def of(self, document: TokenizedDocument) -> tuple[str, str | None]:
        """An SPDX expression or NOASSERTION, and where it was found."""
        folder = self._folders.get(document.repo, self._nothing)
        found = license_of(
            document.path, document.header_license, document.named_license, folder, document.declared_license
        )
        if found.found_in not in self._places:
            self._places[found.found_in] = without_secret(found.found_in or "", self._secrets)
        place = self._places[found.found_in]
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
