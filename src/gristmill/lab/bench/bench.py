"""bench(): run several methods of making a dataset on the same files, and measure time, memory, size and quality.

source ─► corpus ─► rounds, with a new process for each method ─► quality of the last round's rows ─► Bench
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
from gristmill.dataset.foreign import convert_rows, find_data_files
from gristmill.lab.bench.bench_files import GatheredFiles, default_source, gather, num_bytes, sample_files
from gristmill.lab.bench.bench_result import Bench, Corpus, Machine, MethodResult, Skipped
from gristmill.lab.bench.job import WINDOW_LENGTH, Job
from gristmill.lab.bench.methods import Method, Setup, method_command, read_phase_seconds, select_methods, skip_reason
from gristmill.lab.bench.process import ProcessResult, require_psutil, run
from gristmill.lab.bench.quality import measure_quality
from gristmill.pipeline.work_folder import delete_abandoned_folders, temporary_folder
from gristmill.runners.local import num_cores
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate
from gristmill.tokenizers.tokenizer import tokenizer_for

LONG_RUN_SECONDS = 10.0
"""If a run with memory sampling is at least this long, its time is used, because sampling takes only a small share of a
long run."""
TEMPORARY_PREFIX = "gristmill-bench-"
PACKAGES = ("gigatoken", "tokenizers", "datasets", "orjson", "numpy")


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a benchmark."""

    tokenizer: str = "codebert"
    runs: int = 1
    only: Sequence[str] = ()
    """Names of the methods to run. Empty for all methods."""
    sample: int | None = None
    """Number of files that slow methods run on, or None for all files."""
    expand_to: int | None = None
    """Number of rows, including copies, that a plain script writes, or None for 2.75 times the number of rows before
    copying."""
    keep: str | None = None
    """New or empty folder in which the datasets are kept, or None to delete the datasets."""
    workers: int | Literal["auto"] = "auto"
    device: Literal["cpu", "cuda"] = "cpu"
    """With `cuda`, the methods include a build on a GPU."""

    def __post_init__(self) -> None:
        RunConfig(workers=self.workers)
        for option, value in (("--runs", self.runs), ("--sample", self.sample), ("--expand-to", self.expand_to)):
            if value is not None and value < 1:
                raise ConfigError(f"{option} must be at least 1, got {value}.")


