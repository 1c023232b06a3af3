"""What a format is: a way to write the windows of a split into files, and to read them back.

A dataset has its JSONL rows at the top of its folder, and each other format in a folder of that name:

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
    """Where a writer writes: all of a split, or one of several files of it."""

    folder: Path
    """The format's own, which is there."""
    split: Split
    schema: Schema
    shard: int = 0
    num_shards: int = 1
    compressed_at: int | None = None
    """JSONL, with zstd: in pieces of so many bytes. Other formats are as compressed as they are."""

    def file_name(self, suffix: str) -> str:
        """`train.parquet`, or `train-00003-of-00012.parquet` where a split takes several files."""
        part = "" if self.num_shards == 1 else f"-{self.shard:05d}-of-{self.num_shards:05d}"
        return f"{self.split}{part}{suffix}"


def files_of(folder: Path, stem: str, suffix: str) -> list[Path]:
    """What `Target.file_name` has named, in order; none where there is nothing of it."""
    pattern = re.compile(rf"{re.escape(stem)}(?:-\d{{5,}}-of-(\d{{5,}}))?{re.escape(suffix)}", re.ASCII)
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    counts = {name: match[1] for name in names if (match := pattern.fullmatch(name))}
    if len(set(counts.values())) > 1:
        raise DatasetError(f"{str(folder)!r} is damaged: {', '.join(counts)} are not of one dataset. Build it again.")
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
    """A split as a format has it on disk: rows by number. Opening reads no more than it must."""

    def __len__(self) -> int: ...
    def read(self, start: int, stop: int) -> WindowBatch:
        """Rows, without padding. Raises DatasetError where what is there cannot be what was written."""
        ...


PIECE_IDS = 1 << 20
"""In a piece of files that are joined, if all its rows are full: some 6 MB of JSONL."""
FILE_IDS = 1 << 23
"""In one of several files, at least: some 50 MB of JSONL, 20 MB of Arrow, 3 MB of Parquet."""
NUM_FILES = 32
"""Of a split, until each is as large as a JSONL file may be: two for each of sixteen workers."""


def rows_of_piece(schema: Schema, _num_rows: int) -> int:
    return max(1, PIECE_IDS // schema.row_ids)


def rows_of_file(schema: Schema, num_rows: int) -> int:
    return max(1, FILE_IDS // schema.row_ids, -(-num_rows // NUM_FILES))


class Format(NamedTuple):
    name: str
    write: Callable[[Iterable[WindowBatch], Target], list[str]]
    """All rows of the target, in order -> names of the files it made, relative to the format's folder.

    The same rows give the same bytes, however they are cut into batches. Rows come without padding: `batch.stored` adds
    it where the schema asks for it. Files may have their final names from the start: the folder is a temporary one."""
    open: Callable[[Path, Split, Schema], SplitReader]
    """The format's folder, a split and its schema -> its rows, without padding (`batch.natural`); a split without rows
    has no files."""
    require: Callable[[], object] = lambda: None
    """Raises MissingExtraError, with the line to install it, where a package that it needs is not there."""
    is_all_ours: bool = False
    """No other package writes its bytes, so the same rows always give the same bytes: `check` writes the rows again and
    compares. (`check` has a reader of its own for JSONL.)"""
    rows_per_task: Callable[[Schema, int], int] | None = rows_of_file
    """About how many rows of a split with so many one task writes: whole documents. None: those of a JSONL file."""
    join: Callable[[Iterable[Path], Target], list[str]] | None = None
    """Of a split that several tasks write: the folders that `write` was given, in order, as they come in -> names of
    the files it made of them in the target's. Each folder is removed when the next one is asked for.
    None: each task writes one of the split's files, named by `Target.file_name`."""
    finish: Callable[[Path, Schema], list[str]] | None = None
    """Called once, when all splits are written, with the format's folder -> names of the files it made."""


# Formats by name. Each is loaded when it is first asked for: most bring a library of their own.


def format_named(name: str) -> Format:
    module = importlib.import_module(f"gristmill.formats.{FORMATS[name].module}")
    found: Format = getattr(module, name.upper())
    return found


def folder_of(dataset: Path, name: str) -> Path:
    """Where a format lies in a dataset's folder."""
    return dataset / FORMATS[name].folder


def name_in(dataset_format: str, file: str) -> str:
    """A format's file by its name in the dataset's folder."""
    folder = FORMATS[dataset_format].folder
    return f"{folder}/{file}" if folder else file
