"""What documents' rows are made from -> windows by column."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill.formats.batch import LABELS, Column, Ragged, Schema, WindowBatch
from gristmill.formats.jsonl import DocumentRows, text_ranges
from gristmill.shaping.windows import Indices, Windows, lines_of

ROWS_AT_ONCE = 1000


def batches_of(documents: Iterable[DocumentRows], schema: Schema) -> Iterator[WindowBatch]:
    """Of some thousand rows each: a document's rows stay together, so one with many makes a large one."""
    waiting: list[DocumentRows] = []
    num_waiting = 0
    for rows in documents:
        waiting.append(rows)
        num_waiting += len(rows.windows)
        if num_waiting >= ROWS_AT_ONCE:
            yield batch_of(waiting, schema)
            waiting, num_waiting = [], 0
    if num_waiting:
        yield batch_of(waiting, schema)


def batch_of(documents: Sequence[DocumentRows], schema: Schema) -> WindowBatch:
    ids = _around([(rows.ids, rows.windows) for rows in documents], schema, schema.id_type)
    return WindowBatch(ids, {name: _COLUMNS[name](documents, schema) for name in schema.natural})


def _around(parts: Sequence[tuple[npt.NDArray[Any], Windows]], schema: Schema, kind: npt.DTypeLike) -> Ragged:
    """Each window's ids with the special ones around them."""
    prefix, suffix = (np.array(ids, kind) for ids in (schema.prefix, schema.suffix))
    pieces: list[npt.NDArray[Any]] = []
    for ids, windows in parts:
        own = ids.astype(kind, copy=False)
        for start, end in zip(windows.starts.tolist(), windows.ends.tolist(), strict=True):
            pieces += (prefix, own[start:end], suffix)
    sizes = np.concatenate([windows.ends - windows.starts for _, windows in parts]) + (len(prefix) + len(suffix))
    return Ragged(np.concatenate(pieces), np.concatenate(([0], np.cumsum(sizes))))


def _per_document(value: Callable[[DocumentRows], Any]) -> Callable[[Sequence[DocumentRows], Schema], list[Any]]:
    def column(documents: Sequence[DocumentRows], _: Schema) -> list[Any]:
        return list(chain.from_iterable([value(rows)] * len(rows.windows) for rows in documents))

    return column


def _numbers(value: Callable[[DocumentRows], Indices]) -> Callable[[Sequence[DocumentRows], Schema], Indices]:
    def column(documents: Sequence[DocumentRows], _: Schema) -> Indices:
        return np.concatenate([value(rows) for rows in documents]).astype(np.int64, copy=False)

    return column


def _lines(documents: Sequence[DocumentRows], _: Schema) -> Ragged:
    lines = [np.stack(lines_of(rows.told_windows, rows.newline_tokens), axis=1).ravel() for rows in documents]
    values = np.concatenate(lines).astype(np.int64, copy=False)
    return Ragged(values, np.arange(0, len(values) + 1, 2))


def _labels(documents: Sequence[DocumentRows], schema: Schema) -> Ragged:
    return _around([rows.clean for rows in documents], schema, np.int64)


def _texts(documents: Sequence[DocumentRows], _: Schema) -> list[str]:
    texts: list[str] = []
    for rows in documents:
        assert rows.text is not None, "it was kept for this column"
        starts, ends = text_ranges(rows.text, rows.told_windows)
        utf8 = rows.text.utf8
        texts += [utf8[start:end].decode("utf-8") for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return texts


def _repeats(rows: DocumentRows) -> Indices:
    return np.zeros(len(rows.windows), np.int64) if rows.repeats is None else rows.repeats


def _weights(documents: Sequence[DocumentRows], _: Schema) -> npt.NDArray[np.float64]:
    return np.repeat([rows.weight for rows in documents], [len(rows.windows) for rows in documents])


def _variant_seeds(rows: DocumentRows) -> Indices:
    return np.full(len(rows.windows), rows.variant.seed if rows.variant is not None else 0)


_COLUMNS: dict[str, Callable[[Sequence[DocumentRows], Schema], Column]] = {
    "path": _per_document(lambda rows: rows.path),
    "repo": _per_document(lambda rows: rows.repo),
    "language": _per_document(lambda rows: rows.language),
    "lines": _lines,
    "start": _numbers(lambda rows: rows.told_windows.starts),
    "fresh": _numbers(lambda rows: rows.told_windows.fresh),
    "text": _texts,
    "repeat": _numbers(_repeats),
    LABELS: _labels,
    "weight": _weights,
    "variant": _per_document(lambda rows: str(rows.variant.kind) if rows.variant is not None else ""),
    "variant_seed": _numbers(_variant_seeds),
}
