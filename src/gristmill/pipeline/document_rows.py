"""Windows and rows of documents. All steps use these functions, so that their results agree.

A document may be a file, a file rewritten for fill-in-the-middle, or a variant of a file. The windows of most variants
are cut from one text. A variant with noise has independent windows: each of them is made from a range of the file.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.partition import consecutive_groups
from gristmill.core.progress import MapFunction
from gristmill.core.records import Cut, Fim, FimWindow, PlacedDocument, Variant
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.document_columns import (
    ROWS_AT_ONCE,
    FimColumns,
    Rows,
    Tokens,
    batch_from_rows,
    emitted_tokens_per_row,
)
from gristmill.formats.jsonl_rows import row_sizes
from gristmill.pipeline.cache import read_cached, write_cached
from gristmill.pipeline.context import Context
from gristmill.pipeline.parts import Block, join_blocks, read_blocks
from gristmill.windows.cut import (
    Indices,
    Windows,
    WindowShape,
    concatenate_windows,
    cut,
    cut_all,
    cut_outside,
    drop_touched_windows,
    drop_windows,
    lines_between,
)
from gristmill.windows.sampling import drawn_window_indices, drawn_windows


class DocumentWindows(NamedTuple):
    """Windows of a document in the order of its rows."""

    windows: Windows
    file_ranges: Windows | None
    """Token range of each window in the file, or None if `windows` already holds these ranges."""
    repeats: Indices | None
    """Number of earlier occurrences of each window, or None if no window is repeated."""
    fim: list[FimWindow] | None = None
    """Fill-in-the-middle windows, or None if the document is not rewritten."""

    def fim_windows(self) -> Sequence[FimWindow | None]:
        return [None] * len(self.windows) if self.fim is None else self.fim

    def closes(self, document: PlacedDocument) -> npt.NDArray[np.bool_]:
        """Return, for each window, whether the special ids that end a document follow the window.

        They never follow a window with noise.
        """
        if self.fim is None or document.fim is None:
            last: npt.NDArray[np.bool_] = self.windows.ends == document.num_tokens
            return last if self.file_ranges is None else np.zeros_like(last)
        num_tokens, closes = document.fim.num_file_tokens, document.fim.adds_closing_ids
        return np.array([closes if one.form else one.end == num_tokens for one in self.fim], np.bool_)


def windows_of(document: PlacedDocument, shape: WindowShape) -> DocumentWindows:
    if document.fim is not None:
        return _rewritten_windows(document, document.fim)
    if document.variant is not None and not document.variant.is_text:
        return DocumentWindows(*_independent_windows(document, document.variant), None)
    windows, repeats = drawn_windows(natural_windows(document, shape), document.draw, document.key)
    return DocumentWindows(windows, None, repeats)


def rows_of(documents: Sequence[PlacedDocument], tokens: Tokens, shape: WindowShape) -> Rows:
    """Return the rows of these documents, one document after the other."""
    counts, windows, tails = cut_all(np.diff(tokens.edges), shape)
    irregular = {
        index: windows_of(document, shape)
        for index, document in enumerate(documents)
        if document.cuts or document.draw is not None or document.variant is not None or document.fim is not None
    }
    if not irregular:
        document_indices = np.repeat(np.arange(len(documents)), counts)
        return Rows(documents, tokens, document_indices, windows, num_tail_tokens_dropped=tails)
    first_window = (np.cumsum(counts) - counts).tolist()
    num_windows = counts.tolist()
    windows_by_document = [
        irregular[index]
        if index in irregular
        else DocumentWindows(_window_range(windows, first_window[index], num_windows[index]), None, None)
        for index in range(len(documents))
    ]
    tails[list(irregular)] = [one.windows.num_tail_tokens_dropped for one in irregular.values()]
    has_file_ranges = any(one.file_ranges is not None for one in windows_by_document)
    has_repeats = any(one.repeats is not None for one in windows_by_document)
    has_fim = any(one.fim is not None for one in windows_by_document)
    return Rows(
        documents=documents,
        tokens=tokens,
        document_index=np.repeat(np.arange(len(documents)), [len(one.windows) for one in windows_by_document]),
        windows=concatenate_windows([one.windows for one in windows_by_document]),
        file_windows=concatenate_windows([one.file_ranges or one.windows for one in windows_by_document])
        if has_file_ranges
        else None,
        repeats=np.concatenate([_repeats(one) for one in windows_by_document]) if has_repeats else None,
        ends_document=np.concatenate(
            [one.closes(document) for one, document in zip(windows_by_document, documents, strict=True)]
        )
        if has_file_ranges
        else None,
        fim=FimColumns.of([window for one in windows_by_document for window in one.fim_windows()]) if has_fim else None,
        num_tail_tokens_dropped=tails,
    )


def batches_of(context: Context, documents: Sequence[PlacedDocument]) -> Iterator[WindowBatch]:
    """Yield batches of up to ROWS_AT_ONCE rows (fewer if rows are long), or of a single document that has more rows."""
    schema = context.window_schema
    max_rows = schema.num_rows_at_once(ROWS_AT_ONCE)
    blocks = read_blocks(context.prepared, documents, schema.vocab_size)
    for run in consecutive_groups(blocks, lambda one: one[0].num_windows, max_rows):
        rows = rows_of(
            [document for document, _ in run], join_blocks([block for _, block in run]), context.window_shape
        )
        yield batch_from_rows(rows, schema)


def _window_range(windows: Windows, first: int, count: int) -> Windows:
    selected = slice(first, first + count)
    return Windows(windows.starts[selected], windows.ends[selected], windows.fresh[selected], 0)


def _repeats(windows: DocumentWindows) -> Indices:
    return np.zeros(len(windows.windows), np.int64) if windows.repeats is None else windows.repeats


def _independent_windows(document: PlacedDocument, variant: Variant) -> tuple[Windows, Windows]:
    """Return the independent windows of a variant, and their token ranges in the file.

    All tokens of these windows are fresh (in no earlier window), and no window is repeated.
    """
    edges, file_ranges = np.array(variant.edges, np.int64), np.array(variant.file_ranges, np.int64).reshape(-1, 2)
    indices = np.arange(len(file_ranges))
    if document.draw is not None:
        indices, _ = drawn_window_indices(len(file_ranges), document.draw, document.key)
    starts, ends = edges[:-1][indices], edges[1:][indices]
    fresh = ends - starts
    return Windows(starts, ends, fresh, 0), Windows(file_ranges[indices, 0], file_ranges[indices, 1], fresh, 0)


def _rewritten_windows(document: PlacedDocument, fim: Fim) -> DocumentWindows:
    """Return the windows of a rewritten document. A repeated window has no fresh tokens."""
    edges = np.cumsum([0, *(one.num_ids for one in fim.windows)])
    indices, repeats = np.arange(len(fim.windows)), None
    if document.draw is not None:
        indices, repeats = drawn_window_indices(len(fim.windows), document.draw, document.key)
    drawn = [fim.windows[index] for index in indices.tolist()]
    starts, ends = np.array([(one.start, one.end) for one in drawn], np.int64).reshape(-1, 2).T
    fresh = ends - starts if repeats is None else (ends - starts) * (repeats == 0)
    windows = Windows(edges[:-1][indices], edges[1:][indices], fresh, 0)
    return DocumentWindows(windows, Windows(starts, ends, fresh, 0), repeats, drawn)


def num_natural_windows(document: PlacedDocument, shape: WindowShape) -> int:
    """Return the number of windows of a document before sampling."""
    if document.fim is not None:
        return len(document.fim.windows)
    return len(natural_windows(msgspec.structs.replace(document, draw=None), shape))


def natural_windows(document: PlacedDocument, shape: WindowShape) -> Windows:
    """Return the windows of a document before sampling. Cut ranges and a variant's unchanged windows are left out."""
    ranges = [(one.start, one.end) for one in document.cuts]
    if not ranges:
        unchanged = document.variant.own_windows if document.variant is not None else ()
        windows = cut(document.num_tokens, shape)
        return drop_windows(windows, unchanged) if unchanged else windows
    if document.drops_touched_windows:
        return drop_touched_windows(cut(document.num_tokens, shape), ranges)
    return cut_outside(document.num_tokens, ranges, shape)


