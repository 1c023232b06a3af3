"""Run tasks in this process or in local worker processes.

Tokenizing and formatting are CPU work under the GIL, so processes help and threads do not (benchmarks/workers.md).

A job is a task together with its number of failed attempts. A worker that dies, hangs or runs out of memory is
replaced. This counts as a failed attempt of the job that was running. The jobs that were queued for this worker are
assigned again, and no failed attempt is counted for them.
"""

import os
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gristmill.core.errors import OutputError
from gristmill.runners.runner import (
    MAX_ATTEMPTS,
    OUT_OF_MEMORY,
    QUEUED_TASKS_PER_WORKER,
    Result,
    Runner,
    Task,
    TaskFailed,
    no_answer_text,
)
from gristmill.runners.tasks import Run
from gristmill.runners.worker import STOP_TIMEOUT_SECONDS, Worker, start_method

BYTES_PER_WORKER = 2 << 20
"""Source bytes that justify one more worker. With fewer bytes, starting a worker takes as long as it saves
(benchmarks/workers.md)."""
NUM_SPARES = 2
"""Number of spare workers, which run isolated tasks or replace dead workers. Spares are forked at the start, when
forking is safe and cheap."""


def num_workers(requested: int | str, source_bytes: int) -> int:
    """Return the requested number of workers. If it is "auto", compute a number from the cores and the source size."""
    if isinstance(requested, int):
        return requested
    return max(1, min(num_cores(), source_bytes // BYTES_PER_WORKER))


def num_cores() -> int:
    """Return the number of cores that this process may use: the smaller of CPU affinity and CPU quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):  # there is no such file, or the quota is "max"
        return cores


class LocalRunner(Runner):
    """Runner with `workers` local processes. If `workers` is 1, tasks run in this process."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: list[Worker] = []
        self._spares: list[Worker] = []
        self._isolated_worker: Worker | None = None
        """Worker that runs the current isolated task."""
        self._background_steps: Iterator[object] = iter(())

    def __enter__(self) -> Self:
        """Start the workers. A progress bar must start its thread later, because forking is unsafe with threads."""
        try:
            if self.workers > 1:
                for _ in range(self.workers):
                    self._pool.append(self._start_worker())
            if self.workers > 1 and start_method() == "fork":  # with spawn, each spare would be one more interpreter
                for _ in range(NUM_SPARES):
                    self._spares.append(self._start_worker())
        except BaseException:
            self._stop_workers(immediately=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_workers(immediately=kind is not None)

    def run_while_waiting(self, steps: Iterator[object]) -> None:
        if self._pool:
            self._background_steps = chain(self._background_steps, steps)
        else:
            super().run_while_waiting(steps)

    def as_completed(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        timeout_for: Callable[[Task], float] | None = None,
        is_isolated: Callable[[Task], bool] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailed], None, None]:
        """Yield (task index, result) in order of completion.

        With one worker, tasks run in this process, where they cannot be interrupted. In this case, `timeout_for`
        applies only to isolated tasks, which have their own process.
        """
        run = Run(function, tasks, timeout_for, is_isolated)
        try:
            yield from self._run_in_workers(run) if self._pool else self._run_in_this_process(run)
        finally:
            self._abandon(run)

    def _run_in_this_process(self, run: Run) -> Iterator[tuple[int, Any]]:
        while (job := run.draw_job()) is not None:
            if job.is_isolated:
                run.isolated.append(job)
                yield from self._run_in_workers(run)
            else:
                yield job.number, _run_with_retries(run.function, job.task)

    def _run_in_workers(self, run: Run) -> Iterator[tuple[int, Any]]:
        while True:
            self._assign_jobs(run)
            if run.error is not None:
                raise run.error
            if run.done:
                yield run.done.popleft()
            elif self._has_unfinished_jobs(run):
                self._collect_answers()
            else:
                return

    def _has_unfinished_jobs(self, run: Run) -> bool:
        is_running = any(job.run is run for worker in self._active_workers() for job in worker.jobs)
        return bool(is_running or run.waiting or run.isolated or (self._pool and not run.is_exhausted))

    def _active_workers(self) -> list[Worker]:
        return self._pool if self._isolated_worker is None else [*self._pool, self._isolated_worker]

    def _assign_jobs(self, run: Run) -> None:
        while self._pool:
            worker = min(self._pool, key=lambda worker: len(worker.jobs))
            if not worker.has_room(QUEUED_TASKS_PER_WORKER) or (job := run.next_job()) is None:
                break
            if not worker.can_accept(job):
                job.requeue()
                break
            worker.send(job)
        if run.isolated and self._isolated_worker is None:
            self._isolated_worker = self._idle_worker()
            self._isolated_worker.send(run.isolated.popleft())

    def _collect_answers(self) -> None:
        """Wait until a worker answers, dies or hangs, and handle every such worker.

        While waiting, run background steps.
        """
        pipes = [worker.pipe for worker in self._active_workers()]
        for _ in self._background_steps:
            if ready := wait(pipes, 0):
                break
        else:
            deadlines = [worker.deadline for worker in self._active_workers() if worker.deadline is not None]
            ready = wait(pipes, max(0.0, min(deadlines) - time.monotonic()) if deadlines else None)
        for worker in list(self._active_workers()):
            if worker.pipe in ready:
                self._collect_answer(worker)
            elif worker.is_hung:
                self._replace(worker, no_answer_text(worker.jobs[0].timeout_seconds))

    def _collect_answer(self, worker: Worker) -> None:
        try:
            job, answer = worker.receive()
        except (EOFError, OSError):
            self._replace(worker, None)
            return
        if isinstance(answer.error, MemoryError):  # replacing the worker returns its memory to the system
            worker.jobs.appendleft(job)
            self._replace(worker, OUT_OF_MEMORY)
        else:
            job.finish(*answer)
        if worker is self._isolated_worker:
            self._isolated_worker = None
            worker.stop()

    def _replace(self, worker: Worker, reason: str | None) -> None:
        """Replace a worker and retry its jobs. `reason` is None if the worker died."""
        worker.stop(grace_seconds=STOP_TIMEOUT_SECONDS if reason is None else 0.0)
        if worker.failed_to_start:
            raise OutputError("workers could not start. In a script, call build() under `if __name__ == '__main__':`.")
        reason = reason or _death_text(worker.process.exitcode)
        if worker is self._isolated_worker:
            self._isolated_worker = None
        else:
            self._pool[self._pool.index(worker)] = self._idle_worker()
        for position, job in reversed(list(enumerate(worker.jobs))):  # the job requeued last is assigned first
            if position == 0:
                job.fail(reason)
            else:
                job.requeue()

    def _idle_worker(self) -> Worker:
        """Return a live spare, or start a new worker."""
        while self._spares:
            spare = self._spares.pop()
            if spare.process.is_alive():
                return spare
            spare.stop()
        return self._start_worker()

    def _start_worker(self) -> Worker:
        try:
            return Worker.start()
        except OSError as error:
            raise OutputError(
                f"cannot start a worker process (--workers {self.workers}): {error.strerror}. Try fewer --workers, or "
                "end other processes."
            ) from None

    def _abandon(self, run: Run) -> None:
        """Stop the isolated task of a run. Workers of the pool finish their jobs, but the results are ignored."""
        run.is_abandoned = True
        if self._isolated_worker is not None and any(job.run is run for job in self._isolated_worker.jobs):
            self._isolated_worker.stop()
            self._isolated_worker = None

    def _stop_workers(self, *, immediately: bool) -> None:
        workers = [*self._active_workers(), *self._spares]
        for worker in workers:
            if immediately:
                worker.process.kill()
            else:
                worker.request_exit()
        for worker in workers:
            worker.stop(grace_seconds=STOP_TIMEOUT_SECONDS)
        self._pool, self._spares, self._isolated_worker = [], [], None


def _death_text(exit_code: int | None) -> str:
    died = f"its worker died (exit code {exit_code})"
    # If memory runs out, the system ends a process with SIGKILL. Other signals report errors in the process.
    return f"{died}, probably because it ran out of memory" if exit_code == -signal.SIGKILL else died


def _run_with_retries(function: Callable[[Any], Any], task: Any) -> Any:
    """Call the function in this process, and retry if it runs out of memory."""
    for _ in range(MAX_ATTEMPTS):
        try:
            return function(task)
        except MemoryError:
            continue
    return TaskFailed(OUT_OF_MEMORY)
