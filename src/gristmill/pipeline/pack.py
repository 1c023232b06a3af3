"""Step 3 with --pack: put several windows or files into one row, and write the rows in every format.

best-fit   packs windows, each with its special tokens, from all files of a split
repo       concatenates the files of a repository (ordered by repo_order.py) with markers between the files, and cuts
           the result into rows of the window length; the remainders of several repositories share rows
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, groupby
from typing import Any

import msgspec
import numpy as np

from gristmill.core.manifest import OrderFacts, PackingFacts
from gristmill.core.progress import Progress
from gristmill.core.records import FileKey, Fim, FimWindow, PlacedDocument, Split
from gristmill.formats.batch import WindowBatch
from gristmill.formats.document_columns import FimColumns, Rows, Tokens, batch_from_rows
from gristmill.formats.jsonl import max_piece_bytes
from gristmill.formats.packed_rows import PackedPart, packed_batch
from gristmill.formats.shares import Share, WrittenDataset, WrittenFiles, divide_into_shares, write_share
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.document_rows import rows_of, windows_of
from gristmill.pipeline.other_formats import MadeFiles, clear_formats, write_shares
from gristmill.pipeline.parts import join_blocks, read_blocks
from gristmill.pipeline.repo_order import order_documents
from gristmill.runners.runner import Runner
from gristmill.tokenizers.sentinels import RepoIds, repo_ids
from gristmill.windows.cut import Indices, Windows, uncut_spans
from gristmill.windows.packing import best_fit

BYTES_PER_ID = 6
"""Approximate size of an id in JSONL. It determines the number of rows per file in every format."""
ROWS_AT_ONCE = 500


class Segment(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A range of a document's tokens in a row, and the special ids before and after the range."""

    group: int
    """Number of the segment's group in the row, counted from 1. A group is a window or, with --pack repo, a
    repository."""
    document_index: int
    """Index of the document in SplitRows.documents."""
    start: int
    end: int
    """End of the range, exclusive. If it equals `start`, the segment has only special ids."""
    window_index: int | None
    """Index of the window in its document, or None if the range ignores window boundaries."""
    ids_before: tuple[int, ...]
    ids_after: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.ids_before) + self.end - self.start + len(self.ids_after)


Row = list[Segment]


class SplitRows(msgspec.Struct, frozen=True):
    documents: list[PlacedDocument]
    """Documents in the order of their rows."""
    rows: list[Row]
    order: OrderFacts | None = None


def pack_all(context: Context, decision: Decision, runner: Runner, progress: Progress) -> MadeFiles:
    """Run step 3 with --pack: write rows of several files in every format."""
    with progress.phase("pack"):
        rows_by_split = pack_rows(context, decision.in_row_order(), runner)
        clear_formats(context)
        tasks = list(packed_tasks(context, rows_by_split))
    files = WrittenDataset()
    with progress.phase("shape", total=sum(task.share.num_rows for task in tasks), unit="rows") as step:
        write = partial(write_packed, context)
        write_shares(write, tasks, files, runner, step, dataset=context.dataset, schema=context.schema)
    files.finish(context.other_formats, context.dataset, context.schema)
    return MadeFiles(
        files,
        {split: rows_by_file(split_rows, context) for split, split_rows in rows_by_split.items()},
        {split: packing_facts(split_rows, context.config.window.length) for split, split_rows in rows_by_split.items()},
        _segments_by_file(rows_by_split) if context.config.window.pack == "repo" else None,
    )


def _segments_by_file(rows_by_split: Mapping[Split, SplitRows]) -> dict[FileKey, int]:
    return {
        document.key: count
        for split_rows in rows_by_split.values()
        for document, count in zip(split_rows.documents, count_segments_by_document(split_rows), strict=True)
    }


def pack_rows(context: Context, documents: Iterable[PlacedDocument], runner: Runner) -> dict[Split, SplitRows]:
    by_split: dict[Split, list[PlacedDocument]] = {split: [] for split in Split}
    for document in documents:
        by_split[document.split].append(document)
    by_repo = context.config.window.pack == "repo"
    length = context.config.window.length
    rows_by_split: dict[Split, SplitRows] = {}
    for split, in_path_order in by_split.items():
        ordered, order = order_documents(context, in_path_order, runner)
        full, partial_rows = _repo_rows(context, ordered) if by_repo else ([], _window_rows(context, ordered))
        sizes = [sum(segment.size for segment in one) for one in partial_rows]
        shared = [_number_groups([partial_rows[number] for number in row]) for row in best_fit(sizes, length)]
        rows_by_split[split] = SplitRows(ordered, sorted([*full, *shared], key=_row_sort_key), order)
    return rows_by_split


def _number_groups(partial_rows: Sequence[Row]) -> Row:
    return [
        msgspec.structs.replace(segment, group=group) for group, row in enumerate(partial_rows, 1) for segment in row
    ]


def _row_sort_key(row: Row) -> tuple[int, int, int]:
    return row[0].document_index, row[0].window_index or 0, row[0].start


