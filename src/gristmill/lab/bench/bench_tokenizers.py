"""bench_tokenizers(): Hugging Face `tokenizers`, gigatoken and the GPU on the same bytes in the same run.

source ─► corpus ─► ids of all documents ─► each method cold, warm and on unseen text, ids compared ─► TokenizerBench
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Literal, TypeVar

import msgspec
import numpy as np

from gristmill.core.errors import ConfigError
from gristmill.core.progress import Progress
from gristmill.lab.bench.bench import this_machine
from gristmill.lab.bench.bench_files import Found, default_source, gather, sample_of
from gristmill.lab.bench.bench_result import Corpus, Skipped
from gristmill.lab.bench.engines import (
    CardEngine,
    CardTokenizer,
    Engine,
    GigatokenEngine,
    TokenizersEngine,
    load_card,
    why_no_gigatoken,
    why_no_tokenizers,
)
from gristmill.lab.bench.speeds import Case, Speed, TokenizerBench, TokenizerMethod
from gristmill.lab.bench.timing import Expected, speeds_of, stages_of, wire_of
from gristmill.lab.bench.tokenizer_documents import Documents
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.locate import locate
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for

T = TypeVar("T")

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
