"""The tasks of one call of as_done, on their way: drawn, waiting, tried again, done.

tasks ──► next_job ──► a worker ──► done
             ▲            │ died, hung, out of memory
             └─ waiting ◄─┘ (alone, for a process of its own)
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any

from gristmill.runners.runner import ATTEMPTS, SECONDS_PER_TASK, TaskFailed


class Run:
    """One call of as_done. Several may be open at once; one that was given up leaves jobs behind that nobody wants."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        tasks: Iterable[Any],
        seconds_for: Callable[[Any], float] | None,
        is_alone: Callable[[Any], bool] | None,
    ) -> None:
        self.function = function
        self.seconds_for = seconds_for or (lambda _: SECONDS_PER_TASK)
        self.is_alone = is_alone or (lambda _: False)
        self._tasks = enumerate(tasks)
        self.waiting: deque[Job] = deque()
        self.alone: deque[Job] = deque()
        self.done: deque[tuple[int, Any]] = deque()
        self.error: Exception | None = None
        self.is_drawn_up = False
        self.is_given_up = False

    @cached_property
    def packed_function(self) -> bytes:
        """For other processes. It may carry a lot, so each is told once, and not with every task."""
        return pickle.dumps(self.function)

    def draw(self) -> "Job | None":
        for number, task in self._tasks:
            return Job(self, number, task)
        self.is_drawn_up = True
        return None

    def next_job(self) -> "Job | None":
        """For any worker, if there is one left. What is drawn on the way and must be alone is set aside."""
        if self.waiting:
            return self.waiting.popleft()
        while (job := self.draw()) is not None and job.is_alone:
            self.alone.append(job)
        return job


class Job:
    """A task, as often as it is tried."""

    def __init__(self, run: Run, number: int, task: Any) -> None:
        self.run, self.number, self.task = run, number, task
        self.seconds = run.seconds_for(task)
        """How long a worker may be at it."""
        self.is_alone = run.is_alone(task)
        self._num_tried = 0

    @cached_property
    def message(self) -> bytes:
        """To a worker process that has the function."""
        return pickle.dumps(self.task)

    def answer(self, result: Any, error: Exception | None) -> None:
        if error is None:
            self.run.done.append((self.number, result))
        elif self.run.error is None:
            self.run.error = error

    def fail(self, reason: str) -> None:
        self._num_tried += 1
        if self._num_tried == ATTEMPTS:
            self.run.done.append((self.number, TaskFailed(reason)))
        else:
            self.hand_back()

    def hand_back(self) -> None:
        """To be handed out next."""
        if not self.run.is_given_up:
            (self.run.alone if self.is_alone else self.run.waiting).appendleft(self)


@lru_cache(1)
def unpacked(packed: bytes) -> Callable[[Any], Any]:
    """At the other end, where one function follows the other: unpacking the settings takes longer than many a task."""
    function: Callable[[Any], Any] = pickle.loads(packed)  # noqa: S301 - from the process that started this one
    return function
