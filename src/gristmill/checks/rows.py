"""Lines of a data file -> rows that can be relied on: `schema`, `ids` and `special_tokens` are checked on the way.

Nearly every line is written the way gristmill writes it. Then its ids are the digits between the first brackets, which
are read for many rows at once (digits), and the rest is small. Any other line is taken apart with care: it may be JSON
in another spelling, or hold what it should not.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import orjson

from gristmill.checks.findings import Faults
from gristmill.checks.tokens import Block, Fields, Ids, RowRules, key_of_ids, path_of
from gristmill.core.columns import COLUMNS, TEXT, Kind, When
from gristmill.core.digits import Numbers, numbers_in
from gristmill.core.records import VARIANTS, FimForm, MiddleKind

HEAD = b'{"input_ids":['
TOO_LARGE = 99_999_999
"""Stands for an id of more than eight digits, or below zero: no vocabulary is as large."""
LARGEST = 1 << 60
IGNORED = -100
"""In labels, in the place of padding."""
REQUIRED = {
    is_document: frozenset(name for name, column in COLUMNS.items() if column.when in {When.ALWAYS, when})
    for is_document, when in ((False, When.WINDOWS), (True, When.DOCUMENTS))
}
VALUE_SHOWN = 40


class Row(NamedTuple):
    number: int
    fields: Fields
    ids: Ids
    """Content only."""
    num_ids: int
    """All of them."""
    label_key: int = 0
    """Of the labels' content, as of the ids'; 0 where there are none."""
    is_ended: bool = False
    """An end token follows."""
    group: int = 1
    """Which of the row's segment_ids it has, if the row is packed."""
    text: bytes | None = None
    """Text of a row that is a document; `ids` are those of this text by itself."""


class _Line(NamedTuple):
    ids: bytes
    """`12,345,6`"""
    fields: Fields
    """All columns; input_ids is 0."""


class _Lines(NamedTuple):
    parts: list[_Line | str]
    """Of each line, or what is wrong with it."""
    ids: Numbers
    offsets: Numbers
    """Where each line's ids begin and, last, their count; a line that is wrong has none."""


def read_rows(lines: Sequence[bytes], first: int, rules: RowRules, faults: Faults) -> list[Row]:
    """The rows among these lines that have every column as it should be; an id out of range is 0 in them."""
    parts, ids, offsets = _taken_apart(lines)
    fields: list[Fields | None] = []
    for number, part in enumerate(parts, first):
        what = part if isinstance(part, str) else wrong_field(part.fields, rules)
        path = None if isinstance(part, str) else path_of(part.fields)
        if what is not None:
            faults.add("schema", what, file=rules.file, row=number, path=path)
        elif isinstance(part, _Line) and not part.ids:
            faults.add("windows", "it has no ids", file=rules.file, row=number, path=path)
        fields.append(part.fields if isinstance(part, _Line) and part.ids and what is None else None)
    contents, are_closed = Block(rules, first, fields, ids, offsets).contents(faults)
    return [
        Row(
            first + index,
            named,
            content,
            int(offsets[index + 1] - offsets[index]),
            _label_key(named, content, rules, first + index, faults) if "labels" in named else 0,
            are_closed[index],
        )
        for index, (named, content) in enumerate(zip(fields, contents, strict=True))
        if named is not None
    ]


def _label_key(fields: Fields, ids: Ids, rules: RowRules, number: int, faults: Faults) -> int:
    labels, num_prefix = clean_labels(fields), len(rules.prefix)
    num_padded = rules.length - len(labels) if rules.pad_id is not None else 0
    if fields["labels"] != labels + [IGNORED] * num_padded:
        faults.add("schema", "labels padded otherwise", file=rules.file, row=number, path=path_of(fields))
    num_closing = len(rules.closing)
    if num_closing and tuple(labels[-num_closing:]) == rules.closing:
        del labels[-num_closing:]
    end = len(labels) - len(rules.suffix)
    if (*labels[:num_prefix], *labels[max(end, 0) :]) != (*rules.prefix, *rules.suffix):
        faults.add("special_tokens", "labels without them", file=rules.file, row=number, path=path_of(fields))
    content = labels[num_prefix:end]
    if max(content, default=0) >= rules.vocab_size:
        what = f"the label {max(content)}, of {rules.vocab_size}"
        faults.add("ids", what, file=rules.file, row=number, path=path_of(fields))
        content = []
    return key_of_ids(np.array(content, ids.dtype))


def clean_labels(fields: Fields) -> list[int]:
    """Without what stands in the place of padding."""
    return [one for one in fields["labels"] if one != IGNORED]


