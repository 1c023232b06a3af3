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
    """Where a writer writes: one of the files of a split, or all of a split where the format has no such files."""

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


class Format(NamedTuple):
    name: str
    is_sharded: bool
    """A split may be several files, each with its own rows and written by itself."""
    write: Callable[[Iterable[WindowBatch], Target], list[str]]
    """All rows of the target, in order -> names of the files it made, relative to the format's folder.

    The same batches give the same bytes, however the rows are cut into batches."""
    open: Callable[[Path, Split, Schema], SplitReader]
    """The format's folder, a split and its schema -> its rows; a split without rows has nothing there."""
    require: Callable[[], object] = lambda: None
    """Raises MissingExtraError, with the line to install it, where a package that it needs is not there."""
    is_all_ours: bool = False
    """No other package has a say in its bytes: the same rows give them again, under any versions."""
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
