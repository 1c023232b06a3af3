"""bench_tokenizers(): Hugging Face `tokenizers`, gigatoken and the GPU on the same bytes in the same run.

source ─► corpus ─► ids of all documents ─► each method cold, warm and on unseen text, ids compared ─► TokenizerBench
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
from gristmill.lab.bench.bench_files import Documents, Found, default_source, gather, sample_of
from gristmill.lab.bench.bench_result import Corpus, Skipped
from gristmill.lab.bench.tokenizers.engines import (
    CardEngine,
    CardTokenizer,
    Encode,
    Engine,
    GigatokenEngine,
    TokenizersEngine,
    load_card,
    why_no_gigatoken,
    why_no_tokenizers,
)
from gristmill.lab.bench.tokenizers.speeds import Case, Speed, Stage, State, TokenizerBench, TokenizerMethod, Wire
from gristmill.tokenizers.cuda.id_batch import Batch
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for

# One method, one way of handing it documents -> its seconds cold, warm and on unseen text; every id is compared.


class Expected(NamedTuple):
    """The ids of all documents, and who says so."""

    method: str
    batch: Batch

    @classmethod
    def of(cls, engine: Engine, documents: Documents) -> "Expected":
        encode = engine.prepared(Case.BYTES, documents)
        assert encode is not None
        found = encode()
        return cls(engine.name, Batch(np.array(found.ids), np.array(found.offsets)))

    def of_part(self, documents: Documents) -> Batch:
        offsets = self.batch.offsets
        parts = [self.batch.ids[offsets[index] : offsets[index + 1]] for index in documents.indices.tolist()]
        counts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return Batch(np.concatenate(parts), counts)


class Timed(NamedTuple):
    """One thing to time: whatever is asked of one method with some documents."""

    engine: Engine
    encode: Encode
    documents: Documents
    expected: Batch
    expected_from: str

    @classmethod
    def of(cls, engine: Engine, case: Case, documents: Documents, expected: Expected) -> "Timed | None":
        encode = engine.prepared(case, documents)
        if encode is None:
            return None
        return cls(engine, encode, documents, expected.of_part(documents), expected.method)

    def run(self) -> tuple[float, int]:
        """Seconds, and how many documents fell back to the CPU."""
        started = time.perf_counter()
        found = self.encode()
        seconds = time.perf_counter() - started
        self._compare(found)
        return seconds, found.num_on_cpu

    def _compare(self, found: Batch) -> None:
        expected = self.expected
        if np.array_equal(found.offsets, expected.offsets) and np.array_equal(found.ids, expected.ids):
            return
        told = first_difference(found, expected, self.documents)
        raise GristmillError(
            f"{self.engine.name} gives other ids than {self.expected_from}: {told}. "
            "Nothing was measured; please report it with the file."
        )


def first_difference(found: Batch, expected: Batch, documents: Documents) -> str:
    """The first document that differs, and its first token that does."""
    if len(found.offsets) != len(expected.offsets):
        return f"{counted(len(found.offsets) - 1, 'document')} instead of {len(expected.offsets) - 1:,}"
    for number, file in enumerate(documents.files):
        one, other = (batch.ids[batch.offsets[number] : batch.offsets[number + 1]] for batch in (found, expected))
        if not np.array_equal(one, other):
            shared = min(len(one), len(other))
            place = int(np.argmax(np.append(one[:shared] != other[:shared], True)))
            told = [str(ids[place]) if place < len(ids) else "no token" for ids in (one, other)]
            return f"document {printable(file.path)!r}, token {place:,} is {told[0]}, not {told[1]}"
    return f"{counted(found.offsets[-1], 'id')} instead of {expected.offsets[-1]:,}"


def speeds_of(engine: Engine, case: Case, documents: Documents, expected: Expected, runs: int) -> Iterator[Speed]:
    whole = Timed.of(engine, case, documents, expected)
    if whole is None:
        return
    yield _speed(whole, case, State.COLD, [_after_forgetting(whole) for _ in range(runs)])
    yield _speed(whole, case, State.WARM, [whole.run() for _ in range(runs)])
    del whole
    halves = documents.halves()
    if halves is not None:
        seen, unseen = (Timed.of(engine, case, half, expected) for half in halves)
        assert seen is not None
        assert unseen is not None
        yield _speed(unseen, case, State.UNSEEN, [_after_another(seen, unseen) for _ in range(runs)])


def _after_forgetting(timed: Timed) -> tuple[float, int]:
    timed.engine.forget()
    return timed.run()


def _after_another(seen: Timed, unseen: Timed) -> tuple[float, int]:
    _after_forgetting(seen)
    return unseen.run()


def _speed(timed: Timed, case: Case, state: State, results: list[tuple[float, int]]) -> Speed:
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


def stages_of(engine: CardEngine, documents: Documents, runs: int) -> list[Stage]:
    text, card = engine.in_pinned_memory(documents), engine.tokenizer
    cold, warm = [], []
    for _ in range(runs):
        card.forget()
        cold.append(card.stage_seconds(text, documents.offsets))
        warm.append(card.stage_seconds(text, documents.offsets))
    names = dict.fromkeys(name for told in (*cold, *warm) for name in told)
    return [
        Stage(
            name=name,
            cold_seconds=median(told.get(name, 0.0) for told in cold),
            warm_seconds=median(told.get(name, 0.0) for told in warm),
        )
        for name in names
    ]


def wire_of(engine: CardEngine, documents: Documents, batch: Batch) -> Wire | None:
    """None where the tokenizer does not tell."""
    ask = getattr(engine.tokenizer, "wire_seconds", None)
    if ask is None:
        return None
    num_bytes_out = engine.tokenizer.encode_batch(documents.texts[:1]).ids.itemsize * len(batch.ids)
    told: dict[str, float] = ask(documents.num_bytes, num_bytes_out)
    return Wire(
        bytes_in=documents.num_bytes,
        bytes_out=num_bytes_out,
        seconds_in=told["in"],
        seconds_out=told["out"],
        seconds_both=told["both"],
    )


T = TypeVar("T")

# All methods, on the same documents.

DEFAULT_RUNS = 5
SAMPLE_BYTES = 8_000_000
"""Of a larger source `tokenizers` is timed on about so many: a few seconds a run on two cores."""


class AskedOfTokenizers(msgspec.Struct, frozen=True, kw_only=True):
    tokenizer: str = "codebert"
    device: Literal["cpu", "cuda"] = "cpu"
    runs: int = DEFAULT_RUNS
    sample: int | None = None
    """Files that `tokenizers` is timed on; None: about `SAMPLE_BYTES` of them."""

    def __post_init__(self) -> None:
        for option, value in (("--runs", self.runs), ("--sample", self.sample)):
            if value is not None and value < 1:
                raise ConfigError(f"{option} must be at least 1, got {value}.")


class Contestant(msgspec.Struct, frozen=True, kw_only=True):
    """An engine, and what it is timed on."""

    engine: Engine
    load_seconds: float
    documents: Documents
    is_sampled: bool

    def told(self) -> TokenizerMethod:
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
    asked: AskedOfTokenizers | None = None,
    *,
    progress: Progress | None = None,
    command: str = "gristmill bench --tokenizers",
    load_card: Callable[[str], CardTokenizer] = load_card,
) -> TokenizerBench:
    """Without a source: the standard library. `load_card` gives the tokenizer on the GPU, by name."""
    asked, progress = asked or AskedOfTokenizers(), progress or Progress()
    tokenizer = tokenizer_for(locate(asked.tokenizer))
    skipped = _skipped(tokenizer)
    loaded = list(_loaded(tokenizer.definition, asked, skipped, load_card))
    found = gather(source or default_source(), tokenizer, progress)
    documents = Documents.read(found.files, progress)
    contestants = [_contestant(engine, seconds, documents, asked.sample) for engine, seconds in _in_order(loaded)]
    with progress.phase(f"ids by {contestants[0].engine.name}"):
        expected = Expected.of(contestants[0].engine, documents)
    speeds = [speed for case in Case for speed in _speeds(case, contestants, expected, asked.runs, progress)]
    card = next((one.engine for one in contestants if isinstance(one.engine, CardEngine)), None)
    return TokenizerBench(
        methods=[contestant.told() for contestant in contestants],
        speeds=speeds,
        stages=[] if card is None else stages_of(card, documents, asked.runs),
        wire=None if card is None else wire_of(card, documents, expected.batch),
        skipped=[Skipped(name=name, why=why) for name, why in skipped.items()],
        corpus=_corpus(found, documents, expected, tokenizer),
        machine=this_machine(),
        gpu=None if card is None else card.tokenizer.device_name,
        command=command,
    )


def _loaded(
    definition: Definition,
    asked: AskedOfTokenizers,
    skipped: Mapping[str, str],
    load_card: Callable[[str], CardTokenizer],
) -> Iterator[tuple[Engine, float]]:
    """Each with its seconds. The card first: where there is none, that is said before the files are read."""
    if asked.device == "cuda":
        yield _timed(lambda: CardEngine(load_card(asked.tokenizer)))
    if TokenizersEngine.name not in skipped:
        yield _timed(lambda: TokenizersEngine(definition))
    if GigatokenEngine.name not in skipped:
        yield _timed(lambda: GigatokenEngine(definition))


def _corpus(found: Found, documents: Documents, expected: Expected, tokenizer: Tokenizer) -> Corpus:
    return Corpus(
        source=found.source.repo,
        files=len(documents),
        bytes=documents.num_bytes,
        tokens=len(expected.batch.ids),
        withheld=len(found.withheld),
        tokenizer=tokenizer.definition.name,
    )


def _skipped(tokenizer: Tokenizer) -> dict[str, str]:
    """Who is left out, and why."""
    reasons = {TokenizersEngine.name: why_no_tokenizers(), GigatokenEngine.name: why_no_gigatoken(tokenizer)}
    return {name: why for name, why in reasons.items() if why is not None}


def _in_order(loaded: Sequence[tuple[Engine, float]]) -> list[tuple[Engine, float]]:
    """The one whose ids count first, the card last."""
    return sorted(loaded, key=lambda one: isinstance(one[0], CardEngine))


def _contestant(engine: Engine, load_seconds: float, documents: Documents, sample: int | None) -> Contestant:
    """It is used once: threads, kernels and the card's own start are in its first call and in none after it."""
    encode = engine.prepared(Case.BYTES, documents.taken(np.zeros(1, np.int64)))
    assert encode is not None
    _, first_seconds = _timed(encode)
    part = _sample(documents, sample) if engine.is_slow else documents
    return Contestant(
        engine=engine,
        load_seconds=load_seconds + first_seconds,
        documents=part,
        is_sampled=len(part) < len(documents),
    )


def _timed(make: Callable[[], T]) -> tuple[T, float]:
    """And its seconds."""
    started = time.perf_counter()
    made = make()
    return made, time.perf_counter() - started


def _sample(documents: Documents, num_files: int | None) -> Documents:
    """The same ones each time, spread over the tree."""
    if num_files is None:
        num_files = ceil(len(documents) * min(1.0, SAMPLE_BYTES / documents.num_bytes))
    chosen = {file.path for file in sample_of(documents.files, num_files)}
    return documents.taken(np.flatnonzero([file.path in chosen for file in documents.files]))


def _speeds(
    case: Case, contestants: Sequence[Contestant], expected: Expected, runs: int, progress: Progress
) -> list[Speed]:
    speeds: list[Speed] = []
    for contestant in contestants:
        with progress.phase(f"{contestant.engine.name} {case}", total=3, unit="states") as step:
            for speed in speeds_of(contestant.engine, case, contestant.documents, expected, runs):
                speeds.append(speed)
                step.advance(1)
    return speeds
