"""What a benchmark finds: per method its time by phase, memory, bytes, and the quality of the rows it made."""

import msgspec

PHASES = ("load", "scan", "tokenize", "shape", "split", "write")
"""load the tokenizer · find and read the files · tokenize · cut windows · assign splits · format and write."""

REBUILD = "gristmill-rebuild"


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Of the rows that a method wrote, whatever wrote them."""

    windows: int
    distinct: float
    """Distinct windows (by their ids) per window."""
    redundancy: float
    """Content tokens in all windows per distinct source token that they show."""
    padding: float
    """Share of all ids in the rows that is padding."""
    tokens_lost: int
    """Source tokens that no window shows, with no reason on record."""
    tokens_left_out: int
    """Source tokens that no window shows, with a reason on record."""
    l50: float | None
    """Share of held-out content tokens in spans of 50 or more that train has too; None: nothing is held out."""
    places: int | None = None
    """Distinct places in the source that windows show: windows, copies not counted."""


class MethodResult(Quality, frozen=True, kw_only=True):
    name: str
    what: str
    seconds: float
    """The run in the middle, of an even number the slower of the two; from the start of the interpreter to its end."""
    seconds_min: float
    seconds_max: float
    runs: int
    phases: dict[str, float | None]
    """Seconds by phase of the run reported; None: part of another phase. The rest of `seconds` is start and end."""
    peak_mb: float
    """Of all its processes together; on Linux shared pages count once."""
    bytes: int
    """Of the data files."""
    files: int
    """It ran on: all, or a sample."""
    scale: float = 1.0
    """Source bytes of all files per source byte it ran on; 1: on all of them."""

    @property
    def other_seconds(self) -> float:
        """What no phase accounts for: starting the interpreter, importing, ending."""
        return max(0.0, self.seconds - sum(value or 0.0 for value in self.phases.values()))

    @property
    def seconds_for_all(self) -> float:
        """On all files: phases that go with bytes grow, starting and loading do not."""
        growing = sum(value or 0.0 for phase, value in self.phases.items() if phase != "load")
        return self.seconds + (self.scale - 1) * growing

    def phase_for_all(self, phase: str) -> float | None:
        value = self.phases.get(phase, 0.0)
        return value if value is None or phase == "load" else value * self.scale


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    why: str


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """What every method was given."""

    source: str
    """The source folder's name."""
    files: int
    bytes: int
    tokens: int
    withheld: int
    """Files that no method was given: text that is not UTF-8, which scripts cannot read."""
    tokenizer: str


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    platform: str
    cores: int
    memory_gb: float
    python: str
    versions: dict[str, str]


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    methods: list[MethodResult]
    skipped: list[Skipped]
    corpus: Corpus
    machine: Machine
    command: str
    """As a user would type it, to repeat it."""
