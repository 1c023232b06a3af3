"""Rows that gristmill did not build: read as they are, and made a folder that `open_dataset` reads.

A row is a JSON object with `input_ids`, special tokens included, and `attention_mask` if it is padded. `repo`, `path`
and `start` say which tokens of which file it shows: `gristmill compare` goes by them to find what is held out.
Text without ids is no row: `gristmill build` reads tables of texts.

adopt(Path("theirs"), Path("dataset"), definition, made_by="somebody")

`.jsonl` and `.jsonl.zst` have a row a line. A `.json` is what `json.dump(rows, stream, indent=2)` leaves of flat rows:
between two of them always stand the same nine bytes, which no row holds, as a line feed inside a string is escaped.
So it is cut there, and not gone through line by line: a gigabyte has a hundred million of them.
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
    FORMAT,
    FileFacts,
    ForeignRows,
    RowCounts,
    TokenizerFacts,
    facts_of,
    write_manifest,
)
from gristmill.core.names import counted
from gristmill.core.plain_files import open_plain
from gristmill.core.records import FileKey, Range, Split
from gristmill.core.version import __version__
from gristmill.dataset.stretches import Ids
from gristmill.formats.zstd import ZstdJsonlFile, read_table
from gristmill.tokenizers.definition import Definition

BLOCK_BYTES = 1 << 22
LONGEST_ROW_BYTES = 1 << 26
DATA_FILE = re.compile(rf"({'|'.join(Split)})(-\d+-of-\d+)?\.(jsonl\.zst|jsonl|json)")
HEAD, BETWEEN, FOOT = b"[\n  {", b"\n  },\n  {", b"\n  }\n]"
NO_ROWS = b"[]"

Kind = TypeVar("Kind")


class ForeignRow(msgspec.Struct, frozen=True):
    input_ids: list[int]
    path: str = ""
    repo: str = ""
    start: int = 0
    attention_mask: list[int] | None = None

    def __post_init__(self) -> None:
        if self.start < 0 or (self.attention_mask is not None and len(self.attention_mask) != len(self.input_ids)):
            raise ValueError(f"a window of {self.path!r} begins before its file, or its mask has another length")

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def num_ids(self) -> int:
        """Without padding, which stands at the end."""
        mask = self.attention_mask
        return len(self.input_ids) if mask is None or 0 not in mask else mask.index(0)

    def window(self) -> Ids:
        """Its ids without padding."""
        try:
            return np.frombuffer(array("I", self.input_ids), np.uint32)[: self.num_ids]
        except OverflowError:
            raise DatasetError(f"a window of {self.path!r} is damaged: it has a number that is no id.") from None


def data_files(folder: Path, split: Split) -> list[Path]:
    """In the order of their names; none where there is nothing of this split."""
    matches = ((path, DATA_FILE.fullmatch(path.name)) for path in sorted(folder.iterdir()) if path.is_file())
    return [path for path, match in matches if match is not None and match[1] == split]


def rows_of(folder: Path, split: Split) -> Iterator[ForeignRow]:
    """One at a time and in flat memory, whatever they are written as."""
    for path in data_files(folder, split):
        yield from decoded(path, raw_rows(path), ForeignRow)


def decoded(path: Path, rows: Iterator[bytes], kind: type[Kind]) -> Iterator[Kind]:
    """The rows of this file as records, or as `dict`."""
    decoder = msgspec.json.Decoder(kind)
    for number, row in enumerate(rows, 1):
        try:
            yield decoder.decode(row)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DatasetError(f"{str(path)!r} is damaged in row {number}: {error}.") from None


def raw_rows(path: Path) -> Iterator[bytes]:
    """Each row's JSON."""
    try:
        if path.name.endswith(".zst"):
            yield from ZstdJsonlFile(path, sum(frame.num_rows for frame in read_table(path)))
        elif path.name.endswith(".jsonl"):
            with open_plain(path) as stream:
                yield from stream
        else:
            yield from _rows_of_list(path)
    except OSError as error:
        raise DatasetError(f"cannot read {str(path)!r}: {error.strerror}.") from None


def _rows_of_list(path: Path) -> Iterator[bytes]:
    with open_plain(path) as stream:
        head = stream.read(len(HEAD))
        if head.rstrip() == NO_ROWS:
            return
        rest = b""
        while head == HEAD and len(rest) < LONGEST_ROW_BYTES and (block := stream.read(BLOCK_BYTES)):
            *rows, rest = (rest + block).split(BETWEEN)
            yield from (b"{%b}" % row for row in rows)
    rest = rest.rstrip()
    if not rest.endswith(FOOT):
        raise DatasetError(f"{str(path)!r} is damaged: not a whole list of rows as json.dump(…, indent=2) writes it.")
    yield b"{%b}" % rest.removesuffix(FOOT)


# Rows, made a dataset folder.


