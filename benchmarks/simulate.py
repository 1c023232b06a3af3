"""Estimate the time, memory and disk space of builds of 1 TB and of The Stack on 1 to 256 machines.

    python benchmarks/simulate.py --measure corpus-tenth    # writes benchmarks/simulate.json; about a minute
    python benchmarks/simulate.py                           # prints the tables of docs/scale.md

1. Seconds by phase come from benchmarks/scale.md.
2. --measure (sample.py) measures the other values in a real build of a small folder: the share of the phases decide
   and compare that runs as tasks, the spread of task durations, the time to list files and to write files.jsonl,
   bytes on disk, and the driver's memory per document.
3. Phases that consist of tasks are simulated task by task (task_queue.py). The tables depend only on scale.md,
   simulate.json and the options.

src/gristmill/splits/shared_spans.py and span_join.py explain the search for spans that two splits share, and the terms
anchor, side, run and partition.
"""

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from sample import Sample, measure, sample_json
from task_queue import Pool, QueueResult, Setting, Tasks, simulate

from gristmill.config.settings import RunConfig
from gristmill.formats.jsonl import PIECE_BYTES
from gristmill.splits.span_join import BUCKET_BITS, MATCH, PARTITION_SPANS, RUN_TOKENS, SPAN, num_partition_bits

HERE = Path(__file__).parent
SCALE = HERE / "scale.md"
SAMPLE = HERE / "simulate.json"
HOW_TO_MAKE_SCALE = """benchmarks/scale.md does not exist, or has no row for the complete corpus. To write it, run:
    python benchmarks/gather.py corpus --tenth corpus-tenth
    python benchmarks/scale.py corpus corpus-tenth > benchmarks/scale.md"""
HOW_TO_MEASURE = (
    "benchmarks/simulate.json does not exist. To write it, run: python benchmarks/simulate.py --measure corpus-tenth"
)

MACHINES = (1, 4, 16, 64, 256)
KEY_BYTES = 4
KEY_COPIES = 3
"""Number of copies of the keys that are in memory at once: as read, concatenated, and sorted."""
ANCHOR_BYTES = 5
ID_BYTES = 2
EDGES_BYTES = 8 << BUCKET_BITS
JOINED_BYTES = 40
"""Bytes of memory per 50-gram: the key as read, the sorted key, the position, and both combined."""
PIECE_MEAN_BYTES = PIECE_BYTES / 2
BATCH_BYTES = RunConfig().batch_bytes
LARGE_BATCH_BYTES = 32 << 20
NOTABLE_SHARE = 0.1
HOUR = 3600.0


class Corpus(NamedTuple):
    name: str
    num_files: float
    num_bytes: float


STACK = Corpus("The Stack v1, 6.4 TB", 546e6, 6.4e12)
"""6.4 TB and 546 million files according to huggingface.co/datasets/bigcode/the-stack and the page of its organization
(v1, permissive licenses, without exact duplicates)."""
TERABYTE = Corpus("1 TB", 1e12 * STACK.num_files / STACK.num_bytes, 1e12)
"""1 TB of files with the mean size of The Stack."""


class Scale(NamedTuple):
    """Measurements of the complete corpus in benchmarks/scale.md."""

    corpus: Corpus
    cores: int
    seconds: dict[str, float]