def _window_rows(context: Context, documents: Sequence[PlacedDocument]) -> list[Row]:
    schema = context.window_schema
    partial_rows: list[Row] = []
    for document_index, document in enumerate(documents):
        found = windows_of(document, context.window_shape)
        ranges = (found.windows.starts.tolist(), found.windows.ends.tolist(), found.closes(document).tolist())
        for window_index, (start, end, closes) in enumerate(zip(*ranges, strict=True)):
            ids_after = (*schema.suffix, *schema.closing) if closes else schema.suffix
            partial_rows.append([Segment(1, document_index, start, end, window_index, schema.prefix, ids_after)])
    return partial_rows


def _repo_rows(context: Context, documents: Sequence[PlacedDocument]) -> tuple[list[Row], list[Row]]:
    """Return the full rows, and the partly filled rows of each repository."""
    full: list[Row] = []
    partial_rows: list[Row] = []
    length, end_id = context.config.window.length, context.window_schema.end_id
    markers = RepoMarkers(context)
    for _, members in groupby(enumerate(documents), key=lambda one: one[1].repo):
        rows = _RowBuilder(length)
        last, last_end = 0, 0
        for is_first, (index, document) in zip(_first_only(), members, strict=False):
            last, last_end = index, document.num_tokens
            rows.add(index, 0, markers.repo(document) if is_first else ())
            if document.fim is not None:
                rows.add_windows(index, document.fim, markers.file(document))
                continue
            for start, end in uncut_spans(document.num_tokens, [(one.start, one.end) for one in document.cuts]):
                rows.add(index, start, markers.file(document))
                rows.add_tokens(index, start, end)
        rows.add(last, last_end, (end_id,) if end_id is not None else ())
        full += rows.full
        partial_rows += [*rows.ended_early, *([rows.open] if rows.open else [])]
    return full, partial_rows


def _first_only() -> Iterator[bool]:
    yield True
    while True:
        yield False


class _RowBuilder:
    """Builder of the rows of one repository."""

    def __init__(self, length: int) -> None:
        self._length = self._free = length
        self.full: list[Row] = []
        self.ended_early: list[Row] = []
        """Rows that ended early because the next window did not fit."""
        self.open: Row = []

    def add(self, document_index: int, position: int, special_ids: tuple[int, ...]) -> None:
        """Add special ids before the token at `position`. A row that begins with these ids is sorted by `position`."""
        while special_ids:
            fitting, special_ids = special_ids[: self._free], special_ids[self._free :]
            self._append(Segment(1, document_index, position, position, None, fitting, ()))

    def add_tokens(self, document_index: int, start: int, end: int) -> None:
        while start < end:
            stop = min(end, start + self._free)
            self._append(Segment(1, document_index, start, stop, None, (), ()))
            start = stop

    def add_windows(self, document_index: int, fim: Fim, name: tuple[int, ...]) -> None:
        """Add the windows of a document that was rewritten for fill-in-the-middle.

        Each window stays in one row and follows the file name.
        """
        start = 0
        for index, window in enumerate(fim.windows):
            if len(name) + window.num_ids > self._free:
                self.ended_early += [self.open] if self.open else []
                self.open, self._free = [], self._length
            self._append(Segment(1, document_index, start, start + window.num_ids, index, name, ()))
            start += window.num_ids

    def _append(self, segment: Segment) -> None:
        self.open.append(segment)
        self._free -= segment.size
        if not self._free:
            self.full.append(self.open)
            self.open, self._free = [], self._length


class RepoMarkers:
    """Encoder of the marker ids before a repository and before each of its files."""

    def __init__(self, context: Context) -> None:
        self._tokenizer = context.tokenizer
        self._ids: RepoIds = repo_ids(context.tokenizer.definition)

    def repo(self, document: PlacedDocument) -> tuple[int, ...]:
        return self._ids.repo, *self._encode_name(document.repo)

    def file(self, document: PlacedDocument) -> tuple[int, ...]:
        return self._ids.file, *self._encode_name(f"{document.path}\n")

    def _encode_name(self, name: str) -> tuple[int, ...]:
        """Encode a name. Return no ids if the name contains a control token."""
        encoded = self._tokenizer.encode(name.encode())
        return () if encoded.control_id is not None else tuple(encoded.ids.tolist())


def count_segments_by_document(split_rows: SplitRows) -> list[int]:
    """Return, for each document, the number of segments that contain tokens."""
    counts = [0] * len(split_rows.documents)
    for row in split_rows.rows:
        for segment in row:
            counts[segment.document_index] += segment.end > segment.start
    return counts


def packing_facts(split_rows: SplitRows, length: int) -> PackingFacts:
    num_ids = sum(segment.size for row in split_rows.rows for segment in row)
    return PackingFacts(
        rows=len(split_rows.rows),
        segments=sum(count_segments_by_document(split_rows)),
        ids=num_ids,
        empty_share=round(1 - num_ids / (len(split_rows.rows) * length), 6) if split_rows.rows else 0.0,
        order=split_rows.order,
    )


