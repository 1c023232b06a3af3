"""A document and its ids -> the windows it is shown in and the rows they make: the same in every step that asks."""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.partition import neighbours
from gristmill.core.progress import MapFunction
from gristmill.core.records import Cut, Fim, FimWindow, PlacedDocument, Variant
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch
from gristmill.formats.document_columns import ROWS_AT_ONCE, FimColumns, Rows, Tokens, batch_of_rows, num_emitted
from gristmill.formats.jsonl_rows import row_sizes
from gristmill.pipeline.cache import recall, remember
from gristmill.pipeline.context import Context
from gristmill.pipeline.parts import Block, read_blocks, tokens_of
from gristmill.windows.cut import (
    Indices,
    Windows,
    WindowShape,
    cut,
    cut_all,
    cut_without,
    joined_windows,
    lines_between,
    without,
    without_touched,
)
from gristmill.windows.sampling import numbers_shown, shown


class ShownWindows(NamedTuple):
    """A document's windows, in the order of its rows."""

    windows: Windows
    places: Windows | None
    """Where in the file each is from, if that is not where it is in the ids."""
    repeats: Indices | None
    """How often each has been shown before; None: never."""
    fim: list[FimWindow] | None = None
    """None: the document is not rewritten for fill in the middle."""

    def fim_windows(self) -> Sequence[FimWindow | None]:
        return [None] * len(self.windows) if self.fim is None else self.fim

    def closes(self, document: PlacedDocument) -> npt.NDArray[np.bool_]:
        """Which windows end their document. Windows with noise do not."""
        if self.fim is None or document.fim is None:
            last: npt.NDArray[np.bool_] = self.windows.ends == document.num_tokens
            return last if self.places is None else np.zeros_like(last)
        num_tokens, closes = document.fim.num_file_tokens, document.fim.closes
        return np.array([closes if one.form else one.end == num_tokens for one in self.fim], np.bool_)


def shown_windows(document: PlacedDocument, shape: WindowShape) -> ShownWindows:
    if document.fim is not None:
        return _rewritten_windows(document, document.fim)
    if document.variant is not None and not document.variant.is_text:
        return ShownWindows(*_windows_by_themselves(document, document.variant), None)
    windows, repeats = shown(natural_windows(document, shape), document.draw, document.key)
    return ShownWindows(windows, None, repeats)


def rows_of(documents: Sequence[PlacedDocument], tokens: Tokens, shape: WindowShape) -> Rows:
    """The rows of these documents, one document behind the other."""
    counts, windows, tails = cut_all(np.diff(tokens.edges), shape)
    shown = {
        number: shown_windows(document, shape)
        for number, document in enumerate(documents)
        if document.cuts or document.draw is not None or document.variant is not None or document.fim is not None
    }
    if not shown:
        of = np.repeat(np.arange(len(documents)), counts)
        return Rows(documents, tokens, of, windows, num_tail_tokens_dropped=tails)
    first = (np.cumsum(counts) - counts).tolist()
    plain = counts.tolist()
    own = [
        shown[number] if number in shown else ShownWindows(_between(windows, first[number], plain[number]), None, None)
        for number in range(len(documents))
    ]
    tails[list(shown)] = [one.windows.num_tail_tokens_dropped for one in shown.values()]
    has_places = any(one.places is not None for one in own)
    has_repeats = any(one.repeats is not None for one in own)
    has_fim = any(one.fim is not None for one in own)
    return Rows(
        documents=documents,
        tokens=tokens,
        of=np.repeat(np.arange(len(documents)), [len(one.windows) for one in own]),
        windows=joined_windows([one.windows for one in own]),
        places=joined_windows([one.places or one.windows for one in own]) if has_places else None,
        repeats=np.concatenate([_repeats(one) for one in own]) if has_repeats else None,
        closes=np.concatenate([one.closes(document) for one, document in zip(own, documents, strict=True)])
        if has_places
        else None,
        fim=FimColumns.of([window for one in own for window in one.fim_windows()]) if has_fim else None,
        num_tail_tokens_dropped=tails,
    )


