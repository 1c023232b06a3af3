"""Read a finished dataset: rows by index or one after the other, and splits for PyTorch. Start with open_dataset().

The first access to a row by index locates all rows of a file, so later accesses are fast.

dataset = open_dataset("dataset")
for row in dataset["train"]: ...
dataset["train"][123]["input_ids"]
windows = dataset.torch("train")
"""

import importlib
import os
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, overload

import msgspec
import orjson

from gristmill.config.settings import WindowConfig
from gristmill.core.columns import PER_ID
from gristmill.core.errors import DatasetError
from gristmill.core.extras import require_torch
from gristmill.core.manifest import Manifest, OpenedBuild, RowsRecord, require_ids, require_manifest
from gristmill.core.names import counted, shell_quote
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.formats.jsonl import JsonlFile
from gristmill.formats.stored_split import StoredSplit, UnpackedJsonlFile
from gristmill.formats.zstd import ZstdJsonlFile
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for, tokenizer_in
from gristmill.tokenizers.window_frame import FimFrame, fim_frame

if TYPE_CHECKING:
    from gristmill.dataset.torch_stream import WindowStream
    from gristmill.dataset.torch_windows import WindowDataset


class RowSource(NamedTuple):
    """Folder and split of a row, as plain strings that can be pickled with the row."""

    folder: str
    split: str


class Row(dict[str, Any]):
    """A row as a dict. A notebook displays the row token by token, if the dataset is still in the same folder."""

    __slots__ = ("number", "source")
    source: RowSource
    number: int

    def _repr_html_(self) -> str:
        # Imported by name, because the package views is a higher layer that imports this module.
        notebook = importlib.import_module("gristmill.views.notebook")
        html: str = notebook.row_cell_html(self)
        return html


def row_name(row: Mapping[str, Any]) -> str:
    """Name a row in an error message: `row train:5 in 'dataset'`, or `a row` if its dataset is not known."""
    if not isinstance(row, Row) or not hasattr(row, "source"):
        return "a row"
    return f"row {row.source.split}:{row.number} in {row.source.folder!r}"


