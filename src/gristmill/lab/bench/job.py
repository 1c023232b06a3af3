"""Input and reports of a method that runs as a script: `python -m MODULE JOB` in a new process.

JOB is the path of a JSON file. The method writes data files to the folder `out` and the seconds of its phases to
`out/phases.json`. While it runs, it prints its current phase and progress to standard output.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

PHASES_FILE = "phases.json"
SECONDS_BETWEEN_LINES = 0.2
WINDOW_LENGTH = 512
OVERLAP = 256
"""WINDOW_LENGTH and OVERLAP are the defaults of a build, so that other methods can make the same windows."""


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """A source file of a job."""

    location: str
    """Absolute path on this machine."""
    path: str
    """Path of the file in the rows."""
    repo: str
    language: str
    num_bytes: int
    num_tokens: int
    """Number of tokens in the file according to gristmill. Methods do not use this number."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Input of a method."""

    files: list[JobFile]
    """UTF-8 text files in path order."""
    root: str
    """Folder that contains the files, or the path of the only file."""
    tokenizer: str
    """Path of the tokenizer.json."""
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    pad_id: int
    out: str
    workers: int
    expand_to: int | None
    """Number of rows, including copies, that a plain script writes, or None for 2.75 times the number of rows before
    copying."""


def read_job() -> Job:
    """Read the job file that the command line names."""
    return msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Job)


def window_spans(num_tokens: int, job: Job) -> Iterator[tuple[int, int]]:
    """Yield the half-open token range of each window of a file. The windows cover all tokens of the file."""
    num_content = WINDOW_LENGTH - len(job.prefix) - len(job.suffix)
    for start in range(0, num_tokens, num_content - OVERLAP):
        yield start, min(start + num_content, num_tokens)
        if start + num_content >= num_tokens:
            return


class Phases:
    """Seconds of each phase. A phase can be entered several times, and its seconds are added up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._printed_at = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        if name not in self.seconds:
            print(json.dumps({"phase": name}), flush=True)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def report(self, done: int, total: int, unit: str) -> None:
        """Print the progress of the current phase, at most every 0.2 seconds and at the end of the phase."""
        if done == total or time.perf_counter() - self._printed_at >= SECONDS_BETWEEN_LINES:
            self._printed_at = time.perf_counter()
            print(json.dumps({"done": done, "total": total, "unit": unit}), flush=True)

    def write(self, out: str) -> None:
        (Path(out) / PHASES_FILE).write_text(json.dumps(self.seconds))
