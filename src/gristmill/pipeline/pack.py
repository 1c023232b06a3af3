"""Step 3 with --pack: which windows share a row, and those rows in every format.

best-fit   each file's windows, each with its special tokens; rows are filled from all files of the split
repo       a repository's files one after the other (repo_order.py), markers between them, cut every so many ids; what
           is left of each repository at its end shares rows with others
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
from gristmill.formats.document_columns import FimColumns, Rows, Tokens, batch_of_rows
from gristmill.formats.jsonl import piece_bytes
from gristmill.formats.packed_rows import Placed, packed
from gristmill.formats.shares import AllFiles, Share, WrittenFiles, shares_of, write_share
from gristmill.pipeline.context import Context
from gristmill.pipeline.decision import Decision
from gristmill.pipeline.document_rows import rows_of, shown_windows
from gristmill.pipeline.other_formats import MadeFiles, clear_formats, write_all
from gristmill.pipeline.parts import read_blocks, tokens_of
from gristmill.pipeline.repo_order import laid_out
from gristmill.runners.runner import Runner
from gristmill.tokenizers.sentinels import RepoIds, repo_ids
from gristmill.windows.cut import Indices, Windows, stretches_of
from gristmill.windows.packing import best_fit

BYTES_PER_ID = 6
"""Of JSONL, about: by it a split is cut into files, whatever the format."""
ROWS_AT_ONCE = 500


class Place(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Some of a document's tokens in a row, and the special ids around them."""

    group: int
    document: int
    """By its number in the split."""
    start: int
    end: int
    """Where these are the same: only special ids."""
    number: int | None
    """Of its windows, as they are shown; None: it is cut anywhere."""
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.before) + self.end - self.start + len(self.after)


Row = list[Place]


class SplitRows(msgspec.Struct, frozen=True):
    documents: list[PlacedDocument]
    """In the order in which they are laid out."""
    rows: list[Row]
    order: OrderFacts | None = None


def pack_all(context: Context, decision: Decision, runner: Runner, progress: Progress) -> MadeFiles:
    """Step 3 with --pack: rows of several files, in every format alike."""
    with progress.phase("pack"):
        packs = pack_rows(context, decision.shown(), runner)
        clear_formats(context)
        tasks = list(packed_tasks(context, packs))
    files = AllFiles()
    with progress.phase("shape", total=sum(task.share.num_rows for task in tasks), unit="rows") as step:
        write = partial(write_packed, context)
        write_all(write, tasks, files, runner, step, dataset=context.dataset, schema=context.schema)
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
        own, order = laid_out(context, in_path_order, runner)
        full, loose = _repo_rows(context, own) if by_repo else ([], _window_rows(context, own))
        sizes = [sum(place.size for place in one) for one in loose]
        shared = [_in_groups([loose[number] for number in row]) for row in best_fit(sizes, length)]
        packs[split] = SplitRows(own, sorted([*full, *shared], key=_first_place), order)
    return packs


def _in_groups(loose: Sequence[Row]) -> Row:
    return [msgspec.structs.replace(place, group=group) for group, own in enumerate(loose, 1) for place in own]


def _first_place(row: Row) -> tuple[int, int, int]:
    return row[0].document, row[0].number or 0, row[0].start


def _window_rows(context: Context, documents: Sequence[PlacedDocument]) -> list[Row]:
    schema = context.window_schema
    loose: list[Row] = []
    for number, document in enumerate(documents):
        shown = shown_windows(document, context.window_shape)
        ranges = (shown.windows.starts.tolist(), shown.windows.ends.tolist(), shown.closes(document).tolist())
        for window, (start, end, closes) in enumerate(zip(*ranges, strict=True)):
            after = (*schema.suffix, *schema.closing) if closes else schema.suffix
            loose.append([Place(1, number, start, end, window, schema.prefix, after)])
    return loose


