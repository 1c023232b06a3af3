"""Step 2, once, and the only one that looks at more than one document: duplicates · groups · splits · places."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from gristmill.cleaning.clean import without_secret, without_secrets
from gristmill.cleaning.folder_licenses import HEADER, TABLE, FolderLicenses, LicenseFiles, license_of
from gristmill.cleaning.licenses import NOASSERTION, AllowList
from gristmill.config.config import Config
from gristmill.core.manifest import NearDuplicates, PreviousSplits
from gristmill.core.names import counted
from gristmill.core.progress import MapFunction, Progress
from gristmill.core.records import Drop, DropReason, FileKey, PreparedDocument, Split
from gristmill.dedup.clusters import MIN_JACCARD, Cluster, exact_duplicates
from gristmill.dedup.signatures import NUM_BANDS
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision, Judged
from gristmill.pipeline.decontaminate import decontaminate
from gristmill.pipeline.draw import draw
from gristmill.pipeline.draw_facts import sampling_facts
from gristmill.pipeline.failures import nothing_to_build
from gristmill.pipeline.intake import Intake
from gristmill.pipeline.parts import PartReader
from gristmill.pipeline.similarity import clusters_of
from gristmill.runners.runner import Runner
from gristmill.sources.benchmark_files import Benchmark
from gristmill.splits.assign import assign_splits, make_groups
from gristmill.splits.previous import PreviousSplit, read_previous_splits


def decide(context: Context, intake: Intake, parts: Sequence[str], runner: Runner, progress: Progress) -> Judged:
    """Step 2: who is in, where, with what cut out; and who is not, and why."""
    judged = settle(context, intake, parts, runner, progress)
    return show(context, judged, intake.benchmarks, runner, progress)


def settle(context: Context, intake: Intake, parts: Sequence[str], runner: Runner, progress: Progress) -> Judged:
    """The first half of step 2: files, splits and cuts, with every window shown once."""
    config = context.config
    with progress.phase("decide"):
        documents, renamed = _load(context, parts)
        documents, not_allowed, contradictions = license_documents(documents, intake.licenses, config)
        intake.found.warnings.extend(contradictions)
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
        drawing = draw(context, decision.kept, step.counting(runner.map))
    if drawing is not None:
        decision = msgspec.structs.replace(decision, kept=drawing.documents)
    if config.variants.rates:
        from gristmill.pipeline.vary import with_variants  # noqa: PLC0415 - many builds do without, and it has much to load

        decision = with_variants(context, decision, benchmarks, runner, progress)
    return judged._replace(decision=decision, sampling=sampling_facts(drawing, decision, config.sampling))


def _load(context: Context, parts: Iterable[str]) -> tuple[list[PreparedDocument], list[Drop]]:
    documents: list[PreparedDocument] = []
    renamed: list[Drop] = []
    num_more_bytes = context.row_format.num_more_bytes
    for part in parts:
        reader = PartReader(context.prepared, part)
        documents += _sized(reader.documents(), num_more_bytes)
        renamed += reader.renamed()
    return documents, renamed


def _sized(documents: list[PreparedDocument], num_more_bytes: int) -> list[PreparedDocument]:
    """With the columns that step 1 knows nothing of."""
    for document in documents if num_more_bytes else ():
        num_bytes = document.num_row_bytes + document.num_windows * num_more_bytes
        msgspec.structs.force_setattr(document, "num_row_bytes", num_bytes)
    return documents


def part_drops(context: Context, parts: Iterable[str]) -> Iterator[Drop]:
    """Files that were dropped in step 1."""
    for part in parts:
        yield from PartReader(context.prepared, part).drops()


def _require(
    documents: Sequence[PreparedDocument], context: Context, parts: Sequence[str], drops: Sequence[Drop]
) -> None:
    if not documents:
        raise nothing_to_build(context.config, [*drops, *part_drops(context, parts)])


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
    placed: dict[FileKey, PreparedDocument] = {}
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


def _placed(document: PreparedDocument, group: str, split: Split, before: PreviousSplit) -> PreparedDocument:
    was = before.of(document)
    moved_from = was if was is not split else None
    return msgspec.structs.replace(document, group=group, split=split, moved_from=moved_from)


def _to_drop(clusters: Iterable[Cluster]) -> dict[int, tuple[int, float]]:
    """Those that are near enough to the first of their cluster, by number: that one, and how near."""
    twins = ((cluster.first, twin) for cluster in clusters for twin in cluster.others)
    return {twin.member: (first, twin.jaccard) for first, twin in twins if twin.jaccard >= MIN_JACCARD}


def _clusters(context: Context, documents: Sequence[PreparedDocument], map_tasks: MapFunction) -> list[Cluster]:
    """Near-duplicates, by their number among the documents."""
    path = context.scratch / "bands"
    _write_columns(path, context, documents)
    bands = (np.fromfile(path, np.uint64, len(documents), offset=at) for at in _band_offsets(documents))
    return clusters_of(context, documents, bands, map_tasks)


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


class Licensed(NamedTuple):
    kept: list[PreparedDocument]
    drops: list[Drop]
    warnings: list[str]


def license_documents(
    documents: Sequence[PreparedDocument], license_files: Mapping[str, LicenseFiles], config: Config
) -> Licensed:
    folders = {repo: FolderLicenses(files) for repo, files in license_files.items()}
    nothing = FolderLicenses(LicenseFiles({}))
    allowed = AllowList.of(config.licenses.allow) if config.licenses.allow else None
    places: dict[str | None, str | None] = {None: None}
    contradictions: Counter[str] = Counter()
    kept: list[PreparedDocument] = []
    drops: list[Drop] = []
    for document in documents:
        folder = folders.get(document.repo, nothing)
        found = license_of(
            document.path, document.header_license, document.named_license, folder, document.declared_license
        )
        if found.found_in not in places:
            places[found.found_in] = without_secret(found.found_in or "", config.secrets)
        licensed = msgspec.structs.replace(document, license=found.spdx, license_from=places[found.found_in])
        if found.is_contradiction:
            contradictions[f"{document.repo}: {licensed.license_from}"] += 1
        if allowed is None or allowed.allows(found.spdx):
            kept.append(licensed)
        else:
            detail = f"{found.spdx}, {_place(found.spdx, licensed.license_from)}"
            drops.append(Drop.of(licensed, DropReason.LICENSE_NOT_ALLOWED, detail))
    return Licensed(kept, drops, list(_warnings(contradictions)))


def _warnings(contradictions: Counter[str]) -> Iterator[str]:
    if contradictions:
        [first, *others] = contradictions
        more = f", and {len(others):,} more such in files.jsonl" if others else ""
        yield (
            f"the licence of {counted(contradictions.total(), 'file')} is unknown, as a manifest contradicts another "
            f"one or a licence text. In {first}{more}."
        )


def _place(spdx: str, found_in: str | None) -> str:
    if found_in == HEADER:
        return "by what its first lines say"
    if found_in == TABLE:
        return "by what its table says"
    if found_in is None:
        return "no licence file in its folder or above"
    return f"left open by {found_in}" if spdx == NOASSERTION else f"by {found_in}"
