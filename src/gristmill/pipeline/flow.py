"""The steps over a runner, each as one function: what build(), plan() and the commands for a scheduler have in common.

take_in ─► prepare_all ─► judge ─► shape_all ─► finish
"""

import operator
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import merge
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.cleaning.clean import without_secret, without_secrets
from gristmill.cleaning.folder_licenses import LicenseFiles
from gristmill.cleaning.licenses import AllowList
from gristmill.config.config import Config
from gristmill.core.names import is_address, path_text, printable
from gristmill.core.progress import Progress, Step
from gristmill.core.records import Drop, PreparedDocument, SourceFile
from gristmill.formats.shares import AllFiles, ShareTask, WrittenFiles
from gristmill.pipeline.cache import StampLog
from gristmill.pipeline.context import Context
from gristmill.pipeline.convert import clear_formats, format_tasks, num_rows_by_file, write_format
from gristmill.pipeline.data_files import DataFiles
from gristmill.pipeline.decide import Decision, Piece, decide, lay_out, read_previous_splits
from gristmill.pipeline.decontaminate import decontaminate
from gristmill.pipeline.draw import draw
from gristmill.pipeline.draw_facts import sampling_facts
from gristmill.pipeline.failures import Anchors, nothing_to_build, without_failed
from gristmill.pipeline.finish import Judged, MadeFiles
from gristmill.pipeline.license import license_documents, read_license_files
from gristmill.pipeline.pack import pack_rows, packed_tasks, packing_facts, rows_by_file, write_packed
from gristmill.pipeline.parts import PartReader
from gristmill.pipeline.pieces import Task, tasks_of
from gristmill.pipeline.prepare import Batch, prepare
from gristmill.pipeline.shape import ShapedPiece, shape
from gristmill.pipeline.work_folder import Workspace
from gristmill.runners.local import LocalRunner, num_cores, num_workers
from gristmill.runners.probe import probe_of
from gristmill.runners.runner import Runner, TaskFailed
from gristmill.sources.addresses import Source, is_table_name, resolve_sources
from gristmill.sources.benchmark_files import Benchmark, read_benchmarks
from gristmill.sources.fetch import Fetched, fetch, scan_rows
from gristmill.sources.languages import check_languages
from gristmill.sources.path_filter import check_patterns
from gristmill.sources.table_cache import num_rows
from gristmill.sources.trees import Scan, scan
from gristmill.tokenizers.cuda.host import NO_SERVER, NoServer, Server
from gristmill.windows.weights import check_weights, weighted_languages, weighted_patterns

LARGE_BYTES = 64 << 20
"""A file, or the rows of one, from which on it gets a process of its own, whose memory goes back afterwards."""
CONNECTIONS = 8
"""At once, where sources are brought from elsewhere: they wait more than they work."""
SOURCES_PROBED = 100
SLOW_BYTES_PER_SECOND = 1 << 16
"""Far below what any tokenizer here takes: a larger batch may take longer before it counts as hung."""


class Intake(NamedTuple):
    """All that comes in."""

    sources: list[Source]
    found: Scan
    licenses: Mapping[str, LicenseFiles]
    """By source."""
    benchmarks: list[Benchmark]


def benchmarks_of(config: Config) -> list[Benchmark]:
    """Read before any work is done; names in other settings that nothing goes by are refused here too.

    So are earlier splits, if they are named; those of the dataset that is replaced are read where they are needed.
    """
    check_languages((*config.scan.languages, *config.rules.languages, *weighted_languages(config.sampling)))
    check_weights(config.sampling)
    check_patterns("--weight", weighted_patterns(config.sampling))
    if config.split.previous is not None:
        read_previous_splits(config)
    AllowList.of(config.licenses.allow)
    return read_benchmarks(config.split.against)


