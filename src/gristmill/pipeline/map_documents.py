"""map_documents(): run a function that parses code over many documents, and find documents that crash or hang it."""

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
    *,
    failure: str,
    skip: str,
) -> tuple[list[str], list[FileKey]]:
    """Return the parts (files with results) in the order of their documents, and the documents that failed.

    A task fails if its worker crashes, hangs or runs out of memory in every attempt. Each document of a failed task is
    then processed in a separate task. If this task fails too, raise OutputError or, with --skip-failed, return the
    document as failed. The error contains `failure`, such as "could not be rewritten", and `skip`, which states what
    --skip-failed does: "leave the file unchanged".
    """
    parts: dict[FileKey, str] = {}
    failed_keys: list[FileKey] = []
    seconds = context.config.run.task_seconds
    # A hostile text may make a parser use too much time or memory, so parsing never runs in this process.
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
                document = task[0].document
                if not context.config.run.skip_failed:
                    raise OutputError(
                        f"{document.name} {failure}: {result.reason}. Completed work is kept: run the same command "
                        f"again, and add --skip-failed to {skip}."
                    )
                failed_keys.append(document.key)
        pending = failed
    return [part for _, part in sorted(parts.items())], failed_keys
