"""Maps a step over its tasks: in this process, or over local processes. Results come in the order of the tasks.

Tokenizing and formatting are CPU work under the GIL, so processes help and threads do not (benchmarks/workers.md).

Each worker has a pipe of its own, whose far end only it holds: one that dies is an end of file, at once, even in the
middle of a message. (In `concurrent.futures` all workers share one, and one killed while it writes hangs the rest.)
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from gristmill.errors import GristmillError, OutputError

Task = TypeVar("Task")
Result = TypeVar("Result")

BYTES_PER_WORKER = 2 << 20
"""Below this much source a worker more costs what it gains (benchmarks/workers.md)."""
TASKS_AHEAD_PER_WORKER = 2
"""So that a worker never waits for the parent, which has digests to compute."""
RESULTS_AHEAD_PER_WORKER = 8
"""So that the others need not wait for one slow task; results are kept until it is their turn."""
SECONDS_TO_END = 5.0


def num_workers(wanted: int | str, source_bytes: int) -> int:
    if isinstance(wanted, int):
        return wanted
    return max(1, min(num_cores(), source_bytes // BYTES_PER_WORKER))


def num_cores() -> int:
    """The cores this process may use: by its affinity and, inside a container, by its quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max"
        return cores


class _Worker(NamedTuple):
    process: BaseProcess
    pipe: Connection


class LocalRunner:
    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._started: list[_Worker] = []
        self._num_tasks = 0

    def __enter__(self) -> Self:
        """Workers start here, before a progress bar has a thread running."""
        context: Any = multiprocessing.get_context(_start_method())
        try:
            for _ in range(self.workers if self.workers > 1 else 0):
                near, far = context.Pipe()
                process = context.Process(target=_work, args=(far,), daemon=True)
                process.start()
                far.close()
                self._started.append(_Worker(process, near))
        except OSError as error:
            self._end(at_once=True)
            raise OutputError(f"cannot start {self.workers} workers: {error.strerror}. Try fewer --workers.") from None
        except BaseException:
            self._end(at_once=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(at_once=kind is not None)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        if not self._started:
            yield from map(function, tasks)
            return
        first = self._num_tasks
        waiting = enumerate(tasks, first)
        results: dict[int, Result] = {}
        owed = dict.fromkeys(range(len(self._started)), 0)
        next_result = first
        is_drawn_up = False
        while True:
            while not is_drawn_up and self._num_tasks - next_result < RESULTS_AHEAD_PER_WORKER * len(owed):
                least_busy = min(owed, key=lambda worker: owed[worker])
                if owed[least_busy] >= TASKS_AHEAD_PER_WORKER:
                    break
                task = next(waiting, None)
                is_drawn_up = task is None
                if task is not None:
                    self._send(least_busy, (task[0], function, task[1]))
                    owed[least_busy] += 1
                    self._num_tasks += 1
            if next_result in results:
                yield results.pop(next_result)
                next_result += 1
            elif next_result == self._num_tasks:
                return
            else:
                for worker, number, result in self._receive():
                    if number >= first:  # else it answers a map that was given up
                        owed[worker] -= 1
                        results[number] = result

    def as_done(self, function, tasks, *, seconds_for=None, is_alone=None):
        yield from enumerate(self.map(function, tasks))

    def _send(self, worker: int, message: Any) -> None:
        try:
            self._started[worker].pipe.send(message)
        except OSError:
            raise self._died(worker) from None

    def _receive(self) -> Iterator[tuple[int, int, Any]]:
        by_pipe = {worker.pipe: index for index, worker in enumerate(self._started)}
        for pipe in wait(list(by_pipe)):
            assert isinstance(pipe, Connection)
            try:
                number, result, error = pipe.recv()
            except (EOFError, OSError):
                raise self._died(by_pipe[pipe]) from None
            if error is not None:
                raise error
            yield by_pipe[pipe], number, result

    def _died(self, worker: int) -> GristmillError:
        process = self._started[worker].process
        process.join(SECONDS_TO_END)
        if process.exitcode == 1 and _start_method() == "spawn":
            return OutputError("workers could not start. In a script, call build() under `if __name__ == '__main__':`.")
        return OutputError(
            f"a worker process died (exit code {process.exitcode}), likely for want of memory. Try fewer --workers."
        )

    def _end(self, *, at_once: bool) -> None:
        for process, pipe in self._started:
            if at_once:
                process.kill()
            else:
                with suppress(OSError):
                    pipe.send(None)  # not by closing it: forked workers hold copies of this end
        for process, pipe in self._started:
            process.join(SECONDS_TO_END)
            if process.exitcode is None:
                process.kill()
                process.join(SECONDS_TO_END)
            pipe.close()
        self._started = []


def _start_method() -> str:
    """Forking starts at once and shares the loaded tokenizer; it is safe only while no other thread runs."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


def _work(pipe: Connection) -> None:
    """A worker's life: take tasks until there are no more."""
    # Ctrl-C reaches the whole group: the parent decides, the workers do not each print a trace.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Tasks are taken in by a thread of their own: were both sides to wait for the other to read, neither would.
    tasks: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_take_in, args=(pipe, tasks), daemon=True).start()
    while (message := tasks.get()) is not None:
        number, function, task = message
        answer: tuple[int, Any, Exception | None]
        try:
            answer = (number, function(task), None)
        except Exception as error:  # noqa: BLE001 - it is raised again in the parent
            if not isinstance(error, GristmillError):
                error.add_note(traceback.format_exc())
            answer = (number, None, error)
        try:
            pipe.send(answer)
        except OSError:
            return


def _take_in(pipe: Connection, tasks: "SimpleQueue[Any]") -> None:
    message: Any = ()
    while message is not None:
        try:
            message = pipe.recv()
        except (EOFError, OSError):
            message = None
        tasks.put(message)


def _end_with_parent() -> None:
    """A parent that is killed outright leaves no orphans behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
