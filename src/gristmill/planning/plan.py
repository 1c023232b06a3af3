"""plan(): what would a build give, before building.

Files are read, cleaned, tokenized, compared and split by the very steps of a build, into a folder that is thrown away;
then the windows of every overlap are counted instead of written.
"""

import errno
import tempfile
import time
from contextlib import ExitStack
from fractions import Fraction
from functools import partial

import msgspec
import numpy as np

from gristmill.config import Config
from gristmill.errors import ConfigError, InputError, OutputError
from gristmill.flow import Intake, benchmarks_of, in_order, judge, local_sources, part_drops, prepare_all, take_in
from gristmill.planning.answering import Counted, Gathered, answer
from gristmill.planning.budget import Wanted
from gristmill.planning.overlaps import Columns, Piece, Rows, measure, some_of
from gristmill.planning.result import Plan
from gristmill.planning.sampling import Drawn, draw, evened
from gristmill.progress import MapFunction, Progress
from gristmill.records import Split
from gristmill.runners.local import LocalRunner, num_workers
from gristmill.runners.runner import Runner
from gristmill.sections import RewriteConfig, SamplingConfig, VariantsConfig
from gristmill.steps.context import Context
from gristmill.steps.decide import Decision, lay_out
from gristmill.steps.finish import Judged
from gristmill.steps.prepare import batches
from gristmill.tokenizing.cuda.hosting import NoServer, Server, server_for
from gristmill.tokenizing.locating import locate
from gristmill.workspace import Workspace, temporary_folder

OVERLAP_SHARES = (Fraction(0), Fraction(1, 8), Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
"""Of the window length: 0, 64, 128, 256 and 384 of 512."""


def plan(config: Config, wanted: Wanted | None = None, progress: Progress | None = None) -> Plan:
    """Source trees in, answers out. Nothing is written but what is deleted again.

    All windows are counted, whatever is drawn of them later: draws are another at every overlap.
    """
    if config.window.pack != "none":
        raise ConfigError(
            f"plan counts windows of one file each, and --pack {config.window.pack} fills rows with several. Leave it "
            "out: a packed dataset has about as many rows as the ids at overlap 0 fill."
        )
    asked_for, config = config, _natural(config)
    wanted, progress = wanted or Wanted(), progress or Progress()
    progress.seconds.clear()
    started = time.perf_counter()
    benchmarks = benchmarks_of(asked_for)
    work = Workspace(config.out)
    work.refuse_sources([source.root for source in local_sources(config)])
    try:
        with temporary_folder("gristmill-plan-") as folder, ExitStack() as running:
            with progress.phase("load"):
                definition = locate(config.tokenizer.name, cache_dir=config.tokenizer.cache_dir)
                if asked_for.variants.rates:
                    from gristmill.varying import require_means  # noqa: PLC0415 - many plans do without

                    require_means(asked_for, definition)
                context = Context.of(config, definition, folder)
                overlaps = _overlaps(context)
            server = running.enter_context(server_for(config.run, context.tokenizer, context.tokenizer_folder))
            with progress.phase("scan") as step:
                intake = take_in(config, benchmarks, folder / "fetched", leave_out=(work.target, work.folder))
                step.advance(len(intake.found.files))
                drawn = draw(intake.found.files, wanted.sample)
                found = intake.found._replace(files=list(drawn.files))
            with LocalRunner(num_workers(config.run.workers, found.num_bytes)) as runner:
                drawn_intake, is_sample = intake._replace(found=found), not drawn.is_all
                judged = _judged(context, drawn_intake, runner, progress, server=server, is_sample=is_sample)
                dropped = [*judged.renamed, *part_drops(context, judged.parts), *judged.decision.drops]
                with progress.phase("measure", unit="tasks") as step:
                    counted = _count(context, judged.decision, overlaps, drawn, step.counting(runner.map))
    except OSError as error:
        raise _as_ours(error) from error
    gathered = Gathered(asked_for, drawn, judged, dropped, found, counted, progress.seconds, runner.workers)
    return answer(gathered, wanted, seconds=time.perf_counter() - started)


def _natural(config: Config) -> Config:
    sampling, variants, rewrite = SamplingConfig(), VariantsConfig(), RewriteConfig()
    return msgspec.structs.replace(config, sampling=sampling, variants=variants, rewrite=rewrite)


def _judged(
    context: Context,
    intake: Intake,
    runner: Runner,
    progress: Progress,
    *,
    server: Server | NoServer,
    is_sample: bool,
) -> Judged:
    try:
        tasks = batches(intake.found.files, context.config.run)
        parts = in_order(prepare_all(context, intake.sources, tasks, runner, progress, server=server))
        return judge(context, intake, parts, runner, progress)
    except InputError as error:
        if not is_sample:
            raise
        raise InputError(f"nothing is left of the sample: {error} Try a larger --sample.") from None


def _overlaps(context: Context) -> list[int]:
    """Those to compare, with the configured one among them."""
    shape, length = context.window_shape, context.config.window.length
    overlaps = {int(length * share) for share in OVERLAP_SHARES}
    return sorted({overlap for overlap in overlaps if overlap < shape.num_content} | {shape.overlap})


def _count(context: Context, decision: Decision, overlaps: list[int], drawn: Drawn, map_tasks: MapFunction) -> Counted:
    """Also what was cut away whole: with another overlap a window of it might be left."""
    documents = sorted((*decision.kept, *decision.cut_away), key=lambda document: document.key)
    laid_out = list(lay_out(documents, context.config.output))
    in_order = [document for piece in laid_out for document in piece.documents]
    even = evened(in_order, drawn)
    some = some_of([[one for one in even if one.split is split] for split in Split])
    # What takes longest first, so that no worker waits for another in the end.
    tasks = [
        Columns(files=some),
        *(Rows(overlap=overlap, files=some) for overlap in reversed(overlaps)),
        *(Piece(documents=piece.documents) for piece in laid_out),
    ]
    columns, *measured = map_tasks(partial(measure, context, overlaps), tasks)
    tried, pieces = measured[: len(overlaps)], measured[len(overlaps) :]
    return Counted(
        overlaps=overlaps,
        documents=in_order,
        counts=np.concatenate([piece.counts for piece in pieces]),
        packed_bytes=sum(piece.packed_bytes for piece in pieces),
        splits=[document.in_split for document in in_order],
        tried=tried[::-1],
        parquet_bytes=columns,
    )


def _as_ours(error: OSError) -> OutputError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return OutputError(
            f"no space left in {tempfile.gettempdir()!r}, where a plan keeps tokens for a moment. Set TMPDIR to a "
            "folder with more, or use --sample."
        )
    return OutputError(f"cannot write to {tempfile.gettempdir()!r}: {error.strerror or error}.")
