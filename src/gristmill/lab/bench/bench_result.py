"""Result of a benchmark: time by phase, memory, size and row quality of each method."""

import msgspec

PHASES = ("load", "scan", "tokenize", "shape", "split", "write")
"""Load the tokenizer, find and read the files, tokenize, cut windows, assign splits, format and write."""

REBUILD = "gristmill-rebuild"


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Quality of the rows that a method wrote."""

    windows: int
    distinct: float
    """Number of distinct windows, compared by their ids, per window."""
    redundancy: float
    """Content tokens in all windows per distinct source token in them."""
    padding: float
    """Share of padding among all ids in the rows."""
    tokens_lost: int
    """Number of source tokens that are in no window, without a recorded reason."""
    tokens_left_out: int
    """Number of source tokens that are in no window, with a recorded reason."""
    l50: float | None
    """Share of held-out content tokens in spans of 50 or more tokens that also occur in train. None if nothing is held
    out."""
    places: int | None = None
    """Number of windows without copies: distinct positions in the source."""


class MethodResult(Quality, frozen=True, kw_only=True):
    """Measurements of one method."""

    name: str
    what: str
    """Description of the method."""
    seconds: float
    """Seconds of the median run, from the start of the interpreter to its exit. For an even number of runs, it is the
    slower of the middle two."""
    seconds_min: float
    seconds_max: float
    runs: int
    phases: dict[str, float | None]
    """Seconds by phase of the median run. None if not done or part of another phase. The rest of `seconds` is
    startup and exit."""
    peak_mb: float
    """Peak memory of all processes together. On Linux, shared pages count once."""
    bytes: int
    """Size of the data files."""
    files: int
    """Number of files that the method ran on: all, or a sample."""
    scale: float = 1.0
    """Source bytes of all files per source byte that the method ran on. 1 if it ran on all files."""

    @property
    def other_seconds(self) -> float:
        """Seconds outside all phases: starting the interpreter, imports, exit."""
        return max(0.0, self.seconds - sum(value or 0.0 for value in self.phases.values()))

    @property
    def seconds_for_all(self) -> float:
        """Seconds for all files, estimated from the sample. All phases but loading grow with the source bytes."""
        growing = sum(value or 0.0 for phase, value in self.phases.items() if phase != "load")
        return self.seconds + (self.scale - 1) * growing

    def phase_for_all(self, phase: str) -> float | None:
        """Seconds of one phase for all files, estimated from the sample, or None if it is part of another phase."""
        value = self.phases.get(phase, 0.0)
        return value if value is None or phase == "load" else value * self.scale


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A method that was not run, with the reason."""

    name: str
    why: str


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """Files that every method was given."""

    source: str
    """Name of the source folder."""
    files: int
    bytes: int
    tokens: int
    withheld: int
    """Number of files that no method was given, because they are not UTF-8 or have no tokens."""
    tokenizer: str


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Machine that the benchmark ran on."""

    platform: str
    cores: int
    memory_gb: float
    python: str
    versions: dict[str, str]


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a benchmark."""

    methods: list[MethodResult]
    skipped: list[Skipped]
    corpus: Corpus
    machine: Machine
    command: str
    """Command line that repeats the benchmark."""
