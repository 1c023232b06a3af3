"""plan(): estimate the result of a build without building it.

As in a build, files are read, cleaned, tokenized, compared and split, but in a temporary folder. For each overlap, the
code of step 2 of a build decides which text of each file is kept, how often its windows are used, and which variants it
has. The resulting rows are counted instead of written.
"""

import errno
import tempfile
import time
from contextlib import ExitStack
from fractions import Fraction
from functools import partial

import msgspec
import numpy as np

from gristmill.cleaning.clean import redact_drop
from gristmill.config.config import Config
from gristmill.config.settings import SamplingConfig
from gristmill.core.errors import ConfigError, InputError, OutputError
from gristmill.core.progress import Progress
from gristmill.core.records import DropReason, FileKey, PlacedDocument, Split
from gristmill.pipeline.build import load
from gristmill.pipeline.context import Context
from gristmill.pipeline.decide import decide_files, decide_rows, part_drops
from gristmill.pipeline.decision import Decided, Decision
from gristmill.pipeline.decontaminate import drop_cut_away
from gristmill.pipeline.inputs import Inputs, check_settings, local_sources, read_inputs
from gristmill.pipeline.keys import prepare_key
from gristmill.pipeline.prepare import make_batches, prepare_all, sort_parts
from gristmill.pipeline.work_folder import Workspace, temporary_folder
from gristmill.planning.estimate import EstimatedBuild, Measurements, PlanInputs, estimate_build, make_plan
from gristmill.planning.overlap_choice import PlanOptions
from gristmill.planning.overlaps import (
    WINDOWS,
    ParquetTrials,
    Trial,
    UnsampledCounts,
    choose_trial_documents,
    count_documents,
    run_trial,
)
from gristmill.planning.plan_result import Plan
from gristmill.planning.sample import FileSample, draw_files, equalize_weights
from gristmill.runners.local import LocalRunner, num_workers
from gristmill.runners.runner import Runner
from gristmill.sources.benchmark_files import Benchmark, read_benchmarks
from gristmill.tokenizers.cuda.serving import GpuServer, server_for
from gristmill.tokenizers.locate import substitution_notes

