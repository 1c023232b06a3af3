"""Prepared documents -> what their rows take, for several overlaps at once.

Windows, ids and JSON bytes are counted exactly, for every document and overlap, each window once; what is drawn of them
is another at every overlap, and decided by the steps of a build. Of some documents the rows are made and compressed, as
JSON and as Parquet. How these grow to all of them goes by what the bare ids take when compressed, which costs little,
and for what overlap adds by the windows that it adds (benchmarks/plan.md says how near that comes).
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
from gristmill.core.partition import neighbours
from gristmill.core.progress import MapFunction
from gristmill.core.records import PlacedDocument, Split
from gristmill.core.schema import Schema
from gristmill.formats.document_columns import Rows, batch_of_rows, num_emitted
from gristmill.formats.jsonl import PIECE_BYTES
from gristmill.formats.jsonl_rows import row_lines, row_sizes
from gristmill.formats.parquet import num_parquet_bytes
from gristmill.formats.shares import shares_of_documents
from gristmill.formats.zstd import compress_rows, table_of
from gristmill.pipeline.context import Context
from gristmill.pipeline.document_rows import rows_of
from gristmill.pipeline.parts import Block, read_blocks, tokens_of
from gristmill.windows.cut import WindowShape

SAMPLE_TOKENS = 1 << 19
"""Of a large dataset about so many are formatted and compressed at every overlap."""
MANY_SAMPLES = 3
"""Up to so many of these all of it is: a third is not enough to go by."""
RUN_BYTES = 64 << 10
"""Of rows: long enough to show that neighbours are alike, and short enough to come from everywhere."""
PACKING_LEVEL = 1
COUNTED_TOKENS = 1 << 18
"""Of the documents that one task counts."""
TOKENS_OF_A_FILE = 100
"""What a file costs, however small."""

Counts = npt.NDArray[np.int64]
"""By document, by overlap: windows, content tokens in them, how many of these are fresh, ids, bytes of JSON rows, and
tokens of a tail that was dropped."""
WINDOWS, CONTENT, FRESH, IDS, BYTES, TAIL = range(6)


class Natural(NamedTuple):
    """Every document that may have a window at some overlap, in path order, with each window shown once."""

    documents: list[PlacedDocument]
    counts: Counts
    packed_bytes: int
    """Their bare ids (and text, where it is wanted), compressed."""

    def at(self, column: int) -> list[PlacedDocument]:
        """The documents as a build with that overlap measures them."""
        counted = zip(self.documents, self.counts[:, column].tolist(), strict=True)
        return [
            msgspec.structs.replace(
                document,
                num_windows=one[WINDOWS],
                num_emitted_tokens=one[IDS],
                num_shown_tokens=one[CONTENT],
                num_tail_tokens_dropped=one[TAIL],
                num_cut_tokens=document.num_tokens - one[FRESH] - one[TAIL],
                num_row_bytes=one[BYTES],
            )
            for document, one in counted
        ]


class PieceCounts(NamedTuple):
    counts: Counts
    packed_bytes: int
    """Their bare ids (and text, where it is wanted), compressed."""


class RowsToTry(msgspec.Struct, frozen=True, kw_only=True):
    """Documents whose rows are made as they would be written, at one overlap."""

    overlap: int
    files: list[list[PlacedDocument]]
    """As they are shown at that overlap, each list as one file."""


class RowsTried(msgspec.Struct, frozen=True, kw_only=True):
    packed_bytes: int
    num_windows: int
    num_fresh: int
    """Tokens that they show, each once."""
    jsonl_bytes: int
    jsonl_zst_bytes: int
    seconds_in_worker: float
    """Reading ids, cutting, formatting and writing."""
    seconds_in_parent: float
    """Digests."""


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Documents whose rows are made as Parquet, at every overlap, in one process: the library is slow to import."""

    overlaps: list[RowsToTry]


def try_out(context: Context, task: RowsToTry | Columns) -> Any:
    """RowsTried, or by overlap the bytes of Parquet."""
    if isinstance(task, RowsToTry):
        return try_rows(context, task)
    return [try_parquet(context, one.overlap, one.files) for one in task.overlaps]


def shape_at(context: Context, overlap: int) -> WindowShape:
    return context.window_shape._replace(overlap=overlap)


def count_all(
    context: Context, overlaps: Sequence[int], documents: list[PlacedDocument], map_tasks: MapFunction
) -> Natural:
    """Whatever each has at the configured overlap: with another one a window may be left, or none."""
    runs = neighbours(documents, lambda one: one.num_tokens + TOKENS_OF_A_FILE, COUNTED_TOKENS)
    pieces = list(map_tasks(partial(count, context, overlaps), runs))
    counts = np.concatenate([piece.counts for piece in pieces])
    return Natural(documents, counts, sum(piece.packed_bytes for piece in pieces))


