"""Plain-text search in the decoded text of rows.

A request searches row after row for a fraction of a second. The server keeps no state between requests: the answer has
a cursor `SPLIT:ROW:HITS` for the next request, where HITS is the number of hits in that row that are already reported.
"""

import re
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from gristmill.core.names import printable
from gristmill.core.records import Split
from gristmill.dataset.row_windows import Window, read_row
from gristmill.views.row import has_lines
from gristmill.views.viewer.filters import MatchingRows
from gristmill.views.viewer.request import bad_request, parse_number
from gristmill.views.viewer.viewer_dataset import NotIndexedError, ViewerDataset, decode_text
from gristmill.views.viewer.window_index import WindowTable

MAX_SECONDS = 0.3
MAX_HITS = 50
MAX_CONTEXT = 80
"""Maximum number of characters of context before a match, and also after it. Context is on the same line."""
MAX_MATCH = 200


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One match, with the rest of its line as context."""

    split: Split
    row: int
    repo: str
    path: str
    line: int | None
    """Line number in the file or variant, or None if it is unknown, for example in a fill-in-the-middle window."""
    before: str
    match: str
    after: str


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Hits found by one request, and the progress of the search."""

    hits: list[Hit]
    next: str | None
    """Cursor for the next request, or None if all rows are searched."""
    searched: int
    """Number of rows searched since the start of the search."""
    total: int
    """Number of rows to search."""


class NearestHit(msgspec.Struct, frozen=True, kw_only=True):
    """The nearest row with a hit. Split and row are None if none of the searched rows has a hit."""

    split: Split | None
    row: int | None
    next: str | None
    """Cursor for the next request, or None if the search is complete."""


class Cursor(NamedTuple):
    """Position at which a search continues."""

    split: Split
    row: int
    num_reported: int
    """Number of hits in this row that are already reported."""

    def __str__(self) -> str:
        return f"{self.split}:{self.row}:{self.num_reported}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        split, _, numbers = text.partition(":")
        row, _, num_reported = numbers.partition(":")
        parsed = parse_number(row), parse_number(num_reported)
        if split not in list(Split) or parsed[0] is None or parsed[1] is None:
            raise bad_request("a cursor must be the `next` value of an earlier answer.")
        return cls(Split(split), parsed[0], parsed[1])


class Matcher:
    """Finds a text in other texts."""

    def __init__(self, text: str, *, is_exact: bool) -> None:
        self._pattern = re.compile(re.escape(text), 0 if is_exact else re.IGNORECASE)
        # A search in lower case is faster than the pattern and never misses a match if all characters are ASCII.
        self._ascii_text = text.lower() if text.isascii() else None

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        if self._ascii_text is not None and text.isascii() and self._ascii_text not in text.lower():
            return iter(())
        return self._pattern.finditer(text)


class Scope(NamedTuple):
    """The rows and windows to search."""

    dataset: ViewerDataset
    matching: MatchingRows
    windows: WindowTable | None
    """Window table for selecting the matching windows of a row, or None to search all windows of these rows."""


def search(scope: Scope, matcher: Matcher, after: Cursor | None) -> SearchResult:
    """Search from the start or from a cursor, until MAX_SECONDS have passed or MAX_HITS are found."""
    rows, row_numbers = scope.matching.rows, scope.dataset.row_numbers
    at, num_reported = _start(scope, after)
    hits: list[Hit] = []
    deadline = time.monotonic() + MAX_SECONDS
    first = at
    while at < len(rows) and (at == first or time.monotonic() < deadline):
        split, row = row_numbers.split_and_row(int(rows[at]))
        try:
            for count, hit in enumerate(_hits(scope, matcher, split, row)):
                if count >= num_reported and len(hits) == MAX_HITS:
                    return SearchResult(hits=hits, next=str(Cursor(split, row, count)), searched=at, total=len(rows))
                if count >= num_reported:
                    hits.append(hit)
        except NotIndexedError:
            if at == first:
                raise
            break
        at, num_reported = at + 1, 0
    following = str(Cursor(*row_numbers.split_and_row(int(rows[at])), 0)) if at < len(rows) else None
    return SearchResult(hits=hits, next=following, searched=at, total=len(rows))


def find_nearest(scope: Scope, matcher: Matcher, cursor: Cursor, *, is_back: bool) -> NearestHit:
    """Find the next row with a hit or, with `is_back`, the previous row with a hit.

    The row of the cursor is also searched, unless hits in this row are already reported.
    """
    rows, row_numbers = scope.matching.rows, scope.dataset.row_numbers
    number, step = row_numbers.number(cursor.split, cursor.row), -1 if is_back else 1
    at = bisect_left(rows, number)
    is_listed = at < len(rows) and int(rows[at]) == number
    if is_listed and cursor.num_reported:
        at += step
    elif is_back and not is_listed:
        at -= 1
    deadline = time.monotonic() + MAX_SECONDS
    first = at
    while 0 <= at < len(rows) and (at == first or time.monotonic() < deadline):
        split, row = row_numbers.split_and_row(int(rows[at]))
        if any(True for _ in _hits(scope, matcher, split, row)):
            return NearestHit(split=split, row=row, next=None)
        at += step
    following = str(Cursor(*row_numbers.split_and_row(int(rows[at])), 0)) if 0 <= at < len(rows) else None
    return NearestHit(split=None, row=None, next=following)


def _start(scope: Scope, after: Cursor | None) -> tuple[int, int]:
    """Return the position of the first row to search, and the number of its hits that are already reported."""
    if after is None:
        return 0, 0
    rows, number = scope.matching.rows, scope.dataset.row_numbers.number(after.split, after.row)
    at = bisect_left(rows, number)
    return at, after.num_reported if at < len(rows) and int(rows[at]) == number else 0


def _hits(scope: Scope, matcher: Matcher, split: Split, row: int) -> Iterator[Hit]:
    dataset, tokenizer = scope.dataset, scope.dataset.tokenizer
    read = read_row(dataset, split, row)
    for window in _matching_windows(scope, read.windows, dataset.row_numbers.number(split, row)):
        text = decode_text(read.content(window), tokenizer, f"{split}:{row}")
        for match in matcher.matches(text):
            yield _hit(split, row, window, match, counts_lines=tokenizer.decodes_exactly and has_lines(window))


def _matching_windows(scope: Scope, windows: list[Window], row: int) -> list[Window]:
    if scope.windows is None or scope.matching.windows is None:
        return windows
    numbers = scope.windows.windows_of_row(row)
    mask = np.isin(np.arange(numbers.start, numbers.stop), scope.matching.windows)
    return [window for window, is_matching in zip(windows, mask, strict=True) if is_matching]


def _hit(split: Split, row: int, window: Window, match: re.Match[str], *, counts_lines: bool) -> Hit:
    text, (start, end) = match.string, match.span()
    line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    return Hit(
        split=split,
        row=row,
        repo=window.repo,
        path=window.path,
        line=window.lines[0] + text.count("\n", 0, start) if counts_lines else None,
        before=_display_text(text[max(line_start, start - MAX_CONTEXT) : start]),
        match=_display_text(text[start:end][:MAX_MATCH]),
        after=_display_text(text[end : line_end if line_end >= 0 else None][:MAX_CONTEXT].rstrip("\r")),
    )


def _display_text(text: str) -> str:
    return printable(text.replace("\t", "    "))
