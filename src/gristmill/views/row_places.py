"""Where every window of a split is from: read from its rows, without their ids.

Of a row only what it tells is parsed; its ids are counted by their commas.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from gristmill.core.errors import DatasetError
from gristmill.core.files_table import Count
from gristmill.core.manifest import Manifest
from gristmill.core.records import Split
from gristmill.dataset.dataset import Dataset


class Place(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of a window: the file that it is from, and which part of it."""

    repo: str
    path: str
    lines: tuple[Count, Count]
    start: Count
    """Its first token, among the file's."""
    fresh: Count
    """So many of its tokens, at its end, are not in the window before it."""
    repeat: Count = 0
    variant: str = ""
    at: Count | None = None
    length: Count | None = None
    """In a row of several windows: where its tokens are among the ids, without the special ones."""


class _Row(Place, frozen=True, kw_only=True, gc=False):
    attention_mask: msgspec.Raw = msgspec.Raw(b"")


class _PackedRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    segments: tuple[Place, ...]
    attention_mask: msgspec.Raw = msgspec.Raw(b"")


class RowPlaces(NamedTuple):
    num_ids: int
    """With special tokens, without padding."""
    places: tuple[Place, ...]
    """One, or those of the windows that share the row."""


def places_in(dataset: Dataset, split: Split) -> Iterator[RowPlaces]:
    """Row by row, in order."""
    return places_of(dataset[split].lines(), dataset.manifest, split)


def places_of(lines: Iterable[bytes], manifest: Manifest, split: Split) -> Iterator[RowPlaces]:
    """The same of rows as they are stored, from the split's first on."""
    kind: type[_Row | _PackedRow] = _Row if manifest.packing is None else _PackedRow
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(lines):
        try:
            row = decoder.decode(line)
            places = row.segments if isinstance(row, _PackedRow) else (row,)
            num_ids = _num_ids(line, bytes(row.attention_mask))
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise DatasetError(f"row {split}:{number} is damaged: {error}. `gristmill check` tells more.") from None
        yield RowPlaces(num_ids, places)


def _num_ids(line: bytes, mask: bytes) -> int:
    if mask:
        return mask.count(b"1")
    start = line.index(b"[") + 1
    end = line.index(b"]", start)
    return line.count(b",", start, end) + 1 if end > start else 0
