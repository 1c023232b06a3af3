"""plan(): what would a build give, before building.

Files are read, cleaned, tokenized, compared and split by the very steps of a build, into a folder that is thrown away.
Then, for each overlap, the steps of a build decide what is left of each file, how often its windows are shown and which
variants there are; what they decide is counted instead of written.
"""

import errno
import tempfile
import time
from contextlib import ExitStack
from fractions import Fraction
from functools import partial

import msgspec
import numpy as np

from gristmill.cleaning.clean import without_secrets
from gristmill.config.config import Config
from gristmill.config.settings import SamplingConfig
from gristmill.core.errors import ConfigError, InputError, OutputError
from gristmill.core.progress import Progress
from gristmill.core.records import DropReason, FileKey, PlacedDocument, Split
from gristmill.pipeline.build import load
from gristmill.pipeline.context import Context
from gristmill.pipeline.decide import part_drops, settle, show
from gristmill.pipeline.decision import Decision, Judged
from gristmill.pipeline.decontaminate import without_cut_away
from gristmill.pipeline.intake import Intake, check_settings, local_sources, take_in
from gristmill.pipeline.keys import prepare_key
from gristmill.pipeline.prepare import batches, in_order, prepare_all
from gristmill.pipeline.work_folder import Workspace, temporary_folder
from gristmill.planning.answer import Build, Counted, Gathered, answer, build_at
from gristmill.planning.overlap_choice import PlanOptions
from gristmill.planning.overlaps import WINDOWS, Columns, Natural, RowsToTry, count_all, some_of, try_out
from gristmill.planning.plan_result import Plan
from gristmill.planning.sample import Drawn, draw, evened
from gristmill.runners.local import LocalRunner, num_workers
from gristmill.runners.runner import Runner
from gristmill.sources.benchmark_files import Benchmark, read_benchmarks
from gristmill.tokenizers.cuda.serving import GpuServer, server_for
from gristmill.tokenizers.locate import stand_in_notes

