"""Step 3 without --pack: write the rows of JSONL, piece by piece. Then `other_formats` writes all other formats.

cut · window · format

A piece is the rows of consecutive documents of one split. Workers write uncompressed pieces at their offsets in the
data file. The offset of a compressed piece is known only after all pieces before it, so it is first written to a file
of its own.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import compress
from pathlib import Path

from gristmill.core.errors import GristmillError
from gristmill.core.layout import write_atomically
from gristmill.core.names import counted
from gristmill.core.progress import Progress
from gristmill.formats.document_columns import digest_rows
from gristmill.formats.jsonl_rows import row_content, row_lines
from gristmill.formats.zstd import Frame, compress_rows
from gristmill.pipeline.context import Context, is_large
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.document_rows import rows_of
from gristmill.pipeline.other_formats import MadeFiles, write_other_formats
from gristmill.pipeline.parts import join_blocks, read_blocks
from gristmill.pipeline.pieces import (
    DataFiles,
    KnownPiece,
    ShapedPiece,
    Task,
    compressed_file,
    piece_tasks,
    pieces_of,
)
from gristmill.pipeline.work_folder import Workspace
from gristmill.runners.runner import Runner


def shape_all(context: Context, decision: Decision, work: Workspace, runner: Runner, progress: Progress) -> MadeFiles:
    """Run step 3 with one window per row. With --pack, pack_all() runs instead."""
    pieces = pieces_of(context, decision)
    with DataFiles(context, work.log, reads_back_in_threads=runner.workers > 1) as files:
        for task, shaped in shape_tasks(context, piece_tasks(context, pieces, work), runner, progress):
            files.add(task, shaped)
    return write_other_formats(context, pieces, files, runner, progress)


def shape_tasks(
    context: Context, tasks: Sequence[Task], runner: Runner, progress: Progress
) -> Iterator[tuple[Task, ShapedPiece]]:
    """Shape the pieces of all tasks and yield them in the order of the tasks.

    This process itself reads compressed pieces of an earlier build, because sending them to a worker costs more.
    """
    total = sum(document.num_windows for task in tasks for document in task.piece.documents)
    is_for_worker = [task.known is None or task.known.frames is None for task in tasks]
    with progress.phase("shape", total=total, unit="windows") as step:
        shaped_by_workers = runner.map(
            partial(shape, context), compress(tasks, is_for_worker), is_isolated=_has_large_rows
        )
        for task, from_worker in zip(tasks, is_for_worker, strict=True):
            shaped = next(shaped_by_workers) if from_worker else shape(context, task)
            yield task, shaped
            step.advance(shaped.num_rows)


def _has_large_rows(task: Task) -> bool:
    return is_large(task.piece.num_bytes)


def shape(context: Context, task: Task) -> ShapedPiece:
    """Write a piece, or reuse the known piece of an earlier build.

    An uncompressed piece is written at its offset, unless the data file already contains the piece there. A new
    compressed piece is written to a separate file. A reused compressed piece is not written here, because `DataFiles`
    copies it from its earlier file.
    """
    piece, path = task.piece, context.dataset / task.piece.file
    reused = _reuse(task.known) if task.known is not None else None
    content, shaped = reused or _make_piece(context, task)
    if shaped.frames is not None:
        if reused is None:
            write_atomically(compressed_file(context, task), content, is_synced=False)
        return shaped
    if len(content) != piece.num_bytes:
        raise GristmillError(
            f"{piece.file} at offset {piece.offset}: the rows have {counted(len(content), 'byte')}, "
            f"expected {piece.num_bytes}."
        )
    if reused is None or not _is_at(task.known, path, piece.offset):
        _write_at(path, content, piece.offset)
    return shaped


def _is_at(known: KnownPiece | None, path: Path, offset: int) -> bool:
    return known is not None and (known.file, known.offset) == (str(path), offset)


def _reuse(known: KnownPiece) -> tuple[bytes, ShapedPiece] | None:
    content = known.read()
    if content is None:
        return None
    shaped = ShapedPiece(
        num_rows=known.num_rows,
        num_bytes=known.num_bytes,
        crc32=known.crc32,
        content=known.content,
        frames=known.frames,
        is_taken_over=True,
    )
    return content, shaped


def _make_piece(context: Context, task: Task) -> tuple[bytes, ShapedPiece]:
    schema = context.window_schema
    blocks = [block for _, block in read_blocks(context.prepared, task.piece.documents, schema.vocab_size)]
    rows = rows_of(task.piece.documents, join_blocks(blocks), context.window_shape)
    frames: list[Frame] | None = None
    if context.config.output.compress == "zstd":
        content, frames = compress_rows(row_lines(rows, schema))
    else:
        content = row_content(rows, schema)
    shaped = ShapedPiece(
        num_rows=rows.num_rows,
        num_bytes=len(content),
        crc32=zlib.crc32(content),
        content=digest_rows(rows, schema, task.piece.split),
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
