"""Step 3, over pieces of the output: cut · window · format -> bytes at their place in the output."""

import hashlib
import os
import zlib
from pathlib import Path

import msgspec

from gristmill.errors import GristmillError
from gristmill.formats.zstd import Frame, compress_rows
from gristmill.layout import write_atomically
from gristmill.steps.blocks import read_blocks
from gristmill.steps.context import Context
from gristmill.steps.pieces import Task
from gristmill.steps.rows import rows_of


class ShapedPiece(msgspec.Struct, frozen=True, kw_only=True):
    num_rows: int
    num_bytes: int
    sha256: bytes
    crc32: int
    """Of the same bytes, quick to take again when they are read back."""
    frames: list[Frame] | None = None
    """Of a compressed piece: where it goes is known only once those before it are, so it is copied there later."""
    is_taken_over: bool = False
    """It lies where an earlier build has written it."""


def shape(context: Context, task: Task) -> ShapedPiece:
    """Written to its place, unless it is there already; one that an earlier build has written is taken from there."""
    known = take_over(task)
    content, shaped = known or _shaped(context, task)
    if shaped.frames is not None:
        if known is None:
            write_atomically(_compressed_file(context, task), content)
        return shaped
    piece, place = task.piece, context.dataset / task.piece.file
    if len(content) != piece.num_bytes:
        raise GristmillError(
            f"{piece.file} at {piece.offset}: {len(content)} bytes where {piece.num_bytes} were announced."
        )
    if known is None or task.known is None or not task.known.lies_at(place, piece.offset):
        _write_at(place, content, piece.offset)
    return shaped


def take_over(task: Task) -> tuple[bytes, ShapedPiece] | None:
    """What an earlier build has written, if it is there."""
    known = task.known
    content = known.read() if known is not None else None
    if known is None or content is None:
        return None
    shaped = ShapedPiece(
        num_rows=known.num_rows,
        num_bytes=known.num_bytes,
        sha256=known.sha256,
        crc32=zlib.crc32(content),
        frames=known.frames,
        is_taken_over=True,
    )
    return content, shaped


def take_compressed(context: Context, task: Task, shaped: ShapedPiece) -> bytes:
    """From where it lies, and stays: whoever puts the pieces together may be killed over it and begin again."""
    if shaped.is_taken_over and task.known is not None:
        return task.known.read_as_it_is()
    return _compressed_file(context, task).read_bytes()


def _compressed_file(context: Context, task: Task) -> Path:
    return context.scratch / f"{task.key}.zst"


def _shaped(context: Context, task: Task) -> tuple[bytes, ShapedPiece]:
    row_format, window_shape = context.row_format, context.window_shape
    rows: list[bytes] = []
    for document, block in read_blocks(context.prepared, task.piece.documents, context.tokenizer.vocab_size):
        rows += row_format.format_rows(rows_of(document, block, window_shape))
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
