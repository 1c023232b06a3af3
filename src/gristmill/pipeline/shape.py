"""Step 3, over pieces of the output: cut · window · format -> bytes at their place in the output."""

import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress, groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.core.errors import GristmillError
from gristmill.core.layout import write_atomically
from gristmill.core.manifest import PackingFacts
from gristmill.core.names import counted
from gristmill.core.progress import Progress, Step
from gristmill.core.records import FileKey, PlacedDocument, Split
from gristmill.formats.document_columns import batches_of, document_digests
from gristmill.formats.format import folder_of, format_named
from gristmill.formats.jsonl_rows import document_lines
from gristmill.formats.shares import AllFiles, Share, ShareTask, WrittenFiles, shares_of, write_share
from gristmill.formats.zstd import Frame, compress_rows
from gristmill.pipeline.context import Context, is_large
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.document_rows import rows_of
from gristmill.pipeline.parts import read_blocks
from gristmill.pipeline.pieces import (
    DataFiles,
    KnownPiece,
    Piece,
    ShapedPiece,
    Task,
    compressed_file,
    piece_tasks,
    pieces_of,
)
from gristmill.pipeline.work_folder import Workspace
from gristmill.runners.runner import Runner


class MadeFiles(NamedTuple):
    """Step 3: rows, in every format."""

    files: AllFiles
    shards: dict[Split, list[int]]
    packing: dict[Split, PackingFacts] | None = None
    segments: dict[FileKey, int] | None = None
    """With --pack repo: in how many stretches each file is in the rows. Only packing tells."""


def shape_all(context: Context, decision: Decision, work: Workspace, runner: Runner, progress: Progress) -> MadeFiles:
    """Step 3: a row for each window. pack_all() makes rows of several files."""
    pieces = pieces_of(context, decision)
    with DataFiles(context, work.log) as files:
        for task, shaped in shape_tasks(context, piece_tasks(context, pieces, work), runner, progress):
            files.add(task, shaped)
    return with_other_formats(context, pieces, files, runner, progress)


def shape_tasks(
    context: Context, tasks: Sequence[Task], runner: Runner, progress: Progress
) -> Iterator[tuple[Task, ShapedPiece]]:
    """In order. What is known and compressed is small: to ask a worker about it costs more than to look."""
    total = sum(document.num_windows for task in tasks for document in task.piece.documents)
    is_for_worker = [task.known is None or task.known.frames is None for task in tasks]
    with progress.phase("shape", total=total, unit="windows") as step:
        made = runner.map(partial(shape, context), compress(tasks, is_for_worker), is_alone=_has_large_rows)
        for task, from_worker in zip(tasks, is_for_worker, strict=True):
            shaped = next(made) if from_worker else shape(context, task)
            yield task, shaped
            step.advance(shaped.num_rows)


def with_other_formats(
    context: Context, pieces: Sequence[Piece], jsonl: DataFiles, runner: Runner, progress: Progress
) -> MadeFiles:
    """What is there of JSONL, and the same rows in all other formats."""
    files = jsonl.all
    if context.other_formats:
        tasks = format_tasks(context, pieces)
        with progress.phase("formats", total=sum(task.share.num_rows for task in tasks), unit="windows") as step:
            write_all(partial(write_format, context), tasks, files, runner, step)
        files.finish(context.other_formats, context.dataset, context.schema)
    return MadeFiles(files, num_rows_by_file(pieces))


def _has_large_rows(task: Task) -> bool:
    return is_large(task.piece.num_bytes)


def shape(context: Context, task: Task) -> ShapedPiece:
    """Written to its place, unless it is there already; one that an earlier build has written is taken from there."""
    piece, place = task.piece, context.dataset / task.piece.file
    taken_over = _take_over(task.known) if task.known is not None else None
    content, shaped = taken_over or _shaped(context, task)
    if shaped.frames is not None:
        if taken_over is None:
            write_atomically(compressed_file(context, task), content, is_synced=False)
        return shaped
    if len(content) != piece.num_bytes:
        raise GristmillError(
            f"{piece.file} at {piece.offset}: {counted(len(content), 'byte')} where {piece.num_bytes} were announced."
        )
    if taken_over is None or not _lies_at(task.known, place, piece.offset):
        _write_at(place, content, piece.offset)
    return shaped