def _repo_rows(context: Context, documents: Sequence[PlacedDocument]) -> tuple[list[Row], list[Row]]:
    """Those that are full, and what is left of each repository."""
    full: list[Row] = []
    loose: list[Row] = []
    length, end_id = context.config.window.length, context.window_schema.end_id
    markers = RepoMarkers(context)
    for _, members in groupby(enumerate(documents), key=lambda one: one[1].repo):
        rows = _Filling(length)
        last, last_end = 0, 0
        for is_first, (number, document) in zip(_first_only(), members, strict=False):
            last, last_end = number, document.num_tokens
            rows.add(number, 0, markers.repo(document) if is_first else ())
            if document.fim is not None:
                rows.add_windows(number, document.fim, markers.file(document))
                continue
            for start, end in stretches_of(document.num_tokens, [(one.start, one.end) for one in document.cuts]):
                rows.add(number, start, markers.file(document))
                rows.add_tokens(number, start, end)
        rows.add(last, last_end, (end_id,) if end_id is not None else ())
        full += rows.full
        loose += [*rows.short, *([rows.open] if rows.open else [])]
    return full, loose


def _first_only() -> Iterator[bool]:
    yield True
    while True:
        yield False


class _Filling:
    """Rows of one repository, as ids come in."""

    def __init__(self, length: int) -> None:
        self._length = self._room = length
        self.full: list[Row] = []
        self.short: list[Row] = []
        """Rows that ended early, as the next window did not fit."""
        self.open: Row = []

    def add(self, document: int, at: int, special: tuple[int, ...]) -> None:
        """Special ids before the token at this place, by which rows that begin with them are sorted."""
        while special:
            now, special = special[: self._room], special[self._room :]
            self._take(Place(1, document, at, at, None, now, ()))

    def add_tokens(self, document: int, start: int, end: int) -> None:
        while start < end:
            stop = min(end, start + self._room)
            self._take(Place(1, document, start, stop, None, (), ()))
            start = stop

    def add_windows(self, document: int, fim: Fim, name: tuple[int, ...]) -> None:
        """Add each window of a rewritten document whole, the file's name before it."""
        start = 0
        for number, window in enumerate(fim.windows):
            if len(name) + window.num_ids > self._room:
                self.short += [self.open] if self.open else []
                self.open, self._room = [], self._length
            self._take(Place(1, document, start, start + window.num_ids, number, name, ()))
            start += window.num_ids

    def _take(self, place: Place) -> None:
        self.open.append(place)
        self._room -= place.size
        if not self._room:
            self.full.append(self.open)
            self.open, self._room = [], self._length


class RepoMarkers:
    """Ids before a repository and before each of its files."""

    def __init__(self, context: Context) -> None:
        self._tokenizer = context.tokenizer
        self._ids: RepoIds = repo_ids(context.tokenizer.definition)

    def repo(self, document: PlacedDocument) -> tuple[int, ...]:
        return self._ids.repo, *self._spelled(document.repo)

    def file(self, document: PlacedDocument) -> tuple[int, ...]:
        return self._ids.file, *self._spelled(f"{document.path}\n")

    def _spelled(self, name: str) -> tuple[int, ...]:
        """Nothing where the tokenizer would make a control token of it."""
        encoded = self._tokenizer.encode(name.encode())
        return () if encoded.control_id is not None else tuple(encoded.ids.tolist())


def num_segments(packs: SplitRows) -> list[int]:
    """Of each document."""
    counts = [0] * len(packs.documents)
    for row in packs.rows:
        for place in row:
            counts[place.document] += place.end > place.start
    return counts


