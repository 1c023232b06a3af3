"""Parse the lines of a data file into valid rows (checks `schema`, `ids` and `special_tokens`).

Nearly every line has the exact form that gristmill writes. In such a line, the ids are the numbers between the first
brackets. core.digits parses them for many rows at once, and orjson parses the short rest of the line. If any line of a
batch has a different form, for example with other spaces, a slower parser reads all lines of the batch.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import orjson

from gristmill.checks.findings import Faults
from gristmill.checks.tokens import Fields, Ids, RowBlock, RowRules, key_of_ids, path_of
from gristmill.core.columns import COLUMNS, TEXT, Kind, When
from gristmill.core.digits import Numbers, parse_numbers
from gristmill.core.records import VARIANTS, FimForm, MiddleKind

HEAD = b'{"input_ids":['
INVALID_ID = 99_999_999
"""Replacement for an id that is negative or has more than eight digits. No vocabulary is that large."""
MAX_COUNT = 1 << 60
IGNORED_LABEL = -100
"""Label of padding."""
REQUIRED = {
    is_document: frozenset(name for name, column in COLUMNS.items() if column.when in {When.ALWAYS, when})
    for is_document, when in ((False, When.WINDOWS), (True, When.DOCUMENTS))
}
MAX_VALUE_CHARS = 40


class Row(NamedTuple):
    """Valid row of a data file: a window or a document."""

    number: int
    fields: Fields
    ids: Ids
    """Ids without special tokens."""
    num_ids: int
    """Number of ids including special tokens and padding. For a document, its recorded number of tokens."""
    label_key: int = 0
    """Hash of the labels without special tokens, or 0 if there are no labels."""
    is_ended: bool = False
    """True if an end token follows the window."""
    segment_id: int = 1
    """Value of the window in the column `segment_ids`, if the window is in a packed row."""
    text: bytes | None = None
    """Text of a document row, or None for a window. For a document, `ids` are the tokens of this text alone."""


class _Line(NamedTuple):
    ids: bytes
    """Ids as text, for example `12,345,6`."""
    fields: Fields
    """All columns, with `input_ids` replaced by 0."""


class _Lines(NamedTuple):
    parts: list[_Line | str]
    """One entry per line: the parsed line, or a fault message if the line is invalid."""
    ids: Numbers
    """Ids of all lines."""
    offsets: Numbers
    """Offset of the ids of each line, followed by the total number of ids. An invalid line has no ids."""


def read_rows(lines: Sequence[bytes], first: int, rules: RowRules, faults: Faults) -> list[Row]:
    """Return the valid rows of these lines, and add a fault for every invalid line.

    An id outside the vocabulary is replaced by 0. `first` is the number of the first line.
    """
    parts, ids, offsets = _parse_lines(lines)
    fields: list[Fields | None] = []
    for number, part in enumerate(parts, first):
        message = part if isinstance(part, str) else find_column_fault(part.fields, rules)
        path = None if isinstance(part, str) else path_of(part.fields)
        if message is not None:
            faults.add("schema", message, file=rules.file, row=number, path=path)
        elif isinstance(part, _Line) and not part.ids:
            faults.add("windows", "input_ids is empty", file=rules.file, row=number, path=path)
        fields.append(part.fields if isinstance(part, _Line) and part.ids and message is None else None)
    contents, are_ended = RowBlock(rules, first, fields, ids, offsets).contents(faults)
    return [
        Row(
            first + index,
            columns,
            content,
            int(offsets[index + 1] - offsets[index]),
            _label_key(columns, content, rules, first + index, faults) if "labels" in columns else 0,
            are_ended[index],
        )
        for index, (columns, content) in enumerate(zip(fields, contents, strict=True))
        if columns is not None
    ]


def _label_key(fields: Fields, ids: Ids, rules: RowRules, number: int, faults: Faults) -> int:
    labels, num_prefix = labels_without_padding(fields), len(rules.prefix)
    num_padded = rules.length - len(labels) if rules.pad_id is not None else 0
    if fields["labels"] != labels + [IGNORED_LABEL] * num_padded:
        faults.add("schema", "labels are not padded like input_ids", file=rules.file, row=number, path=path_of(fields))
    num_closing = len(rules.closing)
    if num_closing and tuple(labels[-num_closing:]) == rules.closing:
        del labels[-num_closing:]
    end = len(labels) - len(rules.suffix)
    if (*labels[:num_prefix], *labels[max(end, 0) :]) != (*rules.prefix, *rules.suffix):
        faults.add(
            "special_tokens",
            "labels do not begin and end with the special tokens",
            file=rules.file,
            row=number,
            path=path_of(fields),
        )
    content = labels[num_prefix:end]
    if max(content, default=0) >= rules.vocab_size:
        message = f"label {max(content)} is outside the vocabulary of size {rules.vocab_size}"
        faults.add("ids", message, file=rules.file, row=number, path=path_of(fields))
        content = []
    return key_of_ids(np.array(content, ids.dtype))


def labels_without_padding(fields: Fields) -> list[int]:
    """Return the labels of a row without padding."""
    return [one for one in fields["labels"] if one != IGNORED_LABEL]


def _parse_lines(lines: Sequence[bytes]) -> _Lines:
    split_lines = [part for part in map(_split_line, lines) if part is not None]
    read = parse_numbers([part.ids for part in split_lines]) if len(split_lines) == len(lines) else None
    if read is not None:
        return _Lines([*split_lines], *read)
    parts = [_parse_any_json(line) for line in lines]
    texts = [part.ids for part in parts if isinstance(part, _Line) and part.ids]
    ids, offsets = parse_numbers(texts) or (np.zeros(0, np.int64), np.zeros(1, np.int64))
    sizes = iter(np.diff(offsets).tolist())
    counts = [next(sizes) if isinstance(part, _Line) and part.ids else 0 for part in parts]
    return _Lines(parts, ids, np.cumsum([0, *counts]))


def _split_line(line: bytes) -> _Line | None:
    """Split `{"input_ids":[1,2],"path":…}` into `1,2` and the rest. Return None if the line has a different form."""
    end = line.find(b"]")
    rest = b'{"input_ids":0' + line[end + 1 :]
    try:
        fields = orjson.loads(rest)
        is_plain = line.startswith(HEAD) and isinstance(fields, dict) and orjson.dumps(fields) == rest
    except (ValueError, TypeError):
        return None
    return _Line(line[len(HEAD) : end], fields) if is_plain else None


def _parse_any_json(line: bytes) -> _Line | str:
    """Split a line with a JSON object of any form into its ids and the other columns, or return a fault message."""
    try:
        row = orjson.loads(line)
        names = json.loads(line, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
    except (ValueError, RecursionError):
        return "the line is not JSON"
    if not isinstance(row, dict):
        return f"the line is not a JSON object: {_abbreviate(row)}"
    if len(names) != len(row):
        return "a column appears twice"
    if b"\r" in line:
        return "the line contains a carriage return"
    ids = row.get("input_ids")
    if not isinstance(ids, list) or not all(type(index) is int for index in ids):
        return "input_ids is not a list of integers" if "input_ids" in row else "input_ids is missing"
    text = b",".join(b"%d" % (index if 0 <= index < INVALID_ID else INVALID_ID) for index in ids)
    return _Line(text, {**row, "input_ids": 0})


def find_column_fault(fields: Fields, rules: RowRules) -> str | None:
    """Return a fault message for the first invalid column, or None."""
    if tuple(fields) != rules.columns:
        return f"columns are {', '.join(map(_abbreviate, fields))}, expected {', '.join(rules.columns)}"
    missing = _missing_column(rules.columns)
    if missing is not None:
        return f"column {missing} is missing"
    for name, is_valid in _validators(rules.columns):
        if not is_valid(fields[name]):
            return f"{name} has the invalid value {_abbreviate(fields[name])}"
    return None


@cache
def _validators(columns: tuple[str, ...]) -> list[tuple[str, Callable[[Any], bool]]]:
    return [(name, VALIDATORS[name]) for name in columns if name in VALIDATORS]


@cache
def _missing_column(columns: tuple[str, ...]) -> str | None:
    return min(REQUIRED[columns[:1] == (TEXT,)].difference(columns), default=None)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_COUNT


def _is_string(value: Any) -> bool:
    return type(value) is str


def _is_line_range(value: Any) -> bool:
    return type(value) is list and len(value) == len(("first", "last")) and all(map(_is_count, value))


def _is_mask(value: Any) -> bool:
    return type(value) is list and all(type(one) is int and one in {0, 1} for one in value)


def _is_fraction(value: Any) -> bool:
    return type(value) in {int, float} and 0 <= value < MAX_COUNT


def _are_counts(value: Any) -> bool:
    return type(value) is list and all(map(_is_count, value))


def _are_labels(value: Any) -> bool:
    return type(value) is list and all(_is_count(one) or one == IGNORED_LABEL for one in value)


VALIDATORS_BY_KIND: Mapping[Kind, Callable[[Any], bool]] = {
    Kind.TEXT: _is_string,
    Kind.NUMBER: _is_count,
    Kind.FRACTION: _is_fraction,
    Kind.NUMBERS: _are_counts,
}


def _is_one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: type(value) is str and (not value or value in words)


VALIDATORS_BY_NAME: Mapping[str, Callable[[Any], bool]] = {
    "variant": _is_one_of(*VARIANTS),
    "fim": _is_one_of(*FimForm),
    "middle": _is_one_of(*MiddleKind),
    "labels": _are_labels,
    "lines": _is_line_range,
    "attention_mask": _is_mask,
}
VALIDATORS: Mapping[str, Callable[[Any], bool]] = {
    name: VALIDATORS_BY_NAME.get(name, VALIDATORS_BY_KIND[column.kind])
    for name, column in COLUMNS.items()
    if name != "input_ids" and column.when is not When.PACK
}
"""Validators of all columns of an unpacked row except `input_ids`, which is parsed separately."""


def _abbreviate(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"
