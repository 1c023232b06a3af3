"""Interface of all runners. A runner runs tasks in processes, and retries a task if its process dies.

as_completed  yields results in order of completion; a task that fails every attempt gives a TaskFailed
map           yields results in task order; a task that fails every attempt raises an error
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
"""Maximum number of attempts per task. One worker may die for any reason, but if three die at the same task, the task
is the cause."""
DEFAULT_TIMEOUT_SECONDS = 3600.0
"""Default timeout of a task, far longer than any task takes."""
QUEUED_TASKS_PER_WORKER = 2
"""Number of tasks that each worker has at once, so that no worker waits while the parent process is busy."""

OUT_OF_MEMORY = "out of memory"


class TaskFailed(NamedTuple):
    """Result of a task that failed MAX_ATTEMPTS times."""

    reason: str
    """Text for users, such as "no answer within 600 s"."""


def no_answer_text(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


class Runner(ABC):
    """Base class of runners. A runner runs tasks only inside its `with` block.

    Two optional functions take a task and control how it runs:

    is_isolated  Returns True if the task needs its own process, because it is large or may crash. The process ends
                 after the task, and so frees its memory. Isolated tasks run one at a time. If there are several
                 workers, other tasks continue.
    timeout_for  Returns the number of seconds after which the worker is considered hung and is killed. Without this
                 function, the timeout is DEFAULT_TIMEOUT_SECONDS.

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
        """Yield (task index, result) in order of completion. Tasks are taken from the iterable only when needed."""

    def run_while_waiting(self, steps: Iterator[object]) -> None:
        """Run the steps in this process: immediately, or in LocalRunner while it waits for its worker processes."""
        for _ in steps:
            pass

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        is_isolated: Callable[[Task], bool] | None = None,
    ) -> Iterator[Result]:
        """Yield results in task order. Workers continue with later tasks while an earlier task is slow."""
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
    """Yield the tasks. Before a task is yielded, add it to `in_progress`, keyed by its index."""
    for number, task in enumerate(tasks):
        in_progress[number] = task
        yield task


def _task_error(task: object, failed: TaskFailed) -> OutputError:
    description = getattr(task, "description", None)
    name = "a task" if description is None else f"the task that makes {description}"
    return OutputError(f"{name} failed {MAX_ATTEMPTS} times: {failed.reason}. Try fewer --workers.")