def packing_facts(packs: SplitRows, length: int) -> PackingFacts:
    num_ids = sum(place.size for row in packs.rows for place in row)
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
    """Of the share: its documents, and its rows."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (msgspec.msgpack.encode(self),)


def _unpacked(content: bytes) -> PackedTask:
    return msgspec.msgpack.decode(content, type=PackedTask)


def rows_by_file(packs: SplitRows, context: Context) -> list[int]:
    """In each of a split's files, where a format has several."""
    most = max(1, context.config.output.shard_bytes // (BYTES_PER_ID * context.config.window.length))
    return [min(most, len(packs.rows) - start) for start in range(0, len(packs.rows), most)]


def packed_tasks(context: Context, packs: dict[Split, SplitRows]) -> Iterator[PackedTask]:
    for name in context.config.output.formats:
        for split, own in packs.items():
            # A row stands for itself: where one begins, a document does.
            for share in shares_of(name, split, context.schema, rows_by_file(own, context), lambda row: row):
                yield PackedTask(share, _some_of(own, share.first, share.stop))


def _some_of(packs: SplitRows, start: int, stop: int) -> SplitRows:
    rows = packs.rows[start:stop]
    numbers = {number: index for index, number in enumerate(sorted({place.document for row in rows for place in row}))}
    renumbered = [[msgspec.structs.replace(place, document=numbers[place.document]) for place in row] for row in rows]
    return SplitRows([packs.documents[number] for number in numbers], renumbered)


def write_packed(context: Context, task: PackedTask) -> WrittenFiles:
    output = context.config.output
    compressed_at = piece_bytes(output.shard_bytes) if output.compress == "zstd" else None
    return write_share(task.share, context.dataset, context.schema, _batches(context, task.packs), compressed_at)


def _batches(context: Context, packs: SplitRows) -> Iterator[WindowBatch]:
    schema = context.window_schema._replace(prefix=(), suffix=(), closing=())
    step = schema.num_rows_at_once(ROWS_AT_ONCE)
    for first in range(0, len(packs.rows), step):
        rows = packs.rows[first : first + step]
        shown = [place for row in rows for place in row if place.end > place.start]
        batch = batch_of_rows(_shown_rows(context, packs.documents, shown), schema)
        numbers = count()
        placed = [
            [Placed(one.group, one.before, next(numbers) if one.end > one.start else None, one.after) for one in row]
            for row in rows
        ]
        yield packed(placed, batch)


def _stored_at(document: PlacedDocument) -> tuple[str, int]:
    """Neighbours in a part are read at once, wherever the order of files puts them."""
    return document.part, document.part_offset


def _shown_rows(context: Context, documents: Sequence[PlacedDocument], places: Sequence[Place]) -> Rows:
    """A row for each place: a window of its document, or any range of it."""
    wanted = sorted({place.document for place in places}, key=lambda number: _stored_at(documents[number]))
    chosen = [documents[number] for number in wanted]
    tokens = tokens_of([block for _, block in read_blocks(context.prepared, chosen, context.tokenizer.vocab_size)])
    index_of = {number: index for index, number in enumerate(wanted)}
    of = np.array([index_of[place.document] for place in places], np.int64)
    if context.config.window.pack == "repo":
        return _ranges(chosen, tokens, of, places)
    rows = rows_of(chosen, tokens, context.window_shape)
    return rows.picked(np.searchsorted(rows.of, of) + np.array([place.number for place in places], np.int64))


def _ranges(documents: Sequence[PlacedDocument], tokens: Tokens, of: Indices, places: Sequence[Place]) -> Rows:
    """Any ranges of documents, or whole windows of those that are rewritten for fill in the middle."""
    starts, ends = (np.array([getattr(place, name) for place in places]) for name in ("start", "end"))
    windows = Windows(starts, ends, ends - starts, 0)
    rewritten = [_fim_window(documents[number], place) for number, place in zip(of.tolist(), places, strict=True)]
    if not any(rewritten):
        return Rows(documents, tokens, of, windows)
    in_files = [
        (place.start, place.end) if one is None else (one.start, one.end)
        for one, place in zip(rewritten, places, strict=True)
    ]
    firsts, lasts = np.array(in_files, np.int64).T
    in_file = Windows(firsts, lasts, lasts - firsts, 0)
    return Rows(documents, tokens, of, windows, places=in_file, fim=FimColumns.of(rewritten))


def _fim_window(document: PlacedDocument, place: Place) -> FimWindow | None:
    return None if document.fim is None or place.number is None else document.fim.windows[place.number]