def _taken_apart(lines: Sequence[bytes]) -> _Lines:
    quick = [part for part in map(_split, lines) if part is not None]
    read = numbers_in([part.ids for part in quick]) if len(quick) == len(lines) else None
    if read is not None:
        return _Lines([*quick], *read)
    parts = [_diagnosed(line) for line in lines]
    texts = [part.ids for part in parts if isinstance(part, _Line) and part.ids]
    ids, offsets = numbers_in(texts) or (np.zeros(0, np.int64), np.zeros(1, np.int64))
    sizes = iter(np.diff(offsets).tolist())
    counts = [next(sizes) if isinstance(part, _Line) and part.ids else 0 for part in parts]
    return _Lines(parts, ids, np.cumsum([0, *counts]))


def _split(line: bytes) -> _Line | None:
    """`{"input_ids":[1,2],"path":…}` -> `1,2` and the rest, if it is written just so."""
    end = line.find(b"]")
    rest = b'{"input_ids":0' + line[end + 1 :]
    try:
        fields = orjson.loads(rest)
        is_plain = line.startswith(HEAD) and isinstance(fields, dict) and orjson.dumps(fields) == rest
    except (ValueError, TypeError):
        return None
    return _Line(line[len(HEAD) : end], fields) if is_plain else None


def _diagnosed(line: bytes) -> _Line | str:
    """The same from any JSON, or what is wrong with it."""
    try:
        row = orjson.loads(line)
        names = json.loads(line, object_pairs_hook=lambda pairs: [name for name, _ in pairs])
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(row, dict):
        return f"not an object: {_shown(row)}"
    if len(names) != len(row):
        return "a column is there twice"
    if b"\r" in line:
        return "a carriage return in its line"
    ids = row.get("input_ids")
    if not isinstance(ids, list) or not all(type(index) is int for index in ids):
        return "input_ids is not a list of whole numbers" if "input_ids" in row else "input_ids is missing"
    text = b",".join(b"%d" % (index if 0 <= index < TOO_LARGE else TOO_LARGE) for index in ids)
    return _Line(text, {**row, "input_ids": 0})


def wrong_field(fields: Fields, rules: RowRules) -> str | None:
    if tuple(fields) != rules.columns:
        return f"columns {', '.join(map(_shown, fields))}; the manifest says {', '.join(rules.columns)}"
    missing = _missing(rules.columns)
    if missing is not None:
        return f"without the column {missing}"
    for name, is_right in _looks(rules.columns):
        if not is_right(fields[name]):
            return f"{name} is {_shown(fields[name])}"
    return None


@cache
def _looks(columns: tuple[str, ...]) -> list[tuple[str, Callable[[Any], bool]]]:
    return [(name, IS_RIGHT[name]) for name in columns if name in IS_RIGHT]


@cache
def _missing(columns: tuple[str, ...]) -> str | None:
    return min(REQUIRED[columns[:1] == (TEXT,)].difference(columns), default=None)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_line_range(value: Any) -> bool:
    return type(value) is list and len(value) == len(("first", "last")) and all(map(_is_count, value))


def _is_mask(value: Any) -> bool:
    return type(value) is list and all(type(one) is int and one in {0, 1} for one in value)


def _is_fraction(value: Any) -> bool:
    return type(value) in {int, float} and 0 <= value < LARGEST


def _are_counts(value: Any) -> bool:
    return type(value) is list and all(map(_is_count, value))


def _are_labels(value: Any) -> bool:
    return type(value) is list and all(_is_count(one) or one == IGNORED for one in value)


BY_KIND: Mapping[Kind, Callable[[Any], bool]] = {
    Kind.TEXT: _is_text,
    Kind.NUMBER: _is_count,
    Kind.FRACTION: _is_fraction,
    Kind.NUMBERS: _are_counts,
}


def _is_one_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: type(value) is str and (not value or value in words)


BY_NAME: Mapping[str, Callable[[Any], bool]] = {
    "variant": _is_one_of(*VARIANTS),
    "fim": _is_one_of(*FimForm),
    "middle": _is_one_of(*MiddleKind),
    "labels": _are_labels,
    "lines": _is_line_range,
    "attention_mask": _is_mask,
}
IS_RIGHT: Mapping[str, Callable[[Any], bool]] = {
    name: BY_NAME.get(name, BY_KIND[column.kind])
    for name, column in COLUMNS.items()
    if name != "input_ids" and column.when is not When.PACK
}
"""Of each column of a window but its ids, which are read apart."""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_SHOWN else f"{text[:VALUE_SHOWN]}…"
