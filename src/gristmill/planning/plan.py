"""plan(): what would a build give, before building.

Files are read, cleaned, tokenized, compared and split by the very steps of a build, into a folder that is thrown away;
then the windows of every overlap are counted instead of written.
"""

import errno
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from gristmill.config import Config, default_of
from gristmill.errors import OutputError
from gristmill.pipeline import benchmarks_of, judge, take_in
from gristmill.planning.answering import Counted, Gathered, answer
from gristmill.planning.budget import Wanted
from gristmill.planning.overlaps import Rows, count, measure, some_of
from gristmill.planning.result import Plan
from gristmill.planning.sampling import Drawn, draw, evened
from gristmill.progress import MapFunction, Progress
from gristmill.records import Split
from gristmill.runners.local import LocalRunner, num_workers
from gristmill.shaping.windows import WindowShape
from gristmill.steps.context import Context
from gristmill.steps.decide import Decision, lay_out
from gristmill.tokenizing.locating import locate
from gristmill.workspace import Workspace

OVERLAPS = (0, 64, 128, 256, 384)


def plan(config: Config, wanted: Wanted | None = None, progress: Progress | None = None) -> Plan:
    """Source trees in, answers out. Nothing is written but what is deleted again."""
    wanted, progress = wanted or Wanted(), progress or Progress()
    progress.seconds.clear()
    started = time.perf_counter()
    benchmarks = benchmarks_of(config)
    try:
        with tempfile.TemporaryDirectory(prefix="gristmill-plan-") as folder:
            prepared, dataset = Path(folder, "prepared"), Path(folder, "dataset")
            prepared.mkdir()
            dataset.mkdir()
            with progress.phase("load"):
                definition = locate(config.tokenizer.name, cache_dir=config.tokenizer.cache_dir)
                config, overlaps = _overlaps(config, definition.template.num_special)
                context = Context.of(config, definition, prepared=prepared, dataset=dataset)
            with progress.phase("scan") as step:
                work = Workspace(config.out)
                intake = take_in(config, benchmarks, leave_out=(work.target, work.folder))
                step.advance(len(intake.found.files))
                dropped_by_name = Counter(drop.reason for drop in intake.found.drops)
                drawn = draw(intake.found.files, wanted.sample)
                intake = intake._replace(found=intake.found._replace(files=list(drawn.files)))
            with LocalRunner(num_workers(config.run.workers, intake.found.num_bytes)) as runner:
                judged = judge(context, intake, runner, progress)
                with progress.phase("measure", unit="tasks") as step:
                    counted = _count(context, judged.decision, overlaps, drawn, step.counting(runner.map))
    except OSError as error:
        raise _as_ours(error) from error
    gathered = Gathered(config, drawn, judged, dropped_by_name, counted, progress.seconds, runner.workers)
    made = answer(gathered, wanted)
    return msgspec.structs.replace(made, seconds=round(time.perf_counter() - started, 3))


def _overlaps(config: Config, num_special: int) -> tuple[Config, list[int]]:
    """Those to compare, with the configured one among them; the default one gives way to a shorter window."""
    window = config.window
    if window.overlap == default_of("window.overlap"):
        window = msgspec.structs.replace(window, overlap=min(window.overlap, window.length // 2))
    shape = WindowShape.of(window, num_special)
    overlaps = {overlap for overlap in OVERLAPS if overlap < shape.num_content} | {window.overlap}
    return msgspec.structs.replace(config, window=window), sorted(overlaps)


def _count(context: Context, decision: Decision, overlaps: list[int], drawn: Drawn, map_tasks: MapFunction) -> Counted:
    """Also what was cut away whole: with another overlap a window of it might be left."""
    documents = sorted((*decision.kept, *decision.cut_away), key=lambda document: document.key)
    pieces = list(lay_out(documents, decision.split_of, context.config.output))
    counts = map_tasks(partial(count, context, overlaps), [piece.documents for piece in pieces])
    members = {
        split: [document for piece in pieces if piece.split is split for document in piece.documents] for split in Split
    }
    some = some_of([evened(documents, drawn) for documents in members.values()])
    largest_first = [Rows(overlap=overlap, files=some) for overlap in reversed(overlaps)]
    return Counted(
        overlaps=overlaps,
        documents=[document for piece in pieces for document in piece.documents],
        counts=np.concatenate(list(counts)),
        num_train=len(members[Split.TRAIN]),
        sizes=list(map_tasks(partial(measure, context), largest_first))[::-1],
    )


def _as_ours(error: OSError) -> OutputError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return OutputError(
            f"no space left in {tempfile.gettempdir()!r}, where a plan keeps tokens for a moment. Set TMPDIR to a "
            "folder with more, or use --sample."
        )
    return OutputError(f"cannot write to {tempfile.gettempdir()!r}: {error.strerror or error}.")
