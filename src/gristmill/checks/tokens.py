"""The ids of some rows: in range (`ids`), special ones where they belong and nowhere else (`special_tokens`)."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.checks.findings import Faults
from gristmill.core.digits import Numbers
from gristmill.core.names import counted
from gristmill.tokenizers.window_frame import FimFrame

NUM_KEY_BYTES = 8
LARGEST_UINT16 = (1 << 16) - 1

Ids = npt.NDArray[Any]
Fields = dict[str, Any]


class RowRules(NamedTuple):
    """What the manifest says about every row of a data file."""

    file: str
    columns: tuple[str, ...]
    length: int
    vocab_size: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    control_ids: tuple[int, ...]
    pad_id: int | None
    """None: rows are not padded."""
    closing: tuple[int, ...] = ()
    """Special ids behind the last window of a document."""
    own_ids: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """By kind of variant, control ids that belong inside it."""
    fim: FimFrame | None = None
    """Special ids of rows of fill in the middle; None: there are none."""


class Block:
    def __init__(
        self, rules: RowRules, first: int, fields: Sequence[Fields | None], ids: Numbers, offsets: Numbers
    ) -> None:
        """Some rows' ids end to end; `fields` has None for a row that is wrong elsewhere."""
        self._rules, self._first, self._fields, self._ids = rules, first, fields, ids
        self._starts, self._ends = offsets[:-1], offsets[1:].copy()

    def contents(self, faults: Faults) -> tuple[list[Ids], list[bool]]:
        """Each row's ids without special tokens, as small as they fit (one out of range is 0); and which are closed."""
        if self._rules.pad_id is not None:
            self._take_off_padding(self._rules.pad_id, faults)
        are_closed = self._take_off_closing()
        num_prefix = self._num_around("begin", self._rules.prefix, faults)
        num_suffix = self._num_around("end", self._rules.suffix, faults)
        starts, ends = self._starts + num_prefix, self._ends - num_suffix
        self._find_control_ids(starts, ends, faults)
        ids = self._in_range(faults)
        contents = [ids[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        return contents, are_closed.tolist()

    def _take_off_closing(self) -> npt.NDArray[np.bool_]:
        """Which rows end with the special ids that end a document."""
        closing = self._rules.closing
        is_closed = (self._ends - self._starts >= len(closing)) & bool(closing)
        for place, index in enumerate(reversed(closing), 1):
            is_closed &= self._ids.take(self._ends - place, mode="clip") == index if len(self._ids) else False
        self._ends -= is_closed * len(closing)
        return is_closed

    def _take_off_padding(self, pad_id: int, faults: Faults) -> None:
        """Padding is what the attention_mask marks with 0."""
        for index, (start, end, fields) in enumerate(self._ranges()):
            if fields is None:
                continue
            mask = fields["attention_mask"]
            num_real = sum(mask)
            if len(mask) != end - start or end - start != self._rules.length:
                self._add(
                    "schema",
                    index,
                    f"{counted(end - start, 'id')} and a mask of {len(mask)}, not {self._rules.length}",
                    faults,
                )
            elif 0 in mask[:num_real]:
                self._add("schema", index, "its attention_mask has a 0 before a 1", faults)
            elif (self._ids[start + num_real : end] != pad_id).any():
                self._add("special_tokens", index, f"padded with something else than {pad_id}", faults)
            self._ends[index] = start + min(num_real, end - start)

    def _num_around(self, side: str, wanted: tuple[int, ...], faults: Faults) -> Numbers:
        """Per row, how many special ids stand at this side: all of them or, with a fault, none."""
        is_right = self._ends - self._starts >= len(wanted)
        first = self._starts if side == "begin" else self._ends - len(wanted)
        for place, index in enumerate(wanted):
            is_right &= self._ids.take(first + place, mode="clip") == index if len(self._ids) else False
        for row in np.flatnonzero(~is_right & (self._ends > self._starts)).tolist():
            self._add("special_tokens", row, f"does not {side} with {list(wanted)}", faults)
        return np.where(is_right, len(wanted), 0)

    def _find_control_ids(self, starts: Numbers, ends: Numbers, faults: Faults) -> None:
        is_control = np.zeros(max(self._rules.control_ids, default=0) + 2, np.bool_)
        is_control[list(self._rules.control_ids)] = True
        places = np.flatnonzero(is_control.take(self._ids, mode="clip"))
        rows = self._rows_at(places)
        is_inside = (places >= starts[rows]) & (places < ends[rows]) & ~self._are_own(rows, places)
        for row, place in self._first_in_each_row(places[is_inside]):
            what = f"the control id {self._ids[place]} inside, at {place - self._starts[row]}"
            self._add("special_tokens", row, what, faults)

    def _are_own(self, rows: Numbers, places: Numbers) -> npt.NDArray[np.bool_]:
        by_kind, fim = dict(self._rules.own_ids), self._rules.fim
        own = [
            fim.ids
            if fim is not None and (fields or {}).get("fim")
            else by_kind.get((fields or {}).get("variant", ""), ())
            for fields in self._fields
        ]
        flags = [int(self._ids[place]) in own[row] for row, place in zip(rows, places, strict=True)]
        return np.array(flags, np.bool_)

    def _in_range(self, faults: Faults) -> Ids:
        vocab_size = self._rules.vocab_size
        ids = self._ids
        places = np.flatnonzero(ids >= vocab_size)
        if len(places):
            for row, place in self._first_in_each_row(places):
                self._add("ids", row, f"the id {ids[place]} at {place - self._starts[row]}, of {vocab_size}", faults)
            ids = np.where(ids < vocab_size, ids, 0)
        return ids.astype(np.uint16 if vocab_size <= LARGEST_UINT16 + 1 else np.uint32)

    def _rows_at(self, places: Numbers) -> Numbers:
        return np.searchsorted(self._starts, places, "right") - 1

    def _first_in_each_row(self, places: Numbers) -> Iterator[tuple[int, int]]:
        """One fault a row is enough."""
        rows, first = np.unique(self._rows_at(places), return_index=True)
        return zip(rows.tolist(), places[first].tolist(), strict=True)

    def _ranges(self) -> Iterator[tuple[int, int, Fields | None]]:
        return zip(self._starts.tolist(), self._ends.tolist(), self._fields, strict=True)

    def _add(self, check: str, index: int, what: str, faults: Faults) -> None:
        fields = self._fields[index]
        path = path_of(fields) if fields is not None else None
        faults.add(check, what, file=self._rules.file, row=self._first + index, path=path)


def key_of_ids(ids: Ids) -> int:
    return int.from_bytes(hashlib.sha256(ids.data).digest()[:NUM_KEY_BYTES], "little", signed=True)


def path_of(fields: Fields) -> str | None:
    path = fields.get("path")
    return f"{fields.get('repo')}/{path}" if isinstance(path, str) else None
