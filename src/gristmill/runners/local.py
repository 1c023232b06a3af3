"""Maps a step over its tasks: in this process, or over local processes. Results come in the order of the tasks.

Tokenizing and formatting are CPU work under the GIL, so processes help and threads do not (benchmarks/workers.md).
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from types import TracebackType
from typing import Self, TypeVar

from gristmill.errors import GristmillError

Task = TypeVar("Task")
Result = TypeVar("Result")

BYTES_PER_WORKER = 2 << 20
"""Below this much source a worker more costs what it gains (benchmarks/workers.md)."""
TASKS_IN_FLIGHT_PER_WORKER = 3


def num_workers(wanted: int | str, source_bytes: int) -> int:
    if isinstance(wanted, int):
        return wanted
    return max(1, min(num_cores(), source_bytes // BYTES_PER_WORKER))


def num_cores() -> int:
    """The cores this process may use, which inside a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalRunner:
    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self.workers > 1:
            context = multiprocessing.get_context(_start_method())
            self._pool = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_start_worker)
            # All workers start with the first task: now, before a progress bar has a thread running.
            self._pool.submit(os.getpid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            if kind is not None:
                for process in list(self._pool._processes.values()):  # noqa: SLF001 - no public way before 3.14
                    process.kill()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        if self._pool is None:
            yield from map(function, tasks)
            return
        in_flight: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                in_flight.append(self._pool.submit(function, task))
                if len(in_flight) >= TASKS_IN_FLIGHT_PER_WORKER * self.workers:
                    yield in_flight.popleft().result()
            while in_flight:
                yield in_flight.popleft().result()
        except BrokenProcessPool:
            raise GristmillError(
                "a worker process died, most likely killed for want of memory. Try fewer --workers."
            ) from None


def _start_method() -> str:
    """Forking starts at once and shares the loaded tokenizer; it is safe only while no other thread runs."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


def _start_worker() -> None:
    # Ctrl-C reaches the whole group: the parent decides, the workers do not each print a trace.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed outright leaves no orphans behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
