"""Prepared documents -> what their rows take, for several overlaps at once.

Windows, ids and JSON bytes are counted exactly, for every document. What compresses is compressed: all of it, or some
runs of neighbours, since the ratio of one twentieth is that of all to within a few percent.
"""

import hashlib
import time
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.errors import MissingExtraError
from gristmill.formats.jsonl import id_offsets
from gristmill.formats.parquet import num_parquet_bytes
from gristmill.formats.zstd import FRAME_BYTES, compress_rows, table_of
from gristmill.records import PreparedDocument
from gristmill.shaping.windows import WindowShape
from gristmill.steps.context import Context
from gristmill.steps.neighbours import neighbours
from gristmill.steps.rows import rows_of
from gristmill.steps.shards import read_blocks

SAMPLE_TOKENS = 1 << 20
"""Formatted and compressed at every overlap: a quarter of a second on two cores."""
TOKENS_OF_A_FILE = 100
"""What a file costs, however small."""

Counts = npt.NDArray[np.int64]
"""By document, by overlap: windows, content tokens in them, how many of these are fresh, ids, bytes of JSON rows."""
WINDOWS, CONTENT, FRESH, IDS, BYTES = range(5)


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Documents whose rows are made as they would be written, at one overlap."""

    overlap: int
    files: list[list[PreparedDocument]]
    """Each list as one file."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    jsonl_bytes: int
    jsonl_zst_bytes: int
    parquet_bytes: int | None
    seconds_in_worker: float
    """Formatting and writing."""
    seconds_in_parent: float
    """Digests."""


def shape_at(context: Context, overlap: int) -> WindowShape:
    return context.window_shape._replace(overlap=overlap)


def count(context: Context, overlaps: Sequence[int], documents: Sequence[PreparedDocument]) -> Counts:
    row_format = context.row_format
    shapes = [shape_at(context, overlap) for overlap in overlaps]
    counts = np.zeros((len(documents), len(overlaps), 5), np.int64)
    blocks = read_blocks(context.prepared, documents, context.tokenizer.vocab_size)
    for number, (document, block) in enumerate(blocks):
        offsets = id_offsets(block.ids)
        for column, shape in enumerate(shapes):
            rows = rows_of(document, block, shape)
            windows = rows.windows
            if len(windows):
                counts[number, column] = (
                    len(windows),
                    (windows.ends - windows.starts).sum(),
                    windows.fresh.sum(),
                    row_format.num_emitted(windows),
                    row_format.num_row_bytes(rows, offsets),
                )
    return counts


def some_of(splits: Sequence[Sequence[PreparedDocument]]) -> list[list[PreparedDocument]]:
    """What is compressed: all of a small dataset, a file per split; else every so many runs of a frame's size."""
    num_tokens = sum(document.num_tokens + TOKENS_OF_A_FILE for documents in splits for document in documents)
    step = -(-num_tokens // SAMPLE_TOKENS)
    if step <= 1:
        return [list(documents) for documents in splits if documents]
    runs = [run for documents in splits for run in neighbours(documents, lambda one: one.num_row_bytes, FRAME_BYTES)]
    return [[document for run in runs[step // 2 :: step] for document in run]]


def measure(context: Context, task: Rows) -> Sizes:
    shape = shape_at(context, task.overlap)
    row_format, vocab_size = context.row_format, context.tokenizer.vocab_size
    scratch = context.dataset / f"rows-{task.overlap}"
    jsonl_bytes = zst_bytes = 0
    parquet_bytes: int | None = 0
    in_worker = in_parent = 0.0
    for documents in task.files:
        blocks = read_blocks(context.prepared, documents, vocab_size)
        made = [one for document, block in blocks if len((one := rows_of(document, block, shape)).windows)]
        if not made:
            continue
        started = time.perf_counter()
        rows = [row for one in made for row in row_format.format_rows(one)]
        content = b"".join(rows)
        scratch.write_bytes(content)
        in_worker += time.perf_counter() - started
        started = time.perf_counter()
        hashlib.sha256(content)
        in_parent += time.perf_counter() - started
        compressed, frames = compress_rows(rows)
        jsonl_bytes += len(content)
        zst_bytes += len(compressed) + len(table_of(frames))
        try:
            parquet_bytes = (parquet_bytes or 0) + num_parquet_bytes(made, row_format, vocab_size)
        except MissingExtraError:
            parquet_bytes = None
    scratch.unlink(missing_ok=True)
    return Sizes(
        jsonl_bytes=jsonl_bytes,
        jsonl_zst_bytes=zst_bytes,
        parquet_bytes=parquet_bytes,
        seconds_in_worker=in_worker,
        seconds_in_parent=in_parent,
    )
