"""A split's rows -> windows of content ids: without special tokens and padding, whatever wrote the rows.

Ids are read as digits, many rows at once, where rows are written the way gristmill writes them; other spellings of the
same JSON (a kept method's) are taken row by row.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.checking.digits import numbers_in
from gristmill.columns import IGNORED_LABEL
from gristmill.dataset import Dataset
from gristmill.errors import DatasetError
from gristmill.manifest import TokenizerFacts
from gristmill.records import BY_THEMSELVES, FileKey, Split

HEAD = b'{"input_ids":['
ROWS_AT_ONCE = 64
"""As `gristmill check` has measured: their ids stay in a core's cache."""

Ids = npt.NDArray[np.uint32]


class TextKey(NamedTuple):
    """A file, or a variant of it: a text of its own."""

    repo: str
    path: str
    variant: str = ""
    seed: int = 0

    @property
    def file(self) -> FileKey:
        return self.repo, self.path


class ShownWindow(NamedTuple):
    text: TextKey
    start: int
    """Of its first id, in the text."""
    ids: Ids
    num_ids: int
    """In the row: with the special tokens, without padding."""

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


class _Fields(msgspec.Struct):
    path: str
    repo: str
    start: Annotated[int, msgspec.Meta(ge=0, lt=1 << 60)]
    attention_mask: list[int] | None = None
    labels: list[int] | None = None
    variant: str = ""
    variant_seed: int = 0


class _Row(_Fields):
    input_ids: list[int] = msgspec.field(default_factory=list)


_fields = msgspec.json.Decoder(_Fields)
_row = msgspec.json.Decoder(_Row)


def windows_of(
    dataset: Dataset, split: Split, advance: Callable[[int], None] = lambda _: None
) -> Iterator[ShownWindow]:
    """In the order of the rows. What labels show, where there is noise in the ids, is a window of the file itself."""
    lines = dataset[split].lines()
    while batch := list(islice(lines, ROWS_AT_ONCE)):
        with _damage_told(dataset, split):
            yield from _windows(batch, dataset.manifest.tokenizer)
        advance(len(batch))


def files_in(dataset: Dataset, split: Split) -> set[FileKey]:
    """Of which files it has rows."""
    with _damage_told(dataset, split):
        fields = (_fields.decode(_without_ids(line) or line) for line in dataset[split].lines())
        return {(one.repo, one.path) for one in fields}


@contextmanager
def _damage_told(dataset: Dataset, split: Split) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, OverflowError, ValueError) as error:  # not UTF-8 is a ValueError too
        place = f"{str(dataset.folder)!r} is damaged in {split}"
        raise DatasetError(f"{place}: {error}. Build the dataset again.") from None


def _windows(lines: Sequence[bytes], tokenizer: TokenizerFacts) -> Iterator[ShownWindow]:
    num_prefix, num_special = len(tokenizer.prefix), len(tokenizer.prefix) + len(tokenizer.suffix)
    for fields, ids in _rows(lines):
        mask = fields.attention_mask
        num_ids = len(ids) if mask is None or 0 not in mask else mask.index(0)
        content = slice(num_prefix, num_prefix + max(0, num_ids - num_special))
        text = TextKey(fields.repo, fields.path, fields.variant, fields.variant_seed if fields.variant else 0)
        yield ShownWindow(text, fields.start, _known(ids[content], tokenizer), num_ids)
        if fields.labels is not None and fields.variant in BY_THEMSELVES:
            labels = [one for one in fields.labels if one != IGNORED_LABEL]
            clean = np.array(labels[num_prefix : len(labels) - len(tokenizer.suffix)], np.uint32)
            yield ShownWindow(TextKey(fields.repo, fields.path), fields.start, _known(clean, tokenizer), 0)


def _known(ids: Ids, tokenizer: TokenizerFacts) -> Ids:
    if not len(ids) or int(ids.max()) >= tokenizer.vocab_size:
        raise ValueError(f"a window without ids, or with one that is not among {tokenizer.vocab_size}")
    return ids


def _rows(lines: Sequence[bytes]) -> Iterator[tuple[_Fields, Ids]]:
    rests = [_without_ids(line) for line in lines]
    is_plain = all(rest is not None for rest in rests)
    read = numbers_in([line[len(HEAD) : line.index(b"]")] for line in lines]) if is_plain else None
    if read is None:
        for row in map(_row.decode, lines):
            yield row, np.array(row.input_ids, np.uint32)
        return
    ids = read[0].astype(np.uint32)
    for rest, (first, end) in zip(rests, pairwise(read[1].tolist()), strict=True):
        yield _fields.decode(rest or b""), ids[first:end]


def _without_ids(line: bytes) -> bytes | None:
    """`{"input_ids":[1,2],"path":…}` -> `{"path":…}`, if it is written just so."""
    end = line.find(b"],")
    return b"{" + line[end + 2 :] if line.startswith(HEAD) and end > 0 else None