def take_in(config: Config, benchmarks: list[Benchmark], cache: Path, leave_out: Sequence[Path]) -> Intake:
    """`cache`: where that is brought to which does not lie here as files: clones, downloads, the rows of tables."""
    sources, tables = _fetched(config, cache)
    found = scan(sources, config.scan, leave_out=leave_out)
    files, drops = scan_rows(tables, sources, config.scan)
    by_path = operator.attrgetter("repo", "path")
    found = found._replace(
        files=list(merge(found.files, files, key=by_path)),
        drops=list(merge(found.drops, drops, key=by_path)),
        commits=found.commits | {table.repo: None for table in tables},
        num_rows={table.repo: num_rows(table) for table in tables},
    )
    licenses = read_license_files(sources, found)
    found.warnings.extend(_large_files(found, config))
    found.warnings.extend(_tables_as_files(sources))
    return Intake(sources, found, licenses, benchmarks)


def _fetched(config: Config, cache: Path) -> Fetched:
    names = config.sources
    if not any(is_address(name) or is_table_name(os.path.basename(name)) for name in names):
        return Fetched(resolve_sources(names), [])
    with LocalRunner(max(num_cores(), CONNECTIONS)) as runner:
        return fetch(names, config, cache, runner.map)


def local_sources(config: Config) -> list[Source]:
    """Those that lie here; known before anything is brought."""
    return resolve_sources([name for name in config.sources if not is_address(name)])


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


def _tables_as_files(sources: Sequence[Source]) -> Iterator[str]:
    for source in sources:
        for name in source.only or ():
            if is_table_name(name):
                yield f"{path_text(name)} is read as one file: it has no column known to hold text (see --text-column)."


def _large_files(found: Scan, config: Config) -> Iterator[str]:
    for file in found.files:
        if LARGE_BYTES < file.size <= config.scan.max_file_bytes:
            name = without_secret(f"{file.repo}/{file.path}", config.secrets)
            yield (
                f"{name} has {file.size / 1e6:,.0f} MB: it is worked on in a process of its own, whose memory grows "
                "with it."
            )


def prepare_all(
    context: Context,
    sources: Sequence[Source],
    tasks: Iterable[Batch],
    runner: Runner,
    progress: Progress,
    *,
    server: Server | NoServer = NO_SERVER,
) -> dict[int, str]:
    """Step 1: the part of each batch, by its index. The server is of no use afterwards, and ends here."""
    parts = _prepare_all(context.served_by(server.address), sources, tasks, runner, progress)
    gpu = server.end()
    if gpu is not None and gpu.trouble is not None:
        progress.note(printable(f"the CPU tokenized for the GPU, to the same ids: {gpu.trouble}."))
    return parts


def _prepare_all(
    context: Context, sources: Sequence[Source], tasks: Iterable[Batch], runner: Runner, progress: Progress
) -> dict[int, str]:
    waiting = list(tasks)
    anchors = Anchors(sources)
    stamps = StampLog()
    parts: dict[int, str] = {}
    with progress.phase("prepare", total=sum(len(batch.files) for batch in waiting)) as step:
        while waiting:
            failed: list[Batch] = []
            for number, answer in runner.as_done(
                partial(prepare, context), waiting, seconds_for=partial(_seconds_for, context), is_alone=_is_large
            ):
                if isinstance(answer, TaskFailed):
                    failed.append(without_failed(context, waiting[number], answer.reason))
                    continue
                if answer.has_vanished:
                    anchors.refuse_vanished()
                parts[waiting[number].index] = answer.part
                stamps.add(answer.stamps, answer.keys)
                step.advance(answer.num_files)
            waiting = failed
    stamps.write(context)
    return parts


def _seconds_for(context: Context, batch: Batch) -> float:
    return context.config.run.task_seconds + batch.num_bytes / SLOW_BYTES_PER_SECOND


def _is_large(batch: Batch) -> bool:
    return batch.num_bytes > LARGE_BYTES


def in_order(parts: Mapping[int, str]) -> list[str]:
    return [part for _, part in sorted(parts.items())]


