"""Step 3 for all formats except JSONL. Their rows are made from the documents, never from another format."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.core.manifest import PackingFacts
from gristmill.core.progress import Progress, Step
from gristmill.core.records import FileKey, PlacedDocument, Split
from gristmill.core.schema import Schema
from gristmill.formats.format import format_folder
from gristmill.formats.shares import (
    Share,
    ShareTask,
    WrittenDataset,
    WrittenFiles,
    divide_documents_into_shares,
    write_share,
)
from gristmill.pipeline.context import Context, is_large
from gristmill.pipeline.document_rows import batches_of
from gristmill.pipeline.pieces import DataFiles, Piece
from gristmill.runners.runner import Runner


class MadeFiles(NamedTuple):
    """Result of step 3: the rows in every format."""

    files: WrittenDataset
    shards: dict[Split, list[int]]
    """Number of rows in each JSONL file, by split. Also given if JSONL is not written."""
    packing: dict[Split, PackingFacts] | None = None
    segments: dict[FileKey, int] | None = None
    """Number of segments (ranges of tokens in rows) of each source file, or None without --pack repo."""


def write_other_formats(
    context: Context, pieces: Sequence[Piece], jsonl: DataFiles, runner: Runner, progress: Progress
) -> MadeFiles:
    """Write the rows in all formats except JSONL. Return the files of all formats."""
    files = jsonl.written
    if context.other_formats:
        tasks = format_tasks(context, pieces)
        with progress.phase("formats", total=sum(task.share.num_rows for task in tasks), unit="windows") as step:
            write_shares(
                partial(write_format, context),
                tasks,
                files,
                runner,
                step,
                dataset=context.dataset,
                schema=context.schema,
                is_isolated=_has_large_document,
            )
        files.finish(context.other_formats, context.dataset, context.schema)
    return MadeFiles(files, num_rows_by_file(pieces))


class FormatTask(msgspec.Struct, frozen=True):
    share: Share
    documents: list[PlacedDocument]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as msgpack, which is faster for thousands of documents."""
        return _decode_task, (msgspec.msgpack.encode(self),)


def _decode_task(packed: bytes) -> FormatTask:
    return msgspec.msgpack.decode(packed, type=FormatTask)


def format_tasks(context: Context, pieces: Sequence[Piece]) -> list[FormatTask]:
    clear_formats(context)
    by_file = num_rows_by_file(pieces)
    tasks: list[FormatTask] = []
    for split, split_pieces in groupby(pieces, key=lambda piece: piece.split):
        documents = _documents(split_pieces)
        counts = [document.num_windows for document in documents]
        for name in context.other_formats:
            shares = divide_documents_into_shares(name, split, context.schema, by_file[split], counts)
            tasks += (FormatTask(share, documents[selected]) for share, selected in shares)
    return tasks


def num_rows_by_file(pieces: Sequence[Piece]) -> dict[Split, list[int]]:
    """Return the number of rows in each JSONL file, by split.

    Formats that have several files per split begin a new file at least where JSONL does.
    """
    rows: dict[Split, list[int]] = {split: [] for split in Split}
    for (split, _), file_pieces in groupby(pieces, key=lambda piece: (piece.split, piece.file)):
        rows[split].append(_num_rows(_documents(file_pieces)))
    return rows


def _documents(pieces: Any) -> list[PlacedDocument]:
    return [document for piece in pieces for document in piece.documents]


def _num_rows(documents: Sequence[PlacedDocument]) -> int:
    return sum(document.num_windows for document in documents)


def _has_large_document(task: FormatTask) -> bool:
    return any(is_large(document.num_row_bytes) for document in task.documents)


def write_format(context: Context, task: FormatTask) -> WrittenFiles:
    return write_share(task.share, context.dataset, context.schema, batches_of(context, task.documents))


def clear_formats(context: Context) -> None:
    """Create empty folders for all formats except JSONL. Delete files that an earlier attempt may have left."""
    for name in context.other_formats:
        folder = format_folder(context.dataset, name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()


def write_shares(
    write: Callable[[Any], WrittenFiles],
    tasks: Sequence[ShareTask],
    files: WrittenDataset,
    runner: Runner,
    step: Step,
    *,
    dataset: Path,
    schema: Schema,
    is_isolated: Callable[[Any], bool] | None = None,
) -> None:
    """Write each task's share (rows of one split in one format). Add the written files to `files` in task order."""

    def write_all() -> Iterator[tuple[Share, WrittenFiles]]:
        for task, one in zip(tasks, runner.map(write, tasks, is_isolated=is_isolated), strict=True):
            yield task.share, one
            step.advance(task.share.num_rows)

    files.add_all(write_all(), dataset, schema, runner.map)
