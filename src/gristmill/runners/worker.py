"""One worker process: how the parent starts it, hands it tasks and ends it; and, at its other end, the worker's life.

Each worker has a pipe of its own, whose far end only it holds: one that dies is an end of file, at once, even in the
middle of a message. (In `concurrent.futures` all workers share one, and one killed while it writes hangs the rest.)
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
from gristmill.runners.tasks import Job, Run, unpacked

SECONDS_TO_END = 5.0
LAST_MESSAGE = b""
FUNCTION, TASK = b"f", b"t"
"""What a message begins with: what is to be done from now on, or to what."""
MAX_QUEUED_BYTES = 1 << 16
"""Of what is sent to a worker at work. What is larger could fill the pipe, and the parent would have to wait
until the worker reads, which one that computes without letting go of the interpreter does not."""


class Answer(NamedTuple):
    result: Any
    error: Exception | None


class Worker:
    """A process seen from its parent."""

    def __init__(self, process: BaseProcess, pipe: Connection, start_method: str) -> None:
        self.process, self.pipe, self._start_method = process, pipe, start_method
        self.jobs: deque[Job] = deque()
        """Handed out and not answered yet; the worker is at the first."""
        self._run: Run | None = None
        """Whose function it was told last."""
        self._first_job_at = 0.0
        self._has_answered = False

    @classmethod
    def start(cls) -> Self:
        """OSError where the system has no room for it."""
        method = start_method()
        context: Any = multiprocessing.get_context(method)
        near, far = context.Pipe()
        try:
            process = context.Process(target=_work, args=(far,), daemon=True)
            process.start()
        except BaseException:
            near.close()
            raise
        finally:
            far.close()
        return cls(process, near, method)

    @property
    def overdue_at(self) -> float | None:
        """By time.monotonic(), if it is at something. A job's clock starts when the one before it is answered."""
        return self._first_job_at + self.jobs[0].seconds if self.jobs else None

    @property
    def is_hung(self) -> bool:
        return self.overdue_at is not None and time.monotonic() >= self.overdue_at and not self.pipe.poll()

    @property
    def could_not_start(self) -> bool:
        """After its end: a script without a main guard ends a spawned process while that imports it."""
        return self._start_method == "spawn" and self.process.exitcode == 1 and not self._has_answered

    def has_room(self, num_ahead: int) -> bool:
        return len(self.jobs) < num_ahead

    def has_room_for(self, job: Job) -> bool:
        """Beside those that it has."""
        num_bytes = len(job.message) + (len(job.run.packed_function) if job.run is not self._run else 0)
        return not self.jobs or num_bytes <= MAX_QUEUED_BYTES

    def hand(self, job: Job) -> None:
        if not self.jobs:
            self._first_job_at = time.monotonic()
        self.jobs.append(job)
        with suppress(OSError):  # it died: whatever it still answered comes first, then the end of file
            if job.run is not self._run:
                self.pipe.send_bytes(FUNCTION + job.run.packed_function)
                self._run = job.run
            self.pipe.send_bytes(TASK + job.message)

    def receive(self) -> tuple[Job, Answer]:
        """EOFError or OSError where it died."""
        message = self.pipe.recv_bytes()
        self._has_answered = True
        self._first_job_at = time.monotonic()
        return self.jobs.popleft(), pickle.loads(message)  # noqa: S301 - from a process of ours

    def dismiss(self) -> None:
        """Ends after what it is at."""
        with suppress(OSError):
            self.pipe.send_bytes(LAST_MESSAGE)  # not by closing it: forked workers hold copies of this end

    def end(self, *, within_seconds: float = 0.0) -> None:
        self.process.join(within_seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join(SECONDS_TO_END)
        self.pipe.close()


def start_method() -> str:
    """Forking starts at once and shares the loaded tokenizer; it is safe only while no other thread runs."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


def _work(pipe: Connection) -> None:
    """A worker's life: take tasks until there are no more."""
    # Ctrl-C reaches the whole group: the parent decides, the workers do not each print a trace.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Tasks are taken in by a thread of their own: were both sides to wait for the other to read, neither would.
    messages: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_take_in, args=(pipe, messages), daemon=True).start()
    function = b""
    while message := messages.get():
        if message.startswith(FUNCTION):
            function = message[1:]
            _give_memory_back()
            continue
        answer = _answer_to(function, message[1:])
        try:
            pipe.send_bytes(answer)
        except OSError:
            return


def _give_memory_back() -> None:
    """What the last function has freed, which the C library would keep for the next."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library has no such call
            ctypes.CDLL(None).malloc_trim(0)


def _answer_to(function: bytes, task: bytes) -> bytes:
    """What the function makes of the task, or the error that it raised, pickled."""
    try:
        result = unpacked(function)(pickle.loads(task))  # noqa: S301 - from the process that started this one
        return pickle.dumps(Answer(result, None))
    except Exception as error:  # noqa: BLE001 - it is raised again in the parent
        return pickle.dumps(Answer(None, to_be_raised_again(error)))


def to_be_raised_again(error: Exception) -> Exception:
    """The trace does not travel, so its text does, unless the message of the error says it all."""
    if not isinstance(error, GristmillError | MemoryError):
        error.add_note(traceback.format_exc())
    try:
        pickle.dumps(error)
    except Exception:  # noqa: BLE001 - whatever it holds
        return RuntimeError(traceback.format_exc())
    return error


def _take_in(pipe: Connection, messages: "SimpleQueue[bytes]") -> None:
    with suppress(EOFError, OSError):
        while True:
            messages.put(pipe.recv_bytes())
    messages.put(LAST_MESSAGE)


def _end_with_parent() -> None:
    """A parent that is killed outright leaves no orphans behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
