"""Writing each format from windows in memory: how fast on one core, how large, and against the format's own library?

python benchmarks/formats.py [SOURCE …] [--runs 5] [--only parquet]     # prints benchmarks/formats.md

streaming and litdata are those that make test installs beside the environment.
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
from measure import STDLIB, machine

import gristmill
from gristmill.config.config import Config
from gristmill.config.settings import WindowConfig
from gristmill.core.manifest import read_manifest
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.arrow import ARROW
from gristmill.formats.arrow_tables import ROWS_AT_ONCE, tables_of
from gristmill.formats.batch import Ragged, WindowBatch
from gristmill.formats.content_digest import row_digests
from gristmill.formats.format import Format, Target
from gristmill.formats.jsonl import JSONL
from gristmill.formats.jsonl_rows import batch_of_lines
from gristmill.formats.litdata import LITDATA
from gristmill.formats.mds import MDS
from gristmill.formats.megatron import MEGATRON
from gristmill.formats.parquet import PARQUET, write_options
from gristmill.formats.token_streams import BIN, NPY
from gristmill.views.table import Cell, Table, markdown_table

sys.path += [str(Path(sys.prefix, "readers")), str(Path(__file__).parents[1] / "tests")]
from support.library_readers import streaming

ROWS_IN_A_BATCH = 3000
ROWS_READ_AT_ONCE = 1000
PACKAGES = ("gristmill", "pyarrow", "datasets", "numpy")


class Rows(NamedTuple):
    """All of train."""

    batches: list[WindowBatch]
    schema: Schema

    @property
    def num_ids(self) -> int:
        return sum(len(batch.ids.values) for batch in self.batches)


BulkWrite = Callable[[Path], object]
"""Into an empty folder."""


class Way(NamedTuple):
    format: Format
    library: str
    """What its library calls the writing of all rows at once; "": it has no such thing."""
    ready: Callable[[Rows], BulkWrite] | None = None
    """Rows -> that call, with all it needs ready in the library's own form."""


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

    return pa.concat_tables(tables_of(pa, rows.batches, rows.schema)[1]).combine_chunks()


def jsonl_in_bulk(rows: Rows) -> BulkWrite:
    ready = [dict(zip(rows.schema.columns, row, strict=True)) for row in samples(rows, lambda ids: ids)]

    def write_rows(folder: Path) -> None:
        with (folder / "train.jsonl").open("wb") as stream:
            for row in ready:
                stream.write(orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))

    return write_rows


def mds_in_bulk(rows: Rows) -> BulkWrite:
    writer = streaming().MDSWriter
    ready = [dict(zip(rows.schema.columns, row, strict=True)) for row in samples(rows, lambda ids: ids)]
    kinds = {str: "str", int: "int"}
    columns = {
        name: f"ndarray:{value.dtype.name}" if isinstance(value, np.ndarray) else kinds[type(value)]
        for name, value in ready[0].items()
    }

    def write_rows(folder: Path) -> None:
        with writer(columns=columns, out=str(folder / "train")) as out:
            for row in ready:
                out.write(row)

    return write_rows


def litdata_in_bulk(rows: Rows) -> BulkWrite:
    import torch  # noqa: PLC0415 - an extra
    from litdata.streaming.writer import BinaryWriter  # noqa: PLC0415 - of the tests' readers

    torch.set_num_threads(1)
    ready = [dict(zip(rows.schema.columns, row, strict=True)) for row in samples(rows, torch.from_numpy)]

    def write_rows(folder: Path) -> None:
        out = BinaryWriter(str(folder), chunk_bytes=1 << 26)
        for number, row in enumerate(ready):
            out[number] = row
        out.done()
        out.merge()

    return write_rows


def samples(rows: Rows, as_array: Callable[[Any], Any]) -> Iterator[tuple[Any, ...]]:
    """Row by row, as the libraries take them."""
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


