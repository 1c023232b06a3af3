"""The four steps one by one, for Slurm arrays and the like: what build() does, with a file between the steps.

prepare   shard I of N, on any machine that sees the folders     work folder: its parts, and which they are
decide    once, when all shards are there                        who is in, where; which piece goes where
shape     shard I of N                                           its pieces, at their places
finish    once, when all shards are there                        the dataset in its place
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
from gristmill.pipeline.build import Clock, Job, as_ours, load, opened, runner_for, seal
from gristmill.pipeline.cache import recall, remember
from gristmill.pipeline.decide import decide
from gristmill.pipeline.decision import Decision, Judged
from gristmill.pipeline.intake import Intake, check_settings, take_in
from gristmill.pipeline.keys import key_of
from gristmill.pipeline.other_formats import with_other_formats
from gristmill.pipeline.pack import pack_all
from gristmill.pipeline.parts import is_whole, with_shared_words
from gristmill.pipeline.pieces import DataFiles, KnownPiece, ShapedPiece, Task, piece_key, piece_tasks, pieces_of
from gristmill.pipeline.prepare import Batch, batches, in_order, prepare_all
from gristmill.pipeline.shape import shape_tasks
from gristmill.runners.runner import Runner
from gristmill.sources.benchmark_files import read_benchmarks
from gristmill.sources.trees import Scan
from gristmill.splits.previous import previous_file
from gristmill.tokenizers.cuda.serving import GpuServer, server_for

Kept = TypeVar("Kept")


class Shard(NamedTuple):
    number: int
    """From 1."""
    total: int

    @classmethod
    def of(cls, text: str) -> "Shard":
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ConfigError(f"--shard takes I/N with I from 1 to N, like 3/16, got {text!r}.")
        return cls(int(match[1]), int(match[2]))

    def file(self, step: str) -> str:
        return f"{step}-{self.number}-of-{self.total}"


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """All that step 3 and 4 need to know."""

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
    """By piece."""

    @property
    def judged(self) -> Judged:
        return Judged(self.parts, self.decision, self.decontamination, self.scan_drops, self.renamed, self.sampling)


class Desk(Job):
    """What every step begins with."""

    @property
    def folder(self) -> Path:
        return self.work.folder / "steps"

    def keep(self, name: str, key: str, value: Any) -> None:
        """Under its name as well: one file in another's place is not believed."""
        self.folder.mkdir(exist_ok=True)
        remember(self.folder / name, key_of(key, name), value)

    def recall(self, name: str, key: str, kind: type[Kept]) -> Kept | None:
        return recall(self.folder / name, key_of(key, name), kind)

    def all_shards(self, step: str, command: str, key: str, kind: type[Kept]) -> list[Kept]:
        """Of the newest N; each must be there, and of the same inputs."""
        found = sorted(
            (path for path in self.folder.glob(f"{step}-*-of-*") if path.suffix != UNFINISHED),
            key=lambda path: path.stat().st_mtime_ns,
        )
        if not found:
            raise DatasetError(f"nothing is there to go on from. Run gristmill {command} --shard 1/1 first.")
        count = int(found[-1].name.rpartition("-")[2])
        kept: list[Kept] = []
        for number in range(1, count + 1):
            value = self.recall(Shard(number, count).file(step), key, kind)
            if value is None:
                raise DatasetError(
                    f"shard {number}/{count} of {command} is not there, or was made with other settings or sources. "
                    f"Run gristmill {command} --shard {number}/{count} again: what is done is kept."
                )
            kept.append(value)
        return kept

    def refuse_damaged(self, parts: Collection[str], runner: Runner) -> None:
        """Between the steps, anything may have become of them."""
        paths = [self.context.prepared / part for part in sorted(parts)]
        with self.progress.phase("verify", total=len(paths), unit="parts") as step:
            for path, is_good in zip(paths, runner.map(is_whole, paths), strict=True):
                if not is_good:
                    raise DatasetError(
                        f"{str(path)!r} is damaged or gone. Run gristmill prepare again for every shard, then this: "
                        "what is done is kept."
                    )
                step.advance(1)


@contextmanager
def _at_desk(config: Config, progress: Progress, *, is_shared: bool) -> Iterator[Desk]:
    progress.seconds.clear()
    with as_ours(config), opened(config).held(is_shared=is_shared) as work:
        with progress.phase("load"):
            definition, context = load(config, work.folder)
        yield Desk(definition, context, work, progress)


def _server(desk: Desk) -> AbstractContextManager[GpuServer]:
    context = desk.context
    return server_for(context.config.run, context.tokenizer, context.tokenizer_folder)


def _take_in(desk: Desk) -> Intake:
    config, work = desk.context.config, desk.work
    with desk.progress.phase("scan") as step, work.alone_at("fetched"):
        check_settings(config)
        benchmarks = read_benchmarks(config.split.against)
        intake = take_in(config, benchmarks, work.fetched, leave_out=(work.target, work.folder))
        step.advance(len(intake.found.files))
    return intake


def _all_batches(desk: Desk, found: Scan) -> tuple[str, list[Batch]]:
    """With a key of all that they are of: shards that have seen other files do not fit together."""
    tasks = list(batches(found.files, desk.context.config.run))
    seen = [(file.repo, file.path, file.size) for file in found.files]
    return key_of(desk.context.prepare_key, [len(batch.files) for batch in tasks], seen), tasks


