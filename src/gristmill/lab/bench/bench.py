"""bench(): the whole flow on one screen.

source ─► corpus ─► rounds over the methods, each in a fresh process ─► quality of what the last round left ─► Bench
"""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import msgspec

from gristmill.cleaning.clean import NOTEBOOK
from gristmill.config.settings import RunConfig
from gristmill.core.errors import ConfigError, OutputError
from gristmill.core.layout import FILES, TOKENIZER, sync_folder, sync_tree
from gristmill.core.progress import Progress
from gristmill.core.records import Split
from gristmill.core.version import __version__
from gristmill.dataset.foreign import adopt, data_files
from gristmill.lab.bench.bench_files import Found, default_source, gather, num_bytes, sample_of
from gristmill.lab.bench.bench_result import Bench, Corpus, Machine, MethodResult, Skipped
from gristmill.lab.bench.job import WINDOW_LENGTH, Job
from gristmill.lab.bench.methods import Method, Setup, chosen, command_of, phases_of, why_skipped
from gristmill.lab.bench.process import Ran, require_psutil, run
from gristmill.lab.bench.quality import quality_of
from gristmill.pipeline.work_folder import clear_temporary, temporary_folder
from gristmill.runners.local import num_cores
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate
from gristmill.tokenizers.tokenizer import tokenizer_for

LONG_RUN_SECONDS = 10.0
"""A watched run of this length counts: looking at its memory is then a small part of it."""
TEMPORARY_PREFIX = "gristmill-bench-"
PACKAGES = ("gigatoken", "tokenizers", "datasets", "orjson", "numpy")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a benchmark is to do beside its source."""

    tokenizer: str = "codebert"
    runs: int = 1
    only: Sequence[str] = ()
    """Methods by name; none: all."""
    sample: int | None = None
    """Files that slow methods are given; None: all."""
    expand_to: int | None = None
    keep: str | None = None
    """A new or empty folder."""
    workers: int | Literal["auto"] = "auto"
    device: Literal["cpu", "cuda"] = "cpu"
    """cuda: a build on a GPU is one of all methods."""

    def __post_init__(self) -> None:
        RunConfig(workers=self.workers)
        for option, value in (("--runs", self.runs), ("--sample", self.sample), ("--expand-to", self.expand_to)):
            if value is not None and value < 1:
                raise ConfigError(f"{option} must be at least 1, got {value}.")


def bench(
    source: str | None,
    asked: Asked | None = None,
    *,
    progress: Progress | None = None,
    command: str = "gristmill bench",
) -> Bench:
    """Methods one after the other on the same files with the same tokenizer. Without a source: the standard library."""
    asked, progress = asked or Asked(), progress or Progress()
    methods, keep = chosen(asked.only, asked.device), asked.keep
    require_psutil()
    with _work_folder(keep) as work:
        definition = locate(asked.tokenizer)
        engine = tokenizer_for(definition)
        found = gather(source or default_source(), engine, progress, work=work)
        job = _job(found, definition, work, asked)
        setup = Setup(
            source=os.path.join(found.source.root, *(found.source.only or ())),
            tokenizer=asked.tokenizer,
            withheld=found.withheld,
            has_notebooks=any(file.language == NOTEBOOK for file in found.files),
            workers=asked.workers,
        )
        reasons = {method.name: why_skipped(method, engine) for method in methods}
        all_runs = [MethodRuns(method, job, setup, asked.sample) for method in methods if reasons[method.name] is None]
        results = []
        for turn in range(asked.runs):
            for runs in all_runs:
                runs.take_turn(progress)
                if turn == asked.runs - 1:
                    with progress.phase(f"{runs.method.name} quality"):
                        results.append(runs.result())
                    if keep is not None:
                        target = Path(keep, runs.method.name)
                        keep_as_dataset(runs.out, target, runs.method.name, definition)
                runs.clear()
    return Bench(
        methods=results,
        skipped=[Skipped(name=name, why=why) for name, why in reasons.items() if why is not None],
        corpus=Corpus(
            source=found.source.repo,
            files=len(found.files),
            bytes=num_bytes(found.files),
            tokens=sum(file.num_tokens for file in found.files),
            withheld=len(found.withheld),
            tokenizer=definition.name,
        ),
        machine=this_machine(),
        command=command,
    )


class MethodRuns:
    """One method: its job, and the runs it has had."""

    def __init__(self, method: Method, job: Job, setup: Setup, sample: int | None) -> None:
        self.method, self._setup = method, setup
        self._room = Path(job.out, method.name)
        self.out = self._room / method.name
        files = sample_of(job.files, sample) if sample is not None and method.is_slow else job.files
        self._scale = num_bytes(job.files) / num_bytes(files)
        expand_to = None if job.expand_to is None else round(job.expand_to / self._scale)
        self.job = msgspec.structs.replace(job, files=files, out=str(self.out), expand_to=expand_to)
        self._job_file = self._room.with_suffix(".job.json")
        self._job_file.write_bytes(msgspec.json.encode(self.job))
        self._peak_mb = 0.0
        self._timed: list[Ran] = []
        self._phases: list[dict[str, float | None]] = []

    def take_turn(self, progress: Progress) -> None:
        """The first run is watched; a short one is then no more than a warm-up."""
        if not self._timed:
            ran = self._run(progress, watched=True)
            self._peak_mb = ran.peak_mb or 0.0
            if ran.seconds < LONG_RUN_SECONDS:
                ran = self._run(progress, watched=False)
        else:
            ran = self._run(progress, watched=False)
        self._timed.append(ran)
        self._phases.append(phases_of(self.method, self.out, ran.last_line))

    def _run(self, progress: Progress, *, watched: bool) -> Ran:
        """In an empty folder; a rebuild in the folder of a build just made."""
        self.clear()
        self._room.mkdir()
        if self.method.module is not None:  # gristmill makes its own
            self.out.mkdir()
        command = command_of(self.method, self._setup, job_file=self._job_file, out=self.out)
        if self.method.is_rebuild:
            run(f"{self.method.name} first build", command, progress=progress, watched=False)
        return run(self.method.name, command, progress=progress, watched=watched)

    def result(self) -> MethodResult:
        """Of all its turns, and of what the last one left."""
        seconds = [ran.seconds for ran in self._timed]
        reported = _median_index(seconds)
        quality: dict[str, Any] = msgspec.structs.asdict(quality_of(self.out, self.job))
        return MethodResult(
            **quality,
            name=self.method.name,
            what=self.method.what,
            seconds=seconds[reported],
            seconds_min=min(seconds),
            seconds_max=max(seconds),
            runs=len(seconds),
            phases=self._phases[reported],
            peak_mb=self._peak_mb,
            bytes=sum(path.stat().st_size for split in Split for path in data_files(self.out, split)),
            files=len(self.job.files),
            scale=self._scale,
        )

    def clear(self) -> None:
        """Delete all that a run has left, OUT.work too: the next one starts from nothing."""
        if self._room.exists():
            shutil.rmtree(self._room)


# What a method wrote, left as a dataset folder that `open_dataset` and `datasets.load_dataset` read.


def keep_as_dataset(out: Path, target: Path, method: str, definition: Definition) -> None:
    """Takes `out` apart: its rows are moved where that is enough."""
    with _beside(target) as folder:
        if (out / FILES).is_file():
            for path in sorted(out.iterdir()):
                shutil.move(path, folder / path.name)
        else:
            made_by = f"the method {method!r} of gristmill bench"
            adopt(out, folder, definition, made_by=made_by, window_length=WINDOW_LENGTH)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    folder = target.with_name(target.name + ".part")
    try:
        if target.exists():
            raise OutputError(f"{str(target)!r} exists already. Move it, or name another folder.")
        folder.mkdir(parents=True)
    except FileExistsError:
        raise OutputError(f"{str(folder)!r} is in the way, left by an earlier run. Remove it.") from None
    except OSError as error:
        raise OutputError(f"cannot write beside {str(target)!r}: {error.strerror}.") from None
    try:
        yield folder
        sync_tree(folder)
        os.rename(folder, target)
        sync_folder(target.parent)
    except OSError as error:
        raise OutputError(f"cannot write {str(target)!r}: {error.strerror}.") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _median_index(numbers: Sequence[float]) -> int:
    """Index of the median, of an even number the higher of the two: one run, whose phases add up to its seconds."""
    return sorted(range(len(numbers)), key=numbers.__getitem__)[len(numbers) // 2]


def this_machine() -> Machine:
    versions = {"gristmill": __version__}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return Machine(
        platform=f"{platform.system()} {platform.machine()}",
        cores=num_cores(),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        python=platform.python_version(),
        versions=versions,
    )


def _job(found: Found, definition: Definition, work: Path, asked: Asked) -> Job:
    """What all methods share; `out` is the folder that theirs lie in."""
    tokenizer_file = work / TOKENIZER
    tree = msgspec.json.decode(definition.json, type=dict[str, msgspec.Raw])
    # Many files from the Hub say to cut every text at 512 tokens, or to fill it up.
    tokenizer_file.write_bytes(msgspec.json.encode({**tree, "truncation": None, "padding": None}))
    return Job(
        files=found.files,
        root=os.path.join(found.source.root, *(found.source.only or ())),
        tokenizer=str(tokenizer_file),
        prefix=definition.template.prefix,
        suffix=definition.template.suffix,
        pad_id=definition.pad_id or 0,
        out=str(work),
        workers=num_cores() if asked.workers == "auto" else asked.workers,
        expand_to=asked.expand_to,
    )


@contextmanager
def _work_folder(keep: str | None) -> Iterator[Path]:
    """In `keep`, so that what is kept need only be moved; gone in the end, with `keep` if nothing came of it."""
    is_new = keep is not None and not os.path.lexists(keep)
    running = ExitStack()
    try:
        if keep is not None:
            os.makedirs(keep, exist_ok=True)
            clear_temporary(TEMPORARY_PREFIX, keep)
            if os.listdir(keep):
                raise OutputError(f"the folder {keep!r} is not empty. Name a new one with --keep.")
        folder = running.enter_context(temporary_folder(TEMPORARY_PREFIX, keep))
    except OSError as error:
        raise OutputError(f"cannot make the folder {keep or tempfile.gettempdir()!r}: {error.strerror}.") from None
    try:
        yield folder
    except OSError as error:
        advice = "Name another --keep folder." if keep is not None else "Set TMPDIR to a folder with more room."
        raise OutputError(f"cannot write to {str(folder)!r}: {error.strerror or error}. {advice}") from None
    finally:
        running.close()
        if keep is not None and is_new:
            with suppress(OSError):
                os.rmdir(keep)
