"""Step 3 with --pack: put several windows or files into one row, and write the rows in every format.

best-fit   packs windows, each with its special tokens, from all files of a split
repo       concatenates the files of a repository (ordered by repo_order.py) with markers between them, and cuts them
           into rows of the window length; the remainders of repositories share rows
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
    """A range of a document's tokens in a row, and the special ids around it."""

    group: int
    """Number of its group in the row, from 1. Windows or repositories that share a row are separate groups."""
    document: int
    """Number of the document in the split."""
    start: int
    end: int
    """End of the range. If it equals the start, there are only special ids."""
    window_number: int | None
    """Number among the document's windows, or None if the range ignores window boundaries."""
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.before) + self.end - self.start + len(self.after)


Row = list[Segment]


class SplitRows(msgspec.Struct, frozen=True):
    documents: list[PlacedDocument]
    """Documents in the order of their rows."""
    rows: list[Row]
    order: OrderFacts | None = None


def pack_all(context: Context, decision: Decision, runner: Runner, progress: Progress) -> MadeFiles:
    """Run step 3 with --pack: write rows of several files in every format."""
    with progress.phase("pack"):
        packs = pack_rows(context, decision.in_row_order(), runner)
        clear_formats(context)
        tasks = list(packed_tasks(context, packs))
    files = WrittenDataset()
    with progress.phase("shape", total=sum(task.share.num_rows for task in tasks), unit="rows") as step:
        write = partial(write_packed, context)
        write_shares(write, tasks, files, runner, step, dataset=context.dataset, schema=context.schema)
    files.finish(context.other_formats, context.dataset, context.schema)
    return MadeFiles(
        files,
        {split: rows_by_file(own, context) for split, own in packs.items()},
        {split: packing_facts(own, context.config.window.length) for split, own in packs.items()},
        _segments_by_file(packs) if context.config.window.pack == "repo" else None,
    )


def _segments_by_file(packs: Mapping[Split, SplitRows]) -> dict[FileKey, int]:
    return {
        document.key: count
        for own in packs.values()
        for document, count in zip(own.documents, num_segments(own), strict=True)
    }


def pack_rows(context: Context, documents: Iterable[PlacedDocument], runner: Runner) -> dict[Split, SplitRows]:
    by_split: dict[Split, list[PlacedDocument]] = {split: [] for split in Split}
    for document in documents:
        by_split[document.split].append(document)
    by_repo = context.config.window.pack == "repo"
    length = context.config.window.length
    packs: dict[Split, SplitRows] = {}
    for split, in_path_order in by_split.items():
        own, order = order_documents(context, in_path_order, runner)
        full, partial_rows = _repo_rows(context, own) if by_repo else ([], _window_rows(context, own))
        sizes = [sum(segment.size for segment in one) for one in partial_rows]
        shared = [_number_groups([partial_rows[number] for number in row]) for row in best_fit(sizes, length)]
        packs[split] = SplitRows(own, sorted([*full, *shared], key=_row_sort_key), order)
    return packs


def _number_groups(partial_rows: Sequence[Row]) -> Row:
    return [
        msgspec.structs.replace(segment, group=group) for group, row in enumerate(partial_rows, 1) for segment in row
    ]


def _row_sort_key(row: Row) -> tuple[int, int, int]:
    return row[0].document, row[0].window_number or 0, row[0].start


def _window_rows(context: Context, documents: Sequence[PlacedDocument]) -> list[Row]:
    schema = context.window_schema
    partial_rows: list[Row] = []
    for number, document in enumerate(documents):
        own = windows_of(document, context.window_shape)
        ranges = (own.windows.starts.tolist(), own.windows.ends.tolist(), own.closes(document).tolist())
        for index, (start, end, closes) in enumerate(zip(*ranges, strict=True)):
            after = (*schema.suffix, *schema.closing) if closes else schema.suffix
            partial_rows.append([Segment(1, number, start, end, index, schema.prefix, after)])
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
        for is_first, (number, document) in zip(_first_only(), members, strict=False):
            last, last_end = number, document.num_tokens
            rows.add(number, 0, markers.repo(document) if is_first else ())
            if document.fim is not None:
                rows.add_windows(number, document.fim, markers.file(document))
                continue
            for start, end in uncut_spans(document.num_tokens, [(one.start, one.end) for one in document.cuts]):
                rows.add(number, start, markers.file(document))
                rows.add_tokens(number, start, end)
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

    def add(self, document: int, position: int, special_ids: tuple[int, ...]) -> None:
        """Add special ids before the token at `position`. Rows that start with them are sorted by that position."""
        while special_ids:
            fitting, special_ids = special_ids[: self._free], special_ids[self._free :]
            self._append(Segment(1, document, position, position, None, fitting, ()))

    def add_tokens(self, document: int, start: int, end: int) -> None:
        while start < end:
            stop = min(end, start + self._free)
            self._append(Segment(1, document, start, stop, None, (), ()))
            start = stop

    def add_windows(self, document: int, fim: Fim, name: tuple[int, ...]) -> None:
        """Add the windows of a rewritten document. None is divided, and the file's name precedes each."""
        start = 0
        for number, window in enumerate(fim.windows):
            if len(name) + window.num_ids > self._free:
                self.ended_early += [self.open] if self.open else []
                self.open, self._free = [], self._length
            self._append(Segment(1, document, start, start + window.num_ids, number, name, ()))
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
        """Encode a name. Return no ids if it would become a control token."""
        encoded = self._tokenizer.encode(name.encode())
        return () if encoded.control_id is not None else tuple(encoded.ids.tolist())


