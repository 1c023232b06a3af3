"""Records and files of the frozen test set, which freeze.py builds: windows to score, and facts about the windows."""

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
from gristmill.dataset.token_spans import Ids

WINDOWS, FACTS = "test.jsonl", "test.json"
MIN_TOKENS = 100_000
"""Default minimum size of the test set. With fewer tokens, differences between datasets are hardly measurable."""


class TrainOverlap(msgspec.Struct, frozen=True, kw_only=True):
    """Size of one dataset's train split, and its overlap with the files of the test set (frozen files)."""

    name: str
    windows: int
    """Number of rows in train that a run trains on."""
    ids: int
    """Number of token ids in these rows, including special tokens, without padding."""
    span_tokens: int
    """Number of frozen tokens in spans of 50 or more tokens that also occur in this train split."""
    near_duplicate_files: int
    """Number of frozen files with a near-duplicate in train. 0 if gristmill did not build the dataset."""


class FrozenFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of test.json, which describes the frozen test set."""

    source: str | None
    """Name of the dataset whose test split is used. None if the files that all datasets hold out are used."""
    files: int
    tokens: int
    windows: int
    window_length: int
    overlap: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    tokens_before: int
    """Number of tokens before the overlap with train splits was removed."""
    against: tuple[TrainOverlap, ...]
    """Overlap with the train split of each dataset."""
    sha256: str
    """Digest of test.jsonl."""


class FrozenWindow(NamedTuple):
    """A window to score: one line of test.jsonl."""

    repo: str
    path: str
    start: int
    fresh: int
    """Number of tokens to score: the last tokens of the window, not counting special tokens. Earlier windows score the
    other tokens."""
    input_ids: Ids
    """Token ids, including special tokens."""

    @property
    def file(self) -> FileKey:
        return self.repo, self.path


class Frozen(NamedTuple):
    """The frozen test set."""

    windows: list[FrozenWindow]
    """Windows of all files, sorted by file name."""
    facts: FrozenFacts

    def fresh_ids(self, window: FrozenWindow) -> Ids:
        """Return the ids of a window that are scored."""
        end = len(window.input_ids) - len(self.facts.suffix)
        return window.input_ids[end - window.fresh : end]

    def file_numbers(self) -> npt.NDArray[np.int64]:
        """Return the index of each window's file, from 0, for sums per file with `np.bincount`."""
        indices = {file: index for index, file in enumerate(dict.fromkeys(window.file for window in self.windows))}
        return np.array([indices[window.file] for window in self.windows], np.int64)

    def write(self, folder: Path) -> None:
        """Write test.json, which marks the folder as a comparison, and then test.jsonl."""
        write_atomically(folder / FACTS, msgspec.json.format(msgspec.json.encode(self.facts), indent=2) + b"\n")
        write_atomically(folder / WINDOWS, map(_line, self.windows))

    @classmethod
    def read(cls, folder: Path) -> "Frozen":
        """Read the test set from a folder. Raises DatasetError if the test set is missing or damaged."""
        facts = read_facts(folder)
        try:
            content = read_plain(folder / WINDOWS)
            if hashlib.sha256(content).hexdigest() != facts.sha256:
                raise DatasetError(
                    f"{str(folder / WINDOWS)!r} does not match the digest in {FACTS}. Compare into a new folder."
                )
            rows = [orjson.loads(line) for line in content.splitlines()]
        except (OSError, ValueError) as error:
            raise _unreadable(folder, error) from None
        return cls([FrozenWindow(**{**row, "input_ids": np.array(row["input_ids"], np.uint32)}) for row in rows], facts)


def read_facts(folder: Path) -> FrozenFacts:
    try:
        return msgspec.json.decode(read_plain(folder / FACTS), type=FrozenFacts)
    except (OSError, msgspec.MsgspecError) as error:
        raise _unreadable(folder, error) from None


def _unreadable(folder: Path, error: Exception) -> DatasetError:
    reason = getattr(error, "strerror", None) or error
    return DatasetError(f"cannot read the frozen test set in {str(folder)!r}: {reason}. Compare into a new folder.")


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
