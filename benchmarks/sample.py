"""A real build in one process, measured task by task; and what the driver keeps of a document, by synthetic ones."""

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
from gristmill.dedup.signatures import NUM_BANDS, end_to_end
from gristmill.pipeline.build import load
from gristmill.pipeline.context import Context
from gristmill.pipeline.decide import decide
from gristmill.pipeline.finish import FilesTable
from gristmill.pipeline.intake import Intake, read_license_files, take_in
from gristmill.pipeline.parts import SUFFIX, FileKeys, Part, PartReader, ids_bytes, write_part
from gristmill.pipeline.pieces import piece_tasks, pieces_of
from gristmill.pipeline.prepare import batches, in_order, prepare_all
from gristmill.pipeline.shape import shape_all
from gristmill.pipeline.work_folder import Workspace
from gristmill.runners.local import LocalRunner
from gristmill.sources.trees import Scan
from gristmill.splits.shared_spans import anchors_of

SPREAD_KEPT = 60
SYNTHETIC = (20_000, 60_000)
DOCUMENTS_PER_PART = 100


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A real build in one process, task by task."""

    num_files: int
    """All in the folder, as benchmarks/scale.md counts them."""
    num_bytes: int
    found_files: int
    """Without those that are left out by name: a table of source code has none of these."""
    found_bytes: int
    num_documents: int
    num_tokens: int
    held_out_share: float
    num_anchors: int
    num_spans: int
    row_bytes: int
    part_bytes: int
    scratch_bytes: int
    task_seconds: dict[str, float]
    """By the function that was mapped."""
    num_tasks: dict[str, int]
    phase_seconds: dict[str, float]
    spread: dict[str, list[float]]
    """How long single tasks took, as multiples of the mean."""
    scan_seconds: float
    table_seconds: float
    """To list the files, and to write files.jsonl. A build does both beside its tasks, so no phase includes them."""
    scan_bytes_per_file: float
    decide_bytes_per_document: float
    """In the driver."""

    def serial_share(self, phase: str, functions: Iterable[str]) -> float:
        """Seconds outside of tasks, for each second inside."""
        tasks = sum(self.task_seconds.get(name, 0.0) for name in functions)
        return max(0.0, self.phase_seconds[phase] - tasks) / tasks


class TimedRunner(LocalRunner):
    """All in this process, with the seconds of each task."""

    def __init__(self) -> None:
        super().__init__(1)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.num_spans = 0

    def as_done(self, function: Any, tasks: Any, **options: Any) -> Any:
        name = function.func.__name__

        def timed(task: Any) -> Any:
            started = time.perf_counter()
            result = function(task)
            self.seconds[name].append(time.perf_counter() - started)
            self.num_spans += result[1] if name == "probe" else result if name == "mark" else 0
            return result

        return super().as_done(timed, tasks, **options)


def measure(folder: str) -> Sample:
    with tempfile.TemporaryDirectory(dir=".") as name, Workspace(f"{name}/dataset") as work:
        config = Config(sources=[folder], out=str(work.target))
        progress = Progress(quiet=True)
        _, context = load(config, work.folder)
        started = time.perf_counter()
        intake = take_in(config, [], work.fetched, leave_out=())
        scan_seconds = time.perf_counter() - started
        found_files, found_bytes = len(intake.found.files), intake.found.num_bytes
        tasks = list(batches(intake.found.files, config.run))
        with TimedRunner() as runner:
            parts = in_order(prepare_all(context, intake.sources, tasks, runner, progress))
            judged = decide(context, intake, parts, runner, progress)
            scratch_bytes = size_of(context.scratch)
            pieces = pieces_of(context, judged.decision)
            shape_all(context, judged.decision, work, runner, progress)
        started = time.perf_counter()
        FilesTable(context.dataset / FILES, context, judged).finish()
        table_seconds = time.perf_counter() - started
        kept = judged.decision.kept
        readers = [PartReader(context.prepared, part) for part in parts]
        return Sample(
            num_files=sum(path.is_file() for path in Path(folder).rglob("*")),
            num_bytes=size_of(Path(folder)),
            found_files=found_files,
            found_bytes=found_bytes,
            num_documents=sum(len(reader.documents()) for reader in readers),
            num_tokens=sum(one.num_tokens for one in kept),
            held_out_share=sum(one.num_tokens for one in kept if one.split is not Split.TRAIN)
            / sum(one.num_tokens for one in kept),
            num_anchors=sum(int(reader.anchors().counts.sum()) for reader in readers),
            num_spans=runner.num_spans,
            row_bytes=sum(piece.num_bytes for piece in pieces),
            part_bytes=size_of(context.prepared),
            scratch_bytes=scratch_bytes,
            task_seconds={name: round(sum(took), 3) for name, took in runner.seconds.items()},
            num_tasks={name: len(took) for name, took in runner.seconds.items()},
            phase_seconds={name: round(took, 3) for name, took in progress.seconds.items()},
            spread={name: spread_of(took) for name, took in runner.seconds.items()},
            scan_seconds=round(scan_seconds, 3),
            table_seconds=round(table_seconds, 3),
            scan_bytes_per_file=per_document(scan_peak),
            decide_bytes_per_document=per_document(decide_peak),
        )


def as_lines(sample: Sample) -> str:
    fields = (f' "{name}": {json.dumps(value)}' for name, value in msgspec.to_builtins(sample).items())
    return "{\n" + ",\n".join(fields) + "\n}\n"


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def spread_of(seconds: Sequence[float]) -> list[float]:
    """At most so many of them, evenly from the fastest to the slowest."""
    ordered = sorted(seconds)
    step = max(1.0, len(ordered) / SPREAD_KEPT)
    chosen = [ordered[int(place * step)] for place in range(int(len(ordered) / step))]
    mean = sum(chosen) / len(chosen)
    return [round(one / mean, 4) for one in chosen]


# --- What the driver keeps of a document


def per_document(peak: Callable[[int], int]) -> float:
    """By the difference of two sizes, so that what is there in any case does not count."""
    few, many = SYNTHETIC
    return round((peak(many) - peak(few)) / (many - few), 1)


def scan_peak(num: int) -> int:
    tracemalloc.start()
    files = [
        SourceFile(repo=f"repo-{number // 50}", path=path_of(number), location=f"/data/{path_of(number)}", size=11_700)
        for number in range(num)
    ]
    read_license_files([], Scan(files, [], {}, [], {}))
    tasks = list(batches(files, RunConfig()))
    assert tasks
    return stop_tracing()


def decide_peak(num: int) -> int:
    """Of decide and compare over parts with as many documents, none of them a duplicate."""
    with tempfile.TemporaryDirectory() as name, Workspace(f"{name}/dataset") as work:
        config = Config(sources=["."], out=str(work.target))
        _, context = load(config, work.folder)
        parts = [write_synthetic(context, first) for first in range(0, num, DOCUMENTS_PER_PART)]
        intake = Intake([], Scan([], [], {}, [], {}), {}, [])
        tracemalloc.start()
        with LocalRunner(1) as runner:
            judged = decide(context, intake, parts, runner, Progress(quiet=True))
            tasks = piece_tasks(context, pieces_of(context, judged.decision), work)
        assert tasks
        return stop_tracing()


def write_synthetic(context: Context, first: int) -> str:
    rng = np.random.default_rng(first)
    ids = [rng.integers(0, 1 << 15, 8) for _ in range(DOCUMENTS_PER_PART)]
    blocks = [ids_bytes(one, 1 << 15) for one in ids]
    documents = [synthetic_document(first + row, len(blocks[0])) for row in range(DOCUMENTS_PER_PART)]
    bands = rng.integers(0, 1 << 63, (DOCUMENTS_PER_PART, NUM_BANDS), dtype=np.uint64)
    name = hashlib.sha256(str(first).encode()).hexdigest()[:40] + SUFFIX
    write_part(
        context.prepared / name, Part(blocks, bands, anchors_of(*end_to_end(ids)), documents, (), (), (), FileKeys())
    )
    return name


def synthetic_document(number: int, num_bytes: int) -> TokenizedDocument:
    facts: dict[str, Any] = {one.name: 0 if one.type is int else None for one in fields(TokenizedDocument)}
    facts |= {
        "repo": f"repo-{number // 50:08d}",
        "path": path_of(number),
        "num_tokens": 8,
        "language": "python",
        "size": 11_700,
        "text_sha256": hashlib.sha256(str(number).encode()).hexdigest(),
        "num_windows": 1,
        "num_emitted_tokens": 10,
        "num_shown_tokens": 8,
        "num_row_bytes": 2_000,
        "part_bytes": num_bytes,
    }
    return TokenizedDocument(**facts)


def path_of(number: int) -> str:
    """As long as paths in repositories are."""
    return f"src/package-{number // 50:08d}/module-{number // 10:08d}/file-{number:09d}.py"


def stop_tracing() -> int:
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak
