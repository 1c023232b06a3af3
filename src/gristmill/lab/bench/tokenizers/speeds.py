"""Result of `bench --tokenizers`: seconds and bytes per method, kind of input and state."""

from enum import StrEnum

import msgspec

from gristmill.lab.bench.bench_result import Corpus, Machine, Skipped


class Case(StrEnum):
    """Kind of input: one buffer, a list of byte strings, or a list of paths."""

    JOINED = "joined"
    BYTES = "bytes"
    FILES = "files"


class State(StrEnum):
    """State of the method's caches when timing starts."""

    COLD = "cold"
    WARM = "warm"
    UNSEEN = "unseen"


CASE_TITLES = {
    Case.JOINED: "From one buffer",
    Case.BYTES: "From a list of bytes",
    Case.FILES: "From files",
}


class TokenizerMethod(msgspec.Struct, frozen=True, kw_only=True):
    """A tokenizer that was measured."""

    name: str
    engine: str
    """Name and version of the library that encodes."""
    load_seconds: float
    """Seconds to load the tokenizer and encode one document. No other time includes them."""
    files: int
    """Number of files on which the tokenizer was timed: all files, or a sample. Ids are compared on all files."""
    bytes: int
    is_sampled: bool


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Measurement of one method with one kind of input in one state."""

    method: str
    case: Case
    """`joined` is one buffer with offsets (in pinned memory for the GPU), `bytes` a list of byte strings, and `files`
    a list of paths."""
    state: State
    """`cold` if the caches were empty, `warm` if the same text was encoded before, and `unseen` if only the other half
    of the text was encoded before."""
    seconds: float
    """Median time to encode the documents to one array of ids, including documents that fall back to the CPU."""
    seconds_min: float
    seconds_max: float
    runs: int
    files: int
    bytes: int
    ids: int
    num_on_cpu: int
    """Number of documents that the GPU left to the CPU."""

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one stage (a GPU kernel), without copies. The GPU processes one chunk of text after the other."""

    name: str
    cold_seconds: float
    warm_seconds: float


class GpuCopies(msgspec.Struct, frozen=True, kw_only=True):
    """Time of copies between pinned memory and the GPU, which is a lower bound for the time of any GPU tokenizer."""

    bytes_in: int
    bytes_out: int
    seconds_in: float
    seconds_out: float
    seconds_both: float
    """Seconds for both directions at the same time."""


class TokenizerBench(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a tokenizer benchmark."""

    methods: list[TokenizerMethod]
    speeds: list[Speed]
    stages: list[Stage]
    wire: GpuCopies | None
    skipped: list[Skipped]
    corpus: Corpus
    machine: Machine
    gpu: str | None
    """Name of the GPU, or null if no GPU was used."""
    command: str
    """Command line that repeats the benchmark."""
