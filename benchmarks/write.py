"""Compare two ways to format rows: `orjson.dumps` per window, and formatting a file's ids once and slicing the text.

Also compare the size of Parquet files with plain ids and with dictionary encoding, which is PyArrow's default.

python benchmarks/write.py     # prints the contents of benchmarks/write.md
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
from measure import STDLIB, machine_text

import gristmill
from gristmill.config.settings import WindowConfig
from gristmill.core.columns import When, window_columns
from gristmill.core.schema import Schema
from gristmill.formats.arrow_tables import import_pyarrow, make_tables
from gristmill.formats.batch import WindowBatch
from gristmill.formats.document_columns import Rows, Tokens, batch_from_rows, emitted_tokens_per_row
from gristmill.formats.jsonl_rows import row_content, row_sizes
from gristmill.formats.parquet import write_options
from gristmill.windows.cut import WindowShape, cut_all

SCHEMA = Schema(window_columns([When.ALWAYS, When.WINDOWS]), 512, 50265, (0,), (2,), pad_id=None, end_id=2)


def make_rows(overlap: int) -> Rows:
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


def format_per_window(rows: Rows, dump: Callable[[object], bytes]) -> list[bytes]:
    prefix, suffix = np.array([0], np.uint16), np.array([2], np.uint16)
    first = rows.tokens.edges[rows.document_index]
    spans = zip(
        rows.document_index, rows.windows.starts, first + rows.windows.starts, first + rows.windows.ends, strict=True
    )
    return [
        dump(
            {
                "input_ids": np.concatenate((prefix, rows.tokens.ids[from_id:to_id], suffix)),
                "path": rows.documents[document].path,
                "start": int(start),
            }
        )
        for document, start, from_id, to_id in spans
    ]


def dump_with_orjson(row: object) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


def dump_with_json(row: object) -> bytes:
    return json.dumps(row, default=lambda array: array.tolist(), indent=2).encode()


def main() -> None:
    methods: dict[str, Callable[[Rows], object]] = {
        "`json.dumps(indent=2)` per window": lambda rows: format_per_window(rows, dump_with_json),
        "`orjson.dumps` per window": lambda rows: format_per_window(rows, dump_with_orjson),
        "ids formatted once, text sliced at commas": partial(row_content, schema=SCHEMA),
        "sizes only (`row_sizes`)": partial(row_sizes, schema=SCHEMA),
    }
    print("# Formatting rows\n")
    print(f"`python benchmarks/write.py`. {machine_text('gristmill', 'orjson', 'numpy')}.\n")
    print(
        "Million ids formatted per second, from ids in memory, best of three. The source is the top folder of the "
        "standard library.\n"
    )
    print("| method | overlap 0 | overlap 256 |")
    print("| --- | --- | --- |")
    rates: dict[str, list[float]] = {name: [] for name in methods}
    for overlap in (0, 256):
        rows = make_rows(overlap)
        num_ids = int(emitted_tokens_per_row(rows, SCHEMA).sum())
        for name, format_rows in methods.items():
            seconds = []
            for _ in range(3):
                started = time.perf_counter()
                format_rows(rows)
                seconds.append(time.perf_counter() - started)
            rates[name].append(num_ids / min(seconds) / 1e6)
    for name, (plain, overlapping) in rates.items():
        print(f"| {name} | {plain:.0f} | {overlapping:.0f} |")
    print_parquet_sizes()


def print_parquet_sizes() -> None:
    print("\nSize of the same rows as Parquet with zstd, in MB:\n")
    print("| encoding | overlap 0 | overlap 256 |")
    print("| --- | --- | --- |")
    batches = [batch_from_rows(make_rows(overlap), SCHEMA) for overlap in (0, 256)]
    plain_options = write_options(SCHEMA)
    for name, options in {
        "dictionary": plain_options | {"use_dictionary": True},
        "plain ids": plain_options,
    }.items():
        sizes = [parquet_bytes(batch, options) / 1e6 for batch in batches]
        print(f"| {name} | {sizes[0]:.2f} | {sizes[1]:.2f} |")


def parquet_bytes(batch: WindowBatch, options: dict[str, Any]) -> int:
    pa = import_pyarrow("Parquet")
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    sink = pa.BufferOutputStream()
    kinds, tables = make_tables(pa, [batch], SCHEMA)
    with parquet.ParquetWriter(sink, kinds, **options) as writer:
        for table in tables:
            writer.write_table(table)
    return int(sink.getvalue().size)


if __name__ == "__main__":
    main()
