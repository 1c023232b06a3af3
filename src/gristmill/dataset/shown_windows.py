"""A split's rows -> windows of content ids: without special tokens and padding, whatever wrote the rows.

Ids are read as digits, many rows at once, where rows are written the way gristmill writes them; other spellings of the
same JSON (a kept method's) are taken row by row.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.columns import IGNORED_LABEL
from gristmill.core.digits import numbers_in
from gristmill.core.errors import DatasetError
from gristmill.core.manifest import TokenizerFacts
from gristmill.core.records import BY_THEMSELVES, FileKey, Split
from gristmill.dataset.dataset import Dataset
from gristmill.splits.shared_spans import SPAN_TOKENS

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


# Windows -> stretches: tokens of a text without a gap, as far as rows show them.

REACH = SPAN_TOKENS - 1


class Stretch(NamedTuple):
    text: TextKey
    start: int
    ids: Ids

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


def stretches_of(windows: Iterable[ShownWindow]) -> Iterator[Stretch]:
    """Rows that follow each other and are neighbours in their text, put together."""
    parts: list[Ids] = []
    first = last = None
    for window in windows:
        if first is not None and last is not None and _goes_on(last, window):
            parts.append(window.ids[last.end - window.start :])
        else:
            if first is not None:
                yield Stretch(first.text, first.start, np.concatenate(parts))
            first, parts = window, [window.ids]
        last = window
    if first is not None:
        yield Stretch(first.text, first.start, np.concatenate(parts))


def _goes_on(last: ShownWindow, window: ShownWindow) -> bool:
    is_neighbour = last.start < window.start <= last.end < window.end
    return is_neighbour and last.text == window.text and window.text.variant not in BY_THEMSELVES


class Seams:
    """What stretches of the same text show together and neither shows alone."""

    def __init__(self) -> None:
        self._heads: dict[TextKey, dict[int, Ids]] = {}
        self._tails: dict[TextKey, dict[int, Ids]] = {}

    def add(self, stretch: Stretch) -> None:
        if stretch.text.variant not in BY_THEMSELVES:
            self._heads.setdefault(stretch.text, {})[stretch.start] = stretch.ids[:REACH].copy()
            self._tails.setdefault(stretch.text, {})[stretch.end] = stretch.ids[-REACH:].copy()

    def taken(self) -> Iterator[Stretch]:
        """All there are; then it begins anew."""
        for text, tails in self._tails.items():
            heads = self._heads[text]
            starts = sorted(heads)
            for end, tail in tails.items():
                for start in starts[bisect_left(starts, end - REACH + 1) : bisect_right(starts, end)]:
                    yield Stretch(text, end - len(tail), np.concatenate((tail, heads[start][end - start :])))
        self._heads, self._tails = {}, {}


def with_seams(stretches: Iterable[Stretch], *, is_by_file: bool) -> Iterator[Stretch]:
    """The same, and the seams between them; `is_by_file`: all of a file stand together, so that few are remembered."""
    seams = Seams()
    file = None
    for stretch in stretches:
        if is_by_file and stretch.text.file != file:
            yield from seams.taken()
            file = stretch.text.file
        seams.add(stretch)
        yield stretch
    yield from seams.taken()


def whole(windows: Iterable[tuple[int, Ids]]) -> list[tuple[int, Ids]] | None:
    """Windows of one file, in any order and from several datasets -> its stretches; None where two contradict."""
    ordered = sorted(windows, key=lambda window: (window[0], len(window[1])))
    stretches: list[tuple[int, Ids]] = []
    for group in _touching(ordered):
        start, end = group[0][0], max(at + len(ids) for at, ids in group)
        # One more than any id: nothing is known there yet.
        canvas = np.full(end - start, np.iinfo(np.uint32).max, np.uint32)
        for at, ids in group:
            place = canvas[at - start : at - start + len(ids)]
            if ((place != ids) & (place != np.iinfo(np.uint32).max)).any():
                return None
            place[:] = ids
        stretches.append((start, canvas))
    return stretches


def _touching(ordered: list[tuple[int, Ids]]) -> Iterator[list[tuple[int, Ids]]]:
    group: list[tuple[int, Ids]] = []
    end = 0
    for at, ids in ordered:
        if group and at > end:
            yield group
            group = []
        group.append((at, ids))
        end = max(end, at + len(ids)) if len(group) > 1 else at + len(ids)
    if group:
        yield group
