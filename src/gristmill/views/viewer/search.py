"""Plain text in what the rows spell: row after row, for a fraction of a second, and from there on the next time.

Nothing is kept between requests: where the next one goes on is in its cursor, `SPLIT:ROW:HITS`, with the hits of that
row that were told already.
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
from gristmill.views.viewer.filters import Passing
from gristmill.views.viewer.request import bad_request, whole_number
from gristmill.views.viewer.viewed_rows import NotIndexedError, ViewedDataset, text_of
from gristmill.views.viewer.window_index import WindowTable

SECONDS = 0.3
MAX_HITS = 50
AROUND = 80
"""Characters of the line before a match, and behind it."""
MAX_MATCH = 200


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    split: Split
    row: int
    repo: str
    path: str
    line: int | None
    """In the file, or in the other text that a variant is; None where the window is not in the order of its text."""
    before: str
    match: str
    after: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    hits: list[Hit]
    next: str | None
    searched: int
    of: int


class Near(msgspec.Struct, frozen=True, kw_only=True):
    split: Split | None
    row: int | None
    """The row with the nearest hit; None where there is none as far as was looked."""
    next: str | None
    """Where to go on looking."""


class Cursor(NamedTuple):
    split: Split
    row: int
    num_told: int

    def __str__(self) -> str:
        return f"{self.split}:{self.row}:{self.num_told}"

    @classmethod
    def of(cls, text: str) -> "Cursor":
        split, _, numbers = text.partition(":")
        row, _, told = numbers.partition(":")
        places = whole_number(row), whole_number(told)
        if split not in list(Split) or places[0] is None or places[1] is None:
            raise bad_request("after is what an earlier answer had as next.")
        return cls(Split(split), places[0], places[1])


class Search:
    def __init__(self, text: str, *, is_exact: bool) -> None:
        self._pattern = re.compile(re.escape(text), 0 if is_exact else re.IGNORECASE)
        # Lower case is quicker to look through, and the same thing where all letters are ASCII.
        self._quick = text.lower() if text.isascii() else None

    def matches(self, text: str) -> Iterator[re.Match[str]]:
        if self._quick is not None and text.isascii() and self._quick not in text.lower():
            return iter(())
        return self._pattern.finditer(text)


class Scope(NamedTuple):
    """What is searched."""

    dataset: ViewedDataset
    passing: Passing
    windows: WindowTable | None
    """Of the index: it knows which windows of a row pass. None: all do."""


def search(scope: Scope, wanted: Search, after: Cursor | None) -> Found:
    rows, numbering = scope.passing.rows, scope.dataset.numbering
    at, num_told = _start(scope, after)
    hits: list[Hit] = []
    deadline = time.monotonic() + SECONDS
    first = at
    while at < len(rows) and (at == first or time.monotonic() < deadline):
        split, row = numbering.place(int(rows[at]))
        try:
            for count, hit in enumerate(_hits(scope, wanted, split, row)):
                if count >= num_told and len(hits) == MAX_HITS:
                    return Found(hits=hits, next=str(Cursor(split, row, count)), searched=at, of=len(rows))
                if count >= num_told:
                    hits.append(hit)
        except NotIndexedError:
            if at == first:
                raise
            break
        at, num_told = at + 1, 0
    following = str(Cursor(*numbering.place(int(rows[at])), 0)) if at < len(rows) else None
    return Found(hits=hits, next=following, searched=at, of=len(rows))


def search_near(scope: Scope, wanted: Search, beside: Cursor, *, is_back: bool) -> Near:
    """The next row with a hit, or the one before; `beside` itself counts if none of its hits is told."""
    rows, numbering = scope.passing.rows, scope.dataset.numbering
    number, step = numbering.number(beside.split, beside.row), -1 if is_back else 1
    at = bisect_left(rows, number)
    is_there = at < len(rows) and int(rows[at]) == number
    if is_there and beside.num_told:
        at += step
    elif is_back and not is_there:
        at -= 1
    deadline = time.monotonic() + SECONDS
    first = at
    while 0 <= at < len(rows) and (at == first or time.monotonic() < deadline):
        split, row = numbering.place(int(rows[at]))
        if any(True for _ in _hits(scope, wanted, split, row)):
            return Near(split=split, row=row, next=None)
        at += step
    following = str(Cursor(*numbering.place(int(rows[at])), 0)) if 0 <= at < len(rows) else None
    return Near(split=None, row=None, next=following)


def _start(scope: Scope, after: Cursor | None) -> tuple[int, int]:
    """-> where to go on among the rows, and how many hits of that one are told."""
    if after is None:
        return 0, 0
    rows, number = scope.passing.rows, scope.dataset.numbering.number(after.split, after.row)
    at = bisect_left(rows, number)
    return at, after.num_told if at < len(rows) and int(rows[at]) == number else 0


def _hits(scope: Scope, wanted: Search, split: Split, row: int) -> Iterator[Hit]:
    dataset, tokenizer = scope.dataset, scope.dataset.tokenizer
    read = read_row(dataset, split, row)
    for window in _passing_windows(scope, read.windows, dataset.numbering.number(split, row)):
        text = text_of(read.content(window), tokenizer)
        for match in wanted.matches(text):
            yield _hit(split, row, window, match, counts_lines=tokenizer.gives_text_back and has_lines(window))


def _passing_windows(scope: Scope, windows: list[Window], row: int) -> list[Window]:
    if scope.windows is None or scope.passing.windows is None:
        return windows
    own = scope.windows.of_row(row)
    does_pass = np.isin(np.arange(own.start, own.stop), scope.passing.windows)
    return [window for window, passes in zip(windows, does_pass, strict=True) if passes]


def _hit(split: Split, row: int, window: Window, match: re.Match[str], *, counts_lines: bool) -> Hit:
    text, (start, end) = match.string, match.span()
    begin, stop = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    return Hit(
        split=split,
        row=row,
        repo=window.repo,
        path=window.path,
        line=window.lines[0] + text.count("\n", 0, start) if counts_lines else None,
        before=_shown(text[max(begin, start - AROUND) : start]),
        match=_shown(text[start:end][:MAX_MATCH]),
        after=_shown(text[end : stop if stop >= 0 else None][:AROUND].rstrip("\r")),
    )


def _shown(text: str) -> str:
    return printable(text.replace("\t", "    "))