def _with_lines(document: PlacedDocument, block: Block) -> Iterator[Cut]:
    for one in document.cuts:
        first, last = lines_between(one.start, one.end, block.newline_tokens)
        yield Cut(one.start, one.end, one.shared_with, int(first), int(last))


class Sizes(NamedTuple):
    """Sizes of a document's windows in the output. The fields have the same names as in PlacedDocument."""

    num_windows: int
    num_emitted_tokens: int
    num_window_tokens: int
    num_tail_tokens_dropped: int
    num_row_bytes: int


def sizes_of(rows: Rows, schema: Schema) -> list[Sizes]:
    """Return the sizes of each document."""
    windows = rows.windows
    columns = (
        np.bincount(rows.document_index, minlength=len(rows.documents)),
        rows.sum_per_document(emitted_tokens_per_row(rows, schema)),
        rows.sum_per_document(windows.ends - windows.starts),
        rows.num_tail_tokens_dropped,
        rows.sum_per_document(row_sizes(rows, schema)),
    )
    return list(map(Sizes, *(column.tolist() for column in columns)))


def with_sizes(
    documents: Sequence[PlacedDocument], blocks: Sequence[Block], schema: Schema, shape: WindowShape
) -> list[PlacedDocument]:
    """Return the documents with their sizes after cuts and sampling."""
    tokens = join_blocks(blocks)
    rows = rows_of(documents, tokens, shape)
    fresh = rows.sum_per_document(rows.windows.fresh)
    natural = fresh
    if any(one.draw is not None for one in documents):
        unsampled = rows_of([msgspec.structs.replace(one, draw=None) for one in documents], tokens, shape)
        natural = unsampled.sum_per_document(unsampled.windows.fresh)
    facts = zip(documents, blocks, sizes_of(rows, schema), fresh.tolist(), natural.tolist(), strict=True)
    return [
        msgspec.structs.replace(
            document,
            cuts=tuple(_with_lines(document, block)),
            num_cut_tokens=document.num_file_tokens - num_natural - sizes.num_tail_tokens_dropped,
            num_undrawn_tokens=num_natural - num_fresh,
            **sizes._asdict(),
        )
        for document, block, sizes, num_fresh, num_natural in facts
    ]


