"""Read rows that gristmill did not build, and convert them to a folder that `open_dataset` reads.

A row is a JSON object with `input_ids`, including special tokens, and with `attention_mask` if the row is padded.
`repo` and `path` identify the file, and `start` is the index of the row's first token among the tokens of the file.
`gristmill compare` uses these columns to find held-out text. Rows with text instead of ids are not supported, but
`gristmill build` reads tables of texts.

convert_rows(Path("other-rows"), Path("dataset"), definition, made_by="other-tool")

`.jsonl` and `.jsonl.zst` files have one row per line. A `.json` file must be the output of
`json.dump(rows, stream, indent=2)`, for rows without nested objects. In such a file, adjacent rows are separated by the
same nine bytes. No row contains these bytes, because line feeds inside strings are escaped. The file is split at these
bytes instead of at lines, because a gigabyte has a hundred million lines.
"""

import hashlib
import re
import shutil
from array import array
from collections.abc import Iterator, KeysView, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from gristmill.core.errors import DatasetError
from gristmill.core.layout import TOKENIZER, TOKENIZER_CONFIG, data_file_name
from gristmill.core.manifest import (
    MANIFEST_VERSION,
    FileFacts,
    ForeignRows,
    RowCounts,
    TokenizerFacts,
    file_facts,
    write_manifest,
)
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain
from gristmill.core.records import FileKey, Range, Split
from gristmill.core.version import __version__
from gristmill.dataset.token_spans import Ids
from gristmill.formats.zstd import ZstdJsonlFile, read_table
from gristmill.tokenizers.definition import Definition

BLOCK_BYTES = 1 << 22
MAX_ROW_BYTES = 1 << 26
DATA_FILE = re.compile(rf"({'|'.join(Split)})(-\d+-of-\d+)?\.(jsonl\.zst|jsonl|json)")
LIST_START, ROW_SEPARATOR, LIST_END = b"[\n  {", b"\n  },\n  {", b"\n  }\n]"
EMPTY_LIST = b"[]"

Record = TypeVar("Record")


class ForeignRow(msgspec.Struct, frozen=True):
    """A row that gristmill did not build."""

    input_ids: list[int]
    path: str = ""
    repo: str = ""
    start: int = 0
    attention_mask: list[int] | None = None

    def __post_init__(self) -> None:
        if self.start < 0 or (self.attention_mask is not None and len(self.attention_mask) != len(self.input_ids)):
            raise ValueError(
                f"a window of {self.path!r} has a negative start, or an attention_mask of the wrong length"
            )

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def num_ids(self) -> int:
        """Number of ids before the padding."""
        mask = self.attention_mask
        return len(self.input_ids) if mask is None or 0 not in mask else mask.index(0)

    def window(self) -> Ids:
        """Return the ids without padding."""
        try:
            return np.frombuffer(array("I", self.input_ids), np.uint32)[: self.num_ids]
        except OverflowError:
            raise DatasetError(
                f"a window of {self.path!r} is damaged: input_ids has a number that is not an id. Write its rows again."
            ) from None


def find_data_files(folder: Path, split: Split) -> list[Path]:
    """Return the data files of a split, sorted by name."""
    matches = ((path, DATA_FILE.fullmatch(path.name)) for path in sorted(folder.iterdir()) if path.is_file())
    return [path for path, match in matches if match is not None and match[1] == split]


def read_foreign_rows(folder: Path, split: Split) -> Iterator[ForeignRow]:
    """Read the rows of a split one at a time, in constant memory, from .jsonl, .jsonl.zst or .json files."""
    for path in find_data_files(folder, split):
        yield from decode_rows(path, read_raw_rows(path), ForeignRow)


def decode_rows(path: Path, rows: Iterator[bytes], record_type: type[Record]) -> Iterator[Record]:
    """Decode each row of a file as a `record_type`."""
    decoder = msgspec.json.Decoder(record_type)
    for number, row in enumerate(rows, 1):
        try:
            yield decoder.decode(row)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DatasetError(f"{str(path)!r} is damaged in row {number}: {error}. Write the file again.") from None


def read_raw_rows(path: Path) -> Iterator[bytes]:
    """Yield the JSON of each row."""
    try:
        if path.name.endswith(".zst"):
            yield from ZstdJsonlFile(path, sum(frame.num_rows for frame in read_table(path)))
        elif path.name.endswith(".jsonl"):
            with open_plain(path) as stream:
                yield from stream
        else:
            yield from _read_list(path)
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None


def _read_list(path: Path) -> Iterator[bytes]:
    """Yield the JSON of each row in a `.json` file."""
    with open_plain(path) as stream:
        head = stream.read(len(LIST_START))
        if head.rstrip() == EMPTY_LIST:
            return
        rest = b""
        while head == LIST_START and len(rest) < MAX_ROW_BYTES and (block := stream.read(BLOCK_BYTES)):
            *rows, rest = (rest + block).split(ROW_SEPARATOR)
            yield from (b"{%b}" % row for row in rows)
    rest = rest.rstrip()
    if not rest.endswith(LIST_END):
        raise DatasetError(
            f"{str(path)!r} is damaged: it is not a complete list of rows from json.dump(…, indent=2). "
            "Write the file again, or write one row per line to a .jsonl file."
        )
    yield b"{%b}" % rest.removesuffix(LIST_END)


# Conversion to a dataset folder.


class Coverage:
    """Ranges of each file's tokens that windows cover."""

    def __init__(self) -> None:
        self._ranges: dict[FileKey, set[Range]] = {}

    def add(self, file: FileKey, start: int, num_tokens: int) -> None:
        self._ranges.setdefault(file, set()).add((start, start + num_tokens))

    def files(self) -> KeysView[FileKey]:
        return self._ranges.keys()

    def num_tokens(self, file: FileKey) -> int:
        """Count the tokens of a file that windows cover, each token once."""
        num_covered = covered_to = 0
        for start, end in sorted(self._ranges.get(file, ())):
            num_covered += max(0, end - max(start, covered_to))
            covered_to = max(covered_to, end)
        return num_covered

    def num_ranges(self) -> int:
        """Count the distinct token ranges of all files."""
        return sum(map(len, self._ranges.values()))


def convert_rows(
    source: Path,
    folder: Path,
    definition: Definition,
    *,
    made_by: str,
    window_length: int | None = None,
    renamed: Mapping[str, str] | None = None,
) -> ForeignRows:
    """Convert the rows in `source` to a dataset in `folder`, which must exist and be empty.

    `.jsonl` files are moved to `folder`, unless columns are renamed. `window_length` is the maximum number of ids in a
    row. By default, it is the length of the longest row. `renamed` maps column names in `source` to column names in the
    dataset, for example `{"tokens": "input_ids"}`. Raises DatasetError if a row is longer than `window_length`.
    """
    definition.write(folder)
    converted = {split: _ConvertedSplit.of(split, source, folder, definition, renamed or {}) for split in Split}
    files = {name: facts for one in converted.values() for name, facts in one.files.items()}
    rows = ForeignRows(
        format=MANIFEST_VERSION,
        gristmill=__version__,
        made_by=made_by,
        tokenizer=_tokenizer_facts(definition, made_by),
        window_length=_window_length(window_length, max(one.longest for one in converted.values())),
        columns=next((one.columns for one in converted.values() if one.columns), []),
        splits={split: one.counts() for split, one in converted.items()},
        files={**files, **{name: file_facts(folder / name) for name in (TOKENIZER, TOKENIZER_CONFIG)}},
    )
    write_manifest(rows, folder, is_synced=False)
    return rows


def _window_length(given: int | None, longest: int) -> int:
    if given is not None and given < longest:
        raise DatasetError(
            f"a row has {counted(longest, 'id')}, but window_length is {given}. Use a larger window_length, or None."
        )
    return max(1, longest) if given is None else given


class _ConvertedSplit:
    """Counts and files of one split."""

    def __init__(self, num_special: int) -> None:
        self._num_special = num_special
        self._coverage = Coverage()
        self._num_windows = self._num_emitted = 0
        self.longest = 0
        """Number of ids in the longest row."""
        self.columns: list[str] = []
        self.files: dict[str, FileFacts] = {}

    @classmethod
    def of(
        cls, split: Split, source: Path, folder: Path, definition: Definition, renamed: Mapping[str, str]
    ) -> "_ConvertedSplit":
        """Move or rewrite the files of a split. A split without rows has no file."""
        converted = cls(len(definition.template.prefix) + len(definition.template.suffix))
        paths = [path for path in find_data_files(source, split) if next(read_raw_rows(path), None) is not None]
        for index, path in enumerate(paths):
            name = data_file_name(split, index, len(paths), compressed=False)
            if path.name.endswith(".jsonl") and not renamed:
                shutil.move(path, folder / name)
            else:
                _write_rows(path, folder / name, renamed)
            converted.files[name] = converted.count_rows(folder / name, split)
        return converted

    def count_rows(self, path: Path, split: Split) -> FileFacts:
        """Count the rows and tokens of a file. Return the facts about the file."""
        digest, num_bytes, num_rows = hashlib.sha256(), 0, 0

        def lines() -> Iterator[bytes]:
            nonlocal num_bytes, num_rows
            for line in read_raw_rows(path):
                digest.update(line)
                num_bytes += len(line)
                num_rows += 1
                yield line

        self.columns = self.columns or list(next(decode_rows(path, read_raw_rows(path), dict[str, Any])))
        for row in decode_rows(path, lines(), ForeignRow):
            self._coverage.add(row.key, row.start, max(0, row.num_ids - self._num_special))
            self._num_windows += 1
            self._num_emitted += len(row.input_ids)
            self.longest = max(self.longest, len(row.input_ids))
        return FileFacts(bytes=num_bytes, sha256=digest.hexdigest(), rows=num_rows, split=split, format="jsonl")

    def counts(self) -> RowCounts:
        files = self._coverage.files()
        return RowCounts(
            files=len(files),
            windows=self._num_windows,
            tokens=sum(map(self._coverage.num_tokens, files)),
            emitted_tokens=self._num_emitted,
        )


def _write_rows(path: Path, target: Path, renamed: Mapping[str, str]) -> None:
    encoder = msgspec.json.Encoder()
    with target.open("wb") as stream:
        for row in decode_rows(path, read_raw_rows(path), dict[str, Any]):
            stream.write(encoder.encode({renamed.get(name, name): value for name, value in row.items()}) + b"\n")


def _tokenizer_facts(definition: Definition, made_by: str) -> TokenizerFacts:
    return TokenizerFacts(
        name=definition.name,
        sha256=definition.sha256,
        revision=definition.revision,
        vocab_size=definition.vocab_size,
        engine=f"tokenizer of {made_by}",
        prefix=definition.template.prefix,
        suffix=definition.template.suffix,
        pad_id=definition.pad_id,
        end_id=definition.end_id,
        mask_id=definition.mask_id,
    )
