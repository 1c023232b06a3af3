"""Run a command in a new process, and measure its time and the peak memory of the process and its children.

Sampling memory takes time, so a benchmark samples memory in only one run of each method. The interval between two
samples is at least 20 ms and at least 1 % of the elapsed time.
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

MIN_SAMPLE_INTERVAL_SECONDS = 0.02
SAMPLE_INTERVAL_SHARE = 0.01
STDERR_TAIL_BYTES = 4096
STDERR_JOIN_SECONDS = 5.0


class ProcessResult(NamedTuple):
    """Measurements of one process."""

    seconds: float
    """Seconds from the start of the process to its exit."""
    peak_mb: float | None
    """Peak memory of the process and its children, or None if memory was not sampled. On Linux, shared memory pages are
    counted once."""
    last_line: bytes
    """Last line that the process printed."""


def run(name: str, command: Sequence[str], *, progress: Progress, watched: bool) -> ProcessResult:
    """Run a command until it exits, then kill all processes that it started and left running.

    If an exception is raised during the run, the command is killed, too. `name` is the name of the method, for the
    progress display and for errors. With `watched`, memory is sampled.
    """
    psutil = require_psutil() if watched else None
    with _PhaseReader(name, progress) as phases:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        try:
            with _MemorySampler(psutil, process.pid) as memory, _StderrTail(process) as stderr_tail:
                assert process.stdout is not None
                for line in process.stdout:
                    phases.read_line(line)
                process.wait()
                seconds = time.perf_counter() - started
        finally:
            _close(process)
    if process.returncode:
        raise OutputError(_failure_message(name, process.returncode, stderr_tail.tail))
    return ProcessResult(seconds, memory.peak_bytes / 1e6 if watched else None, phases.last_line)


def require_psutil() -> Any:
    """Import psutil, or raise with the install command if it is missing."""
    try:
        import psutil  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError("measuring memory needs psutil: pip install 'gristmill[bench]'.") from None
    return psutil


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process group: the process and all processes that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _close(process: "subprocess.Popen[bytes]") -> None:
    _kill(process)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _failure_message(name: str, code: int, stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").split("\n")
    cause = next((line.strip() for line in reversed(lines) if line.strip()), "")
    cause = cause.removeprefix("gristmill: ").rstrip(".")
    if code == -signal.SIGKILL:
        cause = cause or "killed, probably because memory ran out"
    ended = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    advice = "Leave out this method with --only, or give slow methods fewer files with --sample."
    return f"the method {name!r} ended {ended}: {cause or 'no error message was printed'}. {advice}"


class _PhaseReader:
    """Shows the current phase of a process in the progress display. The process prints its phases as JSON lines."""

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

    def read_line(self, line: bytes) -> None:
        """Handle a line that the process printed."""
        self.last_line = line
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):  # a line that a library printed
            return
        if not isinstance(message, dict):
            return
        if "phase" in message:
            self._begin(f"{self._name} {message['phase']}")
        elif {"done", "total", "unit"} <= message.keys() and self._step is not None:
            if (self._step.total, self._step.unit) != (message["total"], message["unit"]):
                self._step.set_total(message["total"], message["unit"])
            self._step.advance(message["done"] - self._step.done)

    def _begin(self, name: str) -> None:
        self._phase.close()
        self._step = self._phase.enter_context(self._progress.phase(name))


class _StderrTail:
    """The last bytes that a process wrote to standard error. A thread reads them while the process runs.

    The bytes are stored in memory, so that they are not lost if the disk is full.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.tail = b""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            _kill(self._process)
        self._thread.join(STDERR_JOIN_SECONDS)

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.tail = (self.tail + line)[-STDERR_TAIL_BYTES:]


class _MemorySampler:
    """Samples the memory of a process and its children in a thread, unless `psutil` is None."""

    def __init__(self, psutil: Any | None, pid: int) -> None:
        self._psutil, self._pid = psutil, pid
        self._has_exited = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_exit, daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        if self._psutil is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_exited.set()
        if self._psutil is not None:
            self._thread.join()

    def _sample_until_exit(self) -> None:
        started = time.perf_counter()
        while True:
            self.peak_bytes = max(self.peak_bytes, self._current_bytes())
            elapsed = time.perf_counter() - started
            if self._has_exited.wait(max(MIN_SAMPLE_INTERVAL_SECONDS, SAMPLE_INTERVAL_SHARE * elapsed)):
                return

    def _current_bytes(self) -> int:
        assert self._psutil is not None
        total = 0
        with suppress(self._psutil.Error):
            process = self._psutil.Process(self._pid)
            for member in (process, *process.children(recursive=True)):
                with suppress(self._psutil.Error):
                    memory = member.memory_full_info()
                    total += getattr(memory, "pss", memory.rss)
        return total
