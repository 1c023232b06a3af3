"""Gather the facts of a report.

1. files           read files.jsonl for drops, languages, licenses, folders and duplicates
2. rows            read every row once, without ids, for row fill and redundancy
3. duplicates      compare the largest clusters of near-duplicates line by line
"""

import os
from collections.abc import Sequence
from pathlib import Path

from gristmill.core.errors import DatasetError
from gristmill.core.files_table import read_file_rows
from gristmill.core.layout import FILES
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, path_text
from gristmill.core.progress import Progress
from gristmill.dataset.dataset import Dataset
from gristmill.views.report.clusters import ClusterComparer, Duplicates, read_named_rows
from gristmill.views.report.facts import Facts, VariantCounts
from gristmill.views.report.provenance import provenance_of, read_certificate, split_lines
from gristmill.views.report.read_back import WindowTexts, config_from_manifest, find_sources
from gristmill.views.report.tallies import Drops, Folders, Lengths, Shares, fill_histogram, read_rows

FILES_PER_UPDATE = 1000


def gather(
    folder: Path, sources: Sequence[str] = (), progress: Progress | None = None, *, compares_duplicates: bool = True
) -> Facts:
    """Return the facts of the dataset in a folder.

    Dropped near-duplicates are read from the folders `sources`, by default the sources that the work folder records.
    Raise DatasetError if the dataset is damaged.
    """
    progress = progress or Progress()
    dataset = Dataset(Path(os.path.expanduser(folder)))
    manifest, folder = dataset.manifest, dataset.folder
    config, texts = config_from_manifest(manifest), find_sources(dataset, sources)
    drops, shares, folders, lengths, duplicates = Drops(), Shares(), Folders(), Lengths(), Duplicates()
    with progress.phase("files", manifest.counts.found) as step:
        for number, row in enumerate(read_file_rows(folder / FILES), 1):
            for tally in (drops, shares, folders, lengths, duplicates):
                tally.add(row)
            if number % FILES_PER_UPDATE == 0:
                step.advance(FILES_PER_UPDATE)
        _require_complete(drops, manifest, folder)
        outlines, num_clusters, num_clustered = duplicates.outlines()
        outlines = outlines if compares_duplicates else []
        named_rows = read_named_rows(folder / FILES, outlines)
    num_rows = sum(facts.windows for facts in manifest.splits.values())
    with progress.phase("rows", num_rows, "rows") as step:
        rows = read_rows(dataset, {row.key for row in named_rows.values()}, step.advance)
    with progress.phase("duplicates", sum(len(outline.duplicates) for outline in outlines)) as step:
        clusters = ClusterComparer(WindowTexts(dataset, rows.rows_by_file), texts, named_rows).clusters(
            outlines, step.advance
        )
    tree, num_folders_left_out = folders.tree()
    return Facts(
        title=path_text(folder.resolve().name),
        found=drops.num_found,
        kept=drops.num_found - drops.num_dropped,
        dropped=drops.num_dropped,
        rows=num_rows,
        is_packed=manifest.packing is not None,
        windows=rows.windows_by_kind.total(),
        repeat_windows=rows.windows_by_kind["repeats"],
        variant_windows=rows.windows_by_kind["variants"],
        num_tail_tokens=manifest.counts.tail_tokens_dropped,
        num_without_windows=lengths.num_without_windows,
        tokens=sum(facts.tokens for facts in manifest.splits.values()),
        emitted=sum(facts.emitted_tokens for facts in manifest.splits.values()),
        data_bytes=sum(facts.bytes for facts in manifest.files.values() if facts.format is not None),
        source_bytes=manifest.run.source_bytes,
        has_documents=manifest.has_documents,
        window_length=manifest.window_length,
        overlap=config.window.overlap,
        formats=manifest.formats,
        funnel=drops.funnel(len(manifest.sources)),
        reasons=drops.reasons(),
        languages=shares.languages(),
        licenses=shares.licenses(),
        folders=tree,
        num_folders_left_out=num_folders_left_out,
        fill=fill_histogram({} if manifest.has_documents else rows.row_lengths, manifest.window_length),
        lengths=lengths.histogram(),
        redundancy=rows.redundancy,
        clusters=clusters,
        num_clusters=num_clusters,
        num_clustered=num_clustered,
        num_grouped=manifest.near_duplicates.files if config.duplicates.near == "group" else 0,
        splits=split_lines(manifest),
        decontamination=manifest.decontamination.how,
        num_benchmarks=len(manifest.decontamination.against),
        certificate=read_certificate(folder, manifest),
        secrets=manifest.counts.redactions,
        secret_files=shares.secret_files,
        preset=manifest.preset,
        fim=manifest.fim,
        variants=[
            VariantCounts(kind=kind, chosen=one.chosen, made=one.made, windows=one.windows, tokens=one.tokens)
            for kind, one in manifest.variants.items()
        ],
        seconds={phase: value for phase, value in manifest.run.seconds.items() if phase != "total"},
        total_seconds=manifest.run.seconds.get("total", 0.0),
        provenance=provenance_of(manifest),
        warnings=manifest.warnings,
    )


def _require_complete(drops: Drops, manifest: Manifest, folder: Path) -> None:
    if drops.num_found != manifest.counts.found:
        raise DatasetError(
            f"{str(folder)!r} is damaged: {FILES} lists {counted(drops.num_found, 'file')}, but the manifest records "
            f"{manifest.counts.found:,}. Build the dataset again."
        )
