"""Group adjacent rows of one file into a run: a table of the windows, and the tokens joined from the windows.

Each window adds the ids after the end of the previous window. In the overlap of two windows, both must have the same
ids (check `windows`). Windows with noise and fill-in-the-middle windows have changed ids, so they are not joined.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.checks.findings import Faults
from gristmill.checks.rows import Row
from gristmill.checks.tokens import Ids, key_of_bytes, key_of_ids
from gristmill.core.records import INDEPENDENT_WINDOW_KINDS, FimForm, MiddleKind

INDEPENDENT_KINDS = INDEPENDENT_WINDOW_KINDS
"""Kinds of variants whose windows are independent of each other."""
COLUMNS = (
    *("row", "start", "end", "fresh", "first_line", "last_line", "num_ids", "key", "label_key", "is_ended"),
    *("segment_id", "form", "middle", "middle_tokens"),
)
ROW, START, END, FRESH, FIRST_LINE, LAST_LINE, NUM_IDS, KEY, LABEL_KEY, IS_ENDED, SEGMENT_ID = range(11)
FORM, MIDDLE, MIDDLE_TOKENS = range(11, len(COLUMNS))
FORMS = ("", *FimForm)
MIDDLES = ("", *MiddleKind)

Table = npt.NDArray[np.int64]


class RunKey(NamedTuple):
    """Identity of a run: a file, one of its repeats, or one of its variants."""

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
    def has_independent_windows(self) -> bool:
        """True if each window has its own changes, so the ids in the overlap of two windows may differ."""
        return self.variant in INDEPENDENT_KINDS


class TokenSpan(NamedTuple):
    """Contiguous tokens of a file."""

    start: int
    """Position in the file of the span's first token."""
    ids: Ids
    text: bytes | None = None
    """Text of a document or of a piece of one, or None for windows."""
    num_tokens: int | None = None
    """Number of tokens of the span in the complete file, or None for len(ids).

    A piece that is encoded alone may have different tokens.
    """

    @property
    def end(self) -> int:
        return self.start + (len(self.ids) if self.num_tokens is None else self.num_tokens)


class Run(NamedTuple):
    """Adjacent windows of one file, or of one repeat or variant of it."""

    key: RunKey
    language: str
    windows: Table
    """One row per window, with the columns COLUMNS.

    For fill-in-the-middle, `end` is the end of the window's original text.
    """
    spans: list[TokenSpan]
    fim_contents: Mapping[int, Ids | bytes] = MappingProxyType({})
    """Ids or texts of fill-in-the-middle windows, keyed by index in `windows`. checks.fim makes spans from them."""

    @property
    def repeat(self) -> int:
        return self.key.repeat or 0


def group_into_runs(rows: Iterable[Row], file: str, faults: Faults) -> list[Run]:
    """Group adjacent rows with the same key into runs."""
    runs: list[Run] = []
    current: _RunBuilder | None = None
    for row in rows:
        key = _key(row)
        if current is None or current.key != key:
            runs += [current.finish()] if current else []
            current = _RunBuilder(key, row.fields["language"])
        if row.fields["language"] != current.language:
            message = f"language is {row.fields['language']!r}, but the previous row has {current.language!r}"
            faults.add("schema", message, file=file, row=row.number, path=key.name)
        if not current.add(row):
            message = "the ids in the overlap differ from those of the previous window"
            faults.add("windows", message, file=file, row=row.number, path=key.name)
    return [*runs, current.finish()] if current else []


def _key(row: Row) -> RunKey:
    fields = row.fields
    kind = fields.get("variant") or None
    seed = fields.get("variant_seed") if kind else None
    return RunKey(fields["repo"], fields["path"], fields.get("repeat"), kind, seed, fields.get("weight"))


class _RunBuilder:
    """Builds a run from rows that are added one by one."""

    def __init__(self, key: RunKey, language: str) -> None:
        self.key, self.language = key, language
        self._windows: list[tuple[int, ...]] = []
        self._spans: list[tuple[int, list[Ids]]] = []
        self._documents: list[TokenSpan] = []
        self._last_window = TokenSpan(-1, np.zeros(0, np.uint16))
        self._fim_contents: dict[int, Ids | bytes] = {}
        self._is_open = False
        """True if the next window may continue the last span."""

    def add(self, row: Row) -> bool:
        """Add a row. Return False if its ids contradict the previous window."""
        fields, ids = row.fields, row.ids
        start, form = fields["start"], FORMS.index(fields.get("fim", ""))
        first, last = fields["lines"]
        middle = (form, MIDDLES.index(fields.get("middle", "")), fields.get("middle_tokens", 0))
        if row.text is not None:
            fresh = 0 if self.key.repeat else row.num_ids
            numbers = (row.number, start, start + row.num_ids, fresh, first, last, row.num_ids)
            self._windows.append((*numbers, key_of_bytes(row.text), 0, 0, row.segment_id, *middle))
            if form:
                self._fim_contents[len(self._windows) - 1] = row.text
            else:
                self._documents.append(TokenSpan(start, ids, row.text, row.num_ids))
            return True
        fresh = fields["fresh"]
        end = start + (fresh if form else len(ids))
        numbers = (row.number, start, end, fresh, first, last, row.num_ids)
        self._windows.append((*numbers, key_of_ids(ids), row.label_key, row.is_ended, row.segment_id, *middle))
        if form:
            self._fim_contents[len(self._windows) - 1] = ids
            self._is_open = False
            return True
        before, was_open = self._last_window, self._is_open
        self._last_window, self._is_open = TokenSpan(start, ids), True
        num_shared = before.end - start
        if not was_open or start < before.start or num_shared < 0 or self.key.has_independent_windows:
            self._spans.append((start, [ids]))
            return True
        self._spans[-1][1].append(ids[num_shared:])
        num_shared = min(num_shared, len(ids))
        at = start - before.start
        # Comparing bytes is three times as fast as comparing so few ids in NumPy.
        return before.ids[at : at + num_shared].tobytes() == ids[:num_shared].tobytes()

    def finish(self) -> Run:
        spans = [TokenSpan(start, np.concatenate(parts)) for start, parts in self._spans]
        windows = np.array(self._windows, np.int64)
        return Run(self.key, self.language, windows, spans or self._documents, self._fim_contents)


def join_runs(left: Run, right: Run, file: str, faults: Faults) -> Run:
    """Join two runs with the same key, from adjacent parts of a data file or from packed rows."""
    windows = np.concatenate((left.windows, right.windows))
    shifted = {index + len(left.windows): ids for index, ids in right.fim_contents.items()}
    fim_contents = {**left.fim_contents, **shifted}
    spans = [*left.spans, *right.spans]
    if left.windows[-1, FORM] or right.windows[0, FORM]:
        return Run(left.key, left.language, windows, spans, fim_contents)
    before, after = left.spans[-1], right.spans[0]
    num_shared = before.end - after.start
    if after.start >= before.start and num_shared >= 0 and not left.key.has_independent_windows and before.text is None:
        at = after.start - before.start
        num_compared = min(num_shared, len(after.ids))
        if (before.ids[at : at + num_compared] != after.ids[:num_compared]).any():
            message = "the ids in the overlap differ from those of the previous window"
            faults.add("windows", message, file=file, row=int(right.windows[0, ROW]), path=right.key.name)
        merged = TokenSpan(before.start, np.concatenate((before.ids, after.ids[num_shared:])))
        spans = [*left.spans[:-1], merged, *right.spans[1:]]
    return Run(left.key, left.language, windows, spans, fim_contents)