def num_segments(packs: SplitRows) -> list[int]:
    """Count the segments of each document."""
    counts = [0] * len(packs.documents)
    for row in packs.rows:
        for segment in row:
            counts[segment.document] += segment.end > segment.start
    return counts


def packing_facts(packs: SplitRows, length: int) -> PackingFacts:
    num_ids = sum(segment.size for row in packs.rows for segment in row)
    return PackingFacts(
        rows=len(packs.rows),
        segments=sum(num_segments(packs)),
        ids=num_ids,
        empty_share=round(1 - num_ids / (len(packs.rows) * length), 6) if packs.rows else 0.0,
        order=packs.order,
    )


class PackedTask(msgspec.Struct, frozen=True):
    share: Share
    packs: SplitRows
    """Documents and rows of the share."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (msgspec.msgpack.encode(self),)


def _unpacked(content: bytes) -> PackedTask:
    return msgspec.msgpack.decode(content, type=PackedTask)


def rows_by_file(packs: SplitRows, context: Context) -> list[int]:
    """Return the number of rows in each file of a split, for formats with several files."""
    max_rows = max(1, context.config.output.shard_bytes // (BYTES_PER_ID * context.config.window.length))
    return [min(max_rows, len(packs.rows) - start) for start in range(0, len(packs.rows), max_rows)]


def packed_tasks(context: Context, packs: dict[Split, SplitRows]) -> Iterator[PackedTask]:
    for name in context.config.output.formats:
        for split, own in packs.items():
            # A packed row counts as a document, so a share may begin at any row.
            for share in divide_into_shares(name, split, context.schema, rows_by_file(own, context), lambda row: row):
                yield PackedTask(share, _slice_rows(own, share.first, share.stop))


def _slice_rows(packs: SplitRows, start: int, stop: int) -> SplitRows:
    rows = packs.rows[start:stop]
    numbers = {
        number: index for index, number in enumerate(sorted({segment.document for row in rows for segment in row}))
    }
    renumbered = [
        [msgspec.structs.replace(segment, document=numbers[segment.document]) for segment in row] for row in rows
    ]
    return SplitRows([packs.documents[number] for number in numbers], renumbered)


def write_packed(context: Context, task: PackedTask) -> WrittenFiles:
    output = context.config.output
    compressed_at = max_piece_bytes(output.shard_bytes) if output.compress == "zstd" else None
    return write_share(task.share, context.dataset, context.schema, _batches(context, task.packs), compressed_at)


def _batches(context: Context, packs: SplitRows) -> Iterator[WindowBatch]:
    schema = context.window_schema._replace(prefix=(), suffix=(), closing=())
    step = schema.num_rows_at_once(ROWS_AT_ONCE)
    for first in range(0, len(packs.rows), step):
        rows = packs.rows[first : first + step]
        segments = [segment for row in rows for segment in row if segment.end > segment.start]
        batch = batch_from_rows(_segment_rows(context, packs.documents, segments), schema)
        numbers = count()
        placed = [
            [
                PackedPart(one.group, one.before, next(numbers) if one.end > one.start else None, one.after)
                for one in row
            ]
            for row in rows
        ]
        yield packed_batch(placed, batch)


def _storage_key(document: PlacedDocument) -> tuple[str, int]:
    """Sort key by which adjacent blocks of a part are read together, regardless of the order of files."""
    return document.part, document.part_offset


def _segment_rows(context: Context, documents: Sequence[PlacedDocument], segments: Sequence[Segment]) -> Rows:
    """Return a row for each segment, which is a window or any range of its document."""
    numbers = sorted({segment.document for segment in segments}, key=lambda number: _storage_key(documents[number]))
    selected = [documents[number] for number in numbers]
    tokens = join_blocks([block for _, block in read_blocks(context.prepared, selected, context.tokenizer.vocab_size)])
    index_of = {number: index for index, number in enumerate(numbers)}
    document_numbers = np.array([index_of[segment.document] for segment in segments], np.int64)
    if context.config.window.pack == "repo":
        return _range_rows(selected, tokens, document_numbers, segments)
    rows = rows_of(selected, tokens, context.window_shape)
    return rows.select(
        np.searchsorted(rows.document_index, document_numbers)
        + np.array([segment.window_number for segment in segments], np.int64)
    )


def _range_rows(
    documents: Sequence[PlacedDocument], tokens: Tokens, document_numbers: Indices, segments: Sequence[Segment]
) -> Rows:
    """Return rows for any ranges of documents, and for windows rewritten for fill in the middle."""
    starts, ends = (np.array([getattr(segment, name) for segment in segments]) for name in ("start", "end"))
    windows = Windows(starts, ends, ends - starts, 0)
    rewritten = [
        _fim_window(documents[number], segment)
        for number, segment in zip(document_numbers.tolist(), segments, strict=True)
    ]
    if not any(rewritten):
        return Rows(documents, tokens, document_numbers, windows)
    in_files = [
        (segment.start, segment.end) if window is None else (window.start, window.end)
        for window, segment in zip(rewritten, segments, strict=True)
    ]
    firsts, lasts = np.array(in_files, np.int64).T
    in_file = Windows(firsts, lasts, lasts - firsts, 0)
    return Rows(documents, tokens, document_numbers, windows, file_windows=in_file, fim=FimColumns.of(rewritten))


def _fim_window(document: PlacedDocument, segment: Segment) -> FimWindow | None:
    return (
        None if document.fim is None or segment.window_number is None else document.fim.windows[segment.window_number]
    )