def batches_of(context: Context, documents: Sequence[PlacedDocument]) -> Iterator[WindowBatch]:
    """Of some thousand rows each: a document's rows stay together, so one with many makes a large one."""
    schema = context.window_schema
    most = schema.num_rows_at_once(ROWS_AT_ONCE)
    blocks = read_blocks(context.prepared, documents, schema.vocab_size)
    for run in neighbours(blocks, lambda one: one[0].num_windows, most):
        rows = rows_of([document for document, _ in run], tokens_of([block for _, block in run]), context.window_shape)
        yield batch_of_rows(rows, schema)


def _between(windows: Windows, first: int, count: int) -> Windows:
    own = slice(first, first + count)
    return Windows(windows.starts[own], windows.ends[own], windows.fresh[own], 0)


def _repeats(shown: ShownWindows) -> Indices:
    return np.zeros(len(shown.windows), np.int64) if shown.repeats is None else shown.repeats


def _windows_by_themselves(document: PlacedDocument, variant: Variant) -> tuple[Windows, Windows]:
    """And where in the file each is from. All that it shows is fresh, and none is shown twice."""
    edges, places = np.array(variant.edges, np.int64), np.array(variant.places, np.int64).reshape(-1, 2)
    numbers = np.arange(len(places))
    if document.draw is not None:
        numbers, _ = numbers_shown(len(places), document.draw, document.key)
    starts, ends = edges[:-1][numbers], edges[1:][numbers]
    fresh = ends - starts
    return Windows(starts, ends, fresh, 0), Windows(places[numbers, 0], places[numbers, 1], fresh, 0)


def _rewritten_windows(document: PlacedDocument, fim: Fim) -> ShownWindows:
    """Return the windows of a rewritten document. `fresh` counts the file's tokens in each, the first time."""
    edges = np.cumsum([0, *(one.num_ids for one in fim.windows)])
    numbers, repeats = np.arange(len(fim.windows)), None
    if document.draw is not None:
        numbers, repeats = numbers_shown(len(fim.windows), document.draw, document.key)
    own = [fim.windows[number] for number in numbers.tolist()]
    starts, ends = np.array([(one.start, one.end) for one in own], np.int64).reshape(-1, 2).T
    fresh = ends - starts if repeats is None else (ends - starts) * (repeats == 0)
    windows = Windows(edges[:-1][numbers], edges[1:][numbers], fresh, 0)
    return ShownWindows(windows, Windows(starts, ends, fresh, 0), repeats, own)


def num_natural_windows(document: PlacedDocument, shape: WindowShape) -> int:
    """How many windows a document has before any is drawn."""
    if document.fim is not None:
        return len(document.fim.windows)
    return len(natural_windows(msgspec.structs.replace(document, draw=None), shape))


def natural_windows(document: PlacedDocument, shape: WindowShape) -> Windows:
    ranges = [(one.start, one.end) for one in document.cuts]
    if not ranges:
        own = document.variant.own if document.variant is not None else ()
        windows = cut(document.num_tokens, shape)
        return without(windows, own) if own else windows
    if document.drops_touched_windows:
        return without_touched(cut(document.num_tokens, shape), ranges)
    return cut_without(document.num_tokens, ranges, shape)


def _with_lines(document: PlacedDocument, block: Block) -> Iterator[Cut]:
    for one in document.cuts:
        first, last = lines_between(one.start, one.end, block.newline_tokens)
        yield Cut(one.start, one.end, one.shared_with, int(first), int(last))


class Sizes(NamedTuple):
    """What a document's windows take in the output, as the document has them."""

    num_windows: int
    num_emitted_tokens: int
    num_shown_tokens: int
    num_tail_tokens_dropped: int
    num_row_bytes: int


def sizes_of(rows: Rows, schema: Schema) -> list[Sizes]:
    """Of each document."""
    windows = rows.windows
    columns = (
        np.bincount(rows.of, minlength=len(rows.documents)),
        rows.per_document(num_emitted(rows, schema)),
        rows.per_document(windows.ends - windows.starts),
        rows.num_tail_tokens_dropped,
        rows.per_document(row_sizes(rows, schema)),
    )
    return list(map(Sizes, *(column.tolist() for column in columns)))


