"""What a method is given, and how it tells what it does: it runs in a fresh process, `python -m MODULE JOB`.

The job is a JSON file. The method writes data files into `out` and its phases' seconds into `out/phases.json`; while it
runs, it says on standard output which phase it is in.
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
"""gristmill's own defaults, for the methods that are measured against it row by row."""


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    location: str
    """Absolute, as the system names it."""
    path: str
    """As it stands in a row."""
    repo: str
    language: str
    num_bytes: int
    num_tokens: int
    """By the reference: what a method shows is measured against it. Methods do not look at this."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    files: list[JobFile]
    """In path order, UTF-8 text all of them."""
    root: str
    """The folder they lie in, or the only one of them."""
    tokenizer: str
    """A tokenizer.json."""
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    pad_id: int
    out: str
    workers: int
    expand_to: int | None
    """How many windows the plain script copies up to; None: 2.75 times as many as there are."""


def read_job() -> Job:
    return msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Job)


def window_spans(num_tokens: int, job: Job) -> Iterator[tuple[int, int]]:
    """Half-open ranges of token indices that show every token; none for a file without any."""
    num_content = WINDOW_LENGTH - len(job.prefix) - len(job.suffix)
    for start in range(0, num_tokens, num_content - OVERLAP):
        yield start, min(start + num_content, num_tokens)
        if start + num_content >= num_tokens:
            return


class Phases:
    """Seconds by phase; phases may come back, and then add up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._said_at = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        if name not in self.seconds:
            print(json.dumps({"phase": name}), flush=True)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

    def at(self, done: int, total: int, unit: str) -> None:
        """How far the phase is; said now and then, and at its end."""
        if done == total or time.perf_counter() - self._said_at >= SECONDS_BETWEEN_LINES:
            self._said_at = time.perf_counter()
            print(json.dumps({"done": done, "total": total, "unit": unit}), flush=True)

    def write(self, out: str) -> None:
        (Path(out) / PHASES_FILE).write_text(json.dumps(self.seconds))
