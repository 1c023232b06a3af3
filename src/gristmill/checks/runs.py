"""Rows of one file, which stand together -> a run: its windows as numbers, its tokens put together again.

Each window after the first brings what it adds; what it shares with the one before must be the same ids (`windows`).
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.checks.findings import Faults
from gristmill.checks.rows import Row
from gristmill.checks.tokens import Ids, key_of_bytes, key_of_ids
from gristmill.core.records import BY_THEMSELVES, FimForm, MiddleKind

BY_WINDOWS = BY_THEMSELVES
COLUMNS = (
    *("row", "start", "end", "fresh", "first_line", "last_line", "num_ids", "key", "label_key", "is_ended", "group"),
    *("form", "middle", "middle_tokens"),
)
ROW, START, END, FRESH, FIRST_LINE, LAST_LINE, NUM_IDS, KEY, LABEL_KEY, IS_ENDED, GROUP = range(11)
FORM, MIDDLE, MIDDLE_TOKENS = range(11, len(COLUMNS))
FORMS = ("", *FimForm)
MIDDLES = ("", *MiddleKind)

Table = npt.NDArray[np.int64]


class RunKey(NamedTuple):
    repo: str
    path: str
    repeat: Any = None
    variant: Any = None
    seed: Any = None
    weight: float | None = None

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"

    @property
    def file(self) -> tuple[str, str]:
        return self.repo, self.path

    @property
    def is_by_windows(self) -> bool:
        """Each window is by itself: neighbours have nothing in common."""
        return self.variant in BY_WINDOWS


class Stretch(NamedTuple):
    """Tokens of a file without a gap."""

    start: int
    """Its first token's place in the file."""
    ids: Ids
    text: bytes | None = None
    """Text of a document, or of a piece of one."""
    num_tokens: int | None = None
    """Number of tokens that a document has in its file; a piece by itself may have others."""

    @property
    def end(self) -> int:
        return self.start + (len(self.ids) if self.num_tokens is None else self.num_tokens)


class Run(NamedTuple):
    key: RunKey
    language: str
    windows: Table
    """One line per window, with the COLUMNS. A window of fill in the middle ends with the last token of its place."""
    stretches: list[Stretch]
    infilled: Mapping[int, Ids | bytes] = MappingProxyType({})
    """Ids, or texts of documents, of windows of fill in the middle, by number. No stretch has them until checks.fim
    puts them together."""

    @property
    def repeat(self) -> int:
        return self.key.repeat or 0


def runs_of(rows: Iterable[Row], file: str, faults: Faults) -> list[Run]:
    runs: list[Run] = []
    growing: _GrowingRun | None = None
    for row in rows:
        key = _key(row)
        if growing is None or growing.key != key:
            runs += [growing.done()] if growing else []
            growing = _GrowingRun(key, row.fields["language"])
        if row.fields["language"] != growing.language:
            what = f"language {row.fields['language']!r}, and {growing.language!r} in the row before"
            faults.add("schema", what, file=file, row=row.number, path=key.name)
        if not growing.take(row):
            what = "the ids it shares with the window before are others"
            faults.add("windows", what, file=file, row=row.number, path=key.name)
    return [*runs, growing.done()] if growing else []


def _key(row: Row) -> RunKey:
    fields = row.fields
    kind = fields.get("variant") or None
    seed = fields.get("variant_seed") if kind else None
    return RunKey(fields["repo"], fields["path"], fields.get("repeat"), kind, seed, fields.get("weight"))


class _GrowingRun:
    def __init__(self, key: RunKey, language: str) -> None:
        self.key, self.language = key, language
        self._windows: list[tuple[int, ...]] = []
        self._stretches: list[tuple[int, list[Ids]]] = []
        self._documents: list[Stretch] = []
        self._last = Stretch(-1, np.zeros(0, np.uint16))
        self._infilled: dict[int, Ids | bytes] = {}
        self._is_open = False
        """The last stretch may go on."""

    def take(self, row: Row) -> bool:
        """Whether it agrees with the window before."""
        fields, ids = row.fields, row.ids
        start, form = fields["start"], FORMS.index(fields.get("fim", ""))
        first, last = fields["lines"]
        middle = (form, MIDDLES.index(fields.get("middle", "")), fields.get("middle_tokens", 0))
        if row.text is not None:
            fresh = 0 if self.key.repeat else row.num_ids
            numbers = (row.number, start, start + row.num_ids, fresh, first, last, row.num_ids)
            self._windows.append((*numbers, key_of_bytes(row.text), 0, 0, row.group, *middle))
            if form:
                self._infilled[len(self._windows) - 1] = row.text
            else:
                self._documents.append(Stretch(start, ids, row.text, row.num_ids))
            return True
        fresh = fields["fresh"]
        end = start + (fresh if form else len(ids))
        numbers = (row.number, start, end, fresh, first, last, row.num_ids)
        self._windows.append((*numbers, key_of_ids(ids), row.label_key, row.is_ended, row.group, *middle))
        if form:
            self._infilled[len(self._windows) - 1] = ids
            self._is_open = False
            return True
        before, was_open = self._last, self._is_open
        self._last, self._is_open = Stretch(start, ids), True
        num_shared = before.end - start
        if not was_open or start < before.start or num_shared < 0 or self.key.is_by_windows:
            self._stretches.append((start, [ids]))
            return True
        self._stretches[-1][1].append(ids[num_shared:])
        num_shared = min(num_shared, len(ids))
        at = start - before.start
        # As bytes: three times as fast as a comparison of so few ids.
        return before.ids[at : at + num_shared].tobytes() == ids[:num_shared].tobytes()

    def done(self) -> Run:
        stretches = [Stretch(start, np.concatenate(parts)) for start, parts in self._stretches]
        windows = np.array(self._windows, np.int64)
        return Run(self.key, self.language, windows, stretches or self._documents, self._infilled)


def joined(left: Run, right: Run, file: str, faults: Faults) -> Run:
    """Two runs of one file, the second right behind the first: a part of a data file ended between them."""
    windows = np.concatenate((left.windows, right.windows))
    moved = {number + len(left.windows): ids for number, ids in right.infilled.items()}
    infilled = {**left.infilled, **moved}
    stretches = [*left.stretches, *right.stretches]
    if left.windows[-1, FORM] or right.windows[0, FORM]:
        return Run(left.key, left.language, windows, stretches, infilled)
    before, after = left.stretches[-1], right.stretches[0]
    num_shared = before.end - after.start
    if after.start >= before.start and num_shared >= 0 and not left.key.is_by_windows and before.text is None:
        at = after.start - before.start
        num_compared = min(num_shared, len(after.ids))
        if (before.ids[at : at + num_compared] != after.ids[:num_compared]).any():
            what = "the ids it shares with the window before are others"
            faults.add("windows", what, file=file, row=int(right.windows[0, ROW]), path=right.key.name)
        whole = Stretch(before.start, np.concatenate((before.ids, after.ids[num_shared:])))
        stretches = [*left.stretches[:-1], whole, *right.stretches[1:]]
    return Run(left.key, left.language, windows, stretches, infilled)
