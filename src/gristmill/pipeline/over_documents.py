"""over_documents(): run a parsing function over batches of documents, and survive files that crash or hang it."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from gristmill.core.errors import OutputError
from gristmill.core.progress import Step
from gristmill.core.records import FileKey, PlacedDocument
from gristmill.pipeline.context import Context
from gristmill.runners.runner import Runner, TaskFailed


class ChosenDocument(Protocol):
    @property
    def document(self) -> PlacedDocument: ...


Task = TypeVar("Task", bound=ChosenDocument)


class MadePart(Protocol):
    @property
    def part(self) -> str: ...
    @property
    def num_documents(self) -> int: ...


def over_documents(
    context: Context,
    make: Callable[[Sequence[Task]], MadePart],
    tasks: Sequence[Sequence[Task]],
    runner: Runner,
    step: Step,
) -> tuple[list[str], list[FileKey]]:
    """Return the parts that were made, in the order of the files, and the files over which a worker died or hung.

    Such a file is found by trying each file of the task alone. Raise OutputError for it without --skip-failed.
    """
    parts: dict[FileKey, str] = {}
    given_up: list[FileKey] = []
    seconds = context.config.run.task_seconds
    # A grammar may run out of time or memory over a text that was made for that: never in this process.
    is_alone = (lambda _: True) if runner.workers == 1 else None
    waiting = [list(task) for task in tasks]
    while waiting:
        failed: list[list[Task]] = []
        for number, answer in runner.as_done(make, waiting, seconds_for=lambda _: seconds, is_alone=is_alone):
            task = waiting[number]
            if not isinstance(answer, TaskFailed):
                parts[task[0].document.key] = answer.part
                step.advance(answer.num_documents)
            elif len(task) > 1:
                failed += [[one] for one in task]
            else:
                given_up.append(_skipped(context, task[0].document, answer.reason))
        waiting = failed
    return [part for _, part in sorted(parts.items())], given_up


def _skipped(context: Context, document: PlacedDocument, reason: str) -> FileKey:
    if not context.config.run.skip_failed:
        raise OutputError(
            f"{document.name} could not be rewritten: {reason}. What is done is kept: run the same command again, with "
            "--skip-failed to leave it as it is."
        )
    return document.key