def read_scale(path: Path, rows: str) -> Scale:
    """Read the measurements of plain or zstd rows. Exit with instructions if the page has no such measurements."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    corpus = re.search(r"The corpus: ([\d,]+) files, ([\d,]+) MB", text)
    cores = re.search(r"(\d+) cores", text)
    row = re.search(rf"^\| {rows} \| all \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    if corpus is None or cores is None or row is None:
        sys.exit(HOW_TO_MAKE_SCALE)
    num_files, megabytes = (int(number.replace(",", "")) for number in corpus.groups())
    seconds = {name: float(value) for name, value in (part.split(" ") for part in row[1].split(", "))}
    return Scale(Corpus("measured", num_files, megabytes * 1e6), int(cores[1]), seconds)


# --- Rates and amounts


class Rates(NamedTuple):
    """Seconds of one core per unit of work: a file, byte, token, document or span."""

    scan: float
    prepare: float
    decide: float
    pairs: float
    compare: float
    compare_serial: float
    span: float
    shape: float
    finish: float


PAIR_TASKS = ("measure",)
RUN_TASKS = ("note", "probe", "mark", "verify", "measure_again")
COMPARE_TASKS = (*RUN_TASKS, "join")


def rates_of(scale: Scale, sample: Sample) -> Rates:
    """Compute the rates. The seconds of a phase are its serial seconds plus its task seconds divided by the cores."""
    seconds_taken, factor = scale.seconds, scale.corpus.num_bytes / sample.num_bytes
    found_bytes = sample.found_bytes * factor
    num_documents, num_tokens = sample.num_documents * factor, sample.num_tokens * factor

    def split_seconds(phase: str, functions: Iterable[str]) -> tuple[float, float]:
        """Return the serial seconds and the task seconds of a phase."""
        share = sample.serial_share(phase, functions)
        tasks = seconds_taken[phase] / (share + 1 / scale.cores)
        return share * tasks, tasks

    decide, pairs = split_seconds("decide", PAIR_TASKS)
    serial, tasks = split_seconds("compare", COMPARE_TASKS)
    join = sample.task_seconds["join"] / sum(sample.task_seconds.get(name, 0.0) for name in COMPARE_TASKS)
    return Rates(
        scan=sample.scan_seconds / sample.found_files,
        prepare=seconds_taken["prepare"] * scale.cores / found_bytes,
        decide=decide / num_documents,
        pairs=pairs / num_documents,
        compare=tasks * (1 - join) / num_tokens,
        compare_serial=serial / num_documents,
        span=tasks * join / (sample.num_spans * factor),
        shape=seconds_taken["shape"] * scale.cores / (sample.row_bytes * factor),
        finish=sample.table_seconds / sample.found_files,
    )


class Amounts(NamedTuple):
    """Amounts of data in a corpus, extrapolated from the sample."""

    factor: float
    """Size of the corpus divided by the size of the sample."""
    num_documents: float
    num_tokens: float
    num_anchors: float
    held_out_anchors: float
    mistaken: float
    """Share of anchors that match by mistake. Different anchors may have the same key, because keys have 32 bits."""
    num_spans: float
    row_bytes: float
    part_bytes: float
    scratch_bytes: float

    @classmethod
    def of(cls, corpus: Corpus, sample: Sample) -> "Amounts":
        factor = corpus.num_bytes / sample.found_bytes
        num_tokens, num_anchors = sample.num_tokens * factor, sample.num_anchors * factor
        held_out = num_anchors * sample.held_out_share
        mistaken = 1 - math.exp(-held_out / 2 ** (8 * KEY_BYTES))
        # A 50-gram contains two anchors on average, and is written to disk if one of the two matches.
        by_mistake = num_tokens * (1 - (1 - mistaken) ** 2)
        num_spans = sample.num_spans * factor + by_mistake
        return cls(
            factor=factor,
            num_documents=corpus.num_files * sample.num_documents / sample.found_files,
            num_tokens=num_tokens,
            num_anchors=num_anchors,
            held_out_anchors=held_out,
            mistaken=mistaken,
            num_spans=num_spans,
            row_bytes=sample.row_bytes * factor,
            part_bytes=sample.part_bytes * factor,
            scratch_bytes=sample.scratch_bytes * factor + by_mistake * SPAN.itemsize,
        )

    @property
    def num_runs(self) -> float:
        return self.num_tokens / RUN_TOKENS

    @property
    def num_partitions(self) -> int:
        return 1 << num_partition_bits(int(self.num_spans))


# --- A build


class Phase(NamedTuple):
    name: str
    seconds: float
    limit: str
    """Resource that limits the speed of the phase: "cores", "driver", "disk", "memory" or "one core"."""
    flow: QueueResult | None = None
    """None for a phase without tasks."""


class Build:
    """Build of a corpus on several machines: with one driver (Ray), or in four manual steps."""

    def __init__(self, corpus: Corpus, rates: Rates, sample: Sample, pool: Pool, *, in_steps: bool = False) -> None:
        self.corpus, self.rates, self.sample, self.pool, self.in_steps = corpus, rates, sample, pool, in_steps
        self.amounts = Amounts.of(corpus, sample)
        self.setting = pool.setting
        self.num_batches = sample.num_tasks["prepare"] * self.amounts.factor * BATCH_BYTES / self.setting.batch_bytes
        is_local = in_steps or pool.num_machines == 1
        self.driver = (self.setting.local_ms if is_local else self.setting.driver_ms) / 1e3
        self.step_2_pool = Pool(1, self.setting) if in_steps else pool
        """Machines that run step 2: a single machine with manual steps, otherwise all machines."""
        self.num_drivers = pool.num_machines if in_steps else 1
        """Number of drivers that share the work of steps 1 and 3."""

    def phases(self) -> list[Phase]:
        corpus, amounts, rates = self.corpus, self.amounts, self.rates
        return [
            self._serial_phase("scan", corpus.num_files * rates.scan * 2 if self.in_steps else 0.0),
            self.prepare(),
            self._serial_phase("decide", amounts.num_documents * rates.decide),
            self._pairs(),
            self._serial_phase("sides", amounts.num_documents * rates.compare_serial),
            self._compare(),
            self._join(),
            self._shape(),
            self._serial_phase(
                "finish", corpus.num_files * rates.finish + self._digest_seconds() if self.in_steps else 0.0
            ),
        ]

    def prepare(self) -> Phase:
        """Simulate prepare. A single driver also lists the files of each batch."""
        seconds = self.corpus.num_bytes * self.rates.prepare / self.num_batches
        scan = 0.0 if self.in_steps else self.corpus.num_files * self.rates.scan / self.num_batches
        tasks = Tasks(self.num_batches, seconds, self.sample.spread["prepare"], self.driver / self.num_drivers + scan)
        return self._task_phase("prepare", tasks, self.pool, self.corpus.num_bytes + self.amounts.part_bytes)

    def _pairs(self) -> Phase:
        number = self.sample.num_tasks["measure"] * self.amounts.factor
        seconds = self.amounts.num_documents * self.rates.pairs / number
        return self._task_phase(
            "pairs", Tasks(number, seconds, self.sample.spread["measure"], self.driver), self.step_2_pool
        )

    def _compare(self) -> Phase:
        """Simulate compare, which reads each run of train once and each run of the held-out side three times."""
        amounts = self.amounts
        number = amounts.num_runs * (1 + 2 * self.sample.held_out_share)
        tasks = Tasks(
            number, amounts.num_tokens * self.rates.compare / number, self.sample.spread["probe"], self.driver
        )
        num_bytes = (
            amounts.num_anchors * ANCHOR_BYTES + amounts.num_tokens * ID_BYTES + amounts.num_spans * SPAN.itemsize
        )
        return self._task_phase("compare", tasks, self.step_2_pool, num_bytes)

    def _join(self) -> Phase:
        """Simulate the join. Each partition reads spans of every run, and each run reads matches of every partition."""
        amounts, number = self.amounts, self.amounts.num_partitions
        num_reads = amounts.num_runs * number
        seconds = amounts.num_spans * self.rates.span
        seconds += num_reads * (1 + self.sample.held_out_share) * self.setting.read_ms / 1e3
        tasks = Tasks(number, seconds / number, [1.0], self.driver)
        num_bytes = amounts.num_spans * (SPAN.itemsize + MATCH.itemsize) + num_reads * EDGES_BYTES
        num_fitting = max(
            1, min(self.setting.cores, int(self.setting.memory_bytes / partition_bytes(amounts, self.sample)))
        )
        pool = self.step_2_pool._replace(setting=self.setting._replace(cores=num_fitting))
        phase = self._task_phase("join", tasks, pool, num_bytes)
        is_memory_short = phase.limit == "cores" and num_fitting < self.setting.cores
        return phase._replace(limit="memory") if is_memory_short else phase

    def _shape(self) -> Phase:
        """Simulate shape. A single driver also reads each piece back for the digests, and writes files.jsonl."""
        number = self.amounts.row_bytes / PIECE_MEAN_BYTES
        table = self.corpus.num_files * self.rates.finish
        digest = 0.0 if self.in_steps else (self._digest_seconds() + table) / number
        seconds = PIECE_MEAN_BYTES * self.rates.shape
        tasks = Tasks(number, seconds, self.sample.spread["shape"], self.driver / self.num_drivers + digest)
        return self._task_phase("shape", tasks, self.pool, self.amounts.part_bytes + 2 * self.amounts.row_bytes)

    def _digest_seconds(self) -> float:
        return self.amounts.row_bytes / self.setting.sha256_bytes_per_second

    def _task_phase(self, name: str, tasks: Tasks, pool: Pool, num_bytes: float = 0.0) -> Phase:
        flow = simulate(tasks, pool)
        bounds = {
            "cores": tasks.seconds * max(1.0, tasks.number / pool.workers),
            "driver": tasks.number * tasks.driver_seconds,
            "disk": num_bytes / self.setting.disk_bytes_per_second,
        }
        return Phase(name, max(flow.seconds, bounds["disk"]), max(bounds, key=bounds.__getitem__), flow)

    def _serial_phase(self, name: str, seconds: float) -> Phase:
        return Phase(name, seconds, "one core")


# --- Tables


def report_lines(scale: Scale, sample: Sample, rates: Rates, setting: Setting) -> Iterator[str]:
    yield from rate_lines(scale, sample, rates)
    for corpus in (TERABYTE, STACK):
        for in_steps in (False, True):
            yield from hour_lines(corpus, rates, sample, setting, in_steps=in_steps)
    yield from batch_lines(rates, sample, setting)
    yield from memory_lines(sample, setting)
    yield from limit_lines(rates, sample, setting)


def rate_lines(scale: Scale, sample: Sample, rates: Rates) -> Iterator[str]:
    yield "### Rates\n"
    yield (
        f"From benchmarks/scale.md: {scale.corpus.num_files:,} files, {scale.corpus.num_bytes / 1e6:,.0f} MB, "
        f"{scale.cores} cores. Shares are from a build of {sample.num_files:,} files, {sample.num_bytes / 1e6:,.0f} "
        "MB.\n"
    )
    yield "| phase | runs as | cost on one core |"
    yield "| --- | --- | --- |"
    yield f"| scan | one process | {rates.scan * 1e6:.0f} µs per file |"
    yield f"| prepare | tasks | {rates.prepare * 1e9:.1f} s per GB of source |"
    yield f"| decide | one process | {rates.decide * 1e6:.0f} µs per document |"
    yield f"| decide, pairs | tasks | {rates.pairs * 1e6:.0f} µs per document |"
    yield f"| compare | tasks | {rates.compare * 1e9:.0f} s per billion tokens |"
    yield f"| compare, join | tasks | {rates.span * 1e9:.0f} s per billion 50-grams |"
    yield f"| compare, sides | one process | {rates.compare_serial * 1e6:.0f} µs per document |"
    yield f"| shape | tasks | {rates.shape * 1e9:.1f} s per GB of rows |"
    yield f"| finish | one process | {rates.finish * 1e6:.0f} µs per file |"


def hour_lines(corpus: Corpus, rates: Rates, sample: Sample, setting: Setting, *, in_steps: bool) -> Iterator[str]:
    how = "four manual steps, the second on one machine" if in_steps else "one driver (Ray)"
    yield f"\n### {corpus.name}, {corpus.num_files / 1e6:,.0f} million files: {how}\n"
    for num_machines in MACHINES:
        phases = Build(corpus, rates, sample, Pool(num_machines, setting), in_steps=in_steps).phases()
        if num_machines == MACHINES[0]:
            yield f"| machines | {' | '.join(phase.name for phase in phases)} | hours | cores busy | longest phase |"
            yield "| --: |" + " --: |" * (len(phases) + 2) + " --- |"
        total = sum(phase.seconds for phase in phases)
        longest = max(phases, key=lambda phase: phase.seconds)
        busy = core_seconds(corpus, Amounts.of(corpus, sample), rates) / total / (num_machines * setting.cores)
        cells = " | ".join(f"{phase.seconds / HOUR:.2f}" for phase in phases)
        limit = f"{longest.name}, limited by {longest.limit}"
        yield f"| {num_machines} | {cells} | {total / HOUR:.1f} | {100 * busy:.1f}% | {limit} |"


def core_seconds(corpus: Corpus, amounts: Amounts, rates: Rates) -> float:
    return (
        corpus.num_files * (rates.scan + rates.finish)
        + corpus.num_bytes * rates.prepare
        + amounts.num_documents * (rates.decide + rates.pairs + rates.compare_serial)
        + amounts.num_tokens * rates.compare
        + amounts.num_spans * rates.span
        + amounts.row_bytes * rates.shape
    )


def batch_lines(rates: Rates, sample: Sample, setting: Setting) -> Iterator[str]:
    yield f"\n### Larger batches in prepare: {STACK.name}, one driver\n"
    yield "| machines | batch bytes | tasks | hours | limited by | tail, seconds | repeated tasks |"
    yield "| --: | --: | --: | --: | --- | --: | --: |"
    for num_machines in MACHINES[1:]:
        for batch_bytes in (BATCH_BYTES, LARGE_BATCH_BYTES):
            pool = Pool(num_machines, setting._replace(batch_bytes=batch_bytes))
            build = Build(STACK, rates, sample, pool)
            phase = build.prepare()
            assert phase.flow is not None
            yield (
                f"| {num_machines} | {batch_bytes:,} | {build.num_batches:,.0f} | {phase.seconds / HOUR:.2f} "
                f"| {phase.limit} | {phase.flow.tail_seconds:.1f} | {phase.flow.num_lost} |"
            )


def memory_lines(sample: Sample, setting: Setting) -> Iterator[str]:
    yield "\n### Memory and disk\n"
    yield "| quantity | " + " | ".join(corpus.name for corpus in (TERABYTE, STACK)) + " |"
    yield "| --- | --: | --: |"
    corpora = [(corpus, Amounts.of(corpus, sample)) for corpus in (TERABYTE, STACK)]

    def row(label: str, value: Callable[[Corpus, Amounts], str]) -> str:
        return f"| {label} | " + " | ".join(value(corpus, amounts) for corpus, amounts in corpora) + " |"

    per_file, per_document = sample.scan_bytes_per_file, sample.decide_bytes_per_document
    yield row("documents", lambda _, amounts: f"{amounts.num_documents / 1e6:,.0f} million")
    yield row("tokens", lambda _, amounts: f"{amounts.num_tokens / 1e9:,.0f} billion")
    yield row(
        f"driver, scan: {per_file:,.0f} bytes per file", lambda corpus, _: bytes_text(corpus.num_files * per_file)
    )
    yield row(
        f"driver, decide: {per_document:,.0f} bytes per document",
        lambda corpus, amounts: bytes_text(driver_bytes(corpus, amounts, sample)[0]),
    )
    yield row(
        "driver, compare: anchors of the held-out side",
        lambda corpus, amounts: bytes_text(driver_bytes(corpus, amounts, sample)[1]),
    )
    yield row("worker, one partition of the join", lambda _, amounts: bytes_text(partition_bytes(amounts, sample)))
    yield row("anchors that match by mistake", lambda _, amounts: f"{100 * amounts.mistaken:.0f}%")
    yield row("disk, parts", lambda _, amounts: bytes_text(amounts.part_bytes))
    yield row("disk, rows as JSONL", lambda _, amounts: bytes_text(amounts.row_bytes))
    yield row("disk, scratch", lambda _, amounts: bytes_text(amounts.scratch_bytes))
    rows, parts, scratch = (
        num_bytes / sample.found_bytes for num_bytes in (sample.row_bytes, sample.part_bytes, sample.scratch_bytes)
    )
    yield (
        f"\nA machine has {bytes_text(setting.memory_bytes)} of memory. In the sample, a byte of source became "
        f"{rows:.2f} bytes of rows, {parts:.2f} bytes of parts and {scratch:.2f} bytes of scratch files."
    )


def driver_bytes(corpus: Corpus, amounts: Amounts, sample: Sample) -> tuple[float, float]:
    """Return the driver's memory for documents and for held-out anchors. The driver needs both at the same time."""
    documents = corpus.num_files * sample.num_documents / sample.found_files * sample.decide_bytes_per_document
    return documents, amounts.held_out_anchors * KEY_BYTES * KEY_COPIES


