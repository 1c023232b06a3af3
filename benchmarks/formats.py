"""Measure each output format: size, read and write speed on one core, and write speed of the format's own library.

python benchmarks/formats.py [SOURCE …] [--runs 5] [--only parquet]     # prints the contents of benchmarks/formats.md

`make test` installs the libraries streaming and litdata into the folder `readers` of the virtual environment.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from measure import STDLIB, machine_text

import gristmill
from gristmill.config.config import Config
from gristmill.config.settings import WindowConfig
from gristmill.core.manifest import read_manifest
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.arrow import ARROW
from gristmill.formats.arrow_tables import ROWS_AT_ONCE, make_tables
from gristmill.formats.batch import Ragged, WindowBatch
from gristmill.formats.content_digest import row_digests
from gristmill.formats.format import Format, Target
from gristmill.formats.jsonl import JSONL
from gristmill.formats.jsonl_rows import parse_lines
from gristmill.formats.litdata import LITDATA
from gristmill.formats.mds import MDS
from gristmill.formats.megatron import MEGATRON
from gristmill.formats.parquet import PARQUET, write_options
from gristmill.formats.token_streams import BIN, NPY
from gristmill.views.table import Cell, Table, markdown_table

sys.path += [str(Path(sys.prefix, "readers")), str(Path(__file__).parents[1] / "tests")]
from support.library_readers import streaming

ROWS_PER_BATCH = 3000
ROWS_PER_READ = 1000
PACKAGES = ("gristmill", "pyarrow", "datasets", "numpy")


class Rows(NamedTuple):
    """All rows of the train split."""

    batches: list[WindowBatch]
    schema: Schema

    @property
    def num_ids(self) -> int:
        return sum(len(batch.ids.values) for batch in self.batches)


BulkWrite = Callable[[Path], object]
"""Function that writes all rows into an empty folder."""


class FormatCase(NamedTuple):
    format: Format
    library: str
    """Name of the library function that writes the rows. Empty if no library is measured."""
    prepare: Callable[[Rows], BulkWrite] | None = None
    """Function that converts rows to the library's form and returns a function that writes the converted rows."""


def parquet_in_bulk(rows: Rows) -> BulkWrite:
    from pyarrow import parquet  # noqa: PLC0415 - an extra

    table = one_table(rows)
    options = write_options(rows.schema) | {"row_group_size": rows.schema.num_rows_at_once(ROWS_AT_ONCE)}
    return lambda folder: parquet.write_table(table, folder / "train.parquet", **options)


def arrow_in_bulk(rows: Rows) -> BulkWrite:
    import datasets  # noqa: PLC0415 - an extra

    datasets.disable_progress_bars()
    dataset = datasets.Dataset(one_table(rows))
    return lambda folder: dataset.save_to_disk(folder / "train")


def one_table(rows: Rows) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - an extra

    return pa.concat_tables(make_tables(pa, rows.batches, rows.schema)[1]).combine_chunks()


def jsonl_in_bulk(rows: Rows) -> BulkWrite:
    prepared_rows = [dict(zip(rows.schema.columns, row, strict=True)) for row in library_rows(rows, lambda ids: ids)]

    def write_rows(folder: Path) -> None:
        with (folder / "train.jsonl").open("wb") as stream:
            for row in prepared_rows:
                stream.write(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))

    return write_rows


def mds_in_bulk(rows: Rows) -> BulkWrite:
    writer = streaming().MDSWriter
    prepared_rows = [dict(zip(rows.schema.columns, row, strict=True)) for row in library_rows(rows, lambda ids: ids)]
    kinds = {str: "str", int: "int"}
    columns = {
        name: f"ndarray:{value.dtype.name}" if isinstance(value, np.ndarray) else kinds[type(value)]
        for name, value in prepared_rows[0].items()
    }

    def write_rows(folder: Path) -> None:
        with writer(columns=columns, out=str(folder / "train")) as out:
            for row in prepared_rows:
                out.write(row)

    return write_rows


def litdata_in_bulk(rows: Rows) -> BulkWrite:
    import torch  # noqa: PLC0415 - an extra
    from litdata.streaming.writer import BinaryWriter  # noqa: PLC0415 - installed for the tests

    torch.set_num_threads(1)
    prepared_rows = [dict(zip(rows.schema.columns, row, strict=True)) for row in library_rows(rows, torch.from_numpy)]

    def write_rows(folder: Path) -> None:
        out = BinaryWriter(str(folder), chunk_bytes=1 << 26)
        for number, row in enumerate(prepared_rows):
            out[number] = row
        out.done()
        out.merge()

    return write_rows


def library_rows(rows: Rows, as_array: Callable[[Any], Any]) -> Iterator[tuple[Any, ...]]:
    """Yield each row as a tuple of ids and columns, in the types that the libraries accept."""
    for batch in rows.batches:
        columns = [
            [as_array(one.astype(np.int32)) for one in column.rows()]
            if isinstance(column, Ragged)
            else column.tolist()
            if isinstance(column, np.ndarray)
            else column
            for column in batch.columns.values()
        ]
        yield from zip(map(as_array, batch.ids.rows()), *columns, strict=True)


