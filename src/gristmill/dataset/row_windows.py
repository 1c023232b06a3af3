"""The windows of one row: what it tells of each, and where their tokens are among its ids."""

from typing import Annotated, Any, NamedTuple

import msgspec

from gristmill.core.errors import DatasetError
from gristmill.core.files_table import Count
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.records import LARGEST_VOCABULARY
from gristmill.dataset.dataset import Dataset

_Id = Annotated[int, msgspec.Meta(ge=0, lt=LARGEST_VOCABULARY)]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that no build has made may tell less of it."""

    repo: str = ""
    path: str = ""
    language: str = ""
    lines: tuple[Count, Count] = (0, 0)
    start: Count = 0
    fresh: Count = 0
    repeat: Count = 0
    variant: str = ""
    at: Count = 0
    """Where its tokens begin among the row's ids."""
    length: Count = 0
    """So many tokens, without special ones."""

    @property
    def end(self) -> int:
        """Among the file's tokens, of a window that is a stretch of them."""
        return self.start + self.length


class ReadRow(NamedTuple):
    ids: list[int]
    """With special tokens, without padding."""
    windows: list[Window]
    """One, or those that share the row."""

    def content(self, window: Window) -> list[int]:
        return self.ids[window.at : window.at + window.length]


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    input_ids: list[_Id]
    attention_mask: list[int] | None = None
    segments: list[Window] | None = None


def read_row(dataset: Dataset, split: str, row: int) -> ReadRow:
    try:
        return _understood(dataset.manifest, dataset[split][row])
    except (ValueError, DatasetError) as error:  # msgspec's are ValueErrors
        raise DatasetError(f"row {split}:{row} is damaged: {error}. `gristmill check` tells more.") from None


def _understood(manifest: Manifest, told: dict[str, Any]) -> ReadRow:
    facts, found = manifest.tokenizer, msgspec.convert(told, _Stored)
    if len(found.input_ids) > manifest.window_length:
        raise ValueError(
            f"it has {counted(len(found.input_ids), 'id')}, and windows have at most {manifest.window_length}"
        )
    ids = found.input_ids if found.attention_mask is None else found.input_ids[: sum(found.attention_mask)]
    windows = found.segments
    if windows is None:
        length = len(ids) - len(facts.prefix) - len(facts.suffix)
        windows = [msgspec.structs.replace(msgspec.convert(told, Window), at=len(facts.prefix), length=length)]
    end = 0
    for one in windows:
        if one.at < end or one.length < 0 or one.at + one.length > len(ids):
            raise ValueError(f"it has {counted(len(ids), 'id')}, and a window of {one.length} at {one.at}")
        end = one.at + one.length
    return ReadRow(ids, windows)
