"""Runs tasks in this process, or over local processes.

Tokenizing and formatting are CPU work under the GIL, so processes help and threads do not (benchmarks/workers.md).

A worker that dies or hangs is replaced. Its first job counts as tried; those queued behind it go to others as they are.
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gristmill.core.errors import OutputError
from gristmill.runners.runner import (
    ATTEMPTS,
    OUT_OF_MEMORY,
    TASKS_AHEAD_PER_WORKER,
    Result,
    Runner,
    Task,
    TaskFailed,
    no_answer_within,
)
from gristmill.runners.tasks import Run
from gristmill.runners.worker import SECONDS_TO_END, Worker, start_method

BYTES_PER_WORKER = 2 << 20
"""Below this much source a worker more costs what it gains (benchmarks/workers.md)."""
NUM_SPARES = 2
"""Forked at the start, while that is safe and cheap: for tasks alone, and in place of workers that die."""


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


class LocalRunner(Runner):
    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: list[Worker] = []
        self._spares: list[Worker] = []
        self._alone: Worker | None = None
        """The process of the one task that is alone at the time."""
        self._meanwhile: Iterator[object] = iter(())

    def __enter__(self) -> Self:
        """Workers start here, before a progress bar has a thread running."""
        try:
            if self.workers > 1:
                for _ in range(self.workers):
                    self._pool.append(self._start())
            if self.workers > 1 and start_method() == "fork":  # elsewhere a spare is an interpreter more
                for _ in range(NUM_SPARES):
                    self._spares.append(self._start())
        except BaseException:
            self._end(at_once=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(at_once=kind is not None)

    def meanwhile(self, steps: Iterator[object]) -> None:
        if self._pool:
            self._meanwhile = chain(self._meanwhile, steps)
        else:
            super().meanwhile(steps)

    def as_done(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        seconds_for: Callable[[Task], float] | None = None,
        is_alone: Callable[[Task], bool] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailed], None, None]:
        """With one worker a task runs in this process, where nothing can end it: only one alone has limited time."""
        run = Run(function, tasks, seconds_for, is_alone)
        try:
            yield from self._over_processes(run) if self._pool else self._in_this_process(run)
        finally:
            self._give_up(run)

    def _in_this_process(self, run: Run) -> Iterator[tuple[int, Any]]:
        while (job := run.draw()) is not None:
            if job.is_alone:
                run.alone.append(job)
                yield from self._over_processes(run)
            else:
                yield job.number, _tried_here(run.function, job.task)

    def _over_processes(self, run: Run) -> Iterator[tuple[int, Any]]:
        while True:
            self._hand_out(run)
            if run.error is not None:
                raise run.error
            if run.done:
                yield run.done.popleft()
            elif self._is_open(run):
                self._take_answers()
            else:
                return

    def _is_open(self, run: Run) -> bool:
        is_at_work = any(job.run is run for worker in self._busy() for job in worker.jobs)
        return bool(is_at_work or run.waiting or run.alone or (self._pool and not run.is_drawn_up))

    def _busy(self) -> list[Worker]:
        return self._pool if self._alone is None else [*self._pool, self._alone]

    def _hand_out(self, run: Run) -> None:
        while self._pool:
            worker = min(self._pool, key=lambda worker: len(worker.jobs))
            if not worker.has_room(TASKS_AHEAD_PER_WORKER) or (job := run.next_job()) is None:
                break
            if not worker.has_room_for(job):
                job.hand_back()
                break
            worker.hand(job)
        if run.alone and self._alone is None:
            self._alone = self._fresh()
            self._alone.hand(run.alone.popleft())

    def _take_answers(self) -> None:
        """Waits until one worker at least answers, dies or hangs."""
        pipes = [worker.pipe for worker in self._busy()]
        for _ in self._meanwhile:
            if ready := wait(pipes, 0):
                break
        else:
            due = [worker.overdue_at for worker in self._busy() if worker.overdue_at is not None]
            ready = wait(pipes, max(0.0, min(due) - time.monotonic()) if due else None)
        for worker in list(self._busy()):
            if worker.pipe in ready:
                self._take_answer(worker)
            elif worker.is_hung:
                self._replace(worker, no_answer_within(worker.jobs[0].seconds))

    def _take_answer(self, worker: Worker) -> None:
        try:
            job, answer = worker.receive()
        except (EOFError, OSError):
            self._replace(worker, None)
            return
        if isinstance(answer.error, MemoryError):  # what it has is better given back, as by a death
            worker.jobs.appendleft(job)
            self._replace(worker, OUT_OF_MEMORY)
        else:
            job.answer(*answer)
        if worker is self._alone:
            self._alone = None
            worker.end()

    def _replace(self, worker: Worker, reason: str | None) -> None:
        """With no reason given, it died."""
        worker.end(within_seconds=SECONDS_TO_END if reason is None else 0.0)
        if worker.could_not_start:
            raise OutputError("workers could not start. In a script, call build() under `if __name__ == '__main__':`.")
        reason = reason or f"its worker died (exit code {worker.process.exitcode}), likely for want of memory"
        if worker is self._alone:
            self._alone = None
        else:
            self._pool[self._pool.index(worker)] = self._fresh()
        for place, job in reversed(list(enumerate(worker.jobs))):  # handed back last is handed out first
            if place == 0:
                job.fail(reason)
            else:
                job.hand_back()

    def _fresh(self) -> Worker:
        """One that is at nothing: a spare, or one more."""
        while self._spares:
            spare = self._spares.pop()
            if spare.process.is_alive():
                return spare
            spare.end()
        return self._start()

    def _start(self) -> Worker:
        try:
            return Worker.start()
        except OSError as error:
            raise OutputError(f"cannot start {self.workers} workers: {error.strerror}. Try fewer --workers.") from None

    def _give_up(self, run: Run) -> None:
        """What the pool is at it finishes, and nobody listens; a process of its own is not worth waiting for."""
        run.is_given_up = True
        if self._alone is not None and any(job.run is run for job in self._alone.jobs):
            self._alone.end()
            self._alone = None

    def _end(self, *, at_once: bool) -> None:
        started = [*self._busy(), *self._spares]
        for worker in started:
            if at_once:
                worker.process.kill()
            else:
                worker.dismiss()
        for worker in started:
            worker.end(within_seconds=SECONDS_TO_END)
        self._pool, self._spares, self._alone = [], [], None


def _tried_here(function: Callable[[Any], Any], task: Any) -> Any:
    for _ in range(ATTEMPTS):
        try:
            return function(task)
        except MemoryError:
            continue
    return TaskFailed(OUT_OF_MEMORY)
