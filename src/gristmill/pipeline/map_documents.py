"""map_documents(): run a parsing function over batches of documents, and find the files that crash or hang it."""

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


def map_documents(
    context: Context,
    make: Callable[[Sequence[Task]], MadePart],
    tasks: Sequence[Sequence[Task]],
    runner: Runner,
    step: Step,
) -> tuple[list[str], list[FileKey]]:
    """Return the parts that were made, in the order of the files, and the files that crashed or hung a worker.

    If a task crashes or hangs, each of its files is processed in a separate task. If a task with a single file crashes
    or hangs, raise OutputError or, with --skip-failed, return the file as failed.
    """
    parts: dict[FileKey, str] = {}
    failed_keys: list[FileKey] = []
    seconds = context.config.run.task_seconds
    # A hostile text may exhaust the time or memory of a grammar, so grammars never run in this process.
    is_isolated = (lambda _: True) if runner.workers == 1 else None
    pending = [list(task) for task in tasks]
    while pending:
        failed: list[list[Task]] = []
        for number, result in runner.as_completed(
            make, pending, timeout_for=lambda _: seconds, is_isolated=is_isolated
        ):
            task = pending[number]
            if not isinstance(result, TaskFailed):
                parts[task[0].document.key] = result.part
                step.advance(result.num_documents)
            elif len(task) > 1:
                failed += [[one] for one in task]
            else:
                failed_keys.append(_skip_or_raise(context, task[0].document, result.reason))
        pending = failed
    return [part for _, part in sorted(parts.items())], failed_keys


def _skip_or_raise(context: Context, document: PlacedDocument, reason: str) -> FileKey:
    if not context.config.run.skip_failed:
        raise OutputError(
            f"{document.name} could not be rewritten: {reason}. Completed work is kept: run the same command again, "
            "and add --skip-failed to leave the file unchanged."
        )
    return document.key