OVERLAP_SHARES = (Fraction(0), Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
"""Overlaps to compare, as shares of the window length: 0, 64, 128, 256 and 384 of 512."""


def plan(config: Config, options: PlanOptions | None = None, progress: Progress | None = None) -> Plan:
    """Estimate the rows, size, time and epochs of a build with `config`, without building it.

    Only temporary files are written. Raises ConfigError for options whose effect only a build can determine.
    """
    _require_plannable(config)
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
                context = _without_packing(context)
                is_masked = context.config.preset == "mlm"
                overlaps = (
                    _overlaps_to_compare(context) if is_masked and not is_packed else [context.window_shape.overlap]
                )
            server = running.enter_context(server_for(config.run, context.tokenizer, context.tokenizer_folder))
            with progress.phase("scan") as step:
                build_inputs = read_inputs(config, benchmarks, folder / "fetched", leave_out=(work.target, work.folder))
                step.advance(len(build_inputs.found.files))
                drawn = draw_files(build_inputs.found.files, options.sample)
                notes = [*build_inputs.found.warnings, *substitution_notes(config.tokenizer.name, definition)]
                found = build_inputs.found._replace(files=list(drawn.files), warnings=notes)
            with LocalRunner(num_workers(config.run.workers, found.num_bytes)) as runner:
                sampled_inputs, is_sample = build_inputs._replace(found=found), not drawn.is_all
                decided = _prepare_and_decide(
                    context, sampled_inputs, runner, progress, server=server, is_sample=is_sample
                )
                dropped = [*decided.renamed, *part_drops(context, decided.parts)]
                previous = decided.decision.previous
                plan_inputs = PlanInputs(
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
                measurements = _measure(
                    context, plan_inputs, decided, overlaps, benchmarks, runner=runner, progress=progress
                )
    except OSError as error:
        raise _output_error(error) from error
    return make_plan(plan_inputs, measurements, options, seconds=time.perf_counter() - started)


def _require_plannable(config: Config) -> None:
    """Raise ConfigError for options whose effect only a build can determine."""
    if config.window.pack == "repo":
        raise ConfigError(
            "plan cannot count the rows of --pack repo, because a row may begin at any token. Leave out --pack: the "
            "number of rows is about the number of ids at overlap 0, divided by the window length."
        )
    if config.variants.needs_model:
        raise ConfigError(
            "plan cannot estimate --variants rewrite, because plan does not call the language model. Leave out "
            "rewrite, which adds at most as many windows to train as train already has."
        )


def _prepare_and_decide(
    context: Context,
    build_inputs: Inputs,
    runner: Runner,
    progress: Progress,
    *,
    server: GpuServer,
    is_sample: bool,
) -> Decided:
    try:
        tasks = make_batches(build_inputs.found.files, context.config.run)
        parts = sort_parts(prepare_all(context, build_inputs.sources, tasks, runner, progress, server=server))
        return decide_files(context, build_inputs, parts, runner, progress)
    except InputError as error:
        if not is_sample:
            raise
        raise InputError(f"no file of the sample is kept: {error} Try a larger --sample.") from None


def _without_packing(context: Context) -> Context:
    """Return a context with one window per row. Packing changes only the number of rows that the windows fill."""
    window = msgspec.structs.replace(context.config.window, pack="none")
    return _context_with(context, msgspec.structs.replace(context.config, window=window))


def _overlaps_to_compare(context: Context) -> list[int]:
    """Return the overlaps to compare, including the configured overlap. Rows that are documents have no overlap."""
    if context.config.has_documents:
        return [0]
    shape, length = context.window_shape, context.config.window.length
    overlaps = {int(length * share) for share in OVERLAP_SHARES}
    return sorted({overlap for overlap in overlaps if overlap < shape.num_content} | {shape.overlap})


def _measure(
    context: Context,
    plan_inputs: PlanInputs,
    decided: Decided,
    overlaps: list[int],
    benchmarks: list[Benchmark],
    *,
    runner: Runner,
    progress: Progress,
) -> Measurements:
    """Decide, for each overlap, what a build with that overlap would keep, and measure the rows."""
    drawn, decision = plan_inputs.drawn, decided.decision
    documents = sorted((*decision.kept, *decision.cut_away), key=lambda document: document.key)
    equalized = equalize_weights(documents, drawn)
    chosen = choose_trial_documents([[one for one in equalized if one.split is split] for split in Split])
    builds: list[EstimatedBuild] = []
    tasks: list[Trial] = []
    with progress.phase("measure", unit="tasks") as step:
        map_tasks = step.count_results(runner.map)
        unsampled = count_documents(context, overlaps, documents, map_tasks)
        started = time.perf_counter()
        for column, overlap in enumerate(overlaps):
            overlap_context = _context_at(context, overlap, _scale_sampling(context.config, unsampled, column, drawn))
            decided_here = _decide_at_overlap(
                overlap_context, decided, unsampled.documents_at(column), benchmarks, runner
            )
            builds.append(estimate_build(plan_inputs, overlap_context, decided_here, unsampled, column))
            tasks.append(Trial(overlap=overlap, files=_decided_documents(chosen, decided_here.decision)))
        seconds_to_decide = (time.perf_counter() - started) / len(overlaps)
        # The longest tasks come first, so that no worker is idle at the end.
        columns, *trials = map_tasks(partial(run_trial, context), [ParquetTrials(overlaps=tasks), *reversed(tasks)])
    return Measurements(
        unsampled=unsampled,
        builds=builds,
        trials=trials[::-1],
        parquet_bytes=columns,
        seconds_to_decide=seconds_to_decide,
    )


def _decided_documents(chosen: list[list[PlacedDocument]], decision: Decision) -> list[list[PlacedDocument]]:
    """Return the chosen documents as they are in the decision, each followed by its variants."""
    by_file: dict[FileKey, list[PlacedDocument]] = {}
    for document in decision.in_row_order():
        by_file.setdefault(document.key, []).append(document)
    files = [[one for document in documents for one in by_file.get(document.key, ())] for documents in chosen]
    return [[one for one in documents if one.num_windows] for documents in files]


def _context_at(context: Context, overlap: int, sampling: SamplingConfig) -> Context:
    window = msgspec.structs.replace(context.config.window, overlap=overlap)
    return _context_with(context, msgspec.structs.replace(context.config, window=window, sampling=sampling))


def _context_with(context: Context, config: Config) -> Context:
    key = prepare_key(config, context.tokenizer_key, keeps_text=context.keeps_text)
    return msgspec.structs.replace(context, config=config, prepare_key=key)


def _scale_sampling(config: Config, unsampled: UnsampledCounts, column: int, drawn: FileSample) -> SamplingConfig:
    """Scale the configured number of windows down from all files to the sample."""
    sampling = config.sampling
    if drawn.is_all or (sampling.max_windows is None and sampling.target_windows is None):
        return sampling
    windows = unsampled.counts[:, column, WINDOWS]
    num_windows = float(windows @ np.array([drawn.bytes_weight(document.size) for document in unsampled.documents]))
    name, share = "max_windows", 1.0
    if sampling.target_windows is not None:
        name, share = "target_windows", config.split.fractions()[Split.TRAIN]
        windows = windows[[document.split is Split.TRAIN for document in unsampled.documents]]
    size = round(getattr(sampling, name) * int(windows.sum()) / max(1.0, share * num_windows))
    return msgspec.structs.replace(sampling, **{name: max(1, size)})


def _decide_at_overlap(
    context: Context,
    decided: Decided,
    documents: list[PlacedDocument],
    benchmarks: list[Benchmark],
    runner: Runner,
) -> Decided:
    """Return the decision of a build with the overlap of `context`. Cuts and splits do not depend on the overlap."""
    mode, against = decided.decontamination.how, decided.decontamination.against
    drops = [drop for drop in decided.decision.drops if drop.reason is not DropReason.CONTAMINATED]
    before = msgspec.structs.replace(decided.decision, kept=documents, drops=drops)
    decision, decontamination = drop_cut_away(before, documents, mode, against)
    drops = [redact_drop(drop, context.config.secrets) for drop in decision.drops]
    decision = msgspec.structs.replace(decision, drops=drops)
    decided = decided._replace(decision=decision, decontamination=decontamination)
    return decide_rows(context, decided, benchmarks, runner, Progress()) if decision.kept else decided


def _output_error(error: OSError) -> OutputError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return OutputError(
            f"no space left in {tempfile.gettempdir()!r}, where plan keeps temporary files. Set TMPDIR to a folder "
            "with more space, or use --sample."
        )
    place = repr(str(error.filename)) if error.filename else f"the temporary files in {tempfile.gettempdir()!r}"
    return OutputError(f"cannot read or write {place}: {error.strerror or error}.")
