"""build(): the whole flow on one screen.

sources ─► scan ─► prepare (over batches) ─► decide (once) ─► compare ─► shape (over pieces) ─► finish ─► dataset

Between the steps everything lies in the work folder, under names that say what went in: a build that was killed goes on
there, and the next one does again only what has changed.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from gristmill.config import Config
from gristmill.failing import as_ours
from gristmill.flow import (
    benchmarks_of,
    in_order,
    judge,
    local_sources,
    piece_tasks,
    prepare_all,
    runner_for,
    shape_all,
    take_in,
)
from gristmill.intake.addresses import last_part
from gristmill.intake.remote import refuse_taken, upload_dataset
from gristmill.layout import FILES
from gristmill.manifest import Manifest, Run, write_manifest
from gristmill.naming import is_address
from gristmill.progress import Progress
from gristmill.records import PreparedDocument
from gristmill.steps.context import Context
from gristmill.steps.finish import Outcome, describe, machine, write_files_table
from gristmill.steps.prepare import batches
from gristmill.tokenizing.definition import Definition
from gristmill.tokenizing.locating import locate
from gristmill.workspace import Workspace


def build(config: Config, progress: Progress | None = None) -> Manifest:
    """Source trees in, a dataset folder out. Whatever happens on the way, an earlier dataset in that place is whole."""
    progress = progress or Progress()
    progress.seconds.clear()
    clock = Clock()
    benchmarks = benchmarks_of(config)
    with as_ours(config), opened(config) as work:
        with progress.phase("load"):
            definition, context = load(config, work.folder)
        with progress.phase("scan") as step:
            intake = take_in(config, benchmarks, work.fetched, leave_out=(work.target, work.folder))
            step.advance(len(intake.found.files))
        with runner_for(context, intake.found) as runner:
            tasks = batches(intake.found.files, config.run)
            parts = in_order(prepare_all(context, intake.sources, tasks, runner, progress))
            intake.found.files.clear()  # of no more use, and there may be many
            judged = judge(context, intake, parts, runner, progress)
            data_files = shape_all(context, piece_tasks(context, judged, work), work, runner, progress)
        with progress.phase("finish"):
            tally = write_files_table(context.dataset / FILES, context, judged)
            definition.write(context.dataset)
        run = clock.run(progress, runner.workers, judged.decision.kept)
        manifest = describe(context, Outcome(definition, intake.found, judged, tally, data_files), run)
        write_manifest(manifest, context.dataset)
        publish(work, config)
        work.prune(set(parts), config.run.cache_bytes)
    return manifest


def opened(config: Config) -> Workspace:
    """Of a dataset that is to lie elsewhere, the work folder is in the current one."""
    if not is_address(config.out):
        work = Workspace(config.out)
    else:
        work = Workspace(last_part(config.out, "dataset"))
        if work.uploading_to() != config.out:  # else it is gone on with
            refuse_taken(config.out)
    work.refuse_sources([source.root for source in local_sources(config)])
    return work


def publish(work: Workspace, config: Config) -> None:
    if not is_address(config.out):
        work.publish()
        return
    work.note_upload(config.out)
    upload_dataset(work.dataset, config.out)
    work.end_upload()


def load(config: Config, folder: Path) -> tuple[Definition, Context]:
    definition = locate(config.tokenizer.name, cache_dir=config.tokenizer.cache_dir)
    return definition, Context.of(config, definition, folder)


class Clock:
    def __init__(self) -> None:
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._started = time.perf_counter()

    def run(self, progress: Progress, workers: int, kept: Sequence[PreparedDocument]) -> Run:
        seconds = {**progress.seconds, "total": time.perf_counter() - self._started}
        return Run(
            started_at=self._started_at,
            seconds={phase: round(value, 3) for phase, value in seconds.items()},
            workers=workers,
            source_bytes=sum(document.size for document in kept),
            **machine(),
        )