def prepare_shard(config: Config, shard: Shard, progress: Progress | None = None) -> int:
    """Step 1 -> the number of its batches."""
    with _at_desk(config, progress or Progress(), is_shared=True) as desk, _server(desk) as server:
        intake = _take_in(desk)
        key, tasks = _all_batches(desk, intake.found)
        own = [batch for batch in tasks if batch.index % shard.total == shard.number - 1]
        with runner_for(desk.context, intake.found.files, intake.found.num_bytes) as runner:
            parts = prepare_all(desk.context, intake.sources, own, runner, desk.progress, server=server)
        desk.keep(shard.file("prepared"), key, parts)
        return len(own)


def decide_all(config: Config, progress: Progress | None = None) -> int:
    """Step 2 -> the number of pieces."""
    with _at_desk(config, progress or Progress(), is_shared=False) as desk:
        intake = _take_in(desk)
        key, _ = _all_batches(desk, intake.found)
        shards = desk.all_shards("prepared", "prepare", key, dict[int, str])
        parts = in_order({index: part for shard in shards for index, part in shard.items()})
        with runner_for(desk.context, intake.found.files, intake.found.num_bytes) as runner:
            desk.refuse_damaged(parts, runner)
            judged = decide(desk.context, intake, parts, runner, desk.progress)
        tasks = piece_tasks(desk.context, pieces_of(desk.context, judged.decision), desk.work)
        decided = Decided(
            parts=parts,
            decision=judged.decision,
            decontamination=judged.decontamination,
            sampling=judged.sampling,
            scan_drops=list(judged.scan_drops),
            renamed=list(judged.renamed),
            commits=intake.found.commits,
            warnings=intake.found.warnings,
            num_rows=intake.found.num_rows,
            known=[task.known for task in tasks],
        )
        desk.keep("decided", _decide_key(desk), decided)
        desk.work.keep_previous(previous_file(config))
        return len(tasks)


def shape_shard(config: Config, shard: Shard, progress: Progress | None = None) -> int:
    """Step 3 -> the number of its rows."""
    with _at_desk(config, progress or Progress(), is_shared=True) as desk:
        tasks = _tasks(desk, _decided(desk))
        own = tasks[shard.number - 1 :: shard.total]
        with runner_for(desk.context, (), sum(task.piece.num_bytes for task in own)) as runner:
            desk.refuse_damaged({document.part for task in own for document in task.piece.documents}, runner)
            shaped = {task.key: one for task, one in shape_tasks(desk.context, own, runner, desk.progress)}
        desk.keep(shard.file("shaped"), _layout_key(tasks), shaped)
        return sum(one.num_rows for one in shaped.values())


def finish_all(config: Config, progress: Progress | None = None) -> Manifest:
    """Step 4."""
    clock = Clock()
    with _at_desk(config, progress or Progress(), is_shared=False) as desk:
        decided = _decided(desk)
        tasks = _tasks(desk, decided)
        shards = desk.all_shards("shaped", "shape", _layout_key(tasks), dict[str, ShapedPiece])
        shaped = {key: one for shard in shards for key, one in shard.items()}
        with runner_for(desk.context, (), sum(one.num_row_bytes for one in decided.decision.shown())) as runner:
            desk.refuse_damaged(decided.parts, runner)
            gather = desk.progress.phase("gather", total=len(tasks), unit="pieces")
            with gather as step, DataFiles(desk.context, desk.work.log, keeps_compressed=True) as files:
                for task in tasks:
                    _add(files, task, shaped[task.key])
                    step.advance(1)
            if desk.context.is_packed:
                made = pack_all(desk.context, decided.decision, runner, desk.progress)
            else:
                pieces = pieces_of(desk.context, decided.decision)
                made = with_other_formats(desk.context, pieces, files, runner, desk.progress)
        found = Scan([], [], decided.commits, decided.warnings, decided.num_rows)
        manifest = seal(desk, found, decided.judged, made, clock)
        shutil.rmtree(desk.folder)
        return manifest


def _add(files: DataFiles, task: Task, shaped: ShapedPiece) -> None:
    """What was shaped, or was to be taken over, may be gone, if a step 4 before this one was killed near its end."""
    lies_elsewhere = shaped.is_taken_over and shaped.frames is not None
    is_lost = lies_elsewhere and (task.known is None or task.known.read() is None)
    try:
        if not is_lost:
            files.add(task, shaped)
    except FileNotFoundError:
        is_lost = True
    if is_lost:
        raise DatasetError(
            f"{task.told} are not where they were. Run gristmill decide, shape and finish again: what is done is kept."
        )


def _decided(desk: Desk) -> Decided:
    decided = desk.recall("decided", _decide_key(desk), Decided)
    if decided is None:
        raise DatasetError("nothing is decided yet, or with other settings. Run gristmill decide first.")
    decision = msgspec.structs.replace(
        decided.decision,
        kept=list(map(with_shared_words, decided.decision.kept)),
        variants=list(map(with_shared_words, decided.decision.variants)),
    )
    return msgspec.structs.replace(decided, decision=decision)


def _tasks(desk: Desk, decided: Decided) -> list[Task]:
    pieces = pieces_of(desk.context, decided.decision) if desk.context.writes_pieces else []
    if len(pieces) != len(decided.known):
        raise DatasetError("what was decided was for another layout. Run gristmill decide again.")
    return [
        Task(piece, piece_key(desk.context, piece), known) for piece, known in zip(pieces, decided.known, strict=True)
    ]


def _decide_key(desk: Desk) -> str:
    """All settings that the manifest will tell, also those that only step 2 goes by: splits, duplicates, licences."""
    return key_of(desk.context.prepare_key, desk.context.config.settings())


def _layout_key(tasks: Sequence[Task]) -> str:
    return key_of([(task.key, task.piece.file, task.piece.offset) for task in tasks])