def measured(
    documents: Sequence[PlacedDocument], blocks: Sequence[Block], schema: Schema, shape: WindowShape
) -> list[PlacedDocument]:
    """The documents with the sizes that their cuts and their draws leave."""
    tokens = tokens_of(blocks)
    rows = rows_of(documents, tokens, shape)
    fresh = rows.per_document(rows.windows.fresh)
    natural = fresh
    if any(one.draw is not None for one in documents):
        undrawn = rows_of([msgspec.structs.replace(one, draw=None) for one in documents], tokens, shape)
        natural = undrawn.per_document(undrawn.windows.fresh)
    facts = zip(documents, blocks, sizes_of(rows, schema), fresh.tolist(), natural.tolist(), strict=True)
    return [
        msgspec.structs.replace(
            document,
            cuts=tuple(_with_lines(document, block)),
            num_cut_tokens=document.num_file_tokens - num_natural - sizes.num_tail_tokens_dropped,
            num_left_tokens=num_natural - num_fresh,
            **sizes._asdict(),
        )
        for document, block, sizes, num_fresh, num_natural in facts
    ]


# Documents of which not all is shown, or not once -> what their rows take. Remembered by text, cuts and draw.

DOCUMENTS_AT_ONCE = 64


class Measures(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """As the document has them."""

    num_windows: int
    num_emitted_tokens: int
    num_shown_tokens: int
    num_left_tokens: int
    num_tail_tokens_dropped: int
    num_cut_tokens: int
    num_row_bytes: int
    lines: tuple[tuple[int, int], ...]
    """The first and last one of each cut."""

    @classmethod
    def of(cls, document: PlacedDocument) -> "Measures":
        return cls(
            num_windows=document.num_windows,
            num_emitted_tokens=document.num_emitted_tokens,
            num_shown_tokens=document.num_shown_tokens,
            num_left_tokens=document.num_left_tokens,
            num_tail_tokens_dropped=document.num_tail_tokens_dropped,
            num_cut_tokens=document.num_cut_tokens,
            num_row_bytes=document.num_row_bytes,
            lines=tuple((one.first_line, one.last_line) for one in document.cuts),
        )

    def put_into(self, document: PlacedDocument) -> PlacedDocument:
        return msgspec.structs.replace(
            document,
            num_windows=self.num_windows,
            num_emitted_tokens=self.num_emitted_tokens,
            num_shown_tokens=self.num_shown_tokens,
            num_left_tokens=self.num_left_tokens,
            num_tail_tokens_dropped=self.num_tail_tokens_dropped,
            num_cut_tokens=self.num_cut_tokens,
            num_row_bytes=self.num_row_bytes,
            cuts=tuple(
                Cut(one.start, one.end, one.shared_with, *lines)
                for one, lines in zip(document.cuts, self.lines, strict=True)
            ),
        )


def measure_again(
    context: Context, documents: Sequence[PlacedDocument], map_tasks: MapFunction, *, name: str
) -> list[PlacedDocument]:
    """`name`: under which it is remembered."""
    path, rows_key = context.folder / name, context.rows_key
    before = recall(path, rows_key, dict[bytes, Measures]) or {}
    keys = [_key(document) for document in documents]
    new = [document for document, key in zip(documents, keys, strict=True) if key not in before]
    runs = [new[at : at + DOCUMENTS_AT_ONCE] for at in range(0, len(new), DOCUMENTS_AT_ONCE)]
    found = (document for run in map_tasks(partial(measure, context), runs) for document in run)
    answers = [
        before[key].put_into(document) if key in before else next(found)
        for document, key in zip(documents, keys, strict=True)
    ]
    remember(path, rows_key, {key: Measures.of(one) for key, one in zip(keys, answers, strict=True)})
    return answers


def measure(context: Context, documents: Sequence[PlacedDocument]) -> list[PlacedDocument]:
    blocks = [block for _, block in read_blocks(context.prepared, documents, context.tokenizer.vocab_size)]
    return measured(documents, blocks, context.window_schema, context.window_shape)


def _key(document: PlacedDocument) -> bytes:
    """Of all that its rows are made of."""
    cuts = [(one.start, one.end) for one in document.cuts]
    names = (document.repo, document.path, document.language, document.text_sha256)
    shown = (document.drops_touched_windows, document.draw, document.weight, document.fim)
    what = msgspec.msgpack.encode((names, cuts, shown))
    return hashlib.sha256(what).digest()[:16]
