"""Interface of all runners, which run tasks in processes and retry those whose process dies.

as_done    results in order of completion, with a TaskFailed for a task that failed every attempt
map        results in task order, with an error for a task that failed every attempt
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from gristmill.core.errors import OutputError

Task = TypeVar("Task")
Result = TypeVar("Result")

MAX_ATTEMPTS = 3
"""Attempts per task. One dead worker may have another cause, but a task that kills three is the cause itself."""
DEFAULT_TIMEOUT_SECONDS = 3600.0
"""Timeout of a task if none is given: far longer than any task takes, and shorter than a night."""
QUEUED_TASKS_PER_WORKER = 2
"""Tasks that each worker has at once, so that it never waits for the parent, which also computes digests."""

OUT_OF_MEMORY = "out of memory"


class TaskFailed(NamedTuple):
    """Result of a task that failed MAX_ATTEMPTS times."""

    reason: str
    """Reason for people, such as "no answer within 600 s"."""


def no_answer_within(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


class Runner(ABC):
    """Base class of runners. A runner is open inside its `with` block.

    Two optional functions of a task control how it runs:

    is_isolated  True if the task is so large that it needs its own process, which ends afterwards and frees its memory.
                 Such isolated tasks run one at a time, while other tasks continue.
    timeout_for  Seconds after which the worker counts as hung and is killed (default: DEFAULT_TIMEOUT_SECONDS).

    A task whose worker dies, hangs or runs out of memory is retried. Any other error of the function is raised.
    """

    workers: int

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def as_completed(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        timeout_for: Callable[[Task], float] | None = None,
        is_isolated: Callable[[Task], bool] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailed], None, None]:
        """Yield (task number, result) in order of completion. Tasks are taken from the iterable only when needed."""

    def run_while_waiting(self, steps: Iterator[object]) -> None:
        """Run the steps in this process, while it waits for workers if there are any, otherwise immediately."""
        for _ in steps:
            pass

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        is_isolated: Callable[[Task], bool] | None = None,
    ) -> Iterator[Result]:
        """Yield results in task order. Later results are held back, so a slow task does not stall the others."""
        in_progress: dict[int, Task] = {}
        done: dict[int, Result] = {}
        next_number = 0
        with closing(self.as_completed(function, track_tasks(tasks, in_progress), is_isolated=is_isolated)) as answers:
            for number, result in answers:
                task = in_progress.pop(number)
                if isinstance(result, TaskFailed):
                    raise _task_error(task, result)
                done[number] = result
                while next_number in done:
                    yield done.pop(next_number)
                    next_number += 1


def track_tasks(tasks: Iterable[Task], in_progress: dict[int, Task]) -> Iterator[Task]:
    """Yield the same tasks, and add each to `in_progress` under its number when it is drawn."""
    for number, task in enumerate(tasks):
        in_progress[number] = task
        yield task


def _task_error(task: object, failed: TaskFailed) -> OutputError:
    description = getattr(task, "description", None)
    location = "" if description is None else f", at {description}"
    return OutputError(f"a task failed {MAX_ATTEMPTS} times ({failed.reason}){location}. Try fewer --workers.")