WAYS = (
    Way(JSONL, "orjson.dumps of each row", jsonl_in_bulk),
    Way(PARQUET, "pyarrow.parquet.write_table", parquet_in_bulk),
    Way(ARROW, "datasets.Dataset.save_to_disk", arrow_in_bulk),
    Way(NPY, ""),
    Way(BIN, ""),
    Way(MEGATRON, ""),
    Way(MDS, "streaming.MDSWriter.write", mds_in_bulk),
    Way(LITDATA, "litdata's BinaryWriter", litdata_in_bulk),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=[STDLIB])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", action="append", help="a format; may be given again")
    options = parser.parse_args()
    here = machine(*PACKAGES)
    with tempfile.TemporaryDirectory(dir=".") as name:
        rows = rows_of(options.sources, Path(name, "dataset"))
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        ways = [way for way in WAYS if not options.only or way.format.name in options.only]
        cells = [measured(way, rows, Path(name, "written"), options.runs) for way in ways]
    counts = f"{sum(map(len, rows.batches)):,} windows of up to {rows.schema.length} ids, {rows.num_ids:,} ids in all"
    print("# Writing each format\n")
    print(f"`python benchmarks/formats.py --runs {options.runs}`. {here}.\n")
    print(f"{counts}, at overlap 256, in batches of {ROWS_IN_A_BATCH:,} rows in memory.")
    print("One core, from rows to files in the page cache. Million ids a second, best of the runs.")
    print("The library is given all rows at once in its own form; what it takes to make that is not counted.\n")
    heads = ("format", "written", "bytes an id", "read", "the library's own", "it writes", "our time / its time")
    print(markdown_table(Table("Formats", heads, cells)))


def rows_of(sources: Sequence[str], folder: Path) -> Rows:
    gristmill.build(Config(sources=list(sources), out=str(folder), window=WindowConfig(overlap=256)))
    manifest = read_manifest(folder)
    schema = Schema.of(manifest)
    names = [name for name, facts in manifest.files.items() if facts.split is Split.TRAIN]
    lines = chain.from_iterable((folder / name).open("rb") for name in names)
    batches = []
    while some := list(islice(lines, ROWS_IN_A_BATCH)):
        batches.append(batch_of_lines(some, schema))
    return Rows(batches, schema)


def measured(way: Way, rows: Rows, folder: Path, runs: int) -> list[Cell]:
    bulk = way.ready(rows) if way.ready is not None else None
    ours, theirs = [], []
    for _ in range(runs):
        if bulk is not None:
            theirs.append(seconds_of(bulk, folder))
        ours.append(seconds_of(lambda place: write(way.format, rows, place), folder))
    num_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    speed = f"{rows.num_ids / min(ours) / 1e6:.0f}"
    read = f"{rows.num_ids / seconds_to_read(way.format, rows, folder) / 1e6:.0f}"
    size = f"{num_bytes / rows.num_ids:.2f}"
    if not theirs:
        return [way.format.name, speed, size, read, None, None, None]
    of_library = f"{rows.num_ids / min(theirs) / 1e6:.0f}"
    return [way.format.name, speed, size, read, way.library, of_library, f"{min(ours) / min(theirs):.2f}"]


def seconds_of(write_into: BulkWrite, folder: Path) -> float:
    """Into a folder that is made anew."""
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
    """From first to last; what is read must be what was written."""
    started = time.perf_counter()
    reader = one.open(folder, Split.TRAIN, rows.schema)
    starts = range(0, len(reader), ROWS_READ_AT_ONCE)
    read = [reader.read(start, min(start + ROWS_READ_AT_ONCE, len(reader))) for start in starts]
    seconds = time.perf_counter() - started
    assert digests_of(read) == digests_of(rows.batches), one.name
    return seconds


def digests_of(batches: Sequence[WindowBatch]) -> bytes:
    return b"".join(row_digests(Split.TRAIN, batch) for batch in batches)


if __name__ == "__main__":
    main()
