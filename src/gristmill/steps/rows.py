"""A document and its ids -> the windows it is shown in and the rows they make: the same in every step that asks."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from gristmill.formats.jsonl import DocumentRows, Labels, RowFormat
from gristmill.records import Cut, PreparedDocument, Variant
from gristmill.shaping.sampling import numbers_shown, shown
from gristmill.shaping.windows import (
    Indices,
    Windows,
    WindowShape,
    cut,
    cut_without,
    lines_between,
    without,
    without_touched,
)
from gristmill.steps.blocks import Block


class ShownWindows(NamedTuple):
    """A document's windows, in the order of its rows."""

    windows: Windows
    places: Windows | None
    """Where in the file each is from, if that is not where it is in the ids."""
    repeats: Indices | None
    """How often each has been shown before; None: never."""


def shown_windows(document: PreparedDocument, shape: WindowShape) -> ShownWindows:
    if document.variant is not None and not document.variant.is_text:
        return ShownWindows(*_windows_by_themselves(document, document.variant), None)
    windows, repeats = shown(windows_of(document, shape), document.draw, document.key)
    return ShownWindows(windows, None, repeats)


def rows_of(document: PreparedDocument, block: Block, shape: WindowShape) -> DocumentRows:
    windows, places, repeats = shown_windows(document, shape)
    return DocumentRows(
        repo=document.repo,
        path=document.path,
        language=document.language,
        ids=block.ids,
        newline_tokens=block.newline_tokens,
        windows=windows,
        text=block.text,
        repeats=repeats,
        weight=document.weight,
        variant=document.variant,
        places=places,
        labels=Labels(block.clean_ids, places) if block.clean_ids is not None and places is not None else None,
    )


def _windows_by_themselves(document: PreparedDocument, variant: Variant) -> tuple[Windows, Windows]:
    """And where in the file each is from. All that it shows is fresh, and none is shown twice."""
    edges, places = np.array(variant.edges, np.int64), np.array(variant.places, np.int64).reshape(-1, 2)
    numbers = np.arange(len(places))
    if document.draw is not None:
        numbers, _ = numbers_shown(len(places), document.draw, document.key)
    starts, ends = edges[:-1][numbers], edges[1:][numbers]
    fresh = ends - starts
    return Windows(starts, ends, fresh, 0), Windows(places[numbers, 0], places[numbers, 1], fresh, 0)


def windows_of(document: PreparedDocument, shape: WindowShape) -> Windows:
    ranges = [(one.start, one.end) for one in document.cuts]
    if not ranges:
        own = document.variant.own if document.variant is not None else ()
        windows = cut(document.num_tokens, shape)
        return without(windows, own) if own else windows
    if document.drops_touched_windows:
        return without_touched(cut(document.num_tokens, shape), ranges)
    return cut_without(document.num_tokens, ranges, shape)


def _with_lines(document: PreparedDocument, block: Block) -> Iterator[Cut]:
    for one in document.cuts:
        first, last = lines_between(one.start, one.end, block.newline_tokens)
        yield Cut(one.start, one.end, one.shared_with, int(first), int(last))


def measured(document: PreparedDocument, block: Block, row_format: RowFormat, shape: WindowShape) -> PreparedDocument:
    """With the sizes of what its windows will take in the output."""
    rows = rows_of(document, block, shape)
    windows, natural = rows.windows, rows.windows
    if document.draw is not None:
        natural = rows_of(msgspec.structs.replace(document, draw=None), block, shape).windows
    num_natural = int(natural.fresh.sum())
    return msgspec.structs.replace(
        document,
        cuts=tuple(_with_lines(document, block)),
        num_windows=len(windows),
        num_emitted_tokens=row_format.num_emitted(windows),
        num_shown_tokens=int((windows.ends - windows.starts).sum()),
        num_tail_tokens_dropped=windows.num_tail_tokens_dropped,
        num_cut_tokens=document.num_tokens - num_natural - windows.num_tail_tokens_dropped,
        num_left_tokens=num_natural - int(windows.fresh.sum()),
        num_row_bytes=row_format.num_row_bytes(rows) if len(windows) else 0,
    )
