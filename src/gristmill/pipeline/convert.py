"""Step 3 for every format but JSONL: all rows of a shard, or of a split, in order -> a format's files.

They come from the documents, not from other rows: no format is written by way of another.
"""

import shutil
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from gristmill.core.records import PreparedDocument, Split
from gristmill.formats.document_batches import batches_of
from gristmill.formats.format import folder_of, format_named
from gristmill.formats.shares import Share, WrittenFiles, shares_of, write_share
from gristmill.pipeline.context import Context
from gristmill.pipeline.decide import Piece
from gristmill.pipeline.document_rows import rows_of
from gristmill.pipeline.parts import read_blocks


class FormatTask(msgspec.Struct, frozen=True):
    share: Share
    documents: list[PreparedDocument]

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


def clear_formats(context: Context) -> None:
    """Their folders are new: an earlier attempt may have left something."""
    for name in context.other_formats:
        folder = folder_of(context.dataset, name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()


def num_rows_by_file(pieces: Sequence[Piece]) -> dict[Split, list[int]]:
    """Of each split, whose several files all formats that have such cut alike."""
    rows: dict[Split, list[int]] = {split: [] for split in Split}
    for (split, _), own in groupby(pieces, key=lambda piece: (piece.split, piece.file)):
        rows[split].append(_num_rows(_documents(own)))
    return rows


def _documents(pieces: Any) -> list[PreparedDocument]:
    return [document for piece in pieces for document in piece.documents]


def _num_rows(documents: Sequence[PreparedDocument]) -> int:
    return sum(document.num_windows for document in documents)


def write_format(context: Context, task: FormatTask) -> WrittenFiles:
    blocks = read_blocks(context.prepared, task.documents, context.tokenizer.vocab_size)
    rows = (rows_of(document, block, context.window_shape) for document, block in blocks)
    return write_share(task.share, context.dataset, context.schema, batches_of(rows, context.schema))