class PackedTask(msgspec.Struct, frozen=True):
    share: Share
    split_rows: SplitRows
    """Documents and rows of the share."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _decode_task, (msgspec.msgpack.encode(self),)


def _decode_task(content: bytes) -> PackedTask:
    return msgspec.msgpack.decode(content, type=PackedTask)


def rows_by_file(split_rows: SplitRows, context: Context) -> list[int]:
    """Return the number of rows in each file of a split, in formats that have several files per split."""
    max_rows = max(1, context.config.output.shard_bytes // (BYTES_PER_ID * context.config.window.length))
    return [min(max_rows, len(split_rows.rows) - start) for start in range(0, len(split_rows.rows), max_rows)]


def packed_tasks(context: Context, rows_by_split: dict[Split, SplitRows]) -> Iterator[PackedTask]:
    for name in context.config.output.formats:
        for split, split_rows in rows_by_split.items():
            # A packed row counts as a document, so a share may begin at any row.
            for share in divide_into_shares(
                name, split, context.schema, rows_by_file(split_rows, context), lambda row: row
            ):
                yield PackedTask(share, _slice_rows(split_rows, share.first, share.stop))


def _slice_rows(split_rows: SplitRows, start: int, stop: int) -> SplitRows:
    rows = split_rows.rows[start:stop]
    new_index_of = {
        index: new_index
        for new_index, index in enumerate(sorted({segment.document_index for row in rows for segment in row}))
    }
    renumbered = [
        [msgspec.structs.replace(segment, document_index=new_index_of[segment.document_index]) for segment in row]
        for row in rows
    ]
    return SplitRows([split_rows.documents[index] for index in new_index_of], renumbered)


def write_packed(context: Context, task: PackedTask) -> WrittenFiles:
    output = context.config.output
    compressed_at = max_piece_bytes(output.shard_bytes) if output.compress == "zstd" else None
    return write_share(task.share, context.dataset, context.schema, _batches(context, task.split_rows), compressed_at)


def _batches(context: Context, split_rows: SplitRows) -> Iterator[WindowBatch]:
    schema = context.window_schema._replace(prefix=(), suffix=(), closing=())
    step = schema.num_rows_at_once(ROWS_AT_ONCE)
    for first in range(0, len(split_rows.rows), step):
        rows = split_rows.rows[first : first + step]
        segments = [segment for row in rows for segment in row if segment.end > segment.start]
        batch = batch_from_rows(_segment_rows(context, split_rows.documents, segments), schema)
        window_indices = count()
        parts_by_row = [
            [
                PackedPart(
                    one.group, one.ids_before, next(window_indices) if one.end > one.start else None, one.ids_after
                )
                for one in row
            ]
            for row in rows
        ]
        yield packed_batch(parts_by_row, batch)


def _storage_key(document: PlacedDocument) -> tuple[str, int]:
    """Return a sort key (part, offset), so that adjacent blocks of a part are read together."""
    return document.part, document.part_offset


def _segment_rows(context: Context, documents: Sequence[PlacedDocument], segments: Sequence[Segment]) -> Rows:
    """Return one row per segment. A segment is a window or, with --pack repo, a range of tokens."""
    indices = sorted({one.document_index for one in segments}, key=lambda index: _storage_key(documents[index]))
    selected = [documents[index] for index in indices]
    tokens = join_blocks([block for _, block in read_blocks(context.prepared, selected, context.tokenizer.vocab_size)])
    new_index_of = {index: new_index for new_index, index in enumerate(indices)}
    document_indices = np.array([new_index_of[segment.document_index] for segment in segments], np.int64)
    if context.config.window.pack == "repo":
        return _range_rows(selected, tokens, document_indices, segments)
    rows = rows_of(selected, tokens, context.window_shape)
    return rows.select(
        np.searchsorted(rows.document_index, document_indices)
        + np.array([segment.window_index for segment in segments], np.int64)
    )


def _range_rows(
    documents: Sequence[PlacedDocument], tokens: Tokens, document_indices: Indices, segments: Sequence[Segment]
) -> Rows:
    """Return rows for arbitrary token ranges, including fill-in-the-middle windows."""
    starts, ends = (np.array([getattr(segment, name) for segment in segments]) for name in ("start", "end"))
    windows = Windows(starts, ends, ends - starts, 0)
    fim_windows = [
        _fim_window(documents[index], segment)
        for index, segment in zip(document_indices.tolist(), segments, strict=True)
    ]
    if not any(fim_windows):
        return Rows(documents, tokens, document_indices, windows)
    file_ranges = [
        (segment.start, segment.end) if window is None else (window.start, window.end)
        for window, segment in zip(fim_windows, segments, strict=True)
    ]
    firsts, lasts = np.array(file_ranges, np.int64).T
    file_windows = Windows(firsts, lasts, lasts - firsts, 0)
    return Rows(documents, tokens, document_indices, windows, file_windows=file_windows, fim=FimColumns.of(fim_windows))


def _fim_window(document: PlacedDocument, segment: Segment) -> FimWindow | None:
    return None if document.fim is None or segment.window_index is None else document.fim.windows[segment.window_index]
