"""build(): run the complete pipeline.

sources ─► scan ─► prepare (over batches) ─► decide (once) ─► compare ─► shape (over pieces) ─► finish ─► dataset

A batch is a group of source files, and a piece is a range of consecutive rows of JSONL. `prepare` and `shape` store
their results in the work folder, each with a digest of its inputs. A killed build resumes from these files, and the
next build repeats only the work whose inputs have changed.
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
from gristmill.core.names import is_remote_address
from gristmill.core.progress import Progress
from gristmill.core.records import PlacedDocument, SourceFile
from gristmill.pipeline.cache import write_cached, write_index
from gristmill.pipeline.context import Context
from gristmill.pipeline.decide import PartTables, decide
from gristmill.pipeline.decision import Decided
from gristmill.pipeline.finish import BuildResult, FilesTable, delete_stale_files, machine_facts, make_manifest
from gristmill.pipeline.inputs import InputReader, check_settings, local_sources
from gristmill.pipeline.other_formats import MadeFiles
from gristmill.pipeline.pack import pack_all
from gristmill.pipeline.prepare import RESUME_HINT, make_batches, prepare_all, sort_parts
from gristmill.pipeline.shape import shape_all
from gristmill.pipeline.work_folder import Workspace
from gristmill.runners.local import BYTES_PER_WORKER, LocalRunner, num_cores, num_workers
from gristmill.runners.probe import make_probe
from gristmill.runners.runner import Runner
from gristmill.sources.addresses import last_part
from gristmill.sources.benchmark_files import read_benchmarks
from gristmill.sources.remote import require_empty_prefix, upload_dataset
from gristmill.sources.trees import Scan
from gristmill.splits.previous import previous_file
from gristmill.tokenizers.cuda.serving import server_for
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate

if TYPE_CHECKING:
    from gristmill.tokenizers.cuda.server import MakeEncoder

BUILD_RECORD = "built"
"""Cache key of the build record."""
MAX_PROBED_SOURCES = 100


class BuildRecord(NamedTuple):
    """Record of how a dataset was built, stored in its work folder."""

    config: Config
    folder: str
    """Current directory of the build, to which relative paths in `config` refer."""

    def as_text(self) -> str:
        """Encode as ASCII JSON, because a path may contain bytes that are not UTF-8."""
        return json.dumps([msgspec.to_builtins(self.config), self.folder])

    @classmethod
    def of(cls, text: str) -> "BuildRecord":
        config, folder = json.loads(text)
        return cls(msgspec.convert(config, Config), folder)


class Job(NamedTuple):
    """State of a running build."""

    tokenizer: Definition
    """Definition of the tokenizer, with its name and revision."""
    context: Context
    work: Workspace
    progress: Progress


def build(config: Config, progress: Progress | None = None) -> Manifest:
    """Build a dataset folder from source trees and return its manifest.

    If the build fails, an earlier dataset in the output folder remains intact.
    """
    return build_excluding(config, progress, excluded=())


def build_excluding(
    config: Config, progress: Progress | None, excluded: Sequence[Path], make_encoder: "MakeEncoder | None" = None
) -> Manifest:
    """Build a dataset like `build()`, but skip the folders `excluded` when scanning sources.

    The output folder and the work folder are always skipped. `make_encoder` replaces the GPU encoder in tests.
    """
    progress = progress or Progress()
    progress.seconds.clear()
    timer = RunTimer()
    check_settings(config)
    benchmarks = read_benchmarks(config.split.against)
    with translate_os_errors(config), open_workspace(config) as work:
        with progress.phase("load"):
            job = Job(*load(config, work.folder), work, progress)
        with server_for(config.run, job.context.tokenizer, job.context.tokenizer_folder, make_encoder) as server:
            with progress.phase("scan") as step:
                reader = InputReader(config, benchmarks, work.fetched, leave_out=(work.target, work.folder, *excluded))
                first = first_files(reader.files, config.run)
                step.advance(len(first))
            with runner_for(job.context, first, sum(file.size for file in first)) as runner:
                tasks, tables = make_batches(chain(first, reader.files), config.run), PartTables(job.context)
                prepared = prepare_all(
                    job.context,
                    reader.sources,
                    tasks,
                    runner,
                    progress,
                    server=server,
                    on_part=tables.read,
                    background_steps=reader.read_licenses(),
                )
                parts, inputs = sort_parts(prepared), reader.inputs()
                decided = decide(job.context, inputs, parts, runner, progress, tables=tables)
                table: FilesTable | None = None
                work.store_previous(previous_file(config))
                if job.context.is_packed:
                    made = pack_all(job.context, decided.decision, runner, progress)
                else:
                    table = FilesTable(job.context.dataset / FILES, job.context, decided)
                    runner.run_while_waiting(table.steps)
                    made = shape_all(job.context, decided.decision, work, runner, progress)
                timer.workers, timer.gpu = runner.workers, server.end()
        return finish_dataset(job, inputs.found, decided, made, timer, table=table)


def load(config: Config, folder: Path) -> tuple[Definition, Context]:
    definition = locate(config.tokenizer.name, cache_dir=config.tokenizer.cache_dir)
    context = Context.of(config, definition, folder)
    if config.variants.rates:
        from gristmill.variants.kinds import check_requirements  # noqa: PLC0415 - slow import that many builds skip

        check_requirements(config, definition)
    if context.config.fim.is_enabled:
        from gristmill.pipeline.fim import require_fim  # noqa: PLC0415 - many builds do not need it

        require_fim(context)
    return definition, context


def first_files(files: Iterator[SourceFile], run: RunConfig) -> list[SourceFile]:
    """Return only as many of the first files as are needed to choose the number of workers.

    With Ray, return all files, because the nodes are probed with one file of each source.
    """
    if run.runner != "local":
        return list(files)
    min_bytes = num_cores() * BYTES_PER_WORKER if run.workers == "auto" else 0
    first: list[SourceFile] = []
    num_bytes = 0
    for file in files:
        first.append(file)
        num_bytes += file.size
        if num_bytes >= min_bytes:
            break
    return first


def runner_for(context: Context, files: Sequence[SourceFile], num_bytes: int) -> Runner:
    run = context.config.run
    if run.runner == "local":
        return LocalRunner(num_workers(run.workers, num_bytes))
    from gristmill.runners.ray import RayRunner  # noqa: PLC0415 - optional dependency

    probe_file = context.scratch / "probe"
    probe_file.write_text(secrets.token_hex())
    first_by_repo = {file.repo: file for file in reversed(files)}
    probes = [
        make_probe(probe_file),
        *(make_probe(file.location) for _, file in sorted(first_by_repo.items())[:MAX_PROBED_SOURCES]),
    ]
    return RayRunner(run.ray_address, probes, run.workers)


def open_workspace(config: Config) -> Workspace:
    """Return the work folder of a build. For remote output, the work folder is in the current directory."""
    if not is_remote_address(config.out):
        work = Workspace(config.out)
    else:
        work = Workspace(last_part(config.out, "dataset"))
        if work.upload_address() != config.out:  # an interrupted upload to the same address is resumed
            require_empty_prefix(config.out)
    work.refuse_sources([source.root for source in local_sources(config)])
    return work


@contextmanager
def translate_os_errors(config: Config) -> Iterator[None]:
    """Convert OSError to OutputError. Only writing raises OSError here: unreadable sources raise other errors."""
    try:
        yield
    except OSError as error:
        raise _output_error(error, config) from error


def _output_error(error: OSError, config: Config) -> OutputError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        smaller = " With --compress zstd, JSONL takes about a tenth of the space."
        return OutputError(
            f"no space left on the disk while building {config.out!r}. An earlier dataset there is unchanged. "
            f"Free some space. {RESUME_HINT}.{smaller if config.output.compress == 'none' else ''}"
        )
    location = f" at {str(error.filename)!r}" if error.filename else ""
    return OutputError(f"cannot write {config.out!r}: {error.strerror or error}{location}.")


def finish_dataset(
    job: Job, found: Scan, decided: Decided, made: MadeFiles, timer: "RunTimer", *, table: FilesTable | None = None
) -> Manifest:
    """Step 4: write files.jsonl, the cards and the manifest, and publish the dataset.

    `table` is the writer of files.jsonl, if writing has already begun.
    """
    tokenizer, context, work, progress = job
    if made.segments is not None:
        decided = decided.with_segments(made.segments)
    with progress.phase("finish"):
        delete_stale_files(context, made.files.facts)
        tally = (table or FilesTable(context.dataset / FILES, context, decided)).finish()
        tokenizer.write(context.dataset)
    run = timer.run(progress, decided.decision.kept)
    manifest = make_manifest(context, BuildResult(tokenizer, found, decided, tally, made), run)
    for line in write_cards(manifest, context.dataset, work.target):
        progress.note(line)
    write_manifest(manifest, context.dataset, is_synced=False)
    if is_remote_address(context.config.out):
        stale = work.start_upload(context.config.out, manifest.files)
        upload_dataset(work.dataset, context.config.out, stale)
        work.end_upload()
    else:
        work.publish()
    work.clear_scratch()
    with suppress(OSError):  # the dataset is published, and without this cache the next build is only slower
        write_cached(work.built, BUILD_RECORD, BuildRecord(context.config, os.getcwd()).as_text(), is_private=True)
        write_index(context, decided.parts)
        decision = decided.decision
        used = {*decided.parts, *decision.fim_parts, *decision.variant_parts}
        work.prune(used, context.config.run.cache_bytes)
    return manifest


class RunTimer:
    """Timer of a build. It also collects the other facts that the manifest records about the run."""

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
            **machine_facts(),
        )
