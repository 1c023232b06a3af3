"""build(): the whole flow on one screen.

sources ─► scan ─► prepare (over batches) ─► decide (once) ─► compare ─► shape (over pieces) ─► finish ─► dataset

Between the steps everything lies in the work folder, under names that say what went in: a build that was killed goes on
there, and the next one does again only what has changed.
"""

import errno
import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gristmill.cards.card_files import write_cards
from gristmill.config.config import Config
from gristmill.config.settings import RunConfig
from gristmill.core.errors import OutputError
from gristmill.core.layout import FILES
from gristmill.core.manifest import GpuFacts, Manifest, Run, write_manifest
from gristmill.core.names import is_address
from gristmill.core.progress import Progress
from gristmill.core.records import PlacedDocument, SourceFile
from gristmill.pipeline.cache import remember, write_index
from gristmill.pipeline.context import Context
from gristmill.pipeline.decide import PartTables, decide
from gristmill.pipeline.decision import Judged
from gristmill.pipeline.finish import FilesTable, Outcome, clear_old, describe, machine
from gristmill.pipeline.intake import Arrival, check_settings, local_sources
from gristmill.pipeline.other_formats import MadeFiles
from gristmill.pipeline.pack import pack_all
from gristmill.pipeline.prepare import GO_ON, batches, in_order, prepare_all
from gristmill.pipeline.shape import shape_all
from gristmill.pipeline.work_folder import Workspace
from gristmill.runners.local import BYTES_PER_WORKER, LocalRunner, num_cores, num_workers
from gristmill.runners.probe import probe_of
from gristmill.runners.runner import Runner
from gristmill.sources.addresses import last_part
from gristmill.sources.benchmark_files import read_benchmarks
from gristmill.sources.remote import refuse_taken, upload_dataset
from gristmill.sources.trees import Scan
from gristmill.splits.previous import previous_file
from gristmill.tokenizers.cuda.serving import server_for
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate

if TYPE_CHECKING:
    from gristmill.tokenizers.cuda.server import MakeEncoder

BUILT = "built"
SOURCES_PROBED = 100


class Built(NamedTuple):
    """How a dataset was made, kept beside it."""

    config: Config
    folder: str
    """From which relative paths in it go."""

    def as_text(self) -> str:
        """As JSON in ASCII: a path may hold what is not UTF-8."""
        return json.dumps([msgspec.to_builtins(self.config), self.folder])

    @classmethod
    def of(cls, text: str) -> "Built":
        config, folder = json.loads(text)
        return cls(msgspec.convert(config, Config), folder)


class Job(NamedTuple):
    """A build under way."""

    tokenizer: Definition
    """As it was located: with its name and revision."""
    context: Context
    work: Workspace
    progress: Progress


def build(config: Config, progress: Progress | None = None) -> Manifest:
    """Source trees in, a dataset folder out. Whatever happens on the way, an earlier dataset in that place is whole."""
    return build_without(config, progress, hidden=())


def build_without(
    config: Config, progress: Progress | None, hidden: Sequence[Path], make_encoder: "MakeEncoder | None" = None
) -> Manifest:
    """`hidden`: folders that are not looked at, beside the dataset's own. `make_encoder`: in place of the GPU's."""
    progress = progress or Progress()
    progress.seconds.clear()
    clock = Clock()
    check_settings(config)
    benchmarks = read_benchmarks(config.split.against)
    with as_ours(config), opened(config) as work:
        with progress.phase("load"):
            job = Job(*load(config, work.folder), work, progress)
        with server_for(config.run, job.context.tokenizer, job.context.tokenizer_folder, make_encoder) as server:
            with progress.phase("scan") as step:
                arrival = Arrival(config, benchmarks, work.fetched, leave_out=(work.target, work.folder, *hidden))
                first = first_files(arrival.files, config.run)
                step.advance(len(first))
            with runner_for(job.context, first, sum(file.size for file in first)) as runner:
                tasks, tables = batches(chain(first, arrival.files), config.run), PartTables(job.context)
                prepared = prepare_all(
                    job.context,
                    arrival.sources,
                    tasks,
                    runner,
                    progress,
                    server=server,
                    arrived=tables.read,
                    beside=arrival.read_licenses(),
                )
                parts, intake = in_order(prepared), arrival.intake()
                judged = decide(job.context, intake, parts, runner, progress, tables=tables)
                table: FilesTable | None = None
                work.keep_previous(previous_file(config))
                if job.context.is_packed:
                    made = pack_all(job.context, judged.decision, runner, progress)
                else:
                    table = FilesTable(job.context.dataset / FILES, job.context, judged)
                    runner.meanwhile(table.steps)
                    made = shape_all(job.context, judged.decision, work, runner, progress)
                clock.workers, clock.gpu = runner.workers, server.end()
        return seal(job, intake.found, judged, made, clock, table=table)


