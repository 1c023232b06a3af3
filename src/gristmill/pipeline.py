"""build(): the whole flow on one screen.

sources ─► scan ─► prepare (over batches) ─► decide (once) ─► decontaminate ─► shape (over pieces) ─► finish ─► dataset
"""

import errno
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gristmill.cleaning.licenses import AllowList, identify_license, is_license_name
from gristmill.config import Config
from gristmill.errors import InputError, OutputError
from gristmill.intake.benchmarks import Benchmark, read_benchmarks
from gristmill.intake.languages import check_languages
from gristmill.intake.licensing import read_license_files
from gristmill.intake.sources import resolve_sources
from gristmill.intake.trees import Scan, scan
from gristmill.layout import FILES
from gristmill.manifest import Decontamination, FileFacts, Manifest, Run, write_manifest
from gristmill.naming import printable
from gristmill.progress import Progress
from gristmill.records import Drop, PreparedDocument
from gristmill.runners.local import LocalRunner, num_workers
from gristmill.steps.clean import without_secrets
from gristmill.steps.context import Context
from gristmill.steps.decide import Decision, Piece, decide, lay_out
from gristmill.steps.decontaminate import decontaminate
from gristmill.steps.finish import Outcome, describe, machine, write_files_table
from gristmill.steps.gather import DataFiles
from gristmill.steps.license import LicenseFiles, license_documents
from gristmill.steps.prepare import batches, prepare
from gristmill.steps.shape import shape
from gristmill.tokenizing.locating import locate
from gristmill.workspace import Workspace


def build(config: Config, progress: Progress | None = None) -> Manifest:
    """Source trees in, a dataset folder out. Whatever happens on the way, an earlier dataset in that place is whole."""
    progress = progress or Progress()
    progress.seconds.clear()
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    started = time.perf_counter()
    benchmarks = benchmarks_of(config)
    try:
        work = Workspace(config.out)
        sources = resolve_sources(config.sources)
        work.refuse_sources([source.root for source in sources])
        with work:
            with progress.phase("load"):
                definition = locate(config.tokenizer.name, cache_dir=config.tokenizer.cache_dir)
                context = Context.of(config, definition, prepared=work.prepared, dataset=work.dataset)
            with progress.phase("scan") as step:
                intake = take_in(config, benchmarks, leave_out=(work.target, work.folder))
                step.advance(len(intake.found.files))
            with LocalRunner(num_workers(config.run.workers, intake.found.num_bytes)) as runner:
                decision, decontamination, drops = judge(context, intake, runner, progress)
                pieces = list(lay_out(decision.kept, decision.split_of, config.output))
                work.require_space(_num_bytes(pieces, config))
                data_files = _shape(context, pieces, runner, progress)
            with progress.phase("finish"):
                write_files_table(work.dataset / FILES, decision, drops)
            run = Run(
                started_at=started_at,
                seconds={**_rounded(progress.seconds), "total": round(time.perf_counter() - started, 3)},
                workers=runner.workers,
                source_bytes=sum(document.size for document in decision.kept),
                **machine(),
            )
            manifest = describe(
                context, Outcome(definition, intake.found, decision, decontamination, drops, data_files), run
            )
            write_manifest(manifest, work.dataset)
            work.publish()
            return manifest
    except OSError as error:
        raise _as_ours(error, config) from error


def benchmarks_of(config: Config) -> list[Benchmark]:
    """Read before any work is done; names in other settings that nothing goes by are refused here too."""
    check_languages((*config.scan.languages, *config.rules.languages))
    AllowList.of(config.licenses.allow)
    return read_benchmarks(config.split.against)


class Intake(NamedTuple):
    """All that comes in."""

    found: Scan
    licenses: LicenseFiles
    benchmarks: list[Benchmark]


