"""open_dataset(): what a trainer uses. Rows one at a time or by number; where each begins is found once per split.

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
from gristmill.core.manifest import Edition, Manifest, RowsRecord, require_manifest
from gristmill.core.names import counted
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
    """Where rows lie, in plain values: it goes along wherever a row is sent."""

    folder: str
    split: str


class Row(dict[str, Any]):
    """A row is a dict. A notebook shows it token by token, if its dataset is still where it was."""

    __slots__ = ("number", "source")
    source: RowSource
    number: int

    def _repr_html_(self) -> str:
        # By name, as looking is a layer above: it reads datasets.
        notebook = importlib.import_module("gristmill.views.notebook")
        shown: str = notebook.shown_row(self)
        return shown


class RowFile(Protocol):
    """A file of rows, or all rows of a split in a format that is not by lines: each row as a line of JSON."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __getitem__(self, row: int, /) -> bytes: ...


def open_dataset(folder: str | os.PathLike[str]) -> "Dataset":
    """A finished dataset in this folder."""
    return Dataset(Path(os.path.expanduser(folder)))


class Dataset(Mapping[str, "Rows"]):
    """A finished dataset: its manifest, its tokenizer, and per split its rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.edition = Edition(folder)
        """The build that is in the folder: while another takes its place, nothing of that is read as if of this one."""
        self.record: RowsRecord = self.edition.record
        """The manifest, or the little that is known of rows that no build has made."""
        self._rows: dict[str, Rows] = {}
        self._tokenizer: Tokenizer | None = None

    @property
    def manifest(self) -> Manifest:
        """Raises DatasetError for rows that no build has made."""
        return require_manifest(self.record, self.folder)

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            with self.edition.reading():
                self._tokenizer = tokenizer_in(self.folder)
        return self._tokenizer

    @property
    def continuing(self) -> Tokenizer:
        """The tokenizer for a text that goes on after other tokens: it puts no blank before it."""
        return tokenizer_for(self.tokenizer.definition.continuing)

    @cached_property
    def fim_frame(self) -> FimFrame:
        """Special ids of rows of fill in the middle."""
        window = msgspec.convert(self.manifest.settings["window"], WindowConfig)
        return fim_frame(window, self.tokenizer.definition)

    def __getitem__(self, split: str) -> "Rows":
        if split not in list(Split):
            raise KeyError(f"no split {split!r}: there are {', '.join(Split)}")
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
        """A split for PyTorch: windows by number, or as a stream.

        `without=["noise"]` leaves out such variants; `pad="length"` pads each window; `columns` besides `input_ids` are
        those of a row, `attention_mask` and `labels`. Rank and world size are found where a training is distributed.
        """
        require_torch()
        from gristmill.dataset.torch_stream import WindowStream  # noqa: PLC0415 - slow to import, and not always there
        from gristmill.dataset.torch_windows import WindowDataset  # noqa: PLC0415

        if streaming:
            return WindowStream(self[split].opened(), self.record, self.folder, **options)
        return WindowDataset(self[split].unpacked(), self.record, self.folder, **options)

    def stored(self, name: str, split: str) -> StoredSplit:
        """A split's rows in one of its formats."""
        if name not in self.record.formats:
            there = ", ".join(self.record.formats)
            raise DatasetError(f"{str(self.folder)!r} has {there} and no {name}. Try gristmill export --format {name}.")
        num_rows = self.manifest.splits[Split(split)].windows
        return StoredSplit(self.folder, name, Split(split), Schema.of(self.manifest), num_rows, edition=self.edition)

    def _files_of(self, split: Split) -> list[RowFile]:
        if "jsonl" not in self.record.formats:
            return [self.stored(self.record.formats[0], split)]
        files: list[RowFile] = []
        for name, facts in self.record.files.items():
            if facts.split == split and facts.format == "jsonl":
                files.append(self._row_file(split, name, facts.rows or 0, sum(map(len, files))))
        return files

    def _row_file(self, split: Split, name: str, num_rows: int, first: int) -> RowFile:
        """`first`: the number of its first row in the split."""
        path = self.folder / name
        if not path.is_file():
            self.edition.require()
            raise DatasetError(f"{str(self.folder)!r} is damaged: {name} is missing. Build the dataset again.")
        if name.endswith(".zst"):
            return ZstdJsonlFile(path, num_rows, self.edition)
        return self._plain_file(split, path, num_rows, first)

    def _plain_file(self, split: Split, path: Path, num_rows: int, first: int) -> RowFile:  # noqa: ARG002 - for viewers
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
        """In a notebook: by name, as what draws it reads datasets and stands above them."""
        return str(importlib.import_module("gristmill.views.notebook").dataset_html(self))


