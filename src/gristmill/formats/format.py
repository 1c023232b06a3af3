"""Interface of the output formats. A format writes the rows of a split to files and reads them back.

JSONL files are directly in the dataset folder. Every other format has a subfolder with its name:

    DIR/train.jsonl                        DIR/parquet/train.parquet          DIR/bin/train.bin …
    DIR/train-00000-of-00002.jsonl …       DIR/parquet/train-00000-of-00002.parquet …
"""

import importlib
import re
from collections.abc import Callable, Iterable
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple, Protocol

from gristmill.core.errors import DatasetError
from gristmill.core.output_formats import FORMATS
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.batch import WindowBatch


class Target(NamedTuple):
    """Output of a writer: a complete split, or one of its shards."""

    folder: Path
    """Existing folder of the format."""
    split: Split
    schema: Schema
    shard: int = 0
    """Index of the shard, from 0."""
    num_shards: int = 1
    compressed_piece_bytes: int | None = None
    """Maximum size, before compression, of a group of rows that is compressed with zstd separately from all other rows.
    None if JSONL is not compressed. Formats other than JSONL ignore this field."""

    def file_name(self, suffix: str) -> str:
        """Return `train.parquet`, or `train-00003-of-00012.parquet` if the split has several shards."""
        part = "" if self.num_shards == 1 else f"-{self.shard:05d}-of-{self.num_shards:05d}"
        return f"{self.split}{part}{suffix}"


def find_files(folder: Path, stem: str, suffix: str) -> list[Path]:
    """Return the file `{stem}{suffix}`, or the files like `{stem}-00003-of-00012{suffix}`, sorted by shard.

    Raises DatasetError if a shard is missing, or if the shards belong to different builds.
    """
    pattern = re.compile(rf"{re.escape(stem)}(?:-\d{{5,}}-of-(\d{{5,}}))?{re.escape(suffix)}", re.ASCII)
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    counts = {name: match[1] for name in names if (match := pattern.fullmatch(name))}
    if len(set(counts.values())) > 1:
        raise DatasetError(
            f"{str(folder)!r} is damaged: {', '.join(counts)} belong to different builds. Build the dataset again."
        )
    count = next(iter(counts.values()), None)
    if count is None:
        return [folder / name for name in counts]
    expected = (f"{stem}-{number:05d}-of-{count}{suffix}" for number in range(int(count)))
    found = [folder / name for name in takewhile(counts.__contains__, expected)]
    if len(found) < int(count):
        missing = f"{stem}-{len(found):05d}-of-{count}{suffix}"
        raise DatasetError(f"{str(folder)!r} is damaged: {missing} is missing. Build the dataset again.")
    return found


class SplitReader(Protocol):
    """Reader of one split in one format. Opening a split reads no more than necessary."""

    def __len__(self) -> int: ...
    def read(self, start: int, stop: int) -> WindowBatch:
        """Return the rows `start` to `stop - 1`, without padding. Raises DatasetError if the files are damaged."""
        ...


PIECE_IDS = 1 << 20
"""Approximate number of ids in a piece (the output of one task, later joined with other pieces), if all rows are full.

As JSONL, these ids take about 6 MB."""
FILE_IDS = 1 << 23
"""Approximate minimum number of ids in a file, if a split is divided into several files. These ids take about 50 MB as
JSONL, 20 MB as Arrow or 3 MB as Parquet."""
NUM_FILES = 32
"""Approximate maximum number of files per split: two files for each of 16 workers.

Parquet has at least one file per JSONL file, even if the split has more JSONL files than this maximum."""


def name_rows(start: int, stop: int) -> str:
    """Name the rows `start` to `stop - 1` in a message: `row 5`, or `rows 5 to 9`."""
    return f"row {start}" if stop == start + 1 else f"rows {start} to {stop - 1}"


def rows_per_piece(schema: Schema, _num_rows: int) -> int:
    """Return the approximate number of rows in a piece, which is later joined with other pieces."""
    return max(1, PIECE_IDS // schema.max_row_ids)


def rows_per_file(schema: Schema, num_rows: int) -> int:
    """Return the approximate number of rows in a file of a split with `num_rows` rows."""
    return max(1, FILE_IDS // schema.max_row_ids, -(-num_rows // NUM_FILES))


class Format(NamedTuple):
    """Writer and reader of one output format."""

    name: str
    write: Callable[[Iterable[WindowBatch], Target], list[str]]
    """Writes rows in the given order and returns the names of the files, relative to the format's folder.

    The same rows give the same bytes, regardless of how they are divided into batches. The batches have no padding. If
    the schema has padding, the writer adds it with `batch.add_padding`. Token streams (npy, bin, megatron) store no
    padding. Files may have their final names from the start, because the folder is temporary."""
    open: Callable[[Path, Split, Schema], SplitReader]
    """Opens a split, given the format's folder, the split and the schema. If the files have padding, the reader removes
    it with `batch.remove_padding`. A split without rows may have no files."""
    require: Callable[[], object] = lambda: None
    """Raises MissingExtraError with the install command if a required package is missing."""
    has_own_writer: bool = False
    """True if gristmill itself writes the files, so the same rows always give the same bytes. To check such a format,
    `check` writes the rows again and compares the bytes. False for JSONL, although gristmill writes it too, because
    `check` has its own reader for JSONL."""
    rows_per_task: Callable[[Schema, int], int] | None = rows_per_file
    """Returns the approximate number of rows that one task writes, given the schema and the number of rows of the
    split. A task writes complete documents or packed rows. None if a task writes as many rows as one JSONL file has."""
    join: Callable[[Iterable[Path], Target], list[str]] | None = None
    """Joins the pieces of a split that several tasks wrote. Takes the folders of the pieces, in row order, and returns
    the names of the joined files in the folder of the target. When `join` requests the next folder, the previous
    folder is removed. None if each task writes one file of the split, named by `Target.file_name`."""
    finish: Callable[[Path, Schema], list[str]] | None = None
    """Writes the files that cover all splits, given the format's folder and the schema, and returns their names. Called
    once, after all splits are written. None if the format has no such files."""


# Formats by name. The module of a format is imported on first use, because most formats need an additional library.


def get_format(name: str) -> Format:
    """Return the format with this name."""
    module = importlib.import_module(f"gristmill.formats.{FORMATS[name].module}")
    found: Format = getattr(module, name.upper())
    return found


def format_folder(dataset: Path, name: str) -> Path:
    """Return the folder of a format in a dataset."""
    return dataset / FORMATS[name].folder


def path_in_dataset(dataset_format: str, file: str) -> str:
    """Return the path of a format's file relative to the dataset folder."""
    folder = FORMATS[dataset_format].folder
    return f"{folder}/{file}" if folder else file
