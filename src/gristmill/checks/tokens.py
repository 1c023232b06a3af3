"""Check the ids of rows.

All ids must be in the vocabulary (check `ids`). Special ids must be where they are expected, and nowhere else (check
`special_tokens`).
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.checks.findings import Faults
from gristmill.core.columns import TEXT
from gristmill.core.digits import Numbers
from gristmill.tokenizers.window_frame import FimFrame

NUM_KEY_BYTES = 8
MAX_UINT16 = (1 << 16) - 1

Ids = npt.NDArray[Any]
Fields = dict[str, Any]


class RowRules(NamedTuple):
    """Requirements for every row of a data file, from the manifest and the tokenizer."""

    file: str
    columns: tuple[str, ...]
    length: int
    vocab_size: int
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]
    control_ids: tuple[int, ...]
    pad_id: int | None
    """Id of padding, or None if rows are not padded."""
    closing: tuple[int, ...] = ()
    """Special ids at the end of the last window of a document."""
    allowed_control_ids: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Pairs of a kind of variant and the control ids that are allowed in windows of that kind."""
    fim: FimFrame | None = None
    """Special ids of fill-in-the-middle rows, or None if there are no such rows."""
    fim_token_texts: tuple[str, ...] = ()
    """Texts of the fill-in-the-middle special tokens, as they appear in documents."""
    control_spellings: tuple[str, ...] = ()
    """Control tokens that must not appear in the text of a document."""

    @property
    def has_documents(self) -> bool:
        """True if each row is a document, stored as text without ids."""
        return self.columns[:1] == (TEXT,)