def partition_bytes(amounts: Amounts, sample: Sample) -> float:
    """Return the memory for the held-out 50-grams of one partition. The 50-grams of train are read run by run."""
    num_spans = max(amounts.num_spans / amounts.num_partitions, min(PARTITION_SPANS, amounts.num_spans))
    return num_spans * sample.held_out_share * JOINED_BYTES


def bytes_text(num_bytes: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / 1e6:,.0f} MB"


def limit_lines(rates: Rates, sample: Sample, setting: Setting) -> Iterator[str]:
    yield "\n### Limits of a single process\n"
    yield "| limit | reached at |"
    yield "| --- | --- |"
    bytes_per_file = STACK.num_bytes / STACK.num_files
    memory, per_document = bytes_text(setting.memory_bytes), sample.decide_bytes_per_document
    num_documents = setting.memory_bytes / per_document
    num_files = setting.memory_bytes / sample.scan_bytes_per_file
    source = bytes_text(num_documents * sample.found_files / sample.num_documents * bytes_per_file)
    yield (
        f"| documents fill {memory} in the driver | {num_documents / 1e6:,.0f} million documents, {source} of source |"
    )
    by_byte = sum(driver_bytes(TERABYTE, Amounts.of(TERABYTE, sample), sample)) / TERABYTE.num_bytes
    source = bytes_text(setting.memory_bytes / by_byte)
    yield f"| documents and held-out anchors fill {memory} in the driver | {source} of source |"
    source = bytes_text(num_files * bytes_per_file)
    yield f"| the file list fills {memory} in the driver | {num_files / 1e6:,.0f} million files, {source} of source |"
    source = bytes_text(min_source_bytes(sample, lambda amounts: amounts.mistaken > NOTABLE_SHARE))
    yield f"| a tenth of the anchors match by mistake, because keys have 32 bits | {source} of source |"
    source = bytes_text(min_source_bytes(sample, lambda amounts: amounts.num_spans > PARTITION_SPANS << BUCKET_BITS))
    yield f"| partitions of the join grow, because there are at most {1 << BUCKET_BITS:,} | {source} of source |"
    for corpus in (TERABYTE, STACK):
        amounts = Amounts.of(corpus, sample)
        serial = serial_seconds(corpus, amounts, rates)
        cores = math.ceil((core_seconds(corpus, amounts, rates) - serial) / serial)
        label = f"{corpus.name}: serial work takes longer than parallel work"
        yield f"| {label} | {cores} cores, with {serial / HOUR:.1f} hours of serial work |"