def bench(
    source: str | None,
    options: BenchOptions | None = None,
    *,
    progress: Progress | None = None,
    command: str = "gristmill bench",
) -> Bench:
    """Run the methods one after the other on the same files with the same tokenizer.

    The source defaults to the Python standard library. `command` is recorded in the result as the command line that
    repeats the benchmark.
    """
    options, progress = options or BenchOptions(), progress or Progress()
    methods, keep = select_methods(options.only, options.device), options.keep
    require_psutil()
    with _work_folder(keep) as work:
        definition = locate(options.tokenizer)
        tokenizer = tokenizer_for(definition)
        found = gather(source or default_source(), tokenizer, progress, work=work)
        job = _job(found, definition, work, options)
        setup = Setup(
            source=os.path.join(found.source.root, *(found.source.only_files or ())),
            tokenizer=options.tokenizer,
            withheld=found.withheld,
            has_notebooks=any(file.language == NOTEBOOK for file in found.files),
            workers=options.workers,
        )
        skip_reasons = {method.name: skip_reason(method, tokenizer) for method in methods}
        all_runs = [
            MethodRuns(method, job, setup, options.sample) for method in methods if skip_reasons[method.name] is None
        ]
        results = []
        for round_number in range(options.runs):
            for runs in all_runs:
                runs.measure_once(progress)
                if round_number == options.runs - 1:
                    with progress.phase(f"{runs.method.name} quality"):
                        results.append(runs.result())
                    if keep is not None:
                        target = Path(keep, runs.method.name)
                        keep_as_dataset(runs.out, target, runs.method.name, definition)
                runs.clear()
    return Bench(
        methods=results,
        skipped=[Skipped(name=name, why=why) for name, why in skip_reasons.items() if why is not None],
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
    """A method with its job and the results of its runs."""

    def __init__(self, method: Method, job: Job, setup: Setup, sample: int | None) -> None:
        self.method, self._setup = method, setup
        self._folder = Path(job.out, method.name)
        self.out = self._folder / method.name
        files = sample_files(job.files, sample) if sample is not None and method.is_slow else job.files
        self._scale = num_bytes(job.files) / num_bytes(files)
        expand_to = None if job.expand_to is None else round(job.expand_to / self._scale)
        self.job = msgspec.structs.replace(job, files=files, out=str(self.out), expand_to=expand_to)
        self._job_file = self._folder.with_suffix(".job.json")
        self._job_file.write_bytes(msgspec.json.encode(self.job))
        self._peak_mb = 0.0
        self._timed_runs: list[ProcessResult] = []
        self._phases: list[dict[str, float | None]] = []

    def measure_once(self, progress: Progress) -> None:
        """Add one timed run of the method.

        Memory is sampled in the first run. If the first run is short, it is only a warm-up, and a second run is timed.
        """
        if not self._timed_runs:
            result = self._run(progress, watched=True)
            self._peak_mb = result.peak_mb or 0.0
            if result.seconds < LONG_RUN_SECONDS:
                result = self._run(progress, watched=False)
        else:
            result = self._run(progress, watched=False)
        self._timed_runs.append(result)
        self._phases.append(read_phase_seconds(self.method, self.out, result.last_line))

    def _run(self, progress: Progress, *, watched: bool) -> ProcessResult:
        """Run the method in an empty folder. For a rebuild, first run a build into this folder without timing it."""
        self.clear()
        self._folder.mkdir()
        if self.method.module is not None:  # `gristmill build` makes its output folder itself
            self.out.mkdir()
        command = method_command(self.method, self._setup, job_file=self._job_file, out=self.out)
        if self.method.is_rebuild:
            run(f"{self.method.name} first build", command, progress=progress, watched=False)
        return run(self.method.name, command, progress=progress, watched=watched)

    def result(self) -> MethodResult:
        """Return the result of all runs, with the quality of the rows that the last run wrote."""
        seconds = [result.seconds for result in self._timed_runs]
        median_index = _median_index(seconds)
        quality: dict[str, Any] = msgspec.structs.asdict(measure_quality(self.out, self.job))
        return MethodResult(
            **quality,
            name=self.method.name,
            what=self.method.what,
            seconds=seconds[median_index],
            seconds_min=min(seconds),
            seconds_max=max(seconds),
            runs=len(seconds),
            phases=self._phases[median_index],
            peak_mb=self._peak_mb,
            bytes=sum(path.stat().st_size for split in Split for path in find_data_files(self.out, split)),
            files=len(self.job.files),
            scale=self._scale,
        )

    def clear(self) -> None:
        """Delete everything that a run has written, including OUT.work, so that the next run starts without files."""
        if self._folder.exists():
            shutil.rmtree(self._folder)


# Keep the output of a method as a dataset folder that `open_dataset` and `datasets.load_dataset` can read.


def keep_as_dataset(out: Path, target: Path, method: str, definition: Definition) -> None:
    """Make a dataset in `target` from the output of a method. Rows of a build are moved. Other rows are converted."""
    with _staged_folder(target) as folder:
        if (out / FILES).is_file():
            for path in sorted(out.iterdir()):
                shutil.move(path, folder / path.name)
        else:
            made_by = f"the method {method!r} of gristmill bench"
            convert_rows(out, folder, definition, made_by=made_by, window_length=WINDOW_LENGTH)


@contextmanager
def _staged_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder next to `target`, and rename it to `target` at the end."""
    folder = target.with_name(target.name + ".part")
    try:
        if target.exists():
            raise OutputError(f"{str(target)!r} already exists. Move it, or choose a different --keep folder.")
        folder.mkdir(parents=True)
    except FileExistsError:
        raise OutputError(f"{str(folder)!r} was left by an earlier run. Delete it.") from None
    except OSError as error:
        raise OutputError(f"cannot make a folder next to {str(target)!r}: {error.strerror}.") from None
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
    """Return the index of the median, or of the higher of the two middle values if the count is even.

    The median is therefore the time of a single run, and the phases of this run can be reported with it.
    """
    return sorted(range(len(numbers)), key=numbers.__getitem__)[len(numbers) // 2]


def this_machine() -> Machine:
    """Describe this machine and the versions of the packages that affect speed."""
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


def _job(found: GatheredFiles, definition: Definition, work: Path, options: BenchOptions) -> Job:
    """Make the job that all methods share. `Job.out` is the folder that contains the output folders of the methods."""
    tokenizer_file = work / TOKENIZER
    tree = msgspec.json.decode(definition.json, type=dict[str, msgspec.Raw])
    # Many tokenizer files from the Hub truncate or pad every text to 512 tokens.
    tokenizer_file.write_bytes(msgspec.json.encode({**tree, "truncation": None, "padding": None}))
    return Job(
        files=found.files,
        root=os.path.join(found.source.root, *(found.source.only_files or ())),
        tokenizer=str(tokenizer_file),
        prefix=definition.template.prefix,
        suffix=definition.template.suffix,
        pad_id=definition.pad_id or 0,
        out=str(work),
        workers=num_cores() if options.workers == "auto" else options.workers,
        expand_to=options.expand_to,
    )


@contextmanager
def _work_folder(keep: str | None) -> Iterator[Path]:
    """Make a work folder inside `keep`, so that datasets can be kept by moving them.

    Without `keep`, the work folder is in the system's temporary folder. At the end, the work folder is deleted.
    `keep` is also deleted if it is empty and this function made it.
    """
    is_new = keep is not None and not os.path.lexists(keep)
    cleanup = ExitStack()
    try:
        if keep is not None:
            os.makedirs(keep, exist_ok=True)
            delete_abandoned_folders(TEMPORARY_PREFIX, keep)
            if os.listdir(keep):
                raise OutputError(f"the folder {keep!r} is not empty. Choose a new folder with --keep.")
        folder = cleanup.enter_context(temporary_folder(TEMPORARY_PREFIX, keep))
    except OSError as error:
        raise OutputError(f"cannot make the folder {keep or tempfile.gettempdir()!r}: {error.strerror}.") from None
    try:
        yield folder
    except OSError as error:
        advice = "Choose a different --keep folder." if keep is not None else "Set TMPDIR to a folder with more space."
        raise OutputError(f"cannot write to {str(folder)!r}: {error.strerror or error}. {advice}") from None
    finally:
        cleanup.close()
        if keep is not None and is_new:
            with suppress(OSError):
                os.rmdir(keep)
