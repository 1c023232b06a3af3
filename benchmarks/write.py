"""Formatting rows: one `orjson.dumps` per window, or a file's ids formatted once and sliced at the commas?

And Parquet: ids as they are, or by way of a dictionary, which is the library's default?

python benchmarks/write.py     # prints benchmarks/write.md
"""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
from measure import STDLIB, machine

import gristmill
from gristmill.config.settings import WindowConfig
from gristmill.core.columns import When, window_columns
from gristmill.core.schema import Schema
from gristmill.formats.arrow_tables import import_pyarrow, tables_of
from gristmill.formats.batch import WindowBatch
from gristmill.formats.document_columns import Rows, Tokens, batch_of_rows, num_emitted
from gristmill.formats.jsonl_rows import row_content, row_sizes
from gristmill.formats.parquet import write_options
from gristmill.windows.cut import WindowShape, cut_all

SCHEMA = Schema(window_columns([When.ALWAYS, When.WINDOWS]), 512, 50265, (0,), (2,), pad_id=None, end_id=2)


def rows_of(overlap: int) -> Rows:
    tokenizer = gristmill.load_tokenizer()
    shape = WindowShape.of(WindowConfig(overlap=overlap), 2)
    paths = sorted(Path(STDLIB).glob("*.py"))
    encoded = [tokenizer.encode(path.read_bytes()) for path in paths]
    tokens = Tokens(
        ids=np.concatenate([one.ids for one in encoded]).astype(np.uint16),
        edges=np.cumsum([0, *(len(one.ids) for one in encoded)]),
        newline_tokens=np.concatenate([one.newline_tokens for one in encoded]),
        newline_edges=np.cumsum([0, *(len(one.newline_tokens) for one in encoded)]),
    )
    documents = [SimpleNamespace(repo="r", path=path.name, language="python") for path in paths]
    counts, windows, _ = cut_all(np.diff(tokens.edges), shape)
    return Rows(documents, tokens, np.repeat(np.arange(len(documents)), counts), windows)


def per_window(rows: Rows, dump: Callable[[object], bytes]) -> list[bytes]:
    ends = np.array([0], np.uint16), np.array([2], np.uint16)
    first = rows.tokens.edges[rows.of]
    places = zip(rows.of, rows.windows.starts, first + rows.windows.starts, first + rows.windows.ends, strict=True)
    return [
        dump(
            {
                "input_ids": np.concatenate((ends[0], rows.tokens.ids[at:to], ends[1])),
                "path": rows.documents[of].path,
                "start": int(start),
            }
        )
        for of, start, at, to in places
    ]


def with_orjson(row: object) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


def with_json(row: object) -> bytes:
    return json.dumps(row, default=lambda array: array.tolist(), indent=2).encode()


def main() -> None:
    ways: dict[str, Callable[[Rows], object]] = {
        "`json.dumps(indent=2)` per window": lambda rows: per_window(rows, with_json),
        "`orjson.dumps` per window": lambda rows: per_window(rows, with_orjson),
        "ids once, sliced at the commas": partial(row_content, schema=SCHEMA),
        "sizes alone (`row_sizes`)": partial(row_sizes, schema=SCHEMA),
    }
    print("# Formatting rows\n")
    print(f"`python benchmarks/write.py`. {machine('gristmill', 'orjson', 'numpy')}.\n")
    print("Million ids written per second, from ids in memory, best of three; the standard library's top folder.\n")
    print("| how | overlap 0 | overlap 256 |")
    print("| --- | --- | --- |")
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for overlap in (0, 256):
        rows = rows_of(overlap)
        num_ids = int(num_emitted(rows, SCHEMA).sum())
        for name, format_rows in ways.items():
            seconds = []
            for _ in range(3):
                started = time.perf_counter()
                format_rows(rows)
                seconds.append(time.perf_counter() - started)
            rates[name].append(num_ids / min(seconds) / 1e6)
    for name, (plain, overlapping) in rates.items():
        print(f"| {name} | {plain:.0f} | {overlapping:.0f} |")
    columnar()


def columnar() -> None:
    print("\nThe same rows as Parquet with zstd, in MB:\n")
    print("| how | overlap 0 | overlap 256 |")
    print("| --- | --- | --- |")
    made = [batch_of_rows(rows_of(overlap), SCHEMA) for overlap in (0, 256)]
    as_they_are = write_options(SCHEMA)
    for name, options in {
        "ids by way of a dictionary": as_they_are | {"use_dictionary": True},
        "ids as they are": as_they_are,
    }.items():
        sizes = [num_bytes(batch, options) / 1e6 for batch in made]
        print(f"| {name} | {sizes[0]:.2f} | {sizes[1]:.2f} |")


def num_bytes(batch: WindowBatch, options: dict[str, Any]) -> int:
    pa = import_pyarrow("Parquet")
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    sink = pa.BufferOutputStream()
    kinds, tables = tables_of(pa, [batch], SCHEMA)
    with parquet.ParquetWriter(sink, kinds, **options) as writer:
        for table in tables:
            writer.write_table(table)
    return int(sink.getvalue().size)


if __name__ == "__main__":
    main()