CASES = (
    FormatCase(JSONL, "orjson.dumps of each row", jsonl_in_bulk),
    FormatCase(PARQUET, "pyarrow.parquet.write_table", parquet_in_bulk),
    FormatCase(ARROW, "datasets.Dataset.save_to_disk", arrow_in_bulk),
    FormatCase(NPY, ""),
    FormatCase(BIN, ""),
    FormatCase(MEGATRON, ""),
    FormatCase(MDS, "streaming.MDSWriter.write", mds_in_bulk),
    FormatCase(LITDATA, "litdata's BinaryWriter", litdata_in_bulk),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=[STDLIB])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", action="append", help="measure only this format; repeatable")
    options = parser.parse_args()
    environment = machine_text(*PACKAGES)
    with tempfile.TemporaryDirectory(dir=".") as name:
        rows = build_rows(options.sources, Path(name, "dataset"))
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        cases = [case for case in CASES if not options.only or case.format.name in options.only]
        cells = [measure_format(case, rows, Path(name, "written"), options.runs) for case in cases]
    counts = f"{sum(map(len, rows.batches)):,} windows of up to {rows.schema.length} ids, {rows.num_ids:,} ids in total"
    print("# Speed and size of each format\n")
    print(f"`python benchmarks/formats.py --runs {options.runs}`. {environment}.\n")
    print(f"{counts}, with overlap 256, in batches of {ROWS_PER_BATCH:,} rows in memory.")
    print("Speeds are in million ids per second on one core, best of all runs. The files are in the page cache.")
    print("The library gets all rows at once. The time to convert the rows to the library's form is not included.\n")
    heads = ("format", "write", "bytes per id", "read", "library", "library write", "gristmill time / library time")
    print(markdown_table(Table("Formats", heads, cells)))


def build_rows(sources: Sequence[str], folder: Path) -> Rows:
    gristmill.build(Config(sources=list(sources), out=str(folder), window=WindowConfig(overlap=256)))
    manifest = read_manifest(folder)
    schema = Schema.of(manifest)
    names = [name for name, facts in manifest.files.items() if facts.split is Split.TRAIN]
    lines = chain.from_iterable((folder / name).open("rb") for name in names)
    batches = []
    while batch_lines := list(islice(lines, ROWS_PER_BATCH)):
        batches.append(parse_lines(batch_lines, schema))
    return Rows(batches, schema)


def measure_format(case: FormatCase, rows: Rows, folder: Path, runs: int) -> list[Cell]:
    write_with_library = case.prepare(rows) if case.prepare is not None else None
    gristmill_seconds, library_seconds = [], []
    for _ in range(runs):
        if write_with_library is not None:
            library_seconds.append(seconds_to_write(write_with_library, folder))
        gristmill_seconds.append(seconds_to_write(lambda target: write(case.format, rows, target), folder))
    num_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    speed = f"{rows.num_ids / min(gristmill_seconds) / 1e6:.0f}"
    read = f"{rows.num_ids / seconds_to_read(case.format, rows, folder) / 1e6:.0f}"
    size = f"{num_bytes / rows.num_ids:.2f}"
    if not library_seconds:
        return [case.format.name, speed, size, read, None, None, None]
    library_speed = f"{rows.num_ids / min(library_seconds) / 1e6:.0f}"
    return [
        case.format.name,
        speed,
        size,
        read,
        case.library,
        library_speed,
        f"{min(gristmill_seconds) / min(library_seconds):.2f}",
    ]


def seconds_to_write(write_into: BulkWrite, folder: Path) -> float:
    """Return the seconds that `write_into` takes to write into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    started = time.perf_counter()
    write_into(folder)
    return time.perf_counter() - started


def write(one: Format, rows: Rows, folder: Path) -> None:
    one.write(rows.batches, Target(folder, Split.TRAIN, rows.schema))
    if one.finish is not None:
        one.finish(folder, rows.schema)


def seconds_to_read(one: Format, rows: Rows, folder: Path) -> float:
    """Return the seconds to read all rows from first to last. The rows read must equal the rows written."""
    started = time.perf_counter()
    reader = one.open(folder, Split.TRAIN, rows.schema)
    starts = range(0, len(reader), ROWS_PER_READ)
    read = [reader.read(start, min(start + ROWS_PER_READ, len(reader))) for start in starts]
    seconds = time.perf_counter() - started
    assert join_digests(read) == join_digests(rows.batches), f"{one.name}: the rows read differ from the rows written"
    return seconds


def join_digests(batches: Sequence[WindowBatch]) -> bytes:
    return b"".join(row_digests(Split.TRAIN, batch) for batch in batches)


if __name__ == "__main__":
    main()
