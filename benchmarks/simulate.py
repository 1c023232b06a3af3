"""What would 1 TB take, and The Stack? Hours, memory and disk on 1 to 256 machines, on paper.

    python benchmarks/simulate.py --measure corpus-tenth    # writes benchmarks/simulate.json; about a minute
    python benchmarks/simulate.py                           # prints the tables of docs/scale.md

1. Seconds by phase come from benchmarks/scale.md.
2. What that table does not say is measured by --measure (sample.py) on a real build of a small folder: how much of
   decide and compare runs as tasks, how task times spread, listing files and writing files.jsonl, bytes on disk, what
   the driver keeps of a document.
3. Phases over tasks are simulated, task by task (shop.py). The same two files give the same tables.
"""

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from sample import Sample, as_lines, measure
from shop import Flow, Pool, Setting, Tasks, simulate

from gristmill.config.settings import RunConfig
from gristmill.formats.jsonl import PIECE_BYTES
from gristmill.splits.span_join import BUCKET_BITS, MATCH, PARTITION_SPANS, RUN_TOKENS, SPAN, num_partition_bits

HERE = Path(__file__).parent
SCALE = HERE / "scale.md"
SAMPLE = HERE / "simulate.json"
HOW_TO_MAKE_SCALE = """benchmarks/scale.md is not there, or has no row for all of the corpus. Make it:
    python benchmarks/gather.py corpus --tenth corpus-tenth
    python benchmarks/scale.py corpus corpus-tenth > benchmarks/scale.md"""
HOW_TO_MEASURE = "benchmarks/simulate.json is not there. Make it: python benchmarks/simulate.py --measure corpus-tenth"

MACHINES = (1, 4, 16, 64, 256)
KEY_BYTES = 4
KEY_COPIES = 3
"""As they came, one after the other, sorted."""
ANCHOR_BYTES = 5
ID_BYTES = 2
EDGES_BYTES = 8 << BUCKET_BITS
JOINED_BYTES = 40
"""Of one 50-gram: its key as it came and sorted, where it is found, and both together."""
PIECE_MEAN_BYTES = PIECE_BYTES / 2
BATCH_BYTES = RunConfig().batch_bytes
LARGE_BATCH_BYTES = 32 << 20
WORTH_SAYING = 0.1
HOUR = 3600.0


class Corpus(NamedTuple):
    name: str
    num_files: float
    num_bytes: float


STACK = Corpus("The Stack v1, 6.4 TB", 546e6, 6.4e12)
"""6.4 TB and 546 million files: huggingface.co/datasets/bigcode/the-stack and its organisation's page (v1, permissive
licences, exact duplicates taken out)."""
TERABYTE = Corpus("1 TB", 1e12 * STACK.num_files / STACK.num_bytes, 1e12)
"""Of files as large as those."""


class Scale(NamedTuple):
    """The row of benchmarks/scale.md for all of the corpus."""

    corpus: Corpus
    cores: int
    seconds: dict[str, float]