class RowFile(Protocol):
    """Rows as lines of JSON: one JSONL file, or all rows of a split in a different format."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __getitem__(self, row: int, /) -> bytes: ...


def open_dataset(folder: str | os.PathLike[str]) -> "Dataset":
    """Open the dataset in `folder` for reading. Raises DatasetError if `folder` is not a dataset."""
    return Dataset(Path(os.path.expanduser(folder)))


class Dataset(Mapping[str, "Rows"]):
    """A finished dataset: its manifest, its tokenizer, and the rows of each split as a mapping."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.edition = OpenedBuild(folder)
        """Build that the folder contains. Reading raises DatasetError if a later build has replaced it."""
        self.record: RowsRecord = self.edition.record
        """Manifest, or the smaller record of rows that gristmill did not build."""
        self._rows: dict[str, Rows] = {}
        self._tokenizer: Tokenizer | None = None

    @property
    def manifest(self) -> Manifest:
        """Manifest of the build. Raises DatasetError for rows that gristmill did not build."""
        return require_manifest(self.record, self.folder)

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            with self.edition.guard_reading():
                self._tokenizer = tokenizer_in(self.folder)
        return self._tokenizer

    @property
    def continuing_tokenizer(self) -> Tokenizer:
        """Tokenizer for text that follows other tokens: it adds no leading space."""
        return tokenizer_for(self.tokenizer.definition.without_prefix_space)

    @cached_property
    def fim_frame(self) -> FimFrame:
        """Special ids of fill-in-the-middle rows."""
        window = msgspec.convert(self.manifest.settings["window"], WindowConfig)
        return fim_frame(window, self.tokenizer.definition, has_documents=self.record.has_documents)

    def __getitem__(self, split: str) -> "Rows":
        if split not in list(Split):
            raise KeyError(f"no split {split!r}: the splits are {', '.join(Split)}")
        if split not in self._rows:
            self._rows[split] = Rows(self._files_of(Split(split)), self.record, self._source(split))
        return self._rows[split]

    @overload
    def torch(
        self,
        split: str,
        *,
        streaming: Literal[False] = ...,
        shuffle: bool = ...,
        seed: int = ...,
        rank: int | None = ...,
        world_size: int | None = ...,
        pad: Literal["batch", "length"] = ...,
        without: Collection[str] = ...,
        columns: Sequence[str] | None = ...,
    ) -> "WindowDataset": ...
    @overload
    def torch(
        self,
        split: str,
        *,
        streaming: Literal[True],
        shuffle: bool = ...,
        seed: int = ...,
        rank: int | None = ...,
        world_size: int | None = ...,
        pad: Literal["batch", "length"] = ...,
        without: Collection[str] = ...,
        columns: Sequence[str] | None = ...,
    ) -> "WindowStream": ...
    def torch(self, split: str, *, streaming: bool = False, **options: Any) -> "WindowDataset | WindowStream":
        """Return a split for PyTorch: a WindowDataset, or a WindowStream if `streaming`.

        `shuffle` and `seed` determine the order of windows in each epoch. `pad="length"` pads every window to the
        window length; by default, a batch is padded to its longest window. `without=["noise"]` leaves out
        variants of these kinds. `columns` selects what an item contains besides `input_ids`: any columns of the rows,
        `attention_mask` and `labels`. `rank` and `world_size` default to those of the distributed training run, if any.
        Raises MissingExtraError if PyTorch is not installed.
        """
        require_ids(self.record, self.folder, "dataset.torch()")
        require_torch()
        from gristmill.dataset.torch_stream import WindowStream  # noqa: PLC0415 - slow to import, and optional
        from gristmill.dataset.torch_windows import WindowDataset  # noqa: PLC0415

        if streaming:
            return WindowStream(self[split].opened(), self.record, self.folder, **options)
        return WindowDataset(self[split].unpacked(), self.record, self.folder, **options)

    def stored_split(self, name: str, split: str) -> StoredSplit:
        """Return a split in the format `name`, which must be one of the formats of the dataset."""
        if name not in self.record.formats:
            formats = ", ".join(self.record.formats)
            raise DatasetError(
                f"{str(self.folder)!r} does not have the format {name}, only {formats}. "
                f"Run gristmill export {shell_quote(str(self.folder))} --format {name}."
            )
        num_rows = self.manifest.splits[Split(split)].windows
        return StoredSplit(self.folder, name, Split(split), Schema.of(self.manifest), num_rows, edition=self.edition)

    def _files_of(self, split: Split) -> list[RowFile]:
        if "jsonl" not in self.record.formats:
            return [self.stored_split(self.record.formats[0], split)]
        files: list[RowFile] = []
        for name, facts in self.record.files.items():
            if facts.split == split and facts.format == "jsonl":
                files.append(self._row_file(split, name, facts.rows or 0, sum(map(len, files))))
        return files

    def _row_file(self, split: Split, name: str, num_rows: int, first: int) -> RowFile:
        """Open one data file. `first` is the number of rows of the split in earlier files."""
        path = self.folder / name
        if not path.is_file():
            self.edition.require_unchanged()
            raise DatasetError(f"{str(self.folder)!r} is damaged: {name} is missing. Build the dataset again.")
        if name.endswith(".zst"):
            return ZstdJsonlFile(path, num_rows, self.edition)
        return self._plain_file(split, path, num_rows, first)

    def _plain_file(self, split: Split, path: Path, num_rows: int, first: int) -> RowFile:  # noqa: ARG002 - used by views
        return JsonlFile(path, num_rows, self.edition)

    def _source(self, split: str) -> RowSource:
        return RowSource(os.path.abspath(self.folder), split)

    def __iter__(self) -> Iterator[str]:
        return iter(str(split) for split in Split)

    def __len__(self) -> int:
        return len(Split)

    def __repr__(self) -> str:
        rows = ", ".join(f"{split}: {facts.windows:,}" for split, facts in self.record.splits.items())
        return f"Dataset({str(self.folder)!r}, {rows})"

    def _repr_html_(self) -> str:
        # Imported by name, because the package views is a higher layer that imports this module.
        return str(importlib.import_module("gristmill.views.notebook").dataset_html(self))


