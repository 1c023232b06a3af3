"""State of the tasks in one call of as_completed: waiting, running, retried, done.

tasks ──► next_job ──► a worker ──► done
             ▲            │ died, hung, out of memory
             └─ waiting ◄─┘ (or isolated, if the task needs its own process)
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any

from gristmill.runners.runner import DEFAULT_TIMEOUT_SECONDS, MAX_ATTEMPTS, TaskFailed


class Run:
    """One call of as_completed. Several runs may be open at once. Results of an abandoned run are ignored."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        tasks: Iterable[Any],
        timeout_for: Callable[[Any], float] | None,
        is_isolated: Callable[[Any], bool] | None,
    ) -> None:
        self.function = function
        self.timeout_for = timeout_for or (lambda _: DEFAULT_TIMEOUT_SECONDS)
        self.is_isolated = is_isolated or (lambda _: False)
        self._tasks = enumerate(tasks)
        self.waiting: deque[Job] = deque()
        self.isolated: deque[Job] = deque()
        self.done: deque[tuple[int, Any]] = deque()
        self.error: Exception | None = None
        self.is_exhausted = False
        self.is_abandoned = False

    @cached_property
    def pickled_function(self) -> bytes:
        """Pickled function, for other processes.

        The function may hold a lot of data, so each worker receives it only once, not with every task.
        """
        return pickle.dumps(self.function)

    def draw_job(self) -> "Job | None":
        """Return a job for the next task, or None if there are no more tasks."""
        for number, task in self._tasks:
            return Job(self, number, task)
        self.is_exhausted = True
        return None

    def next_job(self) -> "Job | None":
        """Return the next job that is not isolated, or None if there is none.

        Isolated jobs before it are moved to `isolated`.
        """
        if self.waiting:
            return self.waiting.popleft()
        while (job := self.draw_job()) is not None and job.is_isolated:
            self.isolated.append(job)
        return job


class Job:
    """A task with its number of failed attempts."""

    def __init__(self, run: Run, number: int, task: Any) -> None:
        self.run, self.number, self.task = run, number, task
        self.timeout_seconds = run.timeout_for(task)
        """Time that a worker may take for the task."""
        self.is_isolated = run.is_isolated(task)
        self._num_failed_attempts = 0

    @cached_property
    def pickled_task(self) -> bytes:
        return pickle.dumps(self.task)

    def finish(self, result: Any, error: Exception | None) -> None:
        """Record the result, or the error if the run has no earlier error."""
        if error is None:
            self.run.done.append((self.number, result))
        elif self.run.error is None:
            self.run.error = error

    def fail(self, reason: str) -> None:
        """Count a failed attempt, and retry the task or give up."""
        self._num_failed_attempts += 1
        if self._num_failed_attempts == MAX_ATTEMPTS:
            self.run.done.append((self.number, TaskFailed(reason)))
        else:
            self.requeue()

    def requeue(self) -> None:
        """Put the job back at the front of its queue, unless the run is abandoned."""
        if not self.run.is_abandoned:
            (self.run.isolated if self.is_isolated else self.run.waiting).appendleft(self)


@lru_cache(1)
def unpickle_function(pickled: bytes) -> Callable[[Any], Any]:
    """Unpickle a function in a worker.

    The last function is cached, because unpickling its settings can take longer than running a task.
    """
    function: Callable[[Any], Any] = pickle.loads(pickled)  # noqa: S301 - from the process that started this one
    return function