def load(config: Config, folder: Path) -> tuple[Definition, Context]:
    definition = locate(config.tokenizer.name, cache_dir=config.tokenizer.cache_dir)
    context = Context.of(config, definition, folder)
    if config.variants.rates:
        from gristmill.variants.kinds import require_means  # noqa: PLC0415 - many builds do without, and it has much to load

        require_means(config, definition)
    if context.config.fim.is_on:
        from gristmill.pipeline.fim import require_fim  # noqa: PLC0415 - many builds do without

        require_fim(context)
    return definition, context


def first_files(files: Iterator[SourceFile], run: RunConfig) -> list[SourceFile]:
    """As many as say how many workers are worth it. A Ray cluster is to see a file of each source: for it, all."""
    if run.runner != "local":
        return list(files)
    enough = num_cores() * BYTES_PER_WORKER if run.workers == "auto" else 0
    first: list[SourceFile] = []
    num_bytes = 0
    for file in files:
        first.append(file)
        num_bytes += file.size
        if num_bytes >= enough:
            break
    return first


def runner_for(context: Context, files: Sequence[SourceFile], num_bytes: int) -> Runner:
    run = context.config.run
    if run.runner == "local":
        return LocalRunner(num_workers(run.workers, num_bytes))
    from gristmill.runners.ray import RayRunner  # noqa: PLC0415 - an extra

    mark = context.scratch / "probe"
    mark.write_text(secrets.token_hex())
    firsts = {file.repo: file for file in reversed(files)}
    probes = [probe_of(mark), *(probe_of(file.location) for _, file in sorted(firsts.items())[:SOURCES_PROBED])]
    return RayRunner(run.ray_address, probes, run.workers)


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


@contextmanager
def as_ours(config: Config) -> Iterator[None]:
    """What the system refuses while writing; sources that cannot be read never come here."""
    try:
        yield
    except OSError as error:
        raise _output_error(error, config) from error


def _output_error(error: OSError, config: Config) -> OutputError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return OutputError(
            f"no space left while writing {config.out!r}; nothing was changed there. {GO_ON}, once there is room; "
            "--compress zstd takes a tenth."
        )
    place = f" at {str(error.filename)!r}" if error.filename else ""
    return OutputError(f"cannot write {config.out!r}: {error.strerror or error}{place}.")


def seal(
    job: Job, found: Scan, judged: Judged, made: MadeFiles, clock: "Clock", *, table: FilesTable | None = None
) -> Manifest:
    """Step 4: what is there is described, and takes its place. `table`: if its writing has begun."""
    tokenizer, context, work, progress = job
    if made.segments is not None:
        judged = judged.with_segments(made.segments)
    with progress.phase("finish"):
        clear_old(context, made.files.facts)
        tally = (table or FilesTable(context.dataset / FILES, context, judged)).finish()
        tokenizer.write(context.dataset)
    run = clock.run(progress, judged.decision.kept)
    manifest = describe(context, Outcome(tokenizer, found, judged, tally, made), run)
    for line in write_cards(manifest, context.dataset, work.target):
        progress.note(line)
    write_manifest(manifest, context.dataset, is_synced=False)
    if is_address(context.config.out):
        stale = work.note_upload(context.config.out, manifest.files)
        upload_dataset(work.dataset, context.config.out, stale)
        work.end_upload()
    else:
        work.publish()
    work.clear_scratch()
    with suppress(OSError):  # the dataset is in its place: what is not kept for the next build only costs it time
        remember(work.built, BUILT, Built(context.config, os.getcwd()).as_text(), is_private=True)
        write_index(context, judged.parts)
        decision = judged.decision
        used = {*judged.parts, *decision.fim_parts, *decision.variant_parts}
        work.prune(used, context.config.run.cache_bytes)
    return manifest


class Clock:
    def __init__(self) -> None:
        self.workers = 1
        self.gpu: GpuFacts | None = None
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._started = time.perf_counter()

    def run(self, progress: Progress, kept: Sequence[PlacedDocument]) -> Run:
        seconds = {**progress.seconds, "total": time.perf_counter() - self._started}
        return Run(
            started_at=self._started_at,
            seconds={phase: round(value, 3) for phase, value in seconds.items()},
            workers=self.workers,
            source_bytes=sum(document.size for document in kept),
            gpu=self.gpu,
            **machine(),
        )