def split_windows(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Split a packed row into its windows, each with its own ids. Any other row is one window."""
    if "segments" not in row:
        return [row]
    fault = "it has no input_ids, or one of its segments has no valid `at` or `length`"
    try:
        num_ids, lengths = len(row["input_ids"]), [one["length"] for one in row["segments"]]
        if min(lengths, default=0) < 0 or sum(lengths) > num_ids:
            fault = f"a window has a negative length, or the windows exceed the {counted(num_ids, 'id')} of the row"
            raise ValueError(fault)
        return [
            {**one, "input_ids": row["input_ids"][one["at"] : one["at"] + one["length"]]} for one in row["segments"]
        ]
    except (LookupError, TypeError, ValueError):
        raise DatasetError(f"{row_name(row)} is damaged: {fault}. Build the dataset again.") from None


class Rows:
    """Rows of one split, as dicts. `rows.padded()` returns the same rows padded to the window length."""

    def __init__(self, files: Sequence[RowFile], record: RowsRecord, source: RowSource, *, pad: bool = False) -> None:
        self._files, self._record, self._source, self._pad = files, record, source, pad
        self._first_rows = [0, *accumulate(map(len, files))]

    def opened(self) -> "Rows":
        """Open all files and locate their rows now, so that processes forked later share the result. Return self."""
        for file in self._files:
            if len(file):
                file[0]
        return self

    def unpacked(self) -> "Rows":
        """Return the same rows, with faster access by index: reading one row takes microseconds.

        Rows that are not in plain JSONL files are first written as JSON lines to an unnamed temporary file.
        """
        files = [
            UnpackedJsonlFile(file) if isinstance(file, ZstdJsonlFile | StoredSplit) else file for file in self._files
        ]
        return Rows(files, self._record, self._source, pad=self._pad).opened()

    def padded(self) -> "Rows":
        """Return the same rows with `input_ids` padded to the window length, and with an `attention_mask`.

        Raises DatasetError if the tokenizer has no padding token, or if rows are documents.
        """
        require_ids(self._record, Path(self._source.folder), "padding")
        if self._record.tokenizer.pad_id is None:
            name = self._record.tokenizer.name
            raise DatasetError(f"the tokenizer {name!r} has no padding token. Pad the rows yourself, with any id.")
        return Rows(self._files, self._record, self._source, pad="attention_mask" not in self._record.columns)

    def __len__(self) -> int:
        return self._first_rows[-1]

    def __repr__(self) -> str:
        unit = "document" if self._record.has_documents else "window"
        return f"Rows({counted(len(self), unit)} of {', '.join(self._record.columns)})"

    def __iter__(self) -> Iterator[Row]:
        return map(self._parse, self.lines(), count())

    def lines(self) -> Iterator[bytes]:
        """Iterate over the stored rows, each a line with a JSON object."""
        return (line for file in self._files for line in file)

    def line(self, row: int) -> bytes:
        """Return the line of the row at the index `row`."""
        file = bisect_right(self._first_rows, row) - 1
        return self._files[file][row - self._first_rows[file]]

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"row index {index} is out of range: the split has {counted(len(self), 'row')}")
        return self._parse(self.line(row), row)

    def of_file(self, repo: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (row index, window) for each window of a file."""
        names = b'"path":%b,"repo":%b,' % (orjson.dumps(path), orjson.dumps(repo))
        for number, line in enumerate(self.lines()):
            if names in line:
                for window in split_windows(self._parse(line, number)):
                    if (window.get("repo"), window.get("path")) == (repo, path):
                        yield number, window

    def _parse(self, line: bytes, number: int) -> Row:
        fault = "it is not a JSON object"
        row = Row()
        row.source, row.number = self._source, number
        try:
            row.update(orjson.loads(line))
            if self._pad:
                fault = "it has no input_ids, or one of its columns is not a list of numbers"
                num_missing = self._record.window_length - len(row["input_ids"])
                row["attention_mask"] = [1] * len(row["input_ids"]) + [0] * num_missing
                row["input_ids"] = row["input_ids"] + [self._record.tokenizer.pad_id] * num_missing
                for name, padding in PER_ID.items():
                    if name in row:
                        row[name] += [padding] * (len(row["input_ids"]) - len(row[name]))
        except (ValueError, LookupError, TypeError):
            raise DatasetError(f"{row_name(row)} is damaged: {fault}. Build the dataset again.") from None
        return row