class RowBlock:
    """Concatenated ids of several rows, which are checked at once."""

    def __init__(
        self, rules: RowRules, first: int, fields: Sequence[Fields | None], ids: Numbers, offsets: Numbers
    ) -> None:
        """`first` is the row number of the first row. An entry of `fields` is None if the row already has a fault."""
        self._rules, self._first, self._fields, self._ids = rules, first, fields, ids
        self._starts, self._ends = offsets[:-1], offsets[1:].copy()

    def contents(self, faults: Faults) -> tuple[list[Ids], list[bool]]:
        """Return the ids of each row without special tokens, and for each row whether it ends a document.

        Ids are uint16 if the vocabulary permits, otherwise uint32. An id outside the vocabulary is replaced by 0.
        """
        if self._rules.pad_id is not None:
            self._strip_padding(self._rules.pad_id, faults)
        are_ended = self._strip_closing()
        num_prefix = self._count_special("begin", self._rules.prefix, faults)
        num_suffix = self._count_special("end", self._rules.suffix, faults)
        starts, ends = self._starts + num_prefix, self._ends - num_suffix
        self._find_control_ids(starts, ends, faults)
        ids = self._replace_invalid_ids(faults)
        contents = [ids[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        return contents, are_ended.tolist()

    def _strip_closing(self) -> npt.NDArray[np.bool_]:
        """Remove the special ids that end a document. Return, for each row, whether it had these ids."""
        closing = self._rules.closing
        is_ended = (self._ends - self._starts >= len(closing)) & bool(closing)
        for position, index in enumerate(reversed(closing), 1):
            is_ended &= self._ids.take(self._ends - position, mode="clip") == index if len(self._ids) else False
        self._ends -= is_ended * len(closing)
        return is_ended

    def _strip_padding(self, pad_id: int, faults: Faults) -> None:
        """Remove padding: the ids whose attention_mask is 0."""
        for index, (start, end, fields) in enumerate(self._ranges()):
            if fields is None:
                continue
            mask = fields["attention_mask"]
            num_real = sum(mask)
            if len(mask) != end - start or end - start != self._rules.length:
                self._add_fault(
                    "schema",
                    index,
                    f"the lengths of input_ids and attention_mask are {end - start} and {len(mask)}, "
                    f"expected {self._rules.length}",
                    faults,
                )
            elif 0 in mask[:num_real]:
                self._add_fault("schema", index, "attention_mask has a 0 before a 1", faults)
            elif (self._ids[start + num_real : end] != pad_id).any():
                self._add_fault("special_tokens", index, f"padding has an id other than {pad_id}", faults)
            self._ends[index] = start + min(num_real, end - start)

    def _count_special(self, side: str, expected: tuple[int, ...], faults: Faults) -> Numbers:
        """Count the special ids at one end of each row. `side` is "begin" or "end".

        The count is len(expected). If the expected ids are missing, it is 0, and a fault is added.
        """
        is_present = self._ends - self._starts >= len(expected)
        first = self._starts if side == "begin" else self._ends - len(expected)
        for position, index in enumerate(expected):
            is_present &= self._ids.take(first + position, mode="clip") == index if len(self._ids) else False
        for row in np.flatnonzero(~is_present & (self._ends > self._starts)).tolist():
            self._add_fault(
                "special_tokens", row, f"the row does not {side} with the special ids {list(expected)}", faults
            )
        return np.where(is_present, len(expected), 0)

    def _find_control_ids(self, starts: Numbers, ends: Numbers, faults: Faults) -> None:
        is_control = np.zeros(max(self._rules.control_ids, default=0) + 2, np.bool_)
        is_control[list(self._rules.control_ids)] = True
        positions = np.flatnonzero(is_control.take(self._ids, mode="clip"))
        rows = self._rows_at(positions)
        is_inside = (positions >= starts[rows]) & (positions < ends[rows]) & ~self._are_allowed(rows, positions)
        for row, position in self._first_in_each_row(positions[is_inside]):
            message = f"unexpected control id {self._ids[position]} at position {position - self._starts[row]}"
            self._add_fault("special_tokens", row, message, faults)

    def _are_allowed(self, rows: Numbers, positions: Numbers) -> npt.NDArray[np.bool_]:
        by_kind, fim = dict(self._rules.allowed_control_ids), self._rules.fim
        allowed = [
            fim.ids
            if fim is not None and (fields or {}).get("fim")
            else by_kind.get((fields or {}).get("variant", ""), ())
            for fields in self._fields
        ]
        flags = [int(self._ids[position]) in allowed[row] for row, position in zip(rows, positions, strict=True)]
        return np.array(flags, np.bool_)

    def _replace_invalid_ids(self, faults: Faults) -> Ids:
        vocab_size = self._rules.vocab_size
        ids = self._ids
        positions = np.flatnonzero(ids >= vocab_size)
        if len(positions):
            for row, position in self._first_in_each_row(positions):
                where = f"id {ids[position]} at position {position - self._starts[row]}"
                self._add_fault("ids", row, f"{where} is outside the vocabulary of size {vocab_size}", faults)
            ids = np.where(ids < vocab_size, ids, 0)
        return ids.astype(np.uint16 if vocab_size <= MAX_UINT16 + 1 else np.uint32)

    def _rows_at(self, positions: Numbers) -> Numbers:
        return np.searchsorted(self._starts, positions, "right") - 1

    def _first_in_each_row(self, positions: Numbers) -> Iterator[tuple[int, int]]:
        """Yield each row that contains any of the positions, with its first position. One fault per row is enough."""
        rows, first = np.unique(self._rows_at(positions), return_index=True)
        return zip(rows.tolist(), positions[first].tolist(), strict=True)

    def _ranges(self) -> Iterator[tuple[int, int, Fields | None]]:
        return zip(self._starts.tolist(), self._ends.tolist(), self._fields, strict=True)

    def _add_fault(self, check: str, index: int, message: str, faults: Faults) -> None:
        fields = self._fields[index]
        path = path_of(fields) if fields is not None else None
        faults.add(check, message, file=self._rules.file, row=self._first + index, path=path)


def key_of_ids(ids: Ids) -> int:
    """Return a 64-bit hash of ids."""
    return key_of_bytes(ids.data)


def key_of_bytes(content: bytes | memoryview) -> int:
    """Return a 64-bit hash of bytes."""
    return int.from_bytes(hashlib.sha256(content).digest()[:NUM_KEY_BYTES], "little", signed=True)


def path_of(fields: Fields) -> str | None:
    """Return "repository/path" of a row, or None if the row has no valid path."""
    path = fields.get("path")
    return f"{fields.get('repo')}/{path}" if isinstance(path, str) else None
