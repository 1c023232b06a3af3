"""Parquet: one window a row, typed columns, zstd. Ids are stored as they are, not by way of a dictionary.

A dictionary's numbers are packed to bits, so that the ids that two neighbouring windows share no longer look alike to
the compressor: with overlap 256 that takes 1.6 times the room (benchmarks/write.md).
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from gristmill.errors import MissingExtraError
from gristmill.formats.jsonl import DocumentRows, RowFormat, text_ranges
from gristmill.shaping.windows import Indices, lines_of

ROW_GROUP_ROWS = 1000
NAMES = ("path", "repo", "language")


def import_pyarrow() -> tuple[Any, Any]:
    """The package and its Parquet part; they are an extra."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and not always there
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("Parquet needs pyarrow: pip install 'gristmill[parquet]'.") from None
    return pa, parquet


def num_parquet_bytes(documents: Sequence[DocumentRows], row_format: RowFormat, vocab_size: int) -> int:
    """What the rows of these documents take as one file."""
    pa, parquet = import_pyarrow()
    sink = pa.BufferOutputStream()
    table = table_of(documents, row_format, vocab_size)
    parquet.write_table(table, sink, compression="zstd", use_dictionary=list(NAMES), row_group_size=ROW_GROUP_ROWS)
    return int(sink.getvalue().size)


def table_of(documents: Sequence[DocumentRows], row_format: RowFormat, vocab_size: int) -> Any:
    """Rows -> an arrow table, in the order and with the columns of the JSON rows."""
    pa, _ = import_pyarrow()
    id_type = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    lengths = np.concatenate([row_format.num_ids(rows.windows) for rows in documents])
    lines = np.concatenate([np.stack(lines_of(rows.windows, rows.newline_tokens), axis=1) for rows in documents])
    columns: dict[str, Any] = {
        "input_ids": _ids_column(pa, documents, row_format, lengths, id_type),
        **{name: _names_column(pa, documents, name) for name in NAMES},
        "lines": _lists(pa, np.full(len(lengths), 2), lines.ravel().astype(np.int32)),
        "start": pa.array(np.concatenate([rows.windows.starts for rows in documents]).astype(np.int32)),
        "fresh": pa.array(np.concatenate([rows.windows.fresh for rows in documents]).astype(np.int32)),
    }
    if row_format.pad_id is not None:
        mask = (np.arange(row_format.length) < lengths[:, None]).astype(np.uint8)
        columns["attention_mask"] = _lists(pa, np.full(len(lengths), row_format.length), mask.ravel())
    if row_format.with_text:
        columns["text"] = pa.array(list(chain.from_iterable(map(_texts, documents))))
    return pa.table(columns)


def _ids_column(pa: Any, documents: Sequence[DocumentRows], row_format: RowFormat, lengths: Indices, kind: Any) -> Any:
    prefix, suffix = (np.array(ids, kind) for ids in (row_format.prefix, row_format.suffix))
    parts = []
    for rows in documents:
        ids = rows.ids.astype(kind, copy=False)
        for start, end in zip(rows.windows.starts.tolist(), rows.windows.ends.tolist(), strict=True):
            parts += [prefix, ids[start:end], suffix]
            if row_format.pad_id is not None:
                missing = row_format.length - (end - start) - len(prefix) - len(suffix)
                parts.append(np.full(missing, row_format.pad_id, kind))
    if row_format.pad_id is not None:
        lengths = np.full(len(lengths), row_format.length)
    return _lists(pa, lengths, np.concatenate(parts))


def _names_column(pa: Any, documents: Sequence[DocumentRows], name: str) -> Any:
    return pa.array(list(chain.from_iterable([getattr(rows, name)] * len(rows.windows) for rows in documents)))


def _texts(rows: DocumentRows) -> list[str]:
    assert rows.text is not None
    starts, ends = text_ranges(rows.text, rows.windows)
    utf8 = rows.text.utf8
    return [utf8[start:end].decode("utf-8") for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _lists(pa: Any, lengths: Indices, values: Any) -> Any:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
