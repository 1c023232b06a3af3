"""Measure a real build in one process, task by task, and the driver's memory per file and per document."""

import hashlib
import json
import tempfile
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import fields

from gristmill.config.config import Config
from gristmill.config.settings import RunConfig
from gristmill.core.layout import FILES
from gristmill.core.progress import Progress
from gristmill.core.records import SourceFile, Split, TokenizedDocument
from gristmill.dedup.signatures import NUM_BANDS, concatenate_ids
from gristmill.pipeline.build import load
from gristmill.pipeline.context import Context
from gristmill.pipeline.decide import decide
from gristmill.pipeline.finish import FilesTable
from gristmill.pipeline.inputs import Inputs, read_inputs, read_license_files
from gristmill.pipeline.parts import SUFFIX, FileKeys, Part, PartReader, ids_bytes, write_part
from gristmill.pipeline.pieces import piece_tasks, pieces_of
from gristmill.pipeline.prepare import make_batches, prepare_all, sort_parts
from gristmill.pipeline.shape import shape_all
from gristmill.pipeline.work_folder import Workspace
from gristmill.runners.local import LocalRunner
from gristmill.sources.trees import Scan
from gristmill.splits.shared_spans import find_anchors

MAX_SPREAD = 60
"""Maximum number of task durations that are recorded for each function."""
SYNTHETIC_COUNTS = (20_000, 60_000)
"""The two numbers of synthetic files or documents for which memory is measured."""
DOCUMENTS_PER_PART = 100


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of a real build in one process."""

    num_files: int
    """Number of all files in the folder. benchmarks/scale.md counts the files of its corpus in the same way."""
    num_bytes: int
    found_files: int
    """Number of files that the scan does not exclude by name.

    The Stack consists of tables. The scan excludes no row of a table by name, so estimates for The Stack are based on
    this number."""
    found_bytes: int
    num_documents: int
    num_tokens: int
    held_out_share: float
    """Share of the tokens that are not in train."""
    num_anchors: int
    """Number of anchors of all documents. src/gristmill/splits/shared_spans.py explains anchors and 50-grams."""
    num_spans: int
    """Number of 50-grams that are written to disk to find shared spans."""
    row_bytes: int
    part_bytes: int
    """Size of the tokenized documents that prepare writes."""
    scratch_bytes: int
    """Size of the temporary files of decide and compare."""
    task_seconds: dict[str, float]
    """Total seconds of tasks, keyed by the name of the task function."""
    num_tasks: dict[str, int]
    phase_seconds: dict[str, float]
    spread: dict[str, list[float]]
    """Durations of single tasks as multiples of the mean, keyed by function."""
    scan_seconds: float
    """Seconds to list the files. A build lists files while tasks run, so no phase includes these seconds."""
    table_seconds: float
    """Seconds to write files.jsonl. A build writes files.jsonl while tasks run, so no phase includes these seconds."""
    scan_bytes_per_file: float
    """Memory that the driver needs per file during the scan."""
    decide_bytes_per_document: float
    """Memory that the driver needs per document during decide and compare."""

    def serial_share(self, phase: str, functions: Iterable[str]) -> float:
        """Return the seconds of a phase outside the tasks of `functions`, divided by the seconds inside these tasks."""
        tasks = sum(self.task_seconds.get(name, 0.0) for name in functions)
        return max(0.0, self.phase_seconds[phase] - tasks) / tasks


class TimedRunner(LocalRunner):
    """Runner that executes all tasks in this process and records the seconds of each task."""

    def __init__(self) -> None:
        super().__init__(1)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.num_spans = 0

    def as_completed(self, function: Any, tasks: Any, **options: Any) -> Any:
        name = function.func.__name__

        def timed(task: Any) -> Any:
            started = time.perf_counter()
            result = function(task)
            self.seconds[name].append(time.perf_counter() - started)
            self.num_spans += result[1] if name == "probe" else result if name == "mark" else 0
            return result

        return super().as_completed(timed, tasks, **options)


def measure(folder: str) -> Sample:
    """Build the folder in one process and return the measurements."""
    with tempfile.TemporaryDirectory(dir=".") as name, Workspace(f"{name}/dataset") as work:
        config = Config(sources=[folder], out=str(work.target))
        progress = Progress(quiet=True)
        _, context = load(config, work.folder)
        started = time.perf_counter()
        inputs = read_inputs(config, [], work.fetched, leave_out=())
        scan_seconds = time.perf_counter() - started
        found_files, found_bytes = len(inputs.found.files), inputs.found.num_bytes
        tasks = list(make_batches(inputs.found.files, config.run))
        with TimedRunner() as runner:
            parts = sort_parts(prepare_all(context, inputs.sources, tasks, runner, progress))
            decided = decide(context, inputs, parts, runner, progress)
            scratch_bytes = folder_bytes(context.scratch)
            pieces = pieces_of(context, decided.decision)
            shape_all(context, decided.decision, work, runner, progress)
        started = time.perf_counter()
        FilesTable(context.dataset / FILES, context, decided).finish()
        table_seconds = time.perf_counter() - started
        kept = decided.decision.kept
        readers = [PartReader(context.prepared, part) for part in parts]
        return Sample(
            num_files=sum(path.is_file() for path in Path(folder).rglob("*")),
            num_bytes=folder_bytes(Path(folder)),
            found_files=found_files,
            found_bytes=found_bytes,
            num_documents=sum(len(reader.documents()) for reader in readers),
            num_tokens=sum(one.num_tokens for one in kept),
            held_out_share=sum(one.num_tokens for one in kept if one.split is not Split.TRAIN)
            / sum(one.num_tokens for one in kept),
            num_anchors=sum(int(reader.anchors().counts.sum()) for reader in readers),
            num_spans=runner.num_spans,
            row_bytes=sum(piece.num_bytes for piece in pieces),
            part_bytes=folder_bytes(context.prepared),
            scratch_bytes=scratch_bytes,
            task_seconds={name: round(sum(took), 3) for name, took in runner.seconds.items()},
            num_tasks={name: len(took) for name, took in runner.seconds.items()},
            phase_seconds={name: round(took, 3) for name, took in progress.seconds.items()},
            spread={name: task_spread(took) for name, took in runner.seconds.items()},
            scan_seconds=round(scan_seconds, 3),
            table_seconds=round(table_seconds, 3),
            scan_bytes_per_file=bytes_per_document(scan_peak),
            decide_bytes_per_document=bytes_per_document(decide_peak),
        )


def sample_json(sample: Sample) -> str:
    """Return the sample as JSON with one field per line."""
    lines = (f' "{name}": {json.dumps(value)}' for name, value in msgspec.to_builtins(sample).items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def task_spread(seconds: Sequence[float]) -> list[float]:
    """Return up to MAX_SPREAD durations, evenly spaced from fastest to slowest, as multiples of their mean."""
    ordered = sorted(seconds)
    step = max(1.0, len(ordered) / MAX_SPREAD)
    chosen = [ordered[int(index * step)] for index in range(int(len(ordered) / step))]
    mean = sum(chosen) / len(chosen)
    return [round(one / mean, 4) for one in chosen]


# --- Memory of the driver per file and document


def bytes_per_document(peak: Callable[[int], int]) -> float:
    """Return the memory per file or document. The difference of two measurements cancels out the fixed memory."""
    few, many = SYNTHETIC_COUNTS
    return round((peak(many) - peak(few)) / (many - few), 1)


def scan_peak(num_files: int) -> int:
    """Return the peak memory of listing `num_files` files and grouping them into batches."""
    tracemalloc.start()
    files = [
        SourceFile(
            repo=f"repo-{number // 50}",
            path=synthetic_path(number),
            location=f"/data/{synthetic_path(number)}",
            size=11_700,
        )
        for number in range(num_files)
    ]
    read_license_files([], Scan(files, [], {}, [], {}))
    tasks = list(make_batches(files, RunConfig()))
    assert tasks
    return stop_tracing()


def decide_peak(num_documents: int) -> int:
    """Return the peak memory of decide and compare over `num_documents` documents without duplicates."""
    with tempfile.TemporaryDirectory() as name, Workspace(f"{name}/dataset") as work:
        config = Config(sources=["."], out=str(work.target))
        _, context = load(config, work.folder)
        parts = [write_synthetic_part(context, first) for first in range(0, num_documents, DOCUMENTS_PER_PART)]
        inputs = Inputs([], Scan([], [], {}, [], {}), {}, [])
        tracemalloc.start()
        with LocalRunner(1) as runner:
            decided = decide(context, inputs, parts, runner, Progress(quiet=True))
            tasks = piece_tasks(context, pieces_of(context, decided.decision), work)
        assert tasks
        return stop_tracing()


def write_synthetic_part(context: Context, first: int) -> str:
    """Write a part of DOCUMENTS_PER_PART documents, numbered from `first`, and return the name of the part."""
    rng = np.random.default_rng(first)
    ids = [rng.integers(0, 1 << 15, 8) for _ in range(DOCUMENTS_PER_PART)]
    blocks = [ids_bytes(one, 1 << 15) for one in ids]
    documents = [synthetic_document(first + row, len(blocks[0])) for row in range(DOCUMENTS_PER_PART)]
    bands = rng.integers(0, 1 << 63, (DOCUMENTS_PER_PART, NUM_BANDS), dtype=np.uint64)
    name = hashlib.sha256(str(first).encode()).hexdigest()[:40] + SUFFIX
    write_part(
        context.prepared / name,
        Part(blocks, bands, find_anchors(*concatenate_ids(ids)), documents, (), (), (), FileKeys()),
    )
    return name


def synthetic_document(number: int, num_bytes: int) -> TokenizedDocument:
    facts: dict[str, Any] = {one.name: 0 if one.type is int else None for one in fields(TokenizedDocument)}
    facts |= {
        "repo": f"repo-{number // 50:08d}",
        "path": synthetic_path(number),
        "num_tokens": 8,
        "language": "python",
        "size": 11_700,
        "text_sha256": hashlib.sha256(str(number).encode()).hexdigest(),
        "num_windows": 1,
        "num_emitted_tokens": 10,
        "num_window_tokens": 8,
        "num_row_bytes": 2_000,
        "part_bytes": num_bytes,
    }
    return TokenizedDocument(**facts)


def synthetic_path(number: int) -> str:
    """Return a path of typical length."""
    return f"src/package-{number // 50:08d}/module-{number // 10:08d}/file-{number:09d}.py"


def stop_tracing() -> int:
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak
