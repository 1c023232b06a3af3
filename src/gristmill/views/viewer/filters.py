"""Which rows pass the filters of a request: a mask over files, taken by window, then the rows of those windows."""

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.records import Split, VariantKind
from gristmill.views.viewer.file_index import FileTable, Mask
from gristmill.views.viewer.index import Index
from gristmill.views.viewer.request import Query, RefusedError
from gristmill.views.viewer.viewed_rows import NotIndexedError, Numbering
from gristmill.views.viewer.window_index import KINDS, WindowTable

FILTERS_KEPT = 8
NO_VARIANT = "none"
FIM = "fim"


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    split: Split | None = None
    language: str | None = None
    license: str | None = None
    variant: str | None = None
    """A kind; `none` are windows of the files themselves, `fim` those of fill in the middle."""
    path: str | None = None

    @classmethod
    def of(cls, query: Query) -> "Filters":
        split = query.choice("split", list(Split))
        return cls(
            split=None if split is None else Split(split),
            language=query.text("language"),
            license=query.text("license"),
            variant=query.choice("variant", [NO_VARIANT, FIM, *VariantKind]),
            path=query.text("path"),
        )

    @property
    def need_index(self) -> bool:
        return any((self.language, self.license, self.variant, self.path))


class Passing(NamedTuple):
    rows: Sequence[int] | npt.NDArray[np.uint32]
    """Numbered through all splits, ascending."""
    windows: npt.NDArray[np.uint32] | None
    """Those that pass, by number; None: all of these rows."""

    def __len__(self) -> int:
        return len(self.rows)

    def page(self, first: int, count: int) -> list[int]:
        return [int(row) for row in self.rows[first : first + count]]

    def neighbours(self, row: int) -> tuple[int | None, int | None]:
        """The last before a row and the first behind it, whether that row passes or not."""
        at = bisect_left(self.rows, row)
        after = at + (at < len(self.rows) and int(self.rows[at]) == row)
        return (
            int(self.rows[at - 1]) if at > 0 else None,
            int(self.rows[after]) if after < len(self.rows) else None,
        )


class Sieve:
    """Keeps what passed the last few filters: pages and steps ask for the same again."""

    def __init__(self, index: Index, numbering: Numbering) -> None:
        self._index, self._numbering = index, numbering
        self._kept: OrderedDict[Filters, Passing] = OrderedDict()
        self._lock = threading.Lock()

    def passing(self, filters: Filters) -> Passing:
        if not filters.need_index:
            return Passing(self._numbering.range_of(filters.split), None)
        files, windows = tables_of(self._index)
        with self._lock:
            if filters not in self._kept:
                self._kept[filters] = _passing(filters, files, windows, self._numbering)
                if len(self._kept) > FILTERS_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(filters)
            return self._kept[filters]


def tables_of(index: Index) -> tuple[FileTable, WindowTable]:
    """Raises where they are not there: yet, or at all."""
    files, windows = files_of(index), index.windows
    if windows is None:
        raise NotIndexedError
    return files, windows


def files_of(index: Index) -> FileTable:
    error = index.state.error
    if error is not None:
        raise index_failed(error)
    if index.files is None:
        raise NotIndexedError
    return index.files


def index_failed(error: str) -> RefusedError:
    return RefusedError(HTTPStatus.CONFLICT, error)


def _passing(filters: Filters, files: FileTable, windows: WindowTable, numbering: Numbering) -> Passing:
    numbers = numbering.range_of(filters.split)
    first, end = np.searchsorted(windows.row, np.array([numbers.start, numbers.stop], np.uint32)).tolist()
    mask = np.ones(end - first, np.bool_)
    by_file = _file_mask(filters, files)
    if by_file is not None:
        mask &= by_file[windows.file[first:end]]
    if filters.variant == FIM:
        mask &= windows.form[first:end] > 0
    elif filters.variant is not None:
        code = 0 if filters.variant == NO_VARIANT else KINDS.index(filters.variant)
        mask &= windows.variant[first:end] == code
    found = (np.flatnonzero(mask) + first).astype(np.uint32)
    rows = windows.row[found]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = rows[1:] != rows[:-1]
    return Passing(rows[is_first], found)


def _file_mask(filters: Filters, files: FileTable) -> Mask | None:
    masks = [files.having(name, word) for name in ("language", "license") if (word := getattr(filters, name))]
    if filters.path is not None:
        masks.append(files.named(filters.path))
    return np.logical_and.reduce(masks) if masks else None