def serial_seconds(corpus: Corpus, amounts: Amounts, rates: Rates) -> float:
    by_file = corpus.num_files * (rates.scan + rates.finish)
    return by_file + amounts.num_documents * (rates.decide + rates.compare_serial)


def min_source_bytes(sample: Sample, condition: Callable[[Amounts], bool]) -> float:
    """Return the smallest number of source bytes that meets the condition, with an error of up to 5 %."""
    num_bytes = 1e9
    while not condition(Amounts.of(Corpus("", 1, num_bytes), sample)):
        num_bytes *= 1.05
    return num_bytes


def main() -> None:
    options = parse_options()
    if options.measure is not None:
        SAMPLE.write_text(sample_json(measure(options.measure)), encoding="utf-8")
        return
    scale = read_scale(SCALE, options.rows)
    if not SAMPLE.is_file():
        sys.exit(HOW_TO_MEASURE)
    sample = msgspec.json.decode(SAMPLE.read_bytes(), type=Sample)
    setting = Setting(
        cores=options.cores,
        memory_bytes=options.memory_gb * 1e9,
        disk_bytes_per_second=options.disk_gb_per_second * 1e9,
        sha256_bytes_per_second=options.sha256_gb_per_second * 1e9,
        driver_ms=options.driver_ms,
        local_ms=options.local_ms,
        read_ms=options.read_ms,
        batch_bytes=options.batch_bytes,
        failures_per_day=options.deaths_per_day,
        replacement_seconds=600,
        slow_share=0.02,
        slow_factor=2.0,
    )
    rates = rates_of(scale, sample)
    for line in report_lines(scale, sample, rates, setting):
        print(line)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", metavar="FOLDER", help="measure a build of FOLDER and write simulate.json")
    parser.add_argument(
        "--rows",
        choices=("plain", "zstd"),
        default="plain",
        help="rows of scale.md to use (default: %(default)s)",
    )
    parser.add_argument("--cores", type=int, default=32, help="cores per machine")
    parser.add_argument("--memory-gb", type=float, default=128, help="memory per machine")
    parser.add_argument("--disk-gb-per-second", type=float, default=2.0, help="total rate of the shared disk")
    parser.add_argument("--sha256-gb-per-second", type=float, default=1.7, help="rate of SHA-256 on one core")
    parser.add_argument("--driver-ms", type=float, default=1.5, help="time of the driver per Ray task")
    parser.add_argument("--local-ms", type=float, default=0.04, help="time of the driver per task of local processes")
    parser.add_argument(
        "--read-ms", type=float, default=0.5, help="time to open a file on the shared disk and read a few bytes"
    )
    parser.add_argument("--batch-bytes", type=float, default=BATCH_BYTES, help="source bytes per task of prepare")
    parser.add_argument("--deaths-per-day", type=float, default=0.1, help="failures per machine and day")
    return parser.parse_args()


if __name__ == "__main__":
    main()
