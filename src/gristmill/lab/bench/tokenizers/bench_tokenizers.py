"""bench_tokenizers(): compare Hugging Face `tokenizers`, gigatoken and a GPU on the same bytes in the same run.

source ─► corpus ─► expected ids ─► each method cold, warm and on unseen text, with ids compared ─► TokenizerBench
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from statistics import median
from typing import Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from gristmill.core.errors import ConfigError, GristmillError
from gristmill.core.names import counted, printable
from gristmill.core.progress import Progress
from gristmill.lab.bench.bench import this_machine
from gristmill.lab.bench.bench_files import Documents, GatheredFiles, default_source, gather, sample_files
from gristmill.lab.bench.bench_result import Corpus, Skipped
from gristmill.lab.bench.tokenizers.engines import (
    Encode,
    Engine,
    GigatokenEngine,
    GpuEngine,
    GpuTokenizer,
    TokenizersEngine,
    gigatoken_skip_reason,
    load_gpu_tokenizer,
    tokenizers_skip_reason,
)
from gristmill.lab.bench.tokenizers.speeds import Case, GpuCopies, Speed, Stage, State, TokenizerBench, TokenizerMethod
from gristmill.tokenizers.cuda.id_batch import Batch
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for

# Measure one method with one kind of input: with empty caches, with warm caches and on unseen text. Compare all ids.


class Expected(NamedTuple):
    """Ids that every method must produce for all documents, and the name of the method that produced them first."""

    method: str
    batch: Batch

    @classmethod
    def of(cls, engine: Engine, documents: Documents) -> "Expected":
        encode = engine.prepare_encode(Case.BYTES, documents)
        assert encode is not None
        found = encode()
        return cls(engine.name, Batch(np.array(found.ids), np.array(found.offsets)))

    def for_documents(self, documents: Documents) -> Batch:
        """Return the expected ids of these documents."""
        offsets = self.batch.offsets
        parts = [self.batch.ids[offsets[index] : offsets[index + 1]] for index in documents.indices.tolist()]
        counts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return Batch(np.concatenate(parts), counts)


class TimedEncoding(NamedTuple):
    """A call whose time is measured: one method encodes documents from one kind of input."""

    engine: Engine
    encode: Encode
    documents: Documents
    expected: Batch
    expected_from: str

    @classmethod
    def of(cls, engine: Engine, case: Case, documents: Documents, expected: Expected) -> "TimedEncoding | None":
        encode = engine.prepare_encode(case, documents)
        if encode is None:
            return None
        return cls(engine, encode, documents, expected.for_documents(documents), expected.method)

    def run(self) -> tuple[float, int]:
        """Encode the documents, and return the seconds and the number of documents that fell back to the CPU."""
        started = time.perf_counter()
        found = self.encode()
        seconds = time.perf_counter() - started
        self._compare(found)
        return seconds, found.num_on_cpu

    def _compare(self, found: Batch) -> None:
        expected = self.expected
        if np.array_equal(found.offsets, expected.offsets) and np.array_equal(found.ids, expected.ids):
            return
        difference = first_difference(found, expected, self.documents)
        raise GristmillError(
            f"{self.engine.name} gives different ids than {self.expected_from}: {difference}. "
            "The benchmark was stopped. Please report this with the file."
        )


def first_difference(found: Batch, expected: Batch, documents: Documents) -> str:
    """Describe the first document with different ids, and the first token that differs."""
    if len(found.offsets) != len(expected.offsets):
        return f"{counted(len(found.offsets) - 1, 'document')} instead of {len(expected.offsets) - 1:,}"
    for number, file in enumerate(documents.files):
        one, other = (batch.ids[batch.offsets[number] : batch.offsets[number + 1]] for batch in (found, expected))
        if not np.array_equal(one, other):
            shared = min(len(one), len(other))
            position = int(np.argmax(np.append(one[:shared] != other[:shared], True)))
            tokens = [f"id {ids[position]}" if position < len(ids) else "no token" for ids in (one, other)]
            return f"document {printable(file.path)!r} has {tokens[0]} at token index {position:,}, not {tokens[1]}"
    return f"{counted(found.offsets[-1], 'id')} instead of {expected.offsets[-1]:,}"


def measure_speeds(engine: Engine, case: Case, documents: Documents, expected: Expected, runs: int) -> Iterator[Speed]:
    """Measure a method cold, warm and on unseen text. Yield nothing if the input is not supported."""
    timed = TimedEncoding.of(engine, case, documents, expected)
    if timed is None:
        return
    yield _speed(timed, case, State.COLD, [_run_cold(timed) for _ in range(runs)])
    yield _speed(timed, case, State.WARM, [timed.run() for _ in range(runs)])
    del timed
    halves = documents.halves()
    if halves is not None:
        seen, unseen = (TimedEncoding.of(engine, case, half, expected) for half in halves)
        assert seen is not None
        assert unseen is not None
        yield _speed(unseen, case, State.UNSEEN, [_run_unseen(seen, unseen) for _ in range(runs)])


def _run_cold(timed: TimedEncoding) -> tuple[float, int]:
    """Clear the caches of the engine, then run."""
    timed.engine.forget()
    return timed.run()


def _run_unseen(seen: TimedEncoding, unseen: TimedEncoding) -> tuple[float, int]:
    """Run on the unseen half after the seen half has warmed the caches."""
    _run_cold(seen)
    return unseen.run()


def _speed(timed: TimedEncoding, case: Case, state: State, results: list[tuple[float, int]]) -> Speed:
    seconds = [result[0] for result in results]
    return Speed(
        method=timed.engine.name,
        case=case,
        state=state,
        seconds=median(seconds),
        seconds_min=min(seconds),
        seconds_max=max(seconds),
        runs=len(seconds),
        files=len(timed.documents),
        bytes=timed.documents.num_bytes,
        ids=int(timed.expected.offsets[-1]),
        num_on_cpu=max(result[1] for result in results),
    )


def measure_stages(engine: GpuEngine, documents: Documents, runs: int) -> list[Stage]:
    """Measure the stages of the GPU tokenizer."""
    text, gpu = engine.copy_to_pinned_memory(documents), engine.tokenizer
    cold, warm = [], []
    for _ in range(runs):
        gpu.forget()
        cold.append(gpu.stage_seconds(text, documents.offsets))
        warm.append(gpu.stage_seconds(text, documents.offsets))
    names = dict.fromkeys(name for seconds in (*cold, *warm) for name in seconds)
    return [
        Stage(
            name=name,
            cold_seconds=median(seconds.get(name, 0.0) for seconds in cold),
            warm_seconds=median(seconds.get(name, 0.0) for seconds in warm),
        )
        for name in names
    ]


def measure_copies(engine: GpuEngine, documents: Documents, batch: Batch) -> GpuCopies | None:
    """Measure copies to and from the GPU, or return None if the tokenizer cannot measure them."""
    copy_seconds = getattr(engine.tokenizer, "copy_seconds", None)
    if copy_seconds is None:
        return None
    num_bytes_out = engine.tokenizer.encode_batch(documents.texts[:1]).ids.itemsize * len(batch.ids)
    seconds: dict[str, float] = copy_seconds(documents.num_bytes, num_bytes_out)
    return GpuCopies(
        bytes_in=documents.num_bytes,
        bytes_out=num_bytes_out,
        seconds_in=seconds["in"],
        seconds_out=seconds["out"],
        seconds_both=seconds["both"],
    )


T = TypeVar("T")

# Measure all methods on the same documents.

DEFAULT_RUNS = 5
SAMPLE_BYTES = 8_000_000
"""Size of the sample on which `tokenizers` is timed if the source is larger. A run takes a few seconds on two cores."""


class TokenizerBenchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a tokenizer benchmark."""

    tokenizer: str = "codebert"
    device: Literal["cpu", "cuda"] = "cpu"
    runs: int = DEFAULT_RUNS
    sample: int | None = None
    """Number of files that `tokenizers` is timed on, or None for about `SAMPLE_BYTES` of text."""

    def __post_init__(self) -> None:
        for option, value in (("--runs", self.runs), ("--sample", self.sample)):
            if value is not None and value < 1:
                raise ConfigError(f"{option} must be at least 1, got {value}.")


class BenchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An engine, and the documents on which it is timed."""

    engine: Engine
    load_seconds: float
    documents: Documents
    is_sampled: bool

    def method(self) -> TokenizerMethod:
        return TokenizerMethod(
            name=self.engine.name,
            engine=self.engine.engine,
            load_seconds=self.load_seconds,
            files=len(self.documents),
            bytes=self.documents.num_bytes,
            is_sampled=self.is_sampled,
        )


def bench_tokenizers(
    source: str | None,
    options: TokenizerBenchOptions | None = None,
    *,
    progress: Progress | None = None,
    command: str = "gristmill bench --tokenizers",
    load_gpu_tokenizer: Callable[[str], GpuTokenizer] = load_gpu_tokenizer,
) -> TokenizerBench:
    """Time the tokenizers on the same documents, and raise GristmillError if any id differs.

    The source defaults to the Python standard library. `load_gpu_tokenizer` loads the tokenizer on the GPU by name.
    """
    options, progress = options or TokenizerBenchOptions(), progress or Progress()
    tokenizer = tokenizer_for(locate(options.tokenizer))
    skip_reasons = _skip_reasons(tokenizer)
    loaded = list(_load_engines(tokenizer.definition, options, skip_reasons, load_gpu_tokenizer))
    found = gather(source or default_source(), tokenizer, progress)
    documents = Documents.read(found.files, progress)
    entries = [_entry(engine, seconds, documents, options.sample) for engine, seconds in _reference_first(loaded)]
    with progress.phase(f"ids by {entries[0].engine.name}"):
        expected = Expected.of(entries[0].engine, documents)
    speeds = [speed for case in Case for speed in _speeds(case, entries, expected, options.runs, progress)]
    gpu = next((one.engine for one in entries if isinstance(one.engine, GpuEngine)), None)
    return TokenizerBench(
        methods=[entry.method() for entry in entries],
        speeds=speeds,
        stages=[] if gpu is None else measure_stages(gpu, documents, options.runs),
        wire=None if gpu is None else measure_copies(gpu, documents, expected.batch),
        skipped=[Skipped(name=name, why=why) for name, why in skip_reasons.items()],
        corpus=_corpus(found, documents, expected, tokenizer),
        machine=this_machine(),
        gpu=None if gpu is None else gpu.tokenizer.device_name,
        command=command,
    )


def _load_engines(
    definition: Definition,
    options: TokenizerBenchOptions,
    skip_reasons: Mapping[str, str],
    load_gpu_tokenizer: Callable[[str], GpuTokenizer],
) -> Iterator[tuple[Engine, float]]:
    """Yield each engine with its loading time. The GPU is first, to report a missing GPU before files are read."""
    if options.device == "cuda":
        yield _time_call(lambda: GpuEngine(load_gpu_tokenizer(options.tokenizer)))
    if TokenizersEngine.name not in skip_reasons:
        yield _time_call(lambda: TokenizersEngine(definition))
    if GigatokenEngine.name not in skip_reasons:
        yield _time_call(lambda: GigatokenEngine(definition))


def _corpus(found: GatheredFiles, documents: Documents, expected: Expected, tokenizer: Tokenizer) -> Corpus:
    return Corpus(
        source=found.source.repo,
        files=len(documents),
        bytes=documents.num_bytes,
        tokens=len(expected.batch.ids),
        withheld=len(found.withheld),
        tokenizer=tokenizer.definition.name,
    )


def _skip_reasons(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the reason for each method that cannot run."""
    reasons = {TokenizersEngine.name: tokenizers_skip_reason(), GigatokenEngine.name: gigatoken_skip_reason(tokenizer)}
    return {name: why for name, why in reasons.items() if why is not None}


