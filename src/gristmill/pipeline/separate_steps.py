"""The four steps of build() as separate commands, for example for Slurm arrays.

The commands exchange results as files in the work folder.

prepare   shard I of N, on any machine with the same folders     writes its parts and a list of these parts
decide    once, after all shards are prepared                    writes the decision and the layout of the pieces
shape     shard I of N                                           writes its pieces: the JSONL rows of its documents
finish    once, after all shards are shaped                      writes the other formats, and publishes the dataset

A part is a file with the results for one batch of files, and a piece is the JSONL rows of consecutive documents. With
--pack there are no pieces: `finish` writes all rows.
"""

import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from gristmill.config.config import Config
from gristmill.core.errors import ConfigError, DatasetError
from gristmill.core.layout import UNFINISHED
from gristmill.core.manifest import Decontamination, Manifest, SamplingFacts
from gristmill.core.progress import Progress
from gristmill.core.records import Drop
from gristmill.pipeline.build import (
    Job,
    RunTimer,
    finish_dataset,
    load,
    open_workspace,
    runner_for,
    translate_os_errors,
)
from gristmill.pipeline.cache import read_cached, write_cached
from gristmill.pipeline.decide import decide
from gristmill.pipeline.decision import Decided, Decision
from gristmill.pipeline.inputs import Inputs, check_settings, read_inputs
from gristmill.pipeline.keys import key_of
from gristmill.pipeline.other_formats import write_other_formats
from gristmill.pipeline.pack import pack_all
from gristmill.pipeline.parts import is_intact, with_interned_strings
from gristmill.pipeline.pieces import DataFiles, KnownPiece, ShapedPiece, Task, piece_key, piece_tasks, pieces_of
from gristmill.pipeline.prepare import Batch, make_batches, prepare_all, sort_parts
from gristmill.pipeline.shape import shape_tasks
from gristmill.runners.runner import Runner
from gristmill.sources.benchmark_files import read_benchmarks
from gristmill.sources.trees import Scan
from gristmill.splits.previous import previous_file
from gristmill.tokenizers.cuda.serving import GpuServer, server_for

Saved = TypeVar("Saved")


class Shard(NamedTuple):
    """One of N shares of a step, as in `--shard I/N`."""

    number: int
    """Number of the shard, from 1."""
    total: int

    @classmethod
    def of(cls, text: str) -> "Shard":
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError(f"--shard must be I/N with I from 1 to N, like 3/16, got {text!r}.")
        return cls(int(match[1]), int(match[2]))

    def file(self, step: str) -> str:
        return f"{step}-{self.number}-of-{self.total}"


class SavedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Result of step 2, saved as a file for steps 3 and 4."""

    parts: list[str]
    decision: Decision
    decontamination: Decontamination
    sampling: SamplingFacts | None
    scan_drops: list[Drop]
    renamed: list[Drop]
    commits: dict[str, str | None]
    warnings: list[str]
    num_rows: dict[str, int]
    known: list[KnownPiece | None]
    """For each piece, the known piece with the same key, or None."""

    @property
    def decided(self) -> Decided:
        return Decided(self.parts, self.decision, self.decontamination, self.scan_drops, self.renamed, self.sampling)


class StepSession(Job):
    """A running step. It saves results for later steps and loads the results of earlier steps."""

    @property
    def folder(self) -> Path:
        return self.work.folder / "steps"

    def save(self, name: str, key: str, value: Any) -> None:
        """Save a value. The name is part of the key, so that load() rejects a renamed file."""
        self.folder.mkdir(exist_ok=True)
        write_cached(self.folder / name, key_of(key, name), value)

    def load(self, name: str, key: str, kind: type[Saved]) -> Saved | None:
        return read_cached(self.folder / name, key_of(key, name), kind)

    def load_shards(self, step: str, command: str, key: str, kind: type[Saved]) -> list[Saved]:
        """Load the results of all shards. The newest file determines the number of shards.

        Raise if a shard is missing or was made from different inputs.
        """
        found = sorted(
            (path for path in self.folder.glob(f"{step}-*-of-*") if path.suffix != UNFINISHED),
            key=lambda path: path.stat().st_mtime_ns,
        )
        if not found:
            raise DatasetError(
                f"no results of gristmill {command} found. First run gristmill {command} --shard 1/1 with the same "
                "sources and options."
            )
        count = int(found[-1].name.rpartition("-")[2])
        values: list[Saved] = []
        for number in range(1, count + 1):
            value = self.load(Shard(number, count).file(step), key, kind)
            if value is None:
                raise DatasetError(
                    f"shard {number}/{count} of {command} is missing, or was made with different settings or sources. "
                    f"Run gristmill {command} --shard {number}/{count} with the same sources and options. Completed "
                    "work is kept."
                )
            values.append(value)
        return values

    def require_intact_parts(self, parts: Collection[str], runner: Runner) -> None:
        """Raise if a part is missing or was damaged between the steps."""
        paths = [self.context.prepared / part for part in sorted(parts)]
        with self.progress.phase("verify", total=len(paths), unit="parts") as step:
            for path, is_good in zip(paths, runner.map(is_intact, paths), strict=True):
                if not is_good:
                    raise DatasetError(
                        f"{str(path)!r} is damaged or missing. Run gristmill prepare again for every shard, then "
                        "gristmill decide, then this command. Completed work is kept."
                    )
                step.advance(1)


@contextmanager
def _open_session(config: Config, progress: Progress, *, is_shared: bool) -> Iterator[StepSession]:
    progress.seconds.clear()
    with translate_os_errors(config), open_workspace(config).locked(is_shared=is_shared) as work:
        with progress.phase("load"):
            definition, context = load(config, work.folder)
        yield StepSession(definition, context, work, progress)


def _server(session: StepSession) -> AbstractContextManager[GpuServer]:
    context = session.context
    return server_for(context.config.run, context.tokenizer, context.tokenizer_folder)


def _read_inputs(session: StepSession) -> Inputs:
    config, work = session.context.config, session.work
    with session.progress.phase("scan") as step, work.exclusive("fetched"):
        check_settings(config)
        benchmarks = read_benchmarks(config.split.against)
        inputs = read_inputs(config, benchmarks, work.fetched, leave_out=(work.target, work.folder))
        step.advance(len(inputs.found.files))
    return inputs


def _all_batches(session: StepSession, found: Scan) -> tuple[str, list[Batch]]:
    """Return a key and all batches. The key identifies the files, so that shards with different files do not match."""
    tasks = list(make_batches(found.files, session.context.config.run))
    seen = [(file.repo, file.path, file.size) for file in found.files]
    return key_of(session.context.prepare_key, [len(batch.files) for batch in tasks], seen), tasks


def prepare_shard(config: Config, shard: Shard, progress: Progress | None = None) -> int:
    """Run step 1 for one shard. Return the number of batches in the shard."""
    with _open_session(config, progress or Progress(), is_shared=True) as session, _server(session) as server:
        inputs = _read_inputs(session)
        key, tasks = _all_batches(session, inputs.found)
        shard_tasks = [batch for batch in tasks if batch.index % shard.total == shard.number - 1]
        with runner_for(session.context, inputs.found.files, inputs.found.num_bytes) as runner:
            parts = prepare_all(session.context, inputs.sources, shard_tasks, runner, session.progress, server=server)
        session.save(shard.file("prepared"), key, parts)
        return len(shard_tasks)


def decide_all(config: Config, progress: Progress | None = None) -> int:
    """Run step 2. Return the number of pieces."""
    with _open_session(config, progress or Progress(), is_shared=False) as session:
        inputs = _read_inputs(session)
        key, _ = _all_batches(session, inputs.found)
        shards = session.load_shards("prepared", "prepare", key, dict[int, str])
        parts = sort_parts({index: part for shard in shards for index, part in shard.items()})
        with runner_for(session.context, inputs.found.files, inputs.found.num_bytes) as runner:
            session.require_intact_parts(parts, runner)
            decided = decide(session.context, inputs, parts, runner, session.progress)
        tasks = piece_tasks(session.context, pieces_of(session.context, decided.decision), session.work)
        saved = SavedDecision(
            parts=parts,
            decision=decided.decision,
            decontamination=decided.decontamination,
            sampling=decided.sampling,
            scan_drops=list(decided.scan_drops),
            renamed=list(decided.renamed),
            commits=inputs.found.commits,
            warnings=inputs.found.warnings,
            num_rows=inputs.found.num_rows,
            known=[task.known for task in tasks],
        )
        session.save("decided", _decide_key(session), saved)
        session.work.store_previous(previous_file(config))
        return len(tasks)


def shape_shard(config: Config, shard: Shard, progress: Progress | None = None) -> int:
    """Run step 3 for one shard, which writes JSONL rows. Return the number of these rows."""
    with _open_session(config, progress or Progress(), is_shared=True) as session:
        tasks = _tasks(session, _load_decision(session))
        shard_tasks = tasks[shard.number - 1 :: shard.total]
        with runner_for(session.context, (), sum(task.piece.num_bytes for task in shard_tasks)) as runner:
            session.require_intact_parts(
                {document.part for task in shard_tasks for document in task.piece.documents}, runner
            )
            shaped = {
                task.key: one for task, one in shape_tasks(session.context, shard_tasks, runner, session.progress)
            }
        session.save(shard.file("shaped"), _layout_key(tasks), shaped)
        return sum(one.num_rows for one in shaped.values())


def finish_all(config: Config, progress: Progress | None = None) -> Manifest:
    """Write the rows that no piece contains (other formats, packed rows), run step 4 and publish the dataset."""
    timer = RunTimer()
    with _open_session(config, progress or Progress(), is_shared=False) as session:
        saved = _load_decision(session)
        tasks = _tasks(session, saved)
        shards = session.load_shards("shaped", "shape", _layout_key(tasks), dict[str, ShapedPiece])
        shaped = {key: one for shard in shards for key, one in shard.items()}
        with runner_for(session.context, (), sum(one.num_row_bytes for one in saved.decision.in_row_order())) as runner:
            session.require_intact_parts(saved.parts, runner)
            gather = session.progress.phase("gather", total=len(tasks), unit="pieces")
            with gather as step, DataFiles(session.context, session.work.log, keeps_compressed=True) as files:
                for task in tasks:
                    _add_piece(files, task, shaped[task.key])
                    step.advance(1)
            if session.context.is_packed:
                made = pack_all(session.context, saved.decision, runner, session.progress)
            else:
                pieces = pieces_of(session.context, saved.decision)
                made = write_other_formats(session.context, pieces, files, runner, session.progress)
        found = Scan([], [], saved.commits, saved.warnings, saved.num_rows)
        manifest = finish_dataset(session, found, saved.decided, made, timer)
        shutil.rmtree(session.folder)
        return manifest


def _add_piece(files: DataFiles, task: Task, shaped: ShapedPiece) -> None:
    """Add a piece to the data files.

    Raise if the piece is missing, which can happen if an earlier run of step 4 was killed.
    """
    is_in_other_file = shaped.is_taken_over and shaped.frames is not None
    is_lost = is_in_other_file and (task.known is None or task.known.read() is None)
    try:
        if not is_lost:
            files.add(task, shaped)
    except FileNotFoundError:
        is_lost = True
    if is_lost:
        raise DatasetError(
            f"{task.description} are missing. Run gristmill decide, shape and finish again. Completed work is kept."
        )


def _load_decision(session: StepSession) -> SavedDecision:
    saved = session.load("decided", _decide_key(session), SavedDecision)
    if saved is None:
        raise DatasetError(
            "no results of gristmill decide found for these settings. First run gristmill decide with the same sources "
            "and options."
        )
    decision = msgspec.structs.replace(
        saved.decision,
        kept=list(map(with_interned_strings, saved.decision.kept)),
        variants=list(map(with_interned_strings, saved.decision.variants)),
    )
    return msgspec.structs.replace(saved, decision=decision)


def _tasks(session: StepSession, saved: SavedDecision) -> list[Task]:
    pieces = pieces_of(session.context, saved.decision) if session.context.writes_pieces else []
    if len(pieces) != len(saved.known):
        raise DatasetError(
            "the results of gristmill decide do not match these output settings. Run gristmill decide again."
        )
    return [
        Task(piece, piece_key(session.context, piece), known) for piece, known in zip(pieces, saved.known, strict=True)
    ]


def _decide_key(session: StepSession) -> str:
    """Return a digest of all settings. `prepare_key` covers only the settings of step 1."""
    return key_of(session.context.prepare_key, session.context.config.settings())


def _layout_key(tasks: Sequence[Task]) -> str:
    return key_of([(task.key, task.piece.file, task.piece.offset) for task in tasks])
