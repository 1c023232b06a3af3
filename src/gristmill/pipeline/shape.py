"""Step 3, over pieces of the output: cut · window · format -> bytes at their place in the output."""

import hashlib
import os
import zlib
from pathlib import Path

import msgspec

from gristmill.core.errors import GristmillError
from gristmill.core.layout import write_atomically
from gristmill.core.names import counted
from gristmill.core.plain_files import read_plain
from gristmill.formats.zstd import Frame, compress_rows
from gristmill.pipeline.context import Context
from gristmill.pipeline.document_rows import rows_of
from gristmill.pipeline.parts import read_blocks
from gristmill.pipeline.pieces import KnownPiece, Task


class ShapedPiece(msgspec.Struct, frozen=True, kw_only=True):
    num_rows: int
    num_bytes: int
    sha256: bytes
    crc32: int
    """Of the same bytes, quick to take again when they are read back."""
    content: bytes
    """The digest of each row: what is in it, however it is written."""
    frames: list[Frame] | None = None
    """Of a compressed piece: where it goes is known only once those before it are, so it is copied there later."""
    is_taken_over: bool = False
    """It lies where an earlier build has written it."""


def shape(context: Context, task: Task) -> ShapedPiece:
    """Written to its place, unless it is there already; one that an earlier build has written is taken from there."""
    piece, place = task.piece, context.dataset / task.piece.file
    taken_over = _take_over(task.known) if task.known is not None else None
    content, shaped = taken_over or _shaped(context, task)
    if shaped.frames is not None:
        if taken_over is None:
            write_atomically(_compressed_file(context, task), content, is_synced=False)
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


def compressed_content(context: Context, task: Task, shaped: ShapedPiece) -> bytes:
    """From where it lies."""
    if shaped.is_taken_over:
        assert task.known is not None, "or it would not have been taken over"
        return task.known.read_unchecked()
    return read_plain(_compressed_file(context, task))


def forget_compressed(context: Context, task: Task) -> None:
    """Once it has been copied to its place, by a build that does not go on from there if it is killed."""
    _compressed_file(context, task).unlink(missing_ok=True)


def _compressed_file(context: Context, task: Task) -> Path:
    return context.scratch / f"{task.key}.zst"


def _shaped(context: Context, task: Task) -> tuple[bytes, ShapedPiece]:
    row_format, window_shape = context.row_format, context.window_shape
    rows: list[bytes] = []
    digests: list[bytes] = []
    for document, block in read_blocks(context.prepared, task.piece.documents, context.tokenizer.vocab_size):
        documents_rows = rows_of(document, block, window_shape)
        rows += row_format.format_rows(documents_rows)
        digests += row_format.row_digests(documents_rows, task.piece.split)
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
