"""What a format is: a way to write the windows of a split into files, and to read them back.

A dataset has its JSONL rows at the top of its folder, and each other format in a folder of that name:

    DIR/train.jsonl                        DIR/parquet/train.parquet          DIR/bin/train.bin …
    DIR/train-00000-of-00002.jsonl …       DIR/parquet/train-00000-of-00002.parquet …
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from gristmill.errors import DatasetError
from gristmill.formats.batch import Schema, WindowBatch
from gristmill.records import Split


class Target(NamedTuple):
    """Where a writer writes: one of the files of a split, or all of a split where the format has no such files."""

    folder: Path
    """The format's own, which is there."""
    split: Split
    schema: Schema
    shard: int = 0
    num_shards: int = 1
    num_rows: int = 0
    """That will come; known before the first."""
    is_compressed: bool = False
    """JSONL alone goes by it: other formats are as compressed as they are."""

    def file_name(self, suffix: str) -> str:
        """`train.parquet`, or `train-00003-of-00012.parquet` where a split takes several files."""
        part = "" if self.num_shards == 1 else f"-{self.shard:05d}-of-{self.num_shards:05d}"
        return f"{self.split}{part}{suffix}"


def shards_of(folder: Path, split: Split, suffix: str) -> list[Path]:
    """A split's files, in order; none where it has no rows. Raises DatasetError where one of several is missing."""
    whole = folder / f"{split}{suffix}"
    if whole.is_file():
        return [whole]
    found = sorted(folder.glob(f"{split}-*-of-*{suffix}"))
    if not found:
        return []
    count = found[0].name.removesuffix(suffix).rpartition("-")[2]
    wanted = [folder / f"{split}-{number:05d}-of-{count}{suffix}" for number in range(len(found))]
    if not count.isdecimal() or int(count) != len(found) or found != wanted:
        raise DatasetError(
            f"{str(folder)!r} is damaged: its {len(found)} files of {split} are not the {count} there must be."
        )
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
    require: Callable[[], None]
    """Raises MissingExtraError, with the line to install it, where a package that it needs is not there."""
