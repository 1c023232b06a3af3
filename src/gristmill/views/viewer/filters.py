"""The filters of a request, and the rows that match the filters.

Filters by language, license and path select files by a mask (one boolean per file), which is converted to a mask over
windows. A row matches if one of its windows matches all filters.
"""

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
from gristmill.views.viewer.viewer_dataset import NotIndexedError, RowNumbers
from gristmill.views.viewer.window_index import VARIANT_KINDS, WindowTable

MAX_CACHED = 8
NO_VARIANT = "none"
FIM = "fim"


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on windows. A condition that is None matches every window."""

    split: Split | None = None
    language: str | None = None
    license: str | None = None
    variant: str | None = None
    """A variant kind, `none` for windows of the original files, or `fim` for fill-in-the-middle windows."""
    path: str | None = None

    @classmethod
    def from_query(cls, query: Query) -> "Filters":
        split = query.choice("split", list(Split))
        return cls(
            split=None if split is None else Split(split),
            language=query.text("language"),
            license=query.text("license"),
            variant=query.choice("variant", [NO_VARIANT, FIM, *VariantKind]),
            path=query.text("path"),
        )

    @property
    def needs_index(self) -> bool:
        return any((self.language, self.license, self.variant, self.path))


class MatchingRows(NamedTuple):
    """The rows that match some filters."""

    rows: Sequence[int] | npt.NDArray[np.uint32]
    """Numbers of the rows, counted from 0 across all splits, in ascending order."""
    windows: npt.NDArray[np.uint32] | None
    """Indexes of the matching windows in the window table, or None if all windows of these rows match."""

    def __len__(self) -> int:
        return len(self.rows)

    def page(self, first: int, count: int) -> list[int]:
        return [int(row) for row in self.rows[first : first + count]]

    def neighbors(self, row: int) -> tuple[int | None, int | None]:
        """Return the nearest matching rows before and after a row. The row itself need not match."""
        at = bisect_left(self.rows, row)
        after = at + (at < len(self.rows) and int(self.rows[at]) == row)
        return (
            int(self.rows[at - 1]) if at > 0 else None,
            int(self.rows[after]) if after < len(self.rows) else None,
        )


class FilterCache:
    """Applies filters and caches the last few results, because consecutive requests often have the same filters."""

    def __init__(self, index: Index, row_numbers: RowNumbers) -> None:
        self._index, self._row_numbers = index, row_numbers
        self._cached: OrderedDict[Filters, MatchingRows] = OrderedDict()
        self._lock = threading.Lock()

    def apply(self, filters: Filters) -> MatchingRows:
        """Return the matching rows. Raises NotIndexedError if the filters need an index that is not built yet."""
        if not filters.needs_index:
            return MatchingRows(self._row_numbers.range_of(filters.split), None)
        files, windows = require_tables(self._index)
        with self._lock:
            if filters not in self._cached:
                self._cached[filters] = _apply(filters, files, windows, self._row_numbers)
                if len(self._cached) > MAX_CACHED:
                    self._cached.popitem(last=False)
            self._cached.move_to_end(filters)
            return self._cached[filters]


def require_tables(index: Index) -> tuple[FileTable, WindowTable]:
    """Return the file table and the window table of an index.

    Raises NotIndexedError while the tables are not built yet, and RefusedError if they cannot be built.
    """
    files, windows = require_files(index), index.windows
    if windows is None:
        raise NotIndexedError
    return files, windows


def require_files(index: Index) -> FileTable:
    """Return the file table of an index. Raises the same errors as `require_tables`."""
    error = index.state.error
    if error is not None:
        raise index_error(error)
    if index.files is None:
        raise NotIndexedError
    return index.files


def index_error(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.CONFLICT, message)


def _apply(filters: Filters, files: FileTable, windows: WindowTable, row_numbers: RowNumbers) -> MatchingRows:
    numbers = row_numbers.range_of(filters.split)
    first, end = np.searchsorted(windows.row, np.array([numbers.start, numbers.stop], np.uint32)).tolist()
    mask = np.ones(end - first, np.bool_)
    file_mask = _file_mask(filters, files)
    if file_mask is not None:
        mask &= file_mask[windows.file[first:end]]
    if filters.variant == FIM:
        mask &= windows.form[first:end] > 0
    elif filters.variant is not None:
        code = 0 if filters.variant == NO_VARIANT else VARIANT_KINDS.index(filters.variant)
        mask &= windows.variant[first:end] == code
    found = (np.flatnonzero(mask) + first).astype(np.uint32)
    rows = windows.row[found]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = rows[1:] != rows[:-1]
    return MatchingRows(rows[is_first], found)


def _file_mask(filters: Filters, files: FileTable) -> Mask | None:
    masks = [files.with_value(name, value) for name in ("language", "license") if (value := getattr(filters, name))]
    if filters.path is not None:
        masks.append(files.with_name(filters.path))
    return np.logical_and.reduce(masks) if masks else None
