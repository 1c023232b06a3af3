"""Result of a benchmark: time by phase, memory, size and row quality of each method."""

import msgspec

PHASES = ("load", "scan", "tokenize", "shape", "split", "write")
"""Phases of a method in this order: load the tokenizer, find and read the files, tokenize, cut windows, assign splits,
write the rows."""

REBUILD = "gristmill-rebuild"


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Quality of the rows that a method wrote."""

    windows: int
    distinct: float
    """Number of distinct windows, divided by the number of all windows. Windows with the same ids are copies."""
    redundancy: float
    """Number of content tokens in all windows, divided by the number of source tokens that are in any window."""
    padding: float
    """Share of padding among all ids in the rows."""
    tokens_lost: int
    """Number of source tokens that are in no window and for which no reason is recorded."""
    tokens_left_out: int
    """Number of source tokens that are in no window for a recorded reason."""
    l50: float | None
    """Share of held-out content tokens in spans of 50 or more tokens that also occur in train. None if no token is held
    out."""
    places: int | None = None
    """Number of windows, with copies of the same source range counted once."""


class MethodResult(Quality, frozen=True, kw_only=True):
    """Measurements of one method."""

    name: str
    what: str
    """Description of the method."""
    seconds: float
    """Seconds of the median run, from the start of the interpreter to its exit. For an even number of runs, the slower
    of the two middle runs is used."""
    seconds_min: float
    seconds_max: float
    runs: int
    phases: dict[str, float | None]
    """Seconds of each phase in the median run. None if the phase was skipped or is part of another phase. The rest of
    `seconds` is startup and exit."""
    peak_mb: float
    """Peak memory of all processes of the method together. On Linux, shared memory pages are counted once."""
    bytes: int
    """Size of the data files that the method wrote."""
    files: int
    """Number of source files that the method ran on: all files, or a sample."""
    scale: float = 1.0
    """Size of all source files, divided by the size of the source files that the method ran on. 1 if the method ran on
    all files."""

    @property
    def other_seconds(self) -> float:
        """Seconds outside all phases: interpreter startup, imports and exit."""
        return max(0.0, self.seconds - sum(value or 0.0 for value in self.phases.values()))

    @property
    def seconds_for_all(self) -> float:
        """Estimated seconds for all files. All phases except `load` are scaled by source bytes."""
        growing = sum(value or 0.0 for phase, value in self.phases.items() if phase != "load")
        return self.seconds + (self.scale - 1) * growing

    def phase_for_all(self, phase: str) -> float | None:
        """Return the estimated seconds of a phase for all files, or None if `phases` has None for this phase."""
        value = self.phases.get(phase, 0.0)
        return value if value is None or phase == "load" else value * self.scale


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A method that was not run, with the reason."""

    name: str
    why: str


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """Source files of a benchmark."""

    source: str
    """Name of the source folder."""
    files: int
    bytes: int
    tokens: int
    withheld: int
    """Number of files that are excluded from all methods, because their name or text is not UTF-8 or they have no
    tokens."""
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
