"""The rows that a method wrote, one at a time and in flat memory, whatever it wrote them as.

`.jsonl` and `.jsonl.zst` have a row a line. A `.json` is what `json.dump(rows, stream, indent=2)` leaves of flat rows:
between two of them always stand the same nine bytes, which no row holds, as a line feed inside a string is escaped.
So it is cut there, and not gone through line by line: a gigabyte has a hundred million of them.
"""

import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.errors import DatasetError
from gristmill.core.plain_files import open_plain
from gristmill.core.records import FileKey, Split
from gristmill.formats.zstd import ZstdJsonlFile, read_table

BLOCK_BYTES = 1 << 22
LONGEST_ROW_BYTES = 1 << 26
DATA_FILE = re.compile(rf"({'|'.join(Split)})(-\d+-of-\d+)?\.(jsonl\.zst|jsonl|json)")
HEAD, BETWEEN, FOOT = b"[\n  {", b"\n  },\n  {", b"\n  }\n]"
NO_ROWS = b"[]"

Ids = npt.NDArray[np.uint32]
Kind = TypeVar("Kind")


class Row(msgspec.Struct, frozen=True):
    """What every method's rows have."""

    input_ids: list[int]
    path: str
    repo: str
    start: int
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


def data_files(out: Path, split: Split) -> list[Path]:
    """In the order of their names; none where the method made nothing of this split."""
    matches = ((path, DATA_FILE.fullmatch(path.name)) for path in sorted(out.iterdir()) if path.is_file())
    return [path for path, match in matches if match is not None and match[1] == split]


def rows_of(out: Path, split: Split) -> Iterator[Row]:
    for path in data_files(out, split):
        yield from decoded(path, raw_rows(path), Row)


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