class Shown:
    """Which tokens of which files windows show."""

    def __init__(self) -> None:
        self._ranges: dict[FileKey, set[Range]] = {}

    def add(self, file: FileKey, start: int, num_tokens: int) -> None:
        self._ranges.setdefault(file, set()).add((start, start + num_tokens))

    def files(self) -> KeysView[FileKey]:
        return self._ranges.keys()

    def num_tokens(self, file: FileKey) -> int:
        """Distinct ones."""
        num_shown = done = 0
        for start, end in sorted(self._ranges.get(file, ())):
            num_shown += max(0, end - max(start, done))
            done = max(done, end)
        return num_shown

    def num_places(self) -> int:
        return sum(map(len, self._ranges.values()))


def adopt(
    source: Path,
    folder: Path,
    definition: Definition,
    *,
    made_by: str,
    window_length: int | None = None,
    renamed: Mapping[str, str] | None = None,
) -> ForeignRows:
    """Make an existing, empty folder the dataset of the rows in `source`, whose `.jsonl` files are moved there.

    `window_length`: ids in a row at most; None: as many as the longest has. `renamed`: columns of theirs under other
    names, `{"tokens": "input_ids"}`.
    """
    definition.write(folder)
    taken = {split: _Taken.of(split, source, folder, definition, renamed or {}) for split in Split}
    files = {name: facts for one in taken.values() for name, facts in one.files.items()}
    rows = ForeignRows(
        format=FORMAT,
        gristmill=__version__,
        made_by=made_by,
        tokenizer=_tokenizer_facts(definition, made_by),
        window_length=_window_length(window_length, max(one.longest for one in taken.values())),
        columns=next((one.columns for one in taken.values() if one.columns), []),
        splits={split: one.counts() for split, one in taken.items()},
        files={**files, **{name: facts_of(folder / name) for name in (TOKENIZER, TOKENIZER_CONFIG)}},
    )
    write_manifest(rows, folder, is_synced=False)
    return rows


def _window_length(asked: int | None, longest: int) -> int:
    if asked is not None and asked < longest:
        raise DatasetError(f"a row has {counted(longest, 'id')}, more than the {asked} that a window is said to have.")
    return max(1, longest) if asked is None else asked


class _Taken:
    """A split's rows, and what was found in them."""

    def __init__(self, num_special: int) -> None:
        self._num_special = num_special
        self._shown = Shown()
        self._num_windows = self._num_emitted = 0
        self.longest = 0
        """Of its rows, in ids."""
        self.columns: list[str] = []
        self.files: dict[str, FileFacts] = {}

    @classmethod
    def of(
        cls, split: Split, source: Path, folder: Path, definition: Definition, renamed: Mapping[str, str]
    ) -> "_Taken":
        """Of a split without rows, no file."""
        taken = cls(len(definition.template.prefix) + len(definition.template.suffix))
        paths = [path for path in data_files(source, split) if next(raw_rows(path), None) is not None]
        for index, path in enumerate(paths):
            name = data_file_name(split, index, len(paths), compressed=False)
            if path.name.endswith(".jsonl") and not renamed:
                shutil.move(path, folder / name)
            else:
                _write_rows(path, folder / name, renamed)
            taken.files[name] = taken.read(folder / name, split)
        return taken

    def read(self, path: Path, split: Split) -> FileFacts:
        digest, num_bytes, num_rows = hashlib.sha256(), 0, 0

        def lines() -> Iterator[bytes]:
            nonlocal num_bytes, num_rows
            for line in raw_rows(path):
                digest.update(line)
                num_bytes += len(line)
                num_rows += 1
                yield line

        self.columns = self.columns or list(next(decoded(path, raw_rows(path), dict[str, Any])))
        for row in decoded(path, lines(), ForeignRow):
            self._shown.add(row.key, row.start, max(0, row.num_ids - self._num_special))
            self._num_windows += 1
            self._num_emitted += len(row.input_ids)
            self.longest = max(self.longest, len(row.input_ids))
        return FileFacts(bytes=num_bytes, sha256=digest.hexdigest(), rows=num_rows, split=split, format="jsonl")

    def counts(self) -> RowCounts:
        files = self._shown.files()
        return RowCounts(
            files=len(files),
            windows=self._num_windows,
            tokens=sum(map(self._shown.num_tokens, files)),
            emitted_tokens=self._num_emitted,
        )


def _write_rows(path: Path, target: Path, renamed: Mapping[str, str]) -> None:
    encoder = msgspec.json.Encoder()
    with target.open("wb") as stream:
        for row in decoded(path, raw_rows(path), dict[str, Any]):
            stream.write(encoder.encode({renamed.get(name, name): value for name, value in row.items()}) + b"\n")


def _tokenizer_facts(definition: Definition, made_by: str) -> TokenizerFacts:
    return TokenizerFacts(
        name=definition.name,
        sha256=definition.sha256,
        revision=definition.revision,
        vocab_size=definition.vocab_size,
        engine=f"that of {made_by}",
        prefix=definition.template.prefix,
        suffix=definition.template.suffix,
        pad_id=definition.pad_id,
        end_id=definition.end_id,
        mask_id=definition.mask_id,
    )
