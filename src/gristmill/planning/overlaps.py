"""Measure the rows of prepared documents, for several overlaps at once.

Windows, ids and JSON bytes are counted exactly for every document and overlap, before windows are drawn. For some of
the documents, rows are also formatted and compressed, as JSON and as Parquet. The size of these rows is scaled to all
documents in two parts. The size without overlap is scaled by the compressed size of the bare ids, which is cheap to
measure. The size that overlap adds is scaled by the number of windows that overlap adds. benchmarks/plan.md states
the accuracy.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import zstandard

from gristmill.core.errors import MissingExtraError
from gristmill.core.partition import consecutive_groups
from gristmill.core.progress import MapFunction
from gristmill.core.records import PlacedDocument, Split
from gristmill.core.schema import Schema
from gristmill.formats.document_columns import Rows, batch_from_rows, emitted_tokens_per_row
from gristmill.formats.jsonl import PIECE_BYTES
from gristmill.formats.jsonl_rows import row_lines, row_sizes
from gristmill.formats.parquet import num_parquet_bytes
from gristmill.formats.shares import divide_documents_into_shares
from gristmill.formats.zstd import compress_rows, encode_table
from gristmill.pipeline.context import Context
from gristmill.pipeline.document_rows import rows_of
from gristmill.pipeline.parts import Block, join_blocks, read_blocks
from gristmill.windows.cut import WindowShape

TRIAL_TOKENS = 1 << 19
"""Approximate number of tokens of a large dataset that are formatted and compressed at every overlap."""
MIN_TRIAL_STEP = 3
"""A dataset smaller than this multiple of TRIAL_TOKENS is compressed completely, because a part would be too small."""
RUN_BYTES = 64 << 10
"""Size of the rows in one run of documents: large enough to include similar neighbors, small enough for many runs."""
ZSTD_LEVEL = 1
TOKENS_PER_TASK = 1 << 18
"""Approximate number of tokens in the documents of one task."""
FILE_COST_TOKENS = 100
"""Fixed cost of a file, expressed as a number of tokens."""

Counts = npt.NDArray[np.int64]
"""Array with the axes document, overlap and measure. The measures are windows, content tokens, fresh tokens, ids, bytes
of JSON rows, and tokens of a dropped tail."""
WINDOWS, CONTENT, FRESH, IDS, BYTES, TAIL = range(6)


class UnsampledCounts(NamedTuple):
    """Counts before windows are drawn, for every document that may have a window at some overlap, in path order."""

    documents: list[PlacedDocument]
    counts: Counts
    ids_zst_bytes: int
    """Compressed size of the bare ids, and of the text if rows include it."""

    def documents_at(self, column: int) -> list[PlacedDocument]:
        """Return the documents with their sizes, as a build measures them, at the overlap with index `column`."""
        documents_and_counts = zip(self.documents, self.counts[:, column].tolist(), strict=True)
        return [
            msgspec.structs.replace(
                document,
                num_windows=one[WINDOWS],
                num_emitted_tokens=one[IDS],
                num_window_tokens=one[CONTENT],
                num_tail_tokens_dropped=one[TAIL],
                num_cut_tokens=document.num_tokens - one[FRESH] - one[TAIL],
                num_row_bytes=one[BYTES],
            )
            for document, one in documents_and_counts
        ]


class RunCounts(NamedTuple):
    """Counts for consecutive documents."""

    counts: Counts
    ids_zst_bytes: int
    """Compressed size of the bare ids, and of the text if rows include it."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Documents to format as rows, exactly as a build would, at one overlap."""

    overlap: int
    files: list[list[PlacedDocument]]
    """Documents as decided for the overlap, one list per output file."""


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """Measured size and time of formatted rows."""

    ids_zst_bytes: int
    num_windows: int
    num_fresh: int
    """Number of source tokens in the rows, each counted once."""
    jsonl_bytes: int
    jsonl_zst_bytes: int
    seconds_in_worker: float
    """Time to read ids and to cut, format and write windows."""
    seconds_in_parent: float
    """Time to compute digests."""


class ParquetTrials(msgspec.Struct, frozen=True, kw_only=True):
    """Documents to format as Parquet at every overlap, in one process, because pyarrow is slow to import."""

    overlaps: list[Trial]


def run_trial(context: Context, task: Trial | ParquetTrials) -> Any:
    """Format rows. Return a TrialResult, or for ParquetTrials a list with the Parquet size at each overlap."""
    if isinstance(task, Trial):
        return try_jsonl(context, task)
    return [try_parquet(context, one.overlap, one.files) for one in task.overlaps]


def shape_at(context: Context, overlap: int) -> WindowShape:
    return context.window_shape._replace(overlap=overlap)


def count_documents(
    context: Context, overlaps: Sequence[int], documents: list[PlacedDocument], map_tasks: MapFunction
) -> UnsampledCounts:
    """Count the windows of all documents at each overlap.

    A document without windows at the configured overlap may have windows at a different overlap.
    """
    runs = consecutive_groups(documents, lambda one: one.num_tokens + FILE_COST_TOKENS, TOKENS_PER_TASK)
    results = list(map_tasks(partial(count_run, context, overlaps), runs))
    counts = np.concatenate([result.counts for result in results])
    return UnsampledCounts(documents, counts, sum(result.ids_zst_bytes for result in results))