# Sizes of documents with cuts or sampled windows, cached by everything that determines the rows of a document.

DOCUMENTS_AT_ONCE = 64


class Measures(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Cached sizes of a document. The fields have the same names as in PlacedDocument."""

    num_windows: int
    num_emitted_tokens: int
    num_window_tokens: int
    num_undrawn_tokens: int
    num_tail_tokens_dropped: int
    num_cut_tokens: int
    num_row_bytes: int
    lines: tuple[tuple[int, int], ...]
    """First and last line of each cut."""

    @classmethod
    def of(cls, document: PlacedDocument) -> "Measures":
        return cls(
            num_windows=document.num_windows,
            num_emitted_tokens=document.num_emitted_tokens,
            num_window_tokens=document.num_window_tokens,
            num_undrawn_tokens=document.num_undrawn_tokens,
            num_tail_tokens_dropped=document.num_tail_tokens_dropped,
            num_cut_tokens=document.num_cut_tokens,
            num_row_bytes=document.num_row_bytes,
            lines=tuple((one.first_line, one.last_line) for one in document.cuts),
        )

    def apply_to(self, document: PlacedDocument) -> PlacedDocument:
        return msgspec.structs.replace(
            document,
            num_windows=self.num_windows,
            num_emitted_tokens=self.num_emitted_tokens,
            num_window_tokens=self.num_window_tokens,
            num_undrawn_tokens=self.num_undrawn_tokens,
            num_tail_tokens_dropped=self.num_tail_tokens_dropped,
            num_cut_tokens=self.num_cut_tokens,
            num_row_bytes=self.num_row_bytes,
            cuts=tuple(
                Cut(one.start, one.end, one.shared_with, *lines)
                for one, lines in zip(document.cuts, self.lines, strict=True)
            ),
        )


def measure_cached(
    context: Context, documents: Sequence[PlacedDocument], map_tasks: MapFunction, *, name: str
) -> list[PlacedDocument]:
    """Return the documents with their sizes after cuts and sampling. `name` is the file name of the cache."""
    path, rows_key = context.folder / name, context.rows_key
    cached = read_cached(path, rows_key, dict[bytes, Measures]) or {}
    keys = [_document_key(document) for document in documents]
    new = [document for document, key in zip(documents, keys, strict=True) if key not in cached]
    runs = [new[at : at + DOCUMENTS_AT_ONCE] for at in range(0, len(new), DOCUMENTS_AT_ONCE)]
    found = (document for run in map_tasks(partial(measure, context), runs) for document in run)
    results = [
        cached[key].apply_to(document) if key in cached else next(found)
        for document, key in zip(documents, keys, strict=True)
    ]
    write_cached(path, rows_key, {key: Measures.of(one) for key, one in zip(keys, results, strict=True)})
    return results


def measure(context: Context, documents: Sequence[PlacedDocument]) -> list[PlacedDocument]:
    """Return the documents with their sizes, computed from their blocks in the work folder."""
    blocks = [block for _, block in read_blocks(context.prepared, documents, context.tokenizer.vocab_size)]
    return with_sizes(documents, blocks, context.window_schema, context.window_shape)


def _document_key(document: PlacedDocument) -> bytes:
    """Return a digest of everything that determines the rows of a document."""
    cuts = [(one.start, one.end) for one in document.cuts]
    file = (document.repo, document.path, document.language, document.text_sha256)
    settings = (document.drops_touched_windows, document.draw, document.weight, document.fim)
    content = msgspec.msgpack.encode((file, cuts, settings))
    return hashlib.sha256(content).digest()[:16]