def take_in(config: Config, benchmarks: list[Benchmark], leave_out: Sequence[Path]) -> Intake:
    found = scan(config.sources, config.scan, leave_out=leave_out)
    licenses = read_license_files(resolve_sources(config.sources), found, is_license_name, identify_license)
    return Intake(found, licenses, benchmarks)


class Judged(NamedTuple):
    """Who is in, where, with what cut out; and who is not, and why."""

    decision: Decision
    decontamination: Decontamination
    drops: list[Drop]


def judge(context: Context, intake: Intake, runner: LocalRunner, progress: Progress) -> Judged:
    """Steps 1 and 2. The ids of what stays lie in shards in the folder of what is prepared."""
    config = context.config
    documents, drops = _prepare(context, intake.found, runner, progress)
    intake.found.files.clear()  # of no more use, and there may be many
    with progress.phase("decide"):
        documents, not_allowed = license_documents(documents, intake.licenses, config)
        _require_documents(documents, [*drops, *not_allowed], config)
        decision = decide(context, documents)
    with progress.phase("compare", unit="tasks") as step:
        decision, decontamination = decontaminate(context, decision, intake.benchmarks, step.counting(runner.map))
    drops = [without_secrets(drop, config.secrets) for drop in (*drops, *not_allowed, *decision.drops)]
    _require_documents(decision.kept, drops, config)
    return Judged(decision, decontamination, drops)


def _prepare(
    context: Context, found: Scan, runner: LocalRunner, progress: Progress
) -> tuple[list[PreparedDocument], list[Drop]]:
    documents: list[PreparedDocument] = []
    drops = list(found.drops)
    tasks = batches(found.files, context.config.run)
    with progress.phase("prepare", total=len(found.files)) as step:
        for prepared in runner.map(partial(prepare, context), tasks):
            documents += prepared.documents
            drops += prepared.drops
            step.advance(len(prepared.documents) + len(prepared.drops))
    return documents, drops


def _shape(context: Context, pieces: list[Piece], runner: LocalRunner, progress: Progress) -> dict[str, FileFacts]:
    total = sum(document.num_windows for piece in pieces for document in piece.documents)
    files = DataFiles(context.dataset)
    with progress.phase("shape", total=total, unit="windows") as step:
        for piece, shaped in zip(pieces, runner.map(partial(shape, context), pieces), strict=True):
            files.add(piece, shaped)
            step.advance(shaped.num_rows)
        return files.close()


def _require_documents(documents: list[PreparedDocument], drops: list[Drop], config: Config) -> None:
    if not documents:
        raise InputError(_nothing_to_build(config, drops))


def _num_bytes(pieces: list[Piece], config: Config) -> int:
    """Compressed they take less, nobody knows how much."""
    return 0 if config.output.compress == "zstd" else sum(piece.num_bytes for piece in pieces)


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {phase: round(value, 3) for phase, value in seconds.items()}


def _nothing_to_build(config: Config, drops: list[Drop]) -> str:
    """An empty result has a reason: say it."""
    where = ", ".join(repr(source) for source in config.sources)
    if not drops:
        return f"there are no files in {where}. Check the path, and what its .gitignore leaves out."
    reasons = Counter(drop.reason for drop in drops).most_common(3)
    listed = ", ".join(f"{count} {reason}" for reason, count in reasons)
    one = without_secrets(next(drop for drop in drops if drop.reason is reasons[0][0]), config.secrets)
    example = printable(f"{one.path}: {one.detail}")
    return f"nothing to build from in {where}: {len(drops)} files found, all dropped ({listed}). For example {example}."


def _as_ours(error: OSError, config: Config) -> OutputError:
    """What the system refused while writing; sources that cannot be read are drops and never come here."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return OutputError(
            f"no space left while writing {config.out!r}; nothing was changed there. Free some, or use --compress zstd."
        )
    place = f" at {str(error.filename)!r}" if error.filename else ""
    return OutputError(f"cannot write {config.out!r}: {error.strerror or error}{place}.")
