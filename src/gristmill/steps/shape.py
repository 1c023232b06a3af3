"""Step 3, over pieces of the output: cut · window · format -> bytes at their place in the output."""

import os

import msgspec

from gristmill.errors import GristmillError
from gristmill.formats.zstd import Frame, compress_rows
from gristmill.steps.context import Context
from gristmill.steps.decide import Piece
from gristmill.steps.rows import rows_of
from gristmill.steps.shards import read_blocks


class ShapedPiece(msgspec.Struct, frozen=True, kw_only=True):
    num_rows: int
    compressed: bytes | None = None
    """Where a compressed piece goes is known only once those before it are: its bytes travel, a few percent."""
    frames: list[Frame] | None = None


def shape(context: Context, piece: Piece) -> ShapedPiece:
    row_format, window_shape = context.row_format, context.window_shape
    rows: list[bytes] = []
    for document, block in read_blocks(context.prepared, piece.documents, context.tokenizer.vocab_size):
        rows += row_format.format_rows(rows_of(document, block, window_shape))
    if context.config.output.compress == "zstd":
        compressed, frames = compress_rows(rows)
        return ShapedPiece(num_rows=len(rows), compressed=compressed, frames=frames)
    content = b"".join(rows)
    if len(content) != piece.num_bytes:
        raise GristmillError(
            f"{piece.file} at {piece.offset}: {len(content)} bytes where {piece.num_bytes} were announced."
        )
    _write_at(context.dataset / piece.file, content, piece.offset)
    return ShapedPiece(num_rows=len(rows))


def _write_at(path: os.PathLike[str], content: bytes, offset: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(content)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written
    finally:
        os.close(descriptor)