def count(context: Context, overlaps: Sequence[int], documents: Sequence[PlacedDocument]) -> PieceCounts:
    shapes = [shape_at(context, overlap) for overlap in overlaps]
    counts = np.zeros((len(documents), len(overlaps), TAIL + 1), np.int64)
    blocks = [block for _, block in read_blocks(context.prepared, documents, context.tokenizer.vocab_size)]
    tokens = tokens_of(blocks)
    for number, shape in enumerate(shapes):
        counts[:, number] = _counts(context.window_schema, rows_of(documents, tokens, shape))
    return PieceCounts(counts, sum(map(_num_packed, blocks)))


def _counts(schema: Schema, rows: Rows) -> Counts:
    """Of each document."""
    windows = rows.windows
    per_row = (
        np.ones(rows.num_rows, np.int64),
        windows.ends - windows.starts,
        windows.fresh,
        num_emitted(rows, schema),
        row_sizes(rows, schema),
    )
    return np.stack([*map(rows.per_document, per_row), rows.num_tail_tokens_dropped], axis=1)


def _num_packed(block: Block) -> int:
    text = b"" if block.text is None else block.text.utf8
    return len(zstandard.compress(block.ids.tobytes() + text, PACKING_LEVEL))


def _num_compressed(documents: Sequence[Sequence[bytes]]) -> int:
    """A piece of the output, as a build makes them: no frame reaches from one into the next."""
    compressed, frames = compress_rows(list(chain.from_iterable(documents)))
    return len(compressed) + len(table_of(frames))


def _num_bytes(rows: Sequence[bytes]) -> int:
    return sum(map(len, rows))


def some_of(splits: Sequence[Sequence[PlacedDocument]]) -> list[list[PlacedDocument]]:
    """What is compressed: all of a small dataset, a file per split; else every so many runs of neighbours."""
    num_tokens = sum(document.num_tokens + TOKENS_OF_A_FILE for documents in splits for document in documents)
    step = num_tokens // SAMPLE_TOKENS
    if step < MANY_SAMPLES:
        return [list(documents) for documents in splits if documents]
    runs = [run for documents in splits for run in neighbours(documents, lambda one: one.num_row_bytes, RUN_BYTES)]
    return [[document for run in runs[min(step // 2, len(runs) - 1) :: step] for document in run]]


def try_rows(context: Context, task: RowsToTry) -> RowsTried:
    shape = shape_at(context, task.overlap)
    scratch = context.dataset / f"rows-{task.overlap}"
    packed_bytes = num_windows = num_fresh = jsonl_bytes = zst_bytes = 0
    in_worker = in_parent = 0.0
    for documents in task.files:
        started = time.perf_counter()
        blocks = [block for _, block in read_blocks(context.prepared, documents, context.tokenizer.vocab_size)]
        rows = rows_of(documents, tokens_of(blocks), shape)
        lines = row_lines(rows, context.window_schema)
        content = b"".join(lines)
        scratch.write_bytes(content)
        in_worker += time.perf_counter() - started
        started = time.perf_counter()
        hashlib.sha256(content)
        in_parent += time.perf_counter() - started
        packed_bytes += sum(map(_num_packed, blocks))
        num_windows += rows.num_rows
        num_fresh += int(rows.windows.fresh.sum())
        jsonl_bytes += len(content)
        zst_bytes += sum(map(_num_compressed, neighbours(_by_document(lines, rows), _num_bytes, PIECE_BYTES)))
    scratch.unlink(missing_ok=True)
    return RowsTried(
        packed_bytes=packed_bytes,
        num_windows=num_windows,
        num_fresh=num_fresh,
        jsonl_bytes=jsonl_bytes,
        jsonl_zst_bytes=zst_bytes,
        seconds_in_worker=in_worker,
        seconds_in_parent=in_parent,
    )


def try_parquet(context: Context, overlap: int, files: Sequence[Sequence[PlacedDocument]]) -> int | None:
    """None: the library is not there."""
    schema = context.window_schema
    num_bytes = 0
    for documents in files:
        blocks = [block for _, block in read_blocks(context.prepared, documents, schema.vocab_size)]
        rows = rows_of(documents, tokens_of(blocks), shape_at(context, overlap))
        counts = np.bincount(rows.of, minlength=len(documents)).tolist()
        try:
            for share, _ in shares_of_documents("parquet", Split.TRAIN, schema, [rows.num_rows], counts):
                some = rows.picked(np.arange(share.first, share.stop))
                num_bytes += num_parquet_bytes([batch_of_rows(some, schema)], schema)
        except MissingExtraError:
            return None
    return num_bytes


def _by_document(lines: Sequence[bytes], rows: Rows) -> Iterator[Sequence[bytes]]:
    ends = np.searchsorted(rows.of, np.arange(len(rows.documents)), "right").tolist()
    return (lines[start:end] for start, end in pairwise([0, *ends]))