def count_run(context: Context, overlaps: Sequence[int], documents: Sequence[PlacedDocument]) -> RunCounts:
    shapes = [shape_at(context, overlap) for overlap in overlaps]
    counts = np.zeros((len(documents), len(overlaps), TAIL + 1), np.int64)
    blocks = [block for _, block in read_blocks(context.prepared, documents, context.tokenizer.vocab_size)]
    tokens = join_blocks(blocks)
    for column, shape in enumerate(shapes):
        counts[:, column] = _count_rows(context.window_schema, rows_of(documents, tokens, shape))
    return RunCounts(counts, sum(map(_compressed_ids_size, blocks)))


def _count_rows(schema: Schema, rows: Rows) -> Counts:
    """Return the measures of each document: windows, content tokens, fresh tokens, ids, bytes and tail tokens."""
    windows = rows.windows
    per_row = (
        np.ones(rows.num_rows, np.int64),
        windows.ends - windows.starts,
        windows.fresh,
        emitted_tokens_per_row(rows, schema),
        row_sizes(rows, schema),
    )
    return np.stack([*map(rows.sum_per_document, per_row), rows.num_tail_tokens_dropped], axis=1)


def _compressed_ids_size(block: Block) -> int:
    text = b"" if block.text is None else block.text.utf8
    return len(zstandard.compress(block.ids.tobytes() + text, ZSTD_LEVEL))


def _compressed_rows_size(documents: Sequence[Sequence[bytes]]) -> int:
    """Return the compressed size of one piece of the output (rows that a worker writes at once).

    As in a build, no compressed frame extends into the next piece.
    """
    compressed, frames = compress_rows(list(chain.from_iterable(documents)))
    return len(compressed) + len(encode_table(frames))


def _total_size(rows: Sequence[bytes]) -> int:
    return sum(map(len, rows))


def choose_trial_documents(splits: Sequence[Sequence[PlacedDocument]]) -> list[list[PlacedDocument]]:
    """Choose the documents to format, as one list per output file.

    From a small dataset, all documents are chosen, with one file per split. From a large dataset, evenly spaced runs of
    documents with about TRIAL_TOKENS tokens in total are chosen, as one file.
    """
    num_tokens = sum(document.num_tokens + FILE_COST_TOKENS for documents in splits for document in documents)
    step = num_tokens // TRIAL_TOKENS
    if step < MIN_TRIAL_STEP:
        return [list(documents) for documents in splits if documents]
    runs = [
        run for documents in splits for run in consecutive_groups(documents, lambda one: one.num_row_bytes, RUN_BYTES)
    ]
    return [[document for run in runs[min(step // 2, len(runs) - 1) :: step] for document in run]]


def try_jsonl(context: Context, task: Trial) -> TrialResult:
    shape = shape_at(context, task.overlap)
    scratch = context.dataset / f"rows-{task.overlap}"
    ids_zst_bytes = num_windows = num_fresh = jsonl_bytes = zst_bytes = 0
    in_worker = in_parent = 0.0
    for documents in task.files:
        started = time.perf_counter()
        blocks = [block for _, block in read_blocks(context.prepared, documents, context.tokenizer.vocab_size)]
        rows = rows_of(documents, join_blocks(blocks), shape)
        lines = row_lines(rows, context.window_schema)
        content = b"".join(lines)
        scratch.write_bytes(content)
        in_worker += time.perf_counter() - started
        started = time.perf_counter()
        hashlib.sha256(content)
        in_parent += time.perf_counter() - started
        ids_zst_bytes += sum(map(_compressed_ids_size, blocks))
        num_windows += rows.num_rows
        num_fresh += int(rows.windows.fresh.sum())
        jsonl_bytes += len(content)
        zst_bytes += sum(
            map(_compressed_rows_size, consecutive_groups(_by_document(lines, rows), _total_size, PIECE_BYTES))
        )
    scratch.unlink(missing_ok=True)
    return TrialResult(
        ids_zst_bytes=ids_zst_bytes,
        num_windows=num_windows,
        num_fresh=num_fresh,
        jsonl_bytes=jsonl_bytes,
        jsonl_zst_bytes=zst_bytes,
        seconds_in_worker=in_worker,
        seconds_in_parent=in_parent,
    )


def try_parquet(context: Context, overlap: int, files: Sequence[Sequence[PlacedDocument]]) -> int | None:
    """Return the size of the rows as Parquet, or None if pyarrow is not installed."""
    schema = context.window_schema
    num_bytes = 0
    for documents in files:
        blocks = [block for _, block in read_blocks(context.prepared, documents, schema.vocab_size)]
        rows = rows_of(documents, join_blocks(blocks), shape_at(context, overlap))
        counts = np.bincount(rows.document_index, minlength=len(documents)).tolist()
        try:
            for share, _ in divide_documents_into_shares("parquet", Split.TRAIN, schema, [rows.num_rows], counts):
                some = rows.select(np.arange(share.first, share.stop))
                num_bytes += num_parquet_bytes([batch_from_rows(some, schema)], schema)
        except MissingExtraError:
            return None
    return num_bytes


def _by_document(lines: Sequence[bytes], rows: Rows) -> Iterator[Sequence[bytes]]:
    ends = np.searchsorted(rows.document_index, np.arange(len(rows.documents)), "right").tolist()
    return (lines[start:end] for start, end in pairwise([0, *ends]))