def _lies_at(known: KnownPiece | None, place: Path, offset: int) -> bool:
    return known is not None and (known.file, known.offset) == (str(place), offset)


def _take_over(known: KnownPiece) -> tuple[bytes, ShapedPiece] | None:
    content = known.read()
    if content is None:
        return None
    shaped = ShapedPiece(
        num_rows=known.num_rows,
        num_bytes=known.num_bytes,
        sha256=known.sha256,
        crc32=zlib.crc32(content),
        content=known.content,
        frames=known.frames,
        is_taken_over=True,
    )
    return content, shaped


def _shaped(context: Context, task: Task) -> tuple[bytes, ShapedPiece]:
    schema, window_shape = context.window_schema, context.window_shape
    rows: list[bytes] = []
    digests: list[bytes] = []
    for document, block in read_blocks(context.prepared, task.piece.documents, context.tokenizer.vocab_size):
        documents_rows = rows_of(document, block, window_shape)
        rows += document_lines(documents_rows, schema)
        digests += document_digests(documents_rows, schema, task.piece.split)
    frames: list[Frame] | None = None
    if context.config.output.compress == "zstd":
        content, frames = compress_rows(rows)
    else:
        content = b"".join(rows)
    digest = hashlib.sha256(content).digest()
    shaped = ShapedPiece(
        num_rows=len(rows),
        num_bytes=len(content),
        sha256=digest,
        crc32=zlib.crc32(content),
        content=b"".join(digests),
        frames=frames,
    )
    return content, shaped


def _write_at(path: os.PathLike[str], content: bytes, offset: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(content)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written
    finally:
        os.close(descriptor)


# Every format but JSONL. Its rows come from the documents: no format is written by way of another.


class FormatTask(msgspec.Struct, frozen=True):
    share: Share
    documents: list[PlacedDocument]

    def __reduce__(self) -> tuple[Any, ...]:
        """In a message to another process: there are thousands of documents, and pickle takes longer for them."""
        return _unpacked, (msgspec.msgpack.encode(self),)


def _unpacked(packed: bytes) -> FormatTask:
    return msgspec.msgpack.decode(packed, type=FormatTask)


def format_tasks(context: Context, pieces: Sequence[Piece]) -> list[FormatTask]:
    clear_formats(context)
    tasks: list[FormatTask] = []
    for name in context.other_formats:
        for split, own in groupby(pieces, key=lambda piece: piece.split):
            files = [_documents(some) for _, some in groupby(own, key=lambda piece: piece.file)]
            shares = shares_of(name, split, [_num_rows(documents) for documents in files])
            if not format_named(name).is_sharded:
                files = [[document for documents in files for document in documents]]
            tasks += map(FormatTask, shares, files)
    return tasks


def num_rows_by_file(pieces: Sequence[Piece]) -> dict[Split, list[int]]:
    """Of each split, whose several files all formats that have such cut alike."""
    rows: dict[Split, list[int]] = {split: [] for split in Split}
    for (split, _), own in groupby(pieces, key=lambda piece: (piece.split, piece.file)):
        rows[split].append(_num_rows(_documents(own)))
    return rows


def _documents(pieces: Any) -> list[PlacedDocument]:
    return [document for piece in pieces for document in piece.documents]


def _num_rows(documents: Sequence[PlacedDocument]) -> int:
    return sum(document.num_windows for document in documents)


def write_format(context: Context, task: FormatTask) -> WrittenFiles:
    blocks = read_blocks(context.prepared, task.documents, context.tokenizer.vocab_size)
    rows = (rows_of(document, block, context.window_shape) for document, block in blocks)
    return write_share(task.share, context.dataset, context.schema, batches_of(rows, context.schema))


def clear_formats(context: Context) -> None:
    """Their folders are new: an earlier attempt may have left something."""
    for name in context.other_formats:
        folder = folder_of(context.dataset, name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()


def write_all(
    write: Callable[[Any], WrittenFiles], tasks: Sequence[ShareTask], files: AllFiles, runner: Runner, step: Step
) -> None:
    """Each task's share of a format, in order."""
    for task, written in zip(tasks, runner.map(write, tasks), strict=True):
        files.add(task.share, written)
        step.advance(task.share.num_rows)