def _reference_first(loaded: Sequence[tuple[Engine, float]]) -> list[tuple[Engine, float]]:
    """Move the GPU to the end. The first engine produces the expected ids."""
    return sorted(loaded, key=lambda one: isinstance(one[0], GpuEngine))


def _entry(engine: Engine, load_seconds: float, documents: Documents, sample: int | None) -> BenchEntry:
    """Encode one document, and choose the documents on which the engine is timed.

    The first call also starts threads, kernels and the GPU, so its seconds are part of the loading time.
    """
    encode = engine.prepare_encode(Case.BYTES, documents.subset(np.zeros(1, np.int64)))
    assert encode is not None
    _, first_seconds = _time_call(encode)
    part = _sample(documents, sample) if engine.is_slow else documents
    return BenchEntry(
        engine=engine,
        load_seconds=load_seconds + first_seconds,
        documents=part,
        is_sampled=len(part) < len(documents),
    )


def _time_call(make: Callable[[], T]) -> tuple[T, float]:
    """Call a function, and return its result and the seconds it took."""
    started = time.perf_counter()
    made = make()
    return made, time.perf_counter() - started


def _sample(documents: Documents, num_files: int | None) -> Documents:
    """Choose documents by a hash of their paths. The choice is the same each time."""
    if num_files is None:
        num_files = ceil(len(documents) * min(1.0, SAMPLE_BYTES / documents.num_bytes))
    chosen = {file.path for file in sample_files(documents.files, num_files)}
    return documents.subset(np.flatnonzero([file.path in chosen for file in documents.files]))


def _speeds(
    case: Case, entries: Sequence[BenchEntry], expected: Expected, runs: int, progress: Progress
) -> list[Speed]:
    speeds: list[Speed] = []
    for entry in entries:
        with progress.phase(f"{entry.engine.name} {case}", total=3, unit="states") as step:
            for speed in measure_speeds(entry.engine, case, entry.documents, expected, runs):
                speeds.append(speed)
                step.advance(1)
    return speeds