OVERLAP_SHARES = (Fraction(0), Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
"""Of the window length: 0, 64, 128, 256 and 384 of 512."""


def plan(config: Config, options: PlanOptions | None = None, progress: Progress | None = None) -> Plan:
    """Source trees in, answers out. Nothing is written but what is deleted again."""
    _refuse(config)
    options, progress = options or PlanOptions(), progress or Progress()
    progress.seconds.clear()
    started = time.perf_counter()
    check_settings(config)
    benchmarks = read_benchmarks(config.split.against)
    work = Workspace(config.out)
    work.refuse_sources([source.root for source in local_sources(config)])
    try:
        with temporary_folder("gristmill-plan-") as folder, ExitStack() as running:
            with progress.phase("load"):
                definition, context = load(config, folder)
                is_packed = context.is_packed
                context = _unpacked(context)
                is_masked = context.config.preset == "mlm"
                overlaps = _overlaps(context) if is_masked and not is_packed else [context.window_shape.overlap]
            server = running.enter_context(server_for(config.run, context.tokenizer, context.tokenizer_folder))
            with progress.phase("scan") as step:
                intake = take_in(config, benchmarks, folder / "fetched", leave_out=(work.target, work.folder))
                step.advance(len(intake.found.files))
                drawn = draw(intake.found.files, options.sample)
                notes = [*intake.found.warnings, *stand_in_notes(config.tokenizer.name, definition)]
                found = intake.found._replace(files=list(drawn.files), warnings=notes)
            with LocalRunner(num_workers(config.run.workers, found.num_bytes)) as runner:
                drawn_intake, is_sample = intake._replace(found=found), not drawn.is_all
                judged = _settled(context, drawn_intake, runner, progress, server=server, is_sample=is_sample)
                dropped = [*judged.renamed, *part_drops(context, judged.parts)]
                previous = judged.decision.previous
                gathered = Gathered(
                    context.config,
                    drawn,
                    found,
                    dropped,
                    previous,
                    progress.seconds,
                    runner.workers,
                    is_packed,
                    definition.mask_id is not None,
                )
                counted = _counted(context, gathered, judged, overlaps, benchmarks, runner=runner, progress=progress)
    except OSError as error:
        raise _as_ours(error) from error
    return answer(gathered, counted, options, seconds=time.perf_counter() - started)


def _refuse(config: Config) -> None:
    """Options that change what a build gives, in a way that only the build can say."""
    if config.window.pack == "repo":
        raise ConfigError(
            "plan counts windows of one file each, and --pack repo cuts repositories anywhere. Leave it out: such a "
            "dataset has about as many rows as the ids at overlap 0 fill."
        )
    if config.variants.ask_model:
        raise ConfigError(
            "plan asks no language model, so what --variants rewrite adds is known only to a build. Leave it out: it "
            "adds at most as many windows to train as its files have."
        )


def _settled(
    context: Context,
    intake: Intake,
    runner: Runner,
    progress: Progress,
    *,
    server: GpuServer,
    is_sample: bool,
) -> Judged:
    try:
        tasks = batches(intake.found.files, context.config.run)
        parts = in_order(prepare_all(context, intake.sources, tasks, runner, progress, server=server))
        return settle(context, intake, parts, runner, progress)
    except InputError as error:
        if not is_sample:
            raise
        raise InputError(f"nothing is left of the sample: {error} Try a larger --sample.") from None


def _unpacked(context: Context) -> Context:
    """The same windows, each in a row of its own: packing changes how many rows they fill, and nothing else."""
    window = msgspec.structs.replace(context.config.window, pack="none")
    return _context_with(context, msgspec.structs.replace(context.config, window=window))


def _overlaps(context: Context) -> list[int]:
    """Those to compare, with the configured one among them; documents have none."""
    if context.config.has_documents:
        return [0]
    shape, length = context.window_shape, context.config.window.length
    overlaps = {int(length * share) for share in OVERLAP_SHARES}
    return sorted({overlap for overlap in overlaps if overlap < shape.num_content} | {shape.overlap})


def _counted(
    context: Context,
    gathered: Gathered,
    judged: Judged,
    overlaps: list[int],
    benchmarks: list[Benchmark],
    *,
    runner: Runner,
    progress: Progress,
) -> Counted:
    """For each overlap what a build with it decides, and what its rows take."""
    drawn, decision = gathered.drawn, judged.decision
    documents = sorted((*decision.kept, *decision.cut_away), key=lambda document: document.key)
    even = evened(documents, drawn)
    some = some_of([[one for one in even if one.split is split] for split in Split])
    builds: list[Build] = []
    tasks: list[RowsToTry] = []
    with progress.phase("measure", unit="tasks") as step:
        map_tasks = step.counting(runner.map)
        natural = count_all(context, overlaps, documents, map_tasks)
        started = time.perf_counter()
        for column, overlap in enumerate(overlaps):
            at_overlap = _context_at(context, overlap, _scaled(context.config, natural, column, drawn))
            shown = _shown(at_overlap, judged, natural.at(column), benchmarks, runner)
            builds.append(build_at(gathered, at_overlap, shown, natural, column))
            tasks.append(RowsToTry(overlap=overlap, files=_shown_of(some, shown.decision)))
        seconds_to_show = (time.perf_counter() - started) / len(overlaps)
        # What takes longest first, so that no worker waits for another in the end.
        columns, *tried = map_tasks(partial(try_out, context), [Columns(overlaps=tasks), *reversed(tasks)])
    return Counted(
        natural=natural, builds=builds, tried=tried[::-1], parquet_bytes=columns, seconds_to_show=seconds_to_show
    )


def _shown_of(some: list[list[PlacedDocument]], decision: Decision) -> list[list[PlacedDocument]]:
    """These documents as they are shown, each with its variants behind it."""
    shown: dict[FileKey, list[PlacedDocument]] = {}
    for document in decision.shown():
        shown.setdefault(document.key, []).append(document)
    files = [[one for document in documents for one in shown.get(document.key, ())] for documents in some]
    return [[one for one in documents if one.num_windows] for documents in files]


def _context_at(context: Context, overlap: int, sampling: SamplingConfig) -> Context:
    window = msgspec.structs.replace(context.config.window, overlap=overlap)
    return _context_with(context, msgspec.structs.replace(context.config, window=window, sampling=sampling))


def _context_with(context: Context, config: Config) -> Context:
    key = prepare_key(config, context.tokenizer_key, keeps_text=context.keeps_text)
    return msgspec.structs.replace(context, config=config, prepare_key=key)


def _scaled(config: Config, natural: Natural, column: int, drawn: Drawn) -> SamplingConfig:
    """The sizes asked for, as a sample's share of them: they are meant for all files."""
    sampling = config.sampling
    if drawn.is_all or (sampling.max_windows is None and sampling.target_windows is None):
        return sampling
    windows = natural.counts[:, column, WINDOWS]
    whole = float(windows @ np.array([drawn.bytes_weight(document.size) for document in natural.documents]))
    name, share = "max_windows", 1.0
    if sampling.target_windows is not None:
        name, share = "target_windows", config.split.fractions()[Split.TRAIN]
        windows = windows[[document.split is Split.TRAIN for document in natural.documents]]
    size = round(getattr(sampling, name) * int(windows.sum()) / max(1.0, share * whole))
    return msgspec.structs.replace(sampling, **{name: max(1, size)})


def _shown(
    context: Context,
    judged: Judged,
    documents: list[PlacedDocument],
    benchmarks: list[Benchmark],
    runner: Runner,
) -> Judged:
    """The decision of a build with this overlap, which the cuts and splits do not depend on."""
    how, against = judged.decontamination.how, judged.decontamination.against
    drops = [drop for drop in judged.decision.drops if drop.reason is not DropReason.CONTAMINATED]
    before = msgspec.structs.replace(judged.decision, kept=documents, drops=drops)
    decision, decontamination = without_cut_away(before, documents, how, against)
    drops = [without_secrets(drop, context.config.secrets) for drop in decision.drops]
    decision = msgspec.structs.replace(decision, drops=drops)
    judged = judged._replace(decision=decision, decontamination=decontamination)
    return show(context, judged, benchmarks, runner, Progress()) if decision.kept else judged


def _as_ours(error: OSError) -> OutputError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return OutputError(
            f"no space left in {tempfile.gettempdir()!r}, where a plan keeps tokens for a moment. Set TMPDIR to a "
            "folder with more, or use --sample."
        )
    return OutputError(f"cannot write to {tempfile.gettempdir()!r}: {error.strerror or error}.")
