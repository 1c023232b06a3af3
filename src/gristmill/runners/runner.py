"""What every runner does: tasks in, results out, whatever becomes of the processes in between.

as_done    results as they get done; a task that never answers is a TaskFailed among them
map        results in the order of the tasks; a task that never answers is an error
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from gristmill.core.errors import OutputError

Task = TypeVar("Task")
Result = TypeVar("Result")

ATTEMPTS = 3
"""One death may have had another cause; a task that takes three workers along is the cause itself."""
SECONDS_PER_TASK = 3600.0
"""Where nobody says how long a task may take: far more than any takes, and less than a night."""
TASKS_AHEAD_PER_WORKER = 2
"""So that a worker never waits for the parent, which has digests to compute."""

OUT_OF_MEMORY = "out of memory"


class TaskFailed(NamedTuple):
    """In place of a result: a task that was tried ATTEMPTS times and never answered."""

    reason: str
    """ "no answer within 600 s" """


def no_answer_within(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


class Runner(ABC):
    """Open while its `with` block runs. `is_alone` and `seconds_for` look at one task each:

    is_alone     a task so large that it gets a process of its own, which ends afterwards and gives its memory back;
                 one such at a time, while the others go on
    seconds_for  how long a worker may be at the task before it counts as hung and is killed (else SECONDS_PER_TASK)

    A task whose worker dies, hangs or runs out of memory is tried again; any other error of the function is raised.
    """

    workers: int

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def as_done(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        seconds_for: Callable[[Task], float] | None = None,
        is_alone: Callable[[Task], bool] | None = None,
    ) -> Generator[tuple[int, Result | TaskFailed], None, None]:
        """(number of the task, its result), in the order in which they get done; tasks are drawn as they are needed."""

    def meanwhile(self, steps: Iterator[object]) -> None:
        """Take these steps in this process: while workers are at their tasks, as far as that goes, or at once."""
        for _ in steps:
            pass

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Iterable[Task],
        *,
        is_alone: Callable[[Task], bool] | None = None,
    ) -> Iterator[Result]:
        """One slow task does not stall the others: results are kept until it is their turn."""
        under_way: dict[int, Task] = {}
        done: dict[int, Result] = {}
        next_number = 0
        with closing(self.as_done(function, noting(tasks, under_way), is_alone=is_alone)) as answers:
            for number, result in answers:
                task = under_way.pop(number)
                if isinstance(result, TaskFailed):
                    raise _failure(task, result)
                done[number] = result
                while next_number in done:
                    yield done.pop(next_number)
                    next_number += 1


def noting(tasks: Iterable[Task], under_way: dict[int, Task]) -> Iterator[Task]:
    """The same tasks; each is in the dict, by its number, from when it is drawn."""
    for number, task in enumerate(tasks):
        under_way[number] = task
        yield task


def _failure(task: object, failed: TaskFailed) -> OutputError:
    told = getattr(task, "told", None)
    place = "" if told is None else f", at {told}"
    return OutputError(f"a task failed {ATTEMPTS} times ({failed.reason}){place}. Try fewer --workers.")
