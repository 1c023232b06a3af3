"""A command in a fresh process: how long it takes, and how much memory all its processes take at the most.

Looking at memory costs time, so one run of a method is watched, and counts as timed only if it is a long one: looks
come at least 20 ms apart and at most every hundredth of the time so far.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from gristmill.core.errors import MissingExtraError, OutputError
from gristmill.core.progress import Progress, Step

SECONDS_BETWEEN_LOOKS = 0.02
SHARE_BETWEEN_LOOKS = 0.01
STDERR_TAIL_BYTES = 4096
SECONDS_TO_END = 5.0


class Ran(NamedTuple):
    seconds: float
    """From the start of the interpreter to its end."""
    peak_mb: float | None
    """Of all its processes, on Linux with shared pages counted once; None: nobody looked."""
    last_line: bytes
    """Of what it printed."""


def run(name: str, command: Sequence[str], *, progress: Progress, watched: bool) -> Ran:
    """To its end; whatever happens here in the meantime, no process of it is left."""
    psutil = require_psutil() if watched else None
    with _Telling(name, progress) as telling:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        try:
            with _MemoryWatch(psutil, process.pid) as memory, _LastWords(process) as words:
                assert process.stdout is not None
                for line in process.stdout:
                    telling.hear(line)
                process.wait()
                seconds = time.perf_counter() - started
        finally:
            _end(process)
    if process.returncode:
        raise OutputError(_failure(name, process.returncode, words.tail))
    return Ran(seconds, memory.peak_bytes / 1e6 if watched else None, telling.last_line)


def require_psutil() -> Any:
    try:
        import psutil  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("measuring memory needs the psutil package: pip install 'gristmill[bench]'") from None
    return psutil


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """It leads a group of its own, which all that it started belongs to."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end(process: "subprocess.Popen[bytes]") -> None:
    _kill(process)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _failure(name: str, code: int, stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    said = said.removeprefix("gristmill: ").rstrip(".")
    if code == -signal.SIGKILL:
        said = said or "killed, likely for want of memory"
    ended = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    advice = "--only leaves it out, --sample gives slow methods fewer files."
    return f"the method {name!r} ended {ended}: {said or 'it said nothing'}. {advice}"


class _Telling:
    """What the process says of its phases -> progress, one phase for each of them."""

    def __init__(self, name: str, progress: Progress) -> None:
        self._name, self._progress = name, progress
        self._phase = ExitStack()
        self._step: Step | None = None
        self.last_line = b""

    def __enter__(self) -> Self:
        self._begin(self._name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._phase.close()

    def hear(self, line: bytes) -> None:
        self.last_line = line
        try:
            told = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):  # a library's own words
            return
        if not isinstance(told, dict):
            return
        if "phase" in told:
            self._begin(f"{self._name} {told['phase']}")
        elif {"done", "total", "unit"} <= told.keys() and self._step is not None:
            if (self._step.total, self._step.unit) != (told["total"], told["unit"]):
                self._step.expect(told["total"], told["unit"])
            self._step.advance(told["done"] - self._step.done)

    def _begin(self, name: str) -> None:
        self._phase.close()
        self._step = self._phase.enter_context(self._progress.phase(name))


class _LastWords:
    """The end of what a process says on its standard error, taken in as it comes: a full disk does not lose it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self.tail = b""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            _kill(self._process)
        self._thread.join(SECONDS_TO_END)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.tail = (self.tail + line)[-STDERR_TAIL_BYTES:]


class _MemoryWatch:
    """Looks now and then in a thread of its own; with no psutil it does not."""

    def __init__(self, psutil: Any | None, pid: int) -> None:
        self._psutil, self._pid = psutil, pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        if self._psutil is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._psutil is not None:
            self._thread.join()

    def _look_on(self) -> None:
        started = time.perf_counter()
        while True:
            self.peak_bytes = max(self.peak_bytes, self._look())
            elapsed = time.perf_counter() - started
            if self._ended.wait(max(SECONDS_BETWEEN_LOOKS, SHARE_BETWEEN_LOOKS * elapsed)):
                return

    def _look(self) -> int:
        assert self._psutil is not None
        total = 0
        with suppress(self._psutil.Error):
            process = self._psutil.Process(self._pid)
            for one in (process, *process.children(recursive=True)):
                with suppress(self._psutil.Error):
                    memory = one.memory_full_info()
                    total += getattr(memory, "pss", memory.rss)
        return total
