"""Step 2: decide which documents are kept, and in which split. This step runs once, because it compares all documents.

licenses · duplicates · groups · splits · cuts · fill-in-the-middle · sampling · variants

The documents come from parts. A part is a file with the results of step 1 for one batch of files.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import astuple

from gristmill.cleaning.clean import redact_drop, redact_name
from gristmill.cleaning.folder_licenses import HEADER, TABLE, FolderLicenses, LicenseFiles, license_of
from gristmill.cleaning.licenses import NOASSERTION, AllowList
from gristmill.config.config import Config
from gristmill.core.errors import ConfigError, NothingToBuildError
from gristmill.core.manifest import NearDuplicates, PreviousSplits
from gristmill.core.names import counted, printable
from gristmill.core.partition import consecutive_groups
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
from gristmill.dedup.clusters import MIN_JACCARD, Cluster, separate_exact_duplicates
from gristmill.dedup.signatures import NUM_BANDS, Keys
from gristmill.dedup.similarity import cluster_near_duplicates
from gristmill.formats.jsonl_rows import num_added_bytes
from gristmill.pipeline.cache import read_cached, write_cached
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decided, Decision
from gristmill.pipeline.decontaminate import decontaminate
from gristmill.pipeline.document_rows import measure_cached
from gristmill.pipeline.facts import sampling_facts
from gristmill.pipeline.inputs import Inputs
from gristmill.pipeline.parts import PartReader
from gristmill.runners.runner import Runner
from gristmill.sources.addresses import without_credentials
from gristmill.sources.benchmark_files import Benchmark
from gristmill.splits.assign import Group, assign_splits, make_groups
from gristmill.splits.previous import PreviousSplit, read_previous_splits
from gristmill.windows.draw import Drawing, draw, num_windows

SIMILAR = "similar"
"""Name of the cache of similarities between documents."""
DRAWN = "drawn"
"""Name of the cache of the sizes of sampled documents."""
MAX_BAND_BYTES = 1 << 25
"""Maximum size of the near-duplicate keys in memory, enough for 131,072 documents."""
REPO, LANGUAGE, NUM_ROW_BYTES = map(TokenizedText.__struct_fields__.index, ("repo", "language", "num_row_bytes"))


class PartTables:
    """Documents, renamed files and near-duplicate keys of each part.

    A part is read as soon as step 1 has finished it, or when step 2 needs it.
    """

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
    inputs: Inputs,
    parts: Sequence[str],
    runner: Runner,
    progress: Progress,
    *,
    tables: PartTables | None = None,
) -> Decided:
    """Run step 2. Return the kept documents with their splits and cuts, and the drops with their reasons.

    `tables` holds the tables of parts that have already been read.
    """
    decided = decide_files(context, inputs, parts, runner, progress, tables=tables)
    return decide_rows(context, decided, inputs.benchmarks, runner, progress)


def decide_files(
    context: Context,
    inputs: Inputs,
    parts: Sequence[str],
    runner: Runner,
    progress: Progress,
    *,
    tables: PartTables | None = None,
) -> Decided:
    """Run the first half of step 2: decide on kept files, splits and cuts. Windows are not sampled yet."""
    config = context.config
    with progress.phase("decide"):
        licenses, tables = _Licenses(inputs.licenses, config), tables or PartTables(context)
        documents: list[PreparedDocument] = []
        renamed: list[Drop] = []
        for part in parts:
            read = tables.pop(part)
            documents += _prepared_documents(context, part, read.documents, licenses)
            renamed += read.renamed
        inputs.found.warnings.extend(licenses.warnings())
        documents, not_allowed = _filter_by_license(documents, config)
        _require_documents(documents, context, parts, [*inputs.found.drops, *renamed, *not_allowed])
        decision = deduplicate_and_split(context, documents, runner.map, tables)
    with progress.phase("compare", unit="tasks") as step:
        decision, decontamination = decontaminate(context, decision, inputs.benchmarks, step.count_results(runner.map))
    drops = [redact_drop(drop, config.secrets) for drop in (*not_allowed, *decision.drops)]
    decision = msgspec.structs.replace(decision, drops=drops)
    _require_documents(decision.kept, context, parts, [*inputs.found.drops, *renamed, *drops])
    scan_drops = [redact_drop(drop, config.secrets) for drop in inputs.found.drops]
    return Decided(parts, decision, decontamination, scan_drops, renamed, None)


def decide_rows(
    context: Context, decided: Decided, benchmarks: Sequence[Benchmark], runner: Runner, progress: Progress
) -> Decided:
    """Run the second half of step 2: rewrite for fill-in-the-middle, sample windows and add variants."""
    config, decision = context.config, decided.decision
    if config.fim.is_enabled:
        from gristmill.pipeline.fim import with_fim  # noqa: PLC0415 - slow import that many builds skip

        decision = with_fim(context, decision, runner, progress)
    with progress.phase("compare", unit="tasks") as step:
        drawing = draw(decision.kept, config.sampling)
        if drawing is not None:
            kept = _apply_drawing(context, decision.kept, drawing, step.count_results(runner.map))
            decision = msgspec.structs.replace(decision, kept=kept)
    if config.variants.rates:
        from gristmill.pipeline.vary import with_variants  # noqa: PLC0415 - slow import that many builds skip

        decision = with_variants(context, decision, benchmarks, runner, progress)
    return decided._replace(decision=decision, sampling=sampling_facts(drawing, decision, config.sampling))


def _apply_drawing(
    context: Context, documents: Sequence[PlacedDocument], drawing: Drawing, map_tasks: MapFunction
) -> list[PlacedDocument]:
    changed = measure_cached(context, drawing.with_draws(documents), map_tasks, name=DRAWN)
    changed_by_key = {document.key: document for document in changed}
    result = [changed_by_key.get(document.key, document) for document in documents]
    if not num_windows(result):
        raise ConfigError(
            "no window is left: every train file has weight 0, and no window of a held-out file is selected. "
            "Change --weight."
        )
    return result


def _prepared_documents(
    context: Context, part: str, documents: Sequence[TokenizedDocument], licenses: "_Licenses"
) -> list[PreparedDocument]:
    """Return the documents of a part in path order. Frequent strings are interned to save memory."""
    num_extra_bytes = num_added_bytes(context.window_schema)
    num_shared = len(TokenizedText.__struct_fields__)
    offset = 0
    rows = []
    for row, document in enumerate(documents):
        spdx, found_in = licenses.find(document)
        values = list(astuple(document)[:num_shared])
        values[REPO], values[LANGUAGE] = sys.intern(document.repo), sys.intern(document.language)
        values[NUM_ROW_BYTES] += document.num_windows * num_extra_bytes
        rows.append((*values, part, offset, row, sys.intern(spdx), found_in))
        offset += document.part_bytes
    return msgspec.convert(rows, list[PreparedDocument])  # far faster than one constructor call per document


def part_drops(context: Context, parts: Iterable[str]) -> Iterator[Drop]:
    """Yield the files that were dropped in step 1."""
    for part in parts:
        yield from PartReader(context.prepared, part).drops()


def _require_documents(
    documents: Sequence[PreparedDocument], context: Context, parts: Sequence[str], drops: Sequence[Drop]
) -> None:
    if not documents:
        raise _nothing_to_build(context.config, [*drops, *part_drops(context, parts)])


def _nothing_to_build(config: Config, drops: Iterable[Drop]) -> NothingToBuildError:
    """Return an error that gives the reasons why no file is left."""
    where = ", ".join(repr(without_credentials(source)) for source in config.sources)
    counts: Counter[DropReason] = Counter()
    first_by_reason: dict[DropReason, Drop] = {}
    for drop in drops:
        counts[drop.reason] += 1
        first_by_reason.setdefault(drop.reason, drop)
    if not counts:
        return NothingToBuildError(f"there are no files in {where}. Check the path and the patterns in .gitignore.")
    reasons = counts.most_common(3)
    listed = "; ".join(f"{count:,} {reason}: {reason.meaning}" for reason, count in reasons)
    first_drop = redact_drop(first_by_reason[reasons[0][0]], config.secrets)
    example = printable(f"{first_drop.path}: {first_drop.detail}")
    return NothingToBuildError(
        f"no usable file in {where}: {counted(counts.total(), 'file')} found, none kept ({listed}). "
        f"For example: {example}. Choose other sources, or change the options that exclude these files."
    )


def deduplicate_and_split(
    context: Context,
    documents: Sequence[PreparedDocument],
    map_tasks: MapFunction,
    tables: PartTables | None = None,
) -> Decision:
    """Find duplicates, form groups and assign splits. `documents` must be in path order."""
    config = context.config
    distinct, copies = separate_exact_duplicates(documents)
    clusters = []
    if config.duplicates.near != "keep":
        clusters = _find_clusters(context, distinct, tables or PartTables(context), map_tasks)
    near_duplicates = _near_duplicates_to_drop(clusters) if config.duplicates.near == "drop" else {}
    members = [(cluster.first, *(other.member for other in cluster.others)) for cluster in clusters]
    groups = make_groups(distinct, members, near_duplicates, config.split.by, copies)
    previous, previous_sha256 = read_previous_splits(config)
    split_of_group = assign_splits(
        groups, config.split.fractions(), config.split.seed, previous, train_wins=config.duplicates.near == "group"
    )
    placed = {document.key: document for document in _placed_documents(groups, split_of_group, previous)}

    def drop(
        dropped: PreparedDocument, original: PreparedDocument, reason: DropReason, detail: str, similarity: float
    ) -> Drop:
        return Drop.of(placed[dropped.key], reason, detail, twin=original.name, similarity=round(similarity, 6))

    drops = [
        drop(copy, distinct[index], DropReason.EXACT_DUPLICATE, f"same text as {distinct[index].name}", 1.0)
        for index, duplicates in sorted(copies.items())
        for copy in duplicates
    ]
    for index, (first, jaccard) in near_duplicates.items():
        detail = f"similarity of {jaccard:.3f} to {distinct[first].name}, limit {MIN_JACCARD}"
        drops.append(drop(distinct[index], distinct[first], DropReason.NEAR_DUPLICATE, detail, jaccard))
    kept = [placed[document.key] for index, document in enumerate(distinct) if index not in near_duplicates]
    return Decision(
        kept=kept,
        drops=drops,
        previous=PreviousSplits(
            sha256=previous_sha256,
            num_files_kept_in_place=sum(one.moved_from is None and previous.find(one) is not None for one in kept),
            num_files_moved=sum(one.moved_from is not None for one in placed.values()),
        )
        if previous_sha256
        else None,
        near_duplicates=NearDuplicates(
            clusters=len(clusters), files=sum(map(len, members)), dropped=len(near_duplicates)
        ),
    )


def _placed_documents(
    groups: Iterable[Group], split_of_group: Mapping[str, Split], previous: PreviousSplit
) -> list[PlacedDocument]:
    rows = []
    for group in groups:
        split = split_of_group[group.name]
        for document in (*group.documents, *group.dropped):
            previous_split = previous.find(document)
            rows.append(
                (*astuple(document), group.name, split, previous_split if previous_split is not split else None)
            )
    return msgspec.convert(rows, list[PlacedDocument])


def _near_duplicates_to_drop(clusters: Iterable[Cluster]) -> dict[int, tuple[int, float]]:
    """Find the documents to drop. Each of them is similar enough to the first document of its cluster.

    The keys of the result are the indices of the documents to drop. The values are the index of that first document,
    and the similarity to it.
    """
    pairs = ((cluster.first, other) for cluster in clusters for other in cluster.others)
    return {other.member: (first, other.jaccard) for first, other in pairs if other.jaccard >= MIN_JACCARD}


def _find_clusters(
    context: Context, documents: Sequence[PreparedDocument], tables: PartTables, map_tasks: MapFunction
) -> list[Cluster]:
    """Find clusters of near-duplicates. The members of a cluster are indices into `documents`."""
    bands = _band_keys(context, documents, tables)
    cached = read_cached(context.folder / SIMILAR, context.prepare_key, dict[bytes, float]) or {}
    clusters, similar = cluster_near_duplicates(context.store, documents, bands, cached, map_tasks)
    write_cached(context.folder / SIMILAR, context.prepare_key, similar)
    return clusters


def _band_keys(context: Context, documents: Sequence[PreparedDocument], tables: PartTables) -> Iterator[Keys]:
    """Yield the near-duplicate keys of all documents, band by band. Parts store these keys document by document.

    If the keys exceed MAX_BAND_BYTES, they are transposed through a file.
    """
    rows = (
        tables.pop_bands(part)[[document.part_row for document in group]]
        for part, group in groupby(documents, key=lambda document: document.part)
    )
    blocks = map(np.concatenate, consecutive_groups(rows, lambda keys: keys.nbytes, MAX_BAND_BYTES))
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
    """Lookup of the license of a document.

    The license is in the first lines of the document, in its table row, or in a license file or package manifest in its
    folder or a folder above.
    """

    def __init__(self, license_files: Mapping[str, LicenseFiles], config: Config) -> None:
        self._folders = {repo: FolderLicenses(files) for repo, files in license_files.items()}
        self._no_license_files = FolderLicenses(LicenseFiles({}))
        self._secrets = config.secrets
        self._redacted_locations: dict[str | None, str] = {}
        self._contradictions: Counter[str] = Counter()

    def find(self, document: TokenizedDocument) -> tuple[str, str | None]:
        """Return the license as an SPDX expression or NOASSERTION, and where it was found."""
        folder = self._folders.get(document.repo, self._no_license_files)
        found = license_of(
            document.path, document.header_license, document.named_license, folder, document.declared_license
        )
        location = self._redacted_locations.get(found.found_in)
        if location is None and found.found_in is not None:
            location = self._redacted_locations[found.found_in] = redact_name(found.found_in, self._secrets)
        if found.is_contradiction:
            self._contradictions[f"{document.repo}: {location}"] += 1
        return found.spdx, location

    def warnings(self) -> Iterator[str]:
        if self._contradictions:
            [first, *others] = self._contradictions
            more = f", and column license_from of files.jsonl for {len(others):,} more" if others else ""
            yield (
                f"the license of {counted(self._contradictions.total(), 'file')} is unknown, because a package "
                f"manifest contradicts another manifest or a license text. See {first}{more}."
            )


def _filter_by_license(documents: list[PreparedDocument], config: Config) -> tuple[list[PreparedDocument], list[Drop]]:
    """Return the documents whose license --license-allow accepts, and a Drop for each other document."""
    if not config.licenses.allow:
        return documents, []
    allow_list = AllowList.of(config.licenses.allow)
    kept: list[PreparedDocument] = []
    drops: list[Drop] = []
    for document in documents:
        if allow_list.allows(document.license):
            kept.append(document)
        else:
            detail = f"{document.license}, {_license_origin(document.license, document.license_from)}"
            drops.append(Drop.of(document, DropReason.LICENSE_NOT_ALLOWED, detail))
    return kept, drops


def _license_origin(spdx: str, found_in: str | None) -> str:
    if found_in == HEADER and spdx == NOASSERTION:
        return "because the first lines of the file name no SPDX id, or contradict the license of the table or folder"
    if found_in == HEADER:
        return "according to the first lines of the file"
    if found_in == TABLE:
        return "according to the table"
    if found_in is None:
        return "because neither the folder of the file nor a folder above has a license file"
    if spdx == NOASSERTION:
        return f"because no license could be determined from {found_in}"
    return f"according to {found_in}"
