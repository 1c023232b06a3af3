"""One worker process: the parent's handle for it, and the loop that runs in the worker.

Each worker has its own pipe, and only the worker holds the other end. If the worker dies, the parent reads an end of
file at once, even in the middle of a message. In `concurrent.futures`, all workers share one pipe, and a worker that is
killed while it writes to the pipe blocks the other workers.
"""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

from gristmill.core.errors import GristmillError
from gristmill.runners.tasks import Job, Run, unpickle_function

STOP_TIMEOUT_SECONDS = 5.0
EXIT_MESSAGE = b""
FUNCTION, TASK = b"f", b"t"
"""First byte of a message. FUNCTION precedes the function for later tasks, TASK precedes a task."""
MAX_QUEUED_BYTES = 1 << 16
"""Maximum size of a message to a busy worker. A larger message could fill the pipe, and the parent would wait until the
worker reads. A worker does not read while it computes without releasing the GIL."""


class Answer(NamedTuple):
    """Result of a task, or the error that it raised."""

    result: Any
    error: Exception | None


class Worker:
    """Handle of a worker process in its parent."""

    def __init__(self, process: BaseProcess, pipe: Connection, start_method: str) -> None:
        self.process, self.pipe, self._start_method = process, pipe, start_method
        self.jobs: deque[Job] = deque()
        """Jobs that the worker has not answered yet. The worker is running the first one."""
        self._run: Run | None = None
        """Run whose function the worker received last."""
        self._job_started_at = 0.0
        self._has_answered = False

    @classmethod
    def start(cls) -> Self:
        """Start a worker process. Raises OSError if the system cannot start one."""
        method = start_method()
        context: Any = multiprocessing.get_context(method)
        parent_end, worker_end = context.Pipe()
        try:
            process = context.Process(target=_worker_main, args=(worker_end,), daemon=True)
            process.start()
        except BaseException:
            parent_end.close()
            raise
        finally:
            worker_end.close()
        return cls(process, parent_end, method)

    @property
    def deadline(self) -> float | None:
        """Value of time.monotonic() at which the current job times out, or None if there is no job.

        The timeout of a queued job begins with the answer to the previous job.
        """
        return self._job_started_at + self.jobs[0].timeout_seconds if self.jobs else None

    @property
    def is_hung(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline and not self.pipe.poll()

    @property
    def failed_to_start(self) -> bool:
        """True if a stopped worker failed during startup.

        A spawned process imports the main script and fails there if the script has no main guard.
        """
        return self._start_method == "spawn" and self.process.exitcode == 1 and not self._has_answered

    def has_room(self, max_jobs: int) -> bool:
        return len(self.jobs) < max_jobs

    def can_accept(self, job: Job) -> bool:
        """Return True if the job can be sent without the risk that the parent has to wait."""
        num_bytes = len(job.pickled_task) + (len(job.run.pickled_function) if job.run is not self._run else 0)
        return not self.jobs or num_bytes <= MAX_QUEUED_BYTES

    def send(self, job: Job) -> None:
        if not self.jobs:
            self._job_started_at = time.monotonic()
        self.jobs.append(job)
        with suppress(OSError):  # the worker died: `receive` returns its last answers, then raises EOFError
            if job.run is not self._run:
                self.pipe.send_bytes(FUNCTION + job.run.pickled_function)
                self._run = job.run
            self.pipe.send_bytes(TASK + job.pickled_task)

    def receive(self) -> tuple[Job, Answer]:
        """Receive the next answer. Raises EOFError or OSError if the worker died."""
        message = self.pipe.recv_bytes()
        self._has_answered = True
        self._job_started_at = time.monotonic()
        return self.jobs.popleft(), pickle.loads(message)  # noqa: S301 - from our own process

    def request_exit(self) -> None:
        """Ask the worker to exit after its current jobs."""
        with suppress(OSError):
            self.pipe.send_bytes(EXIT_MESSAGE)  # closing the pipe is not enough: forked workers hold copies of this end

    def stop(self, *, grace_seconds: float = 0.0) -> None:
        """Wait up to `grace_seconds` for the process to exit, then kill it."""
        self.process.join(grace_seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join(STOP_TIMEOUT_SECONDS)
        self.pipe.close()


def start_method() -> str:
    """Return "fork" if forking is safe, otherwise "spawn".

    Forking is instant and shares the loaded tokenizer, but is safe only on Linux and with a single thread.
    """
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


def _worker_main(pipe: Connection) -> None:
    """Main loop of a worker: run tasks until the exit message or the end of the pipe."""
    # Ctrl-C sends SIGINT to all processes of the group. Only the parent handles it, so workers print no tracebacks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    # A thread receives the tasks. Without it, parent and worker could block, each waiting for the other to read.
    messages: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive_messages, args=(pipe, messages), daemon=True).start()
    function = b""
    while message := messages.get():
        if message.startswith(FUNCTION):
            function = message[1:]
            _release_memory()
            continue
        answer = _run_task(function, message[1:])
        try:
            pipe.send_bytes(answer)
        except OSError:
            return


def _release_memory() -> None:
    """Return freed memory to the system. Otherwise the C library would keep the memory of the last function."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # not every C library has malloc_trim
            ctypes.CDLL(None).malloc_trim(0)


def _run_task(function: bytes, task: bytes) -> bytes:
    """Call the function with the task, and return the pickled answer."""
    try:
        result = unpickle_function(function)(pickle.loads(task))  # noqa: S301 - from the process that started this one
        return pickle.dumps(Answer(result, None))
    except Exception as error:  # noqa: BLE001 - it is raised again in the parent
        return pickle.dumps(Answer(None, make_picklable(error)))


def make_picklable(error: Exception) -> Exception:
    """Return an error that can be pickled.

    A traceback cannot be pickled, so it is added to the error as a note. A GristmillError needs no traceback.
    """
    if not isinstance(error, GristmillError | MemoryError):
        error.add_note(traceback.format_exc())
    try:
        pickle.dumps(error)
    except Exception:  # noqa: BLE001 - the error may hold anything
        return RuntimeError(traceback.format_exc())
    return error


def _receive_messages(pipe: Connection, messages: "SimpleQueue[bytes]") -> None:
    with suppress(EOFError, OSError):
        while True:
            messages.put(pipe.recv_bytes())
    messages.put(EXIT_MESSAGE)


def _exit_with_parent() -> None:
    """Exit when the parent dies, so that a killed parent leaves no orphans."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
