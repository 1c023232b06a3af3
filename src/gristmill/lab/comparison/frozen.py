"""The frozen test set as it is kept: windows to score, and what is known of them (freeze.py makes it)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from gristmill.core.errors import DatasetError
from gristmill.core.layout import write_atomically
from gristmill.core.plain_files import read_plain
from gristmill.core.records import FileKey
from gristmill.dataset.stretches import Ids

WINDOWS, FACTS = "test.jsonl", "test.json"
MIN_TOKENS = 100_000
"""Fewer tell datasets apart only by luck, or not at all."""


class AgainstFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one dataset's train split shows, and what of the frozen files is in it."""

    name: str
    windows: int
    ids: int
    """In all rows of train: special tokens count, padding does not."""
    span_tokens: int
    """Of the frozen files, in spans of 50 and more that this train has too."""
    near_duplicate_files: int
    """Of the frozen files; 0 where no build made the rows, as these are no documents."""


class FrozenFacts(msgspec.Struct, frozen=True, kw_only=True):
    source: str | None
    """The dataset whose `test` it is; None: what all datasets hold out."""
    files: int
    tokens: int
    windows: int
    window_length: int
    overlap: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    tokens_before: int
    """Less `tokens`: taken out, for all datasets together."""
    against: tuple[AgainstFacts, ...]
    sha256: str
    """Of test.jsonl."""


class FrozenWindow(NamedTuple):
    repo: str
    path: str
    start: int
    fresh: int
    """The last so many content tokens are scored; the others were, in the window before."""
    input_ids: Ids
    """With the special tokens."""

    @property
    def file(self) -> FileKey:
        return self.repo, self.path


class Frozen(NamedTuple):
    windows: list[FrozenWindow]
    """File by file, in the order of their names."""
    facts: FrozenFacts

    def fresh_ids(self, window: FrozenWindow) -> Ids:
        """Those that are scored."""
        end = len(window.input_ids) - len(self.facts.suffix)
        return window.input_ids[end - window.fresh : end]

    def file_numbers(self) -> npt.NDArray[np.int64]:
        """By window, the number of its file: what `np.bincount` sums scores by."""
        numbers = {file: number for number, file in enumerate(dict.fromkeys(window.file for window in self.windows))}
        return np.array([numbers[window.file] for window in self.windows], np.int64)

    def write(self, folder: Path) -> None:
        """`test.json`, its facts, which mark the folder as a comparison's; then `test.jsonl`, for people to look at."""
        write_atomically(folder / FACTS, msgspec.json.format(msgspec.json.encode(self.facts), indent=2) + b"\n")
        write_atomically(folder / WINDOWS, map(_line, self.windows))

    @classmethod
    def read(cls, folder: Path) -> "Frozen":
        facts = read_facts(folder)
        try:
            content = read_plain(folder / WINDOWS)
            if hashlib.sha256(content).hexdigest() != facts.sha256:
                raise DatasetError(f"{str(folder / WINDOWS)!r} is not what {FACTS} says. Compare into a new folder.")
            rows = [orjson.loads(line) for line in content.splitlines()]
        except (OSError, ValueError) as error:
            raise DatasetError(f"no frozen test set in {str(folder)!r}: {error}.") from None
        return cls([FrozenWindow(**{**row, "input_ids": np.array(row["input_ids"], np.uint32)}) for row in rows], facts)


def read_facts(folder: Path) -> FrozenFacts:
    try:
        return msgspec.json.decode(read_plain(folder / FACTS), type=FrozenFacts)
    except (OSError, msgspec.MsgspecError) as error:
        raise DatasetError(f"no frozen test set in {str(folder)!r}: {error}.") from None


def _line(window: FrozenWindow) -> bytes:
    row = {
        "input_ids": window.input_ids,
        "path": window.path,
        "repo": window.repo,
        "start": window.start,
        "fresh": window.fresh,
    }
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


def digest_of(windows: Sequence[FrozenWindow]) -> str:
    digest = hashlib.sha256()
    for window in windows:
        digest.update(_line(window))
    return digest.hexdigest()
