"""What documents' rows are made from -> a batch of windows, without a detour over JSON."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from gristmill.core.columns import LABELS
from gristmill.core.schema import Schema
from gristmill.formats.batch import Ragged, Values, WindowBatch
from gristmill.formats.jsonl_rows import DocumentRows, text_ranges
from gristmill.windows.cut import Windows, lines_of

ROWS_AT_ONCE = 1000


def batches_of(documents: Iterable[DocumentRows], schema: Schema) -> Iterator[WindowBatch]:
    """Of some thousand rows each: a document's rows stay together, so one with many makes a large one."""
    waiting: list[DocumentRows] = []
    num_waiting, most = 0, schema.num_rows_at_once(ROWS_AT_ONCE)
    for rows in documents:
        waiting.append(rows)
        num_waiting += len(rows.windows)
        if num_waiting >= most:
            yield batch_of_documents(waiting, schema)
            waiting, num_waiting = [], 0
    if num_waiting:
        yield batch_of_documents(waiting, schema)


def batch_of_documents(documents: Sequence[DocumentRows], schema: Schema) -> WindowBatch:
    """Those of one document behind those of the other; what `batch_of_lines` makes of their JSON rows."""
    ids = _ids([(rows.ids, rows.windows) for rows in documents], schema, schema.id_type)
    columns: dict[str, Values] = {}
    for name in schema.natural:
        if name == LABELS:
            columns[name] = _ids([rows.clean for rows in documents], schema, np.int64)
        elif name == "lines":
            columns[name] = _lines(documents)
        elif name in NUMBERS:
            columns[name] = np.concatenate([np.zeros(0, np.int64), *map(NUMBERS[name], documents)])
        elif name == "weight":
            columns[name] = np.concatenate([np.zeros(0), *map(_weights, documents)])
        else:
            columns[name] = list(chain.from_iterable(map(TEXTS[name], documents)))
    return WindowBatch(ids, columns)


def _ids(ranges: Sequence[tuple[npt.NDArray[Any], Windows]], schema: Schema, kind: npt.DTypeLike) -> Ragged:
    """Ranges of ids, with the special tokens around each."""
    prefix, suffix = np.array(schema.prefix, kind), np.array(schema.suffix, kind)
    parts = [np.zeros(0, kind)]
    for all_ids, windows in ranges:
        ids = all_ids.astype(kind, copy=False)
        for start, end in zip(windows.starts.tolist(), windows.ends.tolist(), strict=True):
            parts += [prefix, ids[start:end], suffix]
    around = len(prefix) + len(suffix)
    sizes = [windows.ends - windows.starts + around for _, windows in ranges]
    return Ragged(np.concatenate(parts), np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes])))


def _lines(documents: Sequence[DocumentRows]) -> Ragged:
    pairs = [np.stack(lines_of(rows.told_windows, rows.newline_tokens), axis=1).ravel() for rows in documents]
    values = np.concatenate([np.zeros(0, np.int64), *pairs])
    return Ragged(values, np.arange(0, len(values) + 1, 2))


def _repeats(rows: DocumentRows) -> npt.NDArray[np.int64]:
    return np.zeros(len(rows.windows), np.int64) if rows.repeats is None else rows.repeats


def _weights(rows: DocumentRows) -> npt.NDArray[np.float64]:
    return np.full(len(rows.windows), rows.weight)


def _variant_seeds(rows: DocumentRows) -> npt.NDArray[np.int64]:
    return np.full(len(rows.windows), 0 if rows.variant is None else rows.variant.seed, np.int64)


def _texts(rows: DocumentRows) -> list[str]:
    assert rows.text is not None
    starts, ends = text_ranges(rows.text, rows.text_windows)
    utf8 = rows.text.utf8
    return [utf8[start:end].decode("utf-8") for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


NUMBERS: dict[str, Callable[[DocumentRows], npt.NDArray[np.int64]]] = {
    "start": lambda rows: rows.told_windows.starts,
    "fresh": lambda rows: rows.told_windows.fresh,
    "repeat": _repeats,
    "variant_seed": _variant_seeds,
}
TEXTS: dict[str, Callable[[DocumentRows], list[str]]] = {
    "path": lambda rows: [rows.path] * len(rows.windows),
    "repo": lambda rows: [rows.repo] * len(rows.windows),
    "language": lambda rows: [rows.language] * len(rows.windows),
    "variant": lambda rows: [rows.variant.kind if rows.variant is not None else ""] * len(rows.windows),
    "text": _texts,
}