def read_scale(path: Path, rows: str) -> Scale:
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    corpus = re.search(r"The corpus: ([\d,]+) files, ([\d,]+) MB", text)
    cores = re.search(r"(\d+) cores", text)
    row = re.search(rf"^\| {rows} \| all \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    if corpus is None or cores is None or row is None:
        sys.exit(HOW_TO_MAKE_SCALE)
    num_files, megabytes = (int(number.replace(",", "")) for number in corpus.groups())
    seconds = {name: float(took) for name, took in (part.split(" ") for part in row[1].split(", "))}
    return Scale(Corpus("measured", num_files, megabytes * 1e6), int(cores[1]), seconds)


# --- What it comes to


class Rates(NamedTuple):
    """For one core, by file, byte, token, document or span."""

    scan: float
    prepare: float
    decide: float
    pairs: float
    compare: float
    compare_alone: float
    span: float
    shape: float
    finish: float


PAIR_TASKS = ("measure",)
RUN_TASKS = ("note", "probe", "mark", "verify", "measure_again")
COMPARE_TASKS = (*RUN_TASKS, "join")


def rates_of(scale: Scale, sample: Sample) -> Rates:
    """Core-seconds; a phase's seconds are those alone plus those of its tasks over the cores."""
    took, times = scale.seconds, scale.corpus.num_bytes / sample.num_bytes
    found_bytes = sample.found_bytes * times
    num_documents, num_tokens = sample.num_documents * times, sample.num_tokens * times

    def parted(phase: str, functions: Iterable[str]) -> tuple[float, float]:
        share = sample.serial_share(phase, functions)
        tasks = took[phase] / (share + 1 / scale.cores)
        return share * tasks, tasks

    decide, pairs = parted("decide", PAIR_TASKS)
    alone, tasks = parted("compare", COMPARE_TASKS)
    join = sample.task_seconds["join"] / sum(sample.task_seconds.get(name, 0.0) for name in COMPARE_TASKS)
    return Rates(
        scan=sample.scan_seconds / sample.found_files,
        prepare=took["prepare"] * scale.cores / found_bytes,
        decide=decide / num_documents,
        pairs=pairs / num_documents,
        compare=tasks * (1 - join) / num_tokens,
        compare_alone=alone / num_documents,
        span=tasks * join / (sample.num_spans * times),
        shape=took["shape"] * scale.cores / (sample.row_bytes * times),
        finish=sample.table_seconds / sample.found_files,
    )


class Amounts(NamedTuple):
    """Of a corpus."""

    times: float
    """As large as the sample."""
    num_documents: float
    num_tokens: float
    num_anchors: float
    held_out_anchors: float
    mistaken: float
    """Share of anchors that are found by mistake, as keys have 32 bits."""
    num_spans: float
    row_bytes: float
    part_bytes: float
    scratch_bytes: float

    @classmethod
    def of(cls, corpus: Corpus, sample: Sample) -> "Amounts":
        times = corpus.num_bytes / sample.found_bytes
        num_tokens, num_anchors = sample.num_tokens * times, sample.num_anchors * times
        held_out = num_anchors * sample.held_out_share
        mistaken = 1 - math.exp(-held_out / 2 ** (8 * KEY_BYTES))
        # A 50-gram holds two anchors on average, and is written down if one of them is found.
        by_mistake = num_tokens * (1 - (1 - mistaken) ** 2)
        num_spans = sample.num_spans * times + by_mistake
        return cls(
            times=times,
            num_documents=corpus.num_files * sample.num_documents / sample.found_files,
            num_tokens=num_tokens,
            num_anchors=num_anchors,
            held_out_anchors=held_out,
            mistaken=mistaken,
            num_spans=num_spans,
            row_bytes=sample.row_bytes * times,
            part_bytes=sample.part_bytes * times,
            scratch_bytes=sample.scratch_bytes * times + by_mistake * SPAN.itemsize,
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
    flow: Flow | None = None


class Build:
    """Of one corpus on so many machines: with one driver for all (Ray), or in four steps, each machine for itself."""

    def __init__(self, corpus: Corpus, rates: Rates, sample: Sample, pool: Pool, *, in_steps: bool = False) -> None:
        self.corpus, self.rates, self.sample, self.pool, self.in_steps = corpus, rates, sample, pool, in_steps
        self.amounts = Amounts.of(corpus, sample)
        self.setting = pool.setting
        self.num_batches = sample.num_tasks["prepare"] * self.amounts.times * BATCH_BYTES / self.setting.batch_bytes
        is_local = in_steps or pool.num_machines == 1
        self.driver = (self.setting.local_ms if is_local else self.setting.driver_ms) / 1e3
        self.once = Pool(1, self.setting) if in_steps else pool
        """Where step 2 runs."""
        self.share = pool.num_machines if in_steps else 1
        """Of the work of a driver, in steps 1 and 3."""

    def phases(self) -> list[Phase]:
        corpus, amounts, rates = self.corpus, self.amounts, self.rates
        return [
            self._alone("scan", corpus.num_files * rates.scan * 2 if self.in_steps else 0.0),
            self.prepare(),
            self._alone("decide", amounts.num_documents * rates.decide),
            self._pairs(),
            self._alone("sides", amounts.num_documents * rates.compare_alone),
            self._compare(),
            self._join(),
            self._shape(),
            self._alone("finish", corpus.num_files * rates.finish + self._digest_seconds() if self.in_steps else 0.0),
        ]

    def prepare(self) -> Phase:
        """With one driver, it lists the files of each batch before it hands it out."""
        seconds = self.corpus.num_bytes * self.rates.prepare / self.num_batches
        scan = 0.0 if self.in_steps else self.corpus.num_files * self.rates.scan / self.num_batches
        tasks = Tasks(self.num_batches, seconds, self.sample.spread["prepare"], self.driver / self.share + scan)
        return self._over_tasks("prepare", tasks, self.pool, self.corpus.num_bytes + self.amounts.part_bytes)

    def _pairs(self) -> Phase:
        number = self.sample.num_tasks["measure"] * self.amounts.times
        seconds = self.amounts.num_documents * self.rates.pairs / number
        return self._over_tasks("pairs", Tasks(number, seconds, self.sample.spread["measure"], self.driver), self.once)

    def _compare(self) -> Phase:
        """One look at each run of train, three at each of the held-out side."""
        amounts = self.amounts
        number = amounts.num_runs * (1 + 2 * self.sample.held_out_share)
        tasks = Tasks(
            number, amounts.num_tokens * self.rates.compare / number, self.sample.spread["probe"], self.driver
        )
        num_bytes = (
            amounts.num_anchors * ANCHOR_BYTES + amounts.num_tokens * ID_BYTES + amounts.num_spans * SPAN.itemsize
        )
        return self._over_tasks("compare", tasks, self.once, num_bytes)

    def _join(self) -> Phase:
        """Each partition is read from each run, and each run's matches from each partition."""
        amounts, number = self.amounts, self.amounts.num_partitions
        num_reads = amounts.num_runs * number
        seconds = amounts.num_spans * self.rates.span
        seconds += num_reads * (1 + self.sample.held_out_share) * self.setting.read_ms / 1e3
        tasks = Tasks(number, seconds / number, [1.0], self.driver)
        num_bytes = amounts.num_spans * (SPAN.itemsize + MATCH.itemsize) + num_reads * EDGES_BYTES
        fitting = max(
            1, min(self.setting.cores, int(self.setting.memory_bytes / partition_bytes(amounts, self.sample)))
        )
        pool = self.once._replace(setting=self.setting._replace(cores=fitting))
        phase = self._over_tasks("join", tasks, pool, num_bytes)
        is_short = phase.limit == "cores" and fitting < self.setting.cores
        return phase._replace(limit="memory") if is_short else phase

    def _shape(self) -> Phase:
        """With one driver, it reads each piece back for the digest of its file, and writes files.jsonl beside it."""
        number = self.amounts.row_bytes / PIECE_MEAN_BYTES
        table = self.corpus.num_files * self.rates.finish
        digest = 0.0 if self.in_steps else (self._digest_seconds() + table) / number
        seconds = PIECE_MEAN_BYTES * self.rates.shape
        tasks = Tasks(number, seconds, self.sample.spread["shape"], self.driver / self.share + digest)
        return self._over_tasks("shape", tasks, self.pool, self.amounts.part_bytes + 2 * self.amounts.row_bytes)

    def _digest_seconds(self) -> float:
        return self.amounts.row_bytes / self.setting.sha256_bytes_per_second

    def _over_tasks(self, name: str, tasks: Tasks, pool: Pool, num_bytes: float = 0.0) -> Phase:
        flow = simulate(tasks, pool)
        bounds = {
            "cores": tasks.seconds * max(1.0, tasks.number / pool.workers),
            "driver": tasks.number * tasks.driver_seconds,
            "disk": num_bytes / self.setting.disk_bytes_per_second,
        }
        return Phase(name, max(flow.seconds, bounds["disk"]), max(bounds, key=bounds.__getitem__), flow)

    def _alone(self, name: str, seconds: float) -> Phase:
        return Phase(name, seconds, "one core")


# --- Told


def report(scale: Scale, sample: Sample, rates: Rates, setting: Setting) -> Iterator[str]:
    yield from told_rates(scale, sample, rates)
    for corpus in (TERABYTE, STACK):
        for in_steps in (False, True):
            yield from told_hours(corpus, rates, sample, setting, in_steps=in_steps)
    yield from told_batches(rates, sample, setting)
    yield from told_room(sample, setting)
    yield from told_limits(rates, sample, setting)


def told_rates(scale: Scale, sample: Sample, rates: Rates) -> Iterator[str]:
    yield "### Rates\n"
    yield (
        f"From benchmarks/scale.md: {scale.corpus.num_files:,} files, {scale.corpus.num_bytes / 1e6:,.0f} MB, "
        f"{scale.cores} cores. Shares from a build of {sample.num_files:,} files, {sample.num_bytes / 1e6:,.0f} MB.\n"
    )
    yield "| phase | runs as | costs one core |"
    yield "| --- | --- | --- |"
    yield f"| scan | one process | {rates.scan * 1e6:.0f} µs a file |"
    yield f"| prepare | tasks | {rates.prepare * 1e9:.1f} s a GB of source |"
    yield f"| decide | one process | {rates.decide * 1e6:.0f} µs a document |"
    yield f"| decide, pairs | tasks | {rates.pairs * 1e6:.0f} µs a document |"
    yield f"| compare | tasks | {rates.compare * 1e9:.0f} s a billion tokens |"
    yield f"| compare, join | tasks | {rates.span * 1e9:.0f} s a billion 50-grams |"
    yield f"| compare, sides | one process | {rates.compare_alone * 1e6:.0f} µs a document |"
    yield f"| shape | tasks | {rates.shape * 1e9:.1f} s a GB of rows |"
    yield f"| finish | one process | {rates.finish * 1e6:.0f} µs a file |"


def told_hours(corpus: Corpus, rates: Rates, sample: Sample, setting: Setting, *, in_steps: bool) -> Iterator[str]:
    how = "four steps, the second on one machine" if in_steps else "one driver (Ray)"
    yield f"\n### {corpus.name}, {corpus.num_files / 1e6:,.0f} million files: {how}\n"
    for num_machines in MACHINES:
        phases = Build(corpus, rates, sample, Pool(num_machines, setting), in_steps=in_steps).phases()
        if num_machines == MACHINES[0]:
            yield f"| machines | {' | '.join(phase.name for phase in phases)} | hours | cores busy | longest |"
            yield "| --: |" + " --: |" * (len(phases) + 2) + " --- |"
        total = sum(phase.seconds for phase in phases)
        longest = max(phases, key=lambda phase: phase.seconds)
        busy = core_seconds(corpus, Amounts.of(corpus, sample), rates) / total / (num_machines * setting.cores)
        cells = " | ".join(f"{phase.seconds / HOUR:.2f}" for phase in phases)
        told = f"{longest.name}, by {longest.limit}"
        yield f"| {num_machines} | {cells} | {total / HOUR:.1f} | {100 * busy:.1f}% | {told} |"


def core_seconds(corpus: Corpus, amounts: Amounts, rates: Rates) -> float:
    return (
        corpus.num_files * (rates.scan + rates.finish)
        + corpus.num_bytes * rates.prepare
        + amounts.num_documents * (rates.decide + rates.pairs + rates.compare_alone)
        + amounts.num_tokens * rates.compare
        + amounts.num_spans * rates.span
        + amounts.row_bytes * rates.shape
    )


def told_batches(rates: Rates, sample: Sample, setting: Setting) -> Iterator[str]:
    yield f"\n### Larger batches: prepare of {STACK.name}, one driver\n"
    yield "| machines | batch bytes | tasks | hours | limit | tail, seconds | tasks done again |"
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


def told_room(sample: Sample, setting: Setting) -> Iterator[str]:
    yield "\n### Memory and disk\n"
    yield "| what | " + " | ".join(corpus.name for corpus in (TERABYTE, STACK)) + " |"
    yield "| --- | --: | --: |"
    both = [(corpus, Amounts.of(corpus, sample)) for corpus in (TERABYTE, STACK)]

    def row(what: str, of: Callable[[Corpus, Amounts], str]) -> str:
        return f"| {what} | " + " | ".join(of(corpus, amounts) for corpus, amounts in both) + " |"

    per_file, per_document = sample.scan_bytes_per_file, sample.decide_bytes_per_document
    yield row("documents", lambda _, amounts: f"{amounts.num_documents / 1e6:,.0f} million")
    yield row("tokens", lambda _, amounts: f"{amounts.num_tokens / 1e9:,.0f} billion")
    yield row(f"driver, scan: {per_file:,.0f} bytes a file", lambda corpus, _: room(corpus.num_files * per_file))
    yield row(
        f"driver, decide: {per_document:,.0f} bytes a document",
        lambda corpus, amounts: room(driver_bytes(corpus, amounts, sample)[0]),
    )
    yield row(
        "driver, compare: anchors of the held-out side",
        lambda corpus, amounts: room(driver_bytes(corpus, amounts, sample)[1]),
    )
    yield row("a worker, one partition of the join", lambda _, amounts: room(partition_bytes(amounts, sample)))
    yield row("anchors found by mistake", lambda _, amounts: f"{100 * amounts.mistaken:.0f}%")
    yield row("disk, parts", lambda _, amounts: room(amounts.part_bytes))
    yield row("disk, rows as JSONL", lambda _, amounts: room(amounts.row_bytes))
    yield row("disk, scratch", lambda _, amounts: room(amounts.scratch_bytes))
    rows, parts, scratch = (
        num_bytes / sample.found_bytes for num_bytes in (sample.row_bytes, sample.part_bytes, sample.scratch_bytes)
    )
    yield (
        f"\nA machine has {room(setting.memory_bytes)}. In the sample a byte of source became {rows:.2f} of rows, "
        f"{parts:.2f} of parts and {scratch:.2f} of scratch."
    )


def driver_bytes(corpus: Corpus, amounts: Amounts, sample: Sample) -> tuple[float, float]:
    """Of documents, and of the anchors that are in memory beside them."""
    documents = corpus.num_files * sample.num_documents / sample.found_files * sample.decide_bytes_per_document
    return documents, amounts.held_out_anchors * KEY_BYTES * KEY_COPIES


def partition_bytes(amounts: Amounts, sample: Sample) -> float:
    """The held-out side's 50-grams of one partition; train's are read run by run."""
    num_spans = max(amounts.num_spans / amounts.num_partitions, min(PARTITION_SPANS, amounts.num_spans))
    return num_spans * sample.held_out_share * JOINED_BYTES


def room(num_bytes: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if num_bytes >= size:
            return f"{num_bytes / size:,.1f} {unit}"
    return f"{num_bytes / 1e6:,.0f} MB"


def told_limits(rates: Rates, sample: Sample, setting: Setting) -> Iterator[str]:
    yield "\n### Where one process becomes the limit\n"
    yield "| what | from |"
    yield "| --- | --- |"
    bytes_per_file = STACK.num_bytes / STACK.num_files
    memory, per_document = room(setting.memory_bytes), sample.decide_bytes_per_document
    documents, files = setting.memory_bytes / per_document, setting.memory_bytes / sample.scan_bytes_per_file
    source = room(documents * sample.found_files / sample.num_documents * bytes_per_file)
    yield f"| the driver's documents fill {memory} | {documents / 1e6:,.0f} million documents, {source} of source |"
    by_byte = sum(driver_bytes(TERABYTE, Amounts.of(TERABYTE, sample), sample)) / TERABYTE.num_bytes
    yield f"| with the anchors of the held-out side they do | {room(setting.memory_bytes / by_byte)} of source |"
    yield f"| its list of files fills {memory} | {files / 1e6:,.0f} million files, {room(files * bytes_per_file)} |"
    source = room(source_with(sample, lambda amounts: amounts.mistaken > WORTH_SAYING))
    yield f"| a tenth of the anchors is found by mistake, as keys have 32 bits | {source} of source |"
    source = room(source_with(sample, lambda amounts: amounts.num_spans > PARTITION_SPANS << BUCKET_BITS))
    yield f"| a partition of the join grows, as there are {1 << BUCKET_BITS:,} at most | {source} of source |"
    for corpus in (TERABYTE, STACK):
        amounts = Amounts.of(corpus, sample)
        alone = seconds_alone(corpus, amounts, rates)
        cores = math.ceil((core_seconds(corpus, amounts, rates) - alone) / alone)
        what = f"{corpus.name}: work of one core takes longer than all that is shared"
        yield f"| {what} | {cores} cores; {alone / HOUR:.1f} hours that no machine makes shorter |"


def seconds_alone(corpus: Corpus, amounts: Amounts, rates: Rates) -> float:
    by_file = corpus.num_files * (rates.scan + rates.finish)
    return by_file + amounts.num_documents * (rates.decide + rates.compare_alone)


def source_with(sample: Sample, is_so: Callable[[Amounts], bool]) -> float:
    """The least bytes of source for which it is so, to 5 %."""
    num_bytes = 1e9
    while not is_so(Amounts.of(Corpus("", 1, num_bytes), sample)):
        num_bytes *= 1.05
    return num_bytes


def main() -> None:
    options = parse()
    if options.measure is not None:
        SAMPLE.write_text(as_lines(measure(options.measure)), encoding="utf-8")
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
        deaths_per_day=options.deaths_per_day,
        replaced_seconds=600,
        slow_share=0.02,
        slow_factor=2.0,
    )
    rates = rates_of(scale, sample)
    for line in report(scale, sample, rates, setting):
        print(line)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", metavar="FOLDER", help="measure a build of FOLDER and write simulate.json")
    parser.add_argument("--rows", choices=("plain", "zstd"), default="plain", help="which rows of scale.md")
    parser.add_argument("--cores", type=int, default=32, help="of a machine")
    parser.add_argument("--memory-gb", type=float, default=128, help="of a machine")
    parser.add_argument("--disk-gb-per-second", type=float, default=2.0, help="of the shared disk, for all together")
    parser.add_argument("--sha256-gb-per-second", type=float, default=1.7)
    parser.add_argument("--driver-ms", type=float, default=1.5, help="of the driver for one Ray task")
    parser.add_argument("--local-ms", type=float, default=0.04, help="for one task of local processes")
    parser.add_argument("--read-ms", type=float, default=0.5, help="to open and read a little from the shared disk")
    parser.add_argument("--batch-bytes", type=float, default=BATCH_BYTES)
    parser.add_argument("--deaths-per-day", type=float, default=0.1, help="of one machine")
    return parser.parse_args()


if __name__ == "__main__":
    main()
