"""What `bench --tokenizers` finds: per method, per way of handing it documents and per state, the seconds and bytes."""

from enum import StrEnum

import msgspec

from gristmill.lab.bench.bench_result import Corpus, Machine, Skipped


class Case(StrEnum):
    """How a method is handed the documents."""

    JOINED = "joined"
    BYTES = "bytes"
    FILES = "files"


class State(StrEnum):
    """What a method has seen before the clock runs."""

    COLD = "cold"
    WARM = "warm"
    UNSEEN = "unseen"


CASE_TITLES = {
    Case.JOINED: "From one buffer",
    Case.BYTES: "From a list of bytes",
    Case.FILES: "From files",
}


class TokenizerMethod(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    engine: str
    """What does the encoding, with its version."""
    load_seconds: float
    """To make it and encode one document, which no other figure holds."""
    files: int
    """It was timed on: all, or a sample. Ids are compared on all files either way."""
    bytes: int
    is_sampled: bool


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    case: Case
    """`joined`: one buffer and offsets (pinned for the GPU), `bytes`: a list of bytes, `files`: a list of paths."""
    state: State
    """`cold`: no word was seen; `warm`: all of this was; `unseen`: the other half of the bytes was."""
    seconds: float
    """Median over the runs, from the documents to one array of ids; what falls back to the CPU included."""
    seconds_min: float
    seconds_max: float
    runs: int
    files: int
    bytes: int
    ids: int
    num_on_cpu: int
    """Documents that the GPU left to the CPU."""

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the work on the GPU, with texts and ids in its memory, one chunk after the other."""

    name: str
    cold_seconds: float
    warm_seconds: float


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """The floor of a GPU that texts must go to and ids come back from: copies alone, from and to pinned memory."""

    bytes_in: int
    bytes_out: int
    seconds_in: float
    seconds_out: float
    seconds_both: float
    """Both ways at once."""


class TokenizerBench(msgspec.Struct, frozen=True, kw_only=True):
    methods: list[TokenizerMethod]
    speeds: list[Speed]
    stages: list[Stage]
    wire: Wire | None
    skipped: list[Skipped]
    corpus: Corpus
    machine: Machine
    gpu: str | None
    """Its name; null where none was asked for."""
    command: str
    """As a user would type it, to repeat it."""
