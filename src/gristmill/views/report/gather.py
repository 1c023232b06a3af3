"""gather(): all that a report tells, on one screen.

1. files      files.jsonl row by row: what became of each file, languages, licences, folders, twins
2. rows       every row once, without its ids: how full they are, what of them is shown for the first time
3. twins      the largest clusters of near-duplicates, compared line by line
"""

import os
from collections.abc import Sequence
from pathlib import Path

from gristmill.core.errors import DatasetError
from gristmill.core.files_table import file_rows
from gristmill.core.layout import FILES
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted, path_text
from gristmill.core.progress import Progress
from gristmill.dataset.dataset import Dataset
from gristmill.views.report.clusters import Comparing, Twins, rows_named
from gristmill.views.report.facts import Facts, Variation
from gristmill.views.report.provenance import certificate_in, provenance_of, split_lines
from gristmill.views.report.read_back import ShownTexts, config_of, sources_of
from gristmill.views.report.tallies import Drops, Folders, Lengths, Shares, fill_histogram, read_rows

FILES_AT_ONCE = 1000


def gather(
    folder: Path, sources: Sequence[str] = (), progress: Progress | None = None, *, compares_twins: bool = True
) -> Facts:
    """`sources`: where dropped near-duplicates are read from; else those that the work folder remembers."""
    progress = progress or Progress()
    dataset = Dataset(Path(os.path.expanduser(folder)))
    manifest, folder = dataset.manifest, dataset.folder
    config, texts = config_of(manifest), sources_of(dataset, sources)
    drops, shares, folders, lengths, twins = Drops(), Shares(), Folders(), Lengths(), Twins()
    with progress.phase("files", manifest.counts.found) as step:
        for number, row in enumerate(file_rows(folder / FILES), 1):
            for tally in (drops, shares, folders, lengths, twins):
                tally.add(row)
            if number % FILES_AT_ONCE == 0:
                step.advance(FILES_AT_ONCE)
        _require_all(drops, manifest, folder)
        outlines, num_clusters, num_clustered = twins.outlines()
        outlines = outlines if compares_twins else []
        named = rows_named(folder / FILES, outlines)
    num_rows = sum(facts.windows for facts in manifest.splits.values())
    with progress.phase("rows", num_rows, "rows") as step:
        rows = read_rows(dataset, {row.key for row in named.values()}, step.advance)
    with progress.phase("twins", sum(len(one.twins) for one in outlines)) as step:
        clusters = Comparing(ShownTexts(dataset, rows.rows_of), texts, named).clusters(outlines, step.advance)
    tree, num_folders_left_out = folders.tree()
    return Facts(
        title=path_text(folder.resolve().name),
        found=drops.num_found,
        kept=drops.num_found - drops.num_dropped,
        dropped=drops.num_dropped,
        rows=num_rows,
        is_packed=manifest.packing is not None,
        windows=rows.num_windows.total(),
        repeated=rows.num_windows["repeats"],
        varied=rows.num_windows["variants"],
        num_tail_tokens=manifest.counts.tail_tokens_dropped,
        num_undrawn=lengths.num_undrawn,
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
        fill=fill_histogram({} if manifest.has_documents else rows.num_ids, manifest.window_length),
        lengths=lengths.histogram(),
        redundancy=rows.redundancy,
        clusters=clusters,
        num_clusters=num_clusters,
        num_clustered=num_clustered,
        num_grouped=manifest.near_duplicates.files if config.duplicates.near == "group" else 0,
        splits=split_lines(manifest),
        decontaminated=manifest.decontamination.how,
        num_benchmarks=len(manifest.decontamination.against),
        certificate=certificate_in(folder, manifest),
        secrets=manifest.counts.redactions,
        secret_files=shares.secret_files,
        preset=manifest.preset,
        fim=manifest.fim,
        variants=[
            Variation(kind=kind, chosen=one.chosen, made=one.made, windows=one.windows, tokens=one.tokens)
            for kind, one in manifest.variants.items()
        ],
        seconds={phase: value for phase, value in manifest.run.seconds.items() if phase != "total"},
        total_seconds=manifest.run.seconds.get("total", 0.0),
        provenance=provenance_of(manifest),
        warnings=manifest.warnings,
    )


def _require_all(drops: Drops, manifest: Manifest, folder: Path) -> None:
    if drops.num_found != manifest.counts.found:
        raise DatasetError(
            f"{str(folder)!r} is damaged: {FILES} tells of {counted(drops.num_found, 'file')}, the manifest of "
            f"{manifest.counts.found:,}. Build the dataset again."
        )