def windows_in(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of a row that holds several files' windows, each with its ids; any other row is one."""
    if "segments" not in row:
        return [row]
    try:
        lengths = [one["length"] for one in row["segments"]]
        if min(lengths, default=0) < 0 or sum(lengths) > len(row["input_ids"]):
            raise ValueError(f"{counted(len(lengths), 'window')} in {len(row['input_ids'])} ids")
        return [
            {**one, "input_ids": row["input_ids"][one["at"] : one["at"] + one["length"]]} for one in row["segments"]
        ]
    except (LookupError, TypeError, ValueError) as error:
        raise DatasetError(f"a row is damaged: {error!r}. Build the dataset again.") from None


class Rows:
    """One split's rows, as dicts. `rows.padded()` gives the same rows padded to the window length."""

    def __init__(self, files: Sequence[RowFile], record: RowsRecord, source: RowSource, *, pad: bool = False) -> None:
        self._files, self._record, self._source, self._pad = files, record, source, pad
        self._first_rows = [0, *accumulate(map(len, files))]

    def opened(self) -> "Rows":
        """With all files open and where rows begin known, so that processes that are forked later share it."""
        for file in self._files:
            if len(file):
                file[0]
        return self

    def unpacked(self) -> "Rows":
        """The same rows, each within microseconds: what is compressed is unpacked into a file without a name."""
        files = [
            UnpackedJsonlFile(file) if isinstance(file, ZstdJsonlFile | StoredSplit) else file for file in self._files
        ]
        return Rows(files, self._record, self._source, pad=self._pad).opened()

    def padded(self) -> "Rows":
        """With `input_ids` of the full window length and an `attention_mask`."""
        if self._record.tokenizer.pad_id is None:
            name = self._record.tokenizer.name
            raise DatasetError(f"the tokenizer {name!r} has no padding token; pad with an id of your own choice.")
        return Rows(self._files, self._record, self._source, pad="attention_mask" not in self._record.columns)

    def __len__(self) -> int:
        return self._first_rows[-1]

    def __repr__(self) -> str:
        return f"Rows({counted(len(self), 'window')} of {', '.join(self._record.columns)})"

    def __iter__(self) -> Iterator[Row]:
        return map(self._parse, self.lines(), count())

    def lines(self) -> Iterator[bytes]:
        """The rows as they are stored, one JSON object each."""
        return (line for file in self._files for line in file)

    def line(self, row: int) -> bytes:
        """One of them, by its number."""
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
            raise IndexError(f"row {index} of {len(self)}")
        return self._parse(self.line(row), row)

    def of_file(self, repo: str, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """A file's windows, with the numbers of their rows."""
        names = b'"path":%b,"repo":%b,' % (orjson.dumps(path), orjson.dumps(repo))
        for number, line in enumerate(self.lines()):
            if names in line:
                for window in windows_in(self._parse(line, number)):
                    if (window.get("repo"), window.get("path")) == (repo, path):
                        yield number, window

    def _parse(self, line: bytes, number: int) -> Row:
        try:
            row = Row(orjson.loads(line))
            row.source, row.number = self._source, number
            if self._pad:
                missing = self._record.window_length - len(row["input_ids"])
                row["attention_mask"] = [1] * len(row["input_ids"]) + [0] * missing
                row["input_ids"] = row["input_ids"] + [self._record.tokenizer.pad_id] * missing
                for name, padding in PER_ID.items():
                    if name in row:
                        row[name] += [padding] * (len(row["input_ids"]) - len(row[name]))
        except (ValueError, LookupError, TypeError) as error:
            raise DatasetError(f"a row is damaged: {error!r}. Build the dataset again.") from None
        return row