def _has_large_rows(task: Task) -> bool:
    return task.piece.num_bytes > LARGE_BYTES


def judge(context: Context, intake: Intake, parts: Sequence[str], runner: Runner, progress: Progress) -> Judged:
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
        decision = decide(context, documents, runner.map)
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


def pieces_of(context: Context, decision: Decision) -> list[Piece]:
    return list(lay_out(decision.shown(), context.config.output))


def piece_tasks(context: Context, pieces: Sequence[Piece], work: Workspace) -> list[Task]:
    """Of JSONL rows; none where they are not wanted, or written in another way."""
    if not context.writes_pieces:
        return []
    if context.config.output.compress == "none":  # compressed they take less, nobody knows how much
        work.require_space(sum(piece.num_bytes for piece in pieces))
    return tasks_of(context, pieces, work)


def shape_all(context: Context, judged: Judged, work: Workspace, runner: Runner, progress: Progress) -> MadeFiles:
    """Step 3."""
    if context.is_packed:
        return pack_all(context, judged.decision, runner, progress)
    pieces = pieces_of(context, judged.decision)
    with DataFiles(context, work.log) as files:
        for task, shaped in shape_tasks(context, piece_tasks(context, pieces, work), runner, progress):
            files.add(task, shaped)
    return with_other_formats(context, pieces, files, runner, progress)


def shape_tasks(
    context: Context, tasks: Sequence[Task], runner: Runner, progress: Progress
) -> Iterator[tuple[Task, ShapedPiece]]:
    """In order. What is known and compressed is small: to ask a worker about it costs more than to look."""
    total = sum(document.num_windows for task in tasks for document in task.piece.documents)
    is_for_worker = [task.known is None or task.known.frames is None for task in tasks]
    with progress.phase("shape", total=total, unit="windows") as step:
        made = runner.map(partial(shape, context), compress(tasks, is_for_worker), is_alone=_has_large_rows)
        for task, from_worker in zip(tasks, is_for_worker, strict=True):
            shaped = next(made) if from_worker else shape(context, task)
            yield task, shaped
            step.advance(shaped.num_rows)


def with_other_formats(
    context: Context, pieces: Sequence[Piece], jsonl: DataFiles, runner: Runner, progress: Progress
) -> MadeFiles:
    """What is there of JSONL, and the same rows in all other formats."""
    files = jsonl.all
    if context.other_formats:
        tasks = format_tasks(context, pieces)
        with progress.phase("formats", total=sum(task.share.num_rows for task in tasks), unit="windows") as step:
            write_all(partial(write_format, context), tasks, files, runner, step)
        files.finish(context.other_formats, context.dataset, context.schema)
    return MadeFiles(files, num_rows_by_file(pieces))


def pack_all(context: Context, decision: Decision, runner: Runner, progress: Progress) -> MadeFiles:
    """Step 3 with --pack: rows of several files, in every format alike."""
    with progress.phase("pack"):
        packs = pack_rows(context, decision.shown())
        clear_formats(context)
        tasks = list(packed_tasks(context, packs))
    files = AllFiles()
    with progress.phase("shape", total=sum(task.share.num_rows for task in tasks), unit="rows") as step:
        write_all(partial(write_packed, context), tasks, files, runner, step)
    files.finish(context.other_formats, context.dataset, context.schema)
    facts = {split: packing_facts(own, context.config.window.length) for split, own in packs.items()}
    return MadeFiles(files, {split: rows_by_file(own, context) for split, own in packs.items()}, facts)


def write_all(
    write: Callable[[Any], WrittenFiles], tasks: Sequence[ShareTask], files: AllFiles, runner: Runner, step: Step
) -> None:
    """Each task's share of a format, in order."""
    for task, written in zip(tasks, runner.map(write, tasks), strict=True):
        files.add(task.share, written)
        step.advance(task.share.num_rows)
