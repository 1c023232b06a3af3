"""Split packed rows (--pack) into one row per segment for the other checks.

A segment is a window in a packed row, or with --pack repo any part of a file. This module checks that the segments of a
row do not overlap, that only the expected special tokens are between them, and that `segment_ids` and `position_ids`
match the segments. `check_ends` in windows_by_file checks that each end token is at the end of a file or repository,
because this requires files.jsonl.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import orjson

from gristmill.checks.findings import Faults
from gristmill.checks.rows import MAX_COUNT, Row, read_rows
from gristmill.checks.tokens import RowRules, path_of
from gristmill.core.columns import SEGMENT_POSITION_KEYS
from gristmill.core.errors import DatasetError
from gristmill.core.names import counted
from gristmill.formats.content_digest import segments_key


class PackRules(NamedTuple):
    """Requirements for packed rows, from the manifest."""

    columns: tuple[str, ...]
    """Columns of the packed rows. RowRules has the columns of the windows."""
    length: int
    vocab_size: int
    pad_id: int | None
    end_id: int | None
    """Id of the end token, or None if there is none."""
    markers: frozenset[int] | None
    """Ids allowed between the files of a repository, or None if each window has its own special tokens."""


class PackedRow(NamedTuple):
    """Ids of one packed row."""

    positions: bytes
    """Repository, path and start of each segment, encoded for the content digest."""
    ids: list[int]
    """Ids without padding."""
    num_ids: int
    """Number of ids including padding."""
    num_ends: int
    """Number of end tokens outside of the segments."""


class PackedRows(NamedTuple):
    """Packed rows, and the windows in them."""

    rows: list[PackedRow]
    windows: list[Row]


def read_packed(lines: Sequence[bytes], first: int, pack: PackRules, rules: RowRules, faults: Faults) -> PackedRows:
    """Check packed rows and split them into windows. Each window has the number of its packed row."""
    rows: list[PackedRow] = []
    window_lines: list[bytes] = []
    numbers: list[int] = []
    are_ended: list[bool] = []
    segment_ids: list[int] = []
    for number, line in enumerate(lines, first):
        row: Any = None
        try:
            row = orjson.loads(line)
            ids = _ids(row, pack)
            segments = _segments(row, rules)
            _require_segment_ids(row, ids, segments, pack)
            _require_special_ids(ids, segments, pack, rules)
            if pack.markers is not None:
                _require_ends(ids, row["segment_ids"], segments, pack)
        except (ValueError, LookupError, TypeError, AttributeError, DatasetError) as error:
            message = str(error) if isinstance(error, _PackError) else f"the line is not a packed row: {_reason(error)}"
            path = path_of(row["segments"][0]) if isinstance(error, _PackError) and row["segments"] else None
            check = error.check if isinstance(error, _PackError) else "schema"
            faults.add(check, message, file=rules.file, row=number, path=path)
            continue
        num_ends = sum(ids[at] == pack.end_id for at in _special_positions(ids, segments))
        rows.append(PackedRow(segments_key(segments), ids, len(row["input_ids"]), num_ends))
        for one, window in zip(segments, _window_lines(ids, segments, rules), strict=True):
            window_lines.append(window)
            numbers.append(number)
            ids_after = ids[one["at"] + one["length"] :]
            are_ended.append(_is_ended(ids_after, pack, rules))
            segment_ids.append(row["segment_ids"][one["at"]])
    window_faults = Faults()
    windows = [
        row._replace(number=numbers[row.number], is_ended=are_ended[row.number], segment_id=segment_ids[row.number])
        for row in read_rows(window_lines, 0, rules, window_faults)
    ]
    window_faults.renumber(numbers)
    faults.merge(window_faults)
    return PackedRows(rows, windows)


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error) if isinstance(error, ValueError | DatasetError) else "a value is invalid"


def _is_ended(ids_after: list[int], pack: PackRules, rules: RowRules) -> bool:
    """True if the end token of the document or, with markers, of the repository follows the segment."""
    if pack.markers is not None:
        return pack.end_id is not None and ids_after[:1] == [pack.end_id]
    num_suffix, closing = len(rules.suffix), list(rules.closing)
    return bool(closing) and ids_after[num_suffix : num_suffix + len(closing)] == closing


class _PackError(ValueError):
    """Fault in a packed row, with the check that reports it."""

    def __init__(self, check: str, message: str) -> None:
        super().__init__(message)
        self.check = check


def _ids(row: Any, pack: PackRules) -> list[int]:
    if tuple(row) != pack.columns:
        raise ValueError(f"columns are {', '.join(map(str, row))[:80]}, expected {', '.join(pack.columns)}")
    ids: list[int] = row["input_ids"]
    for name in pack.columns:
        if name != "segments" and (len(row[name]) != len(ids) or set(map(type, row[name])) - {int}):
            raise ValueError(f"{name} must be a list of {counted(len(ids), 'integer')}, one per id")
    if pack.pad_id is not None:
        mask = row["attention_mask"]
        num_real = sum(mask)
        if len(ids) != pack.length or mask != [1] * num_real + [0] * (len(mask) - num_real):
            raise ValueError(
                f"attention_mask must be ones followed by zeros, and the row must be padded to {pack.length} ids"
            )
        if any(one != pack.pad_id for one in ids[num_real:]):
            raise _PackError("special_tokens", f"padding has an id other than {pack.pad_id}")
        ids = ids[:num_real]
    if not ids or len(ids) > pack.length:
        raise _PackError("windows", f"the row has {counted(len(ids), 'id')}, expected 1 to {pack.length}")
    if not 0 <= min(ids) <= max(ids) < pack.vocab_size:
        raise _PackError("ids", f"an id is outside the vocabulary of size {pack.vocab_size}")
    return ids


def _segments(row: Any, rules: RowRules) -> list[dict[str, Any]]:
    segments: list[dict[str, Any]] = row["segments"]
    expected = (*rules.columns[1:], *SEGMENT_POSITION_KEYS)
    for one in segments:
        if tuple(one) != expected:
            raise ValueError(
                f"the columns of a segment are {', '.join(map(str, one))[:80]}, expected {', '.join(expected)}"
            )
        if any(type(one[name]) is not int or not 0 <= one[name] < MAX_COUNT for name in SEGMENT_POSITION_KEYS):
            raise ValueError(f"{' or '.join(SEGMENT_POSITION_KEYS)} of a segment is not a valid number")
    return segments


def _require_segment_ids(row: Any, ids: list[int], segments: list[dict[str, Any]], pack: PackRules) -> None:
    """Check that segment ids count from 1, positions count from 0 for each segment id, and both are 0 in padding."""
    segment_ids, positions = row["segment_ids"], row["position_ids"]
    sizes = [len(list(group)) for _, group in groupby(segment_ids[: len(ids)])]
    if segment_ids[: len(ids)] != [number for number, size in enumerate(sizes, 1) for _ in range(size)]:
        raise _PackError("windows", "segment_ids do not count up from 1")
    if positions[: len(ids)] != [position for size in sizes for position in range(size)]:
        raise _PackError("windows", "position_ids do not restart at 0 in each segment")
    if any(segment_ids[len(ids) :]) or any(positions[len(ids) :]):
        raise _PackError("windows", "segment_ids or position_ids of padding are not 0")
    if pack.markers is None and len(sizes) != len(segments):
        raise _PackError(
            "windows",
            f"segment_ids has {counted(len(sizes), 'distinct value')} for {counted(len(segments), 'segment')}",
        )


def _require_special_ids(ids: list[int], segments: list[dict[str, Any]], pack: PackRules, rules: RowRules) -> None:
    """Check the ids before, between and after the segments."""
    end = 0
    for one in segments:
        ids_before = ids[end : one["at"]]
        if one["at"] < end or one["at"] + one["length"] > len(ids) or not one["length"]:
            raise _PackError("windows", "segments overlap, are empty, or end after the row")
        _require_ids_before(ids_before, pack, rules, is_first=one is segments[0])
        end = one["at"] + one["length"]
    _require_ids_after(ids[end:], pack, rules)


def _require_ids_before(ids_before: list[int], pack: PackRules, rules: RowRules, *, is_first: bool) -> None:
    prefix, suffix = list(rules.prefix), list(rules.suffix)
    if pack.markers is not None:
        _require_markers(ids_before, pack.markers, rules)
        return
    ends = [[]] if is_first else [suffix, [*suffix, *rules.closing]]
    if ids_before not in [[*end, *prefix] for end in ends]:
        raise _PackError("special_tokens", f"unexpected ids {ids_before[:8]} before a segment")


def _require_ids_after(ids_after: list[int], pack: PackRules, rules: RowRules) -> None:
    if pack.markers is not None:
        _require_markers(ids_after, pack.markers, rules)
    elif ids_after not in (list(rules.suffix), [*rules.suffix, *rules.closing]):
        raise _PackError("special_tokens", f"unexpected ids {ids_after[:8]} after the last segment")


def _require_ends(ids: list[int], segment_ids: list[int], segments: list[dict[str, Any]], pack: PackRules) -> None:
    """Check that each end token ends a repository.

    It must be the last id with its segment id. It must also follow a segment, or be the only id with its segment id.
    """
    segment_ends = {one["at"] + one["length"] for one in segments}
    for at in _special_positions(ids, segments):
        is_last = at + 1 == len(ids) or segment_ids[at + 1] != segment_ids[at]
        is_first = at == 0 or segment_ids[at - 1] != segment_ids[at]
        if ids[at] == pack.end_id and not (is_last and (is_first or at in segment_ends)):
            raise _PackError(
                "special_tokens", f"the end token {pack.end_id} at position {at} is not at the end of a repository"
            )


def _special_positions(ids: list[int], segments: list[dict[str, Any]]) -> Iterator[int]:
    """Yield the positions of all ids outside of segments."""
    edges = [0, *(edge for one in segments for edge in (one["at"], one["at"] + one["length"])), len(ids)]
    for start, end in list(pairwise(edges))[::2]:
        yield from range(start, end)


def _require_markers(ids: list[int], markers: frozenset[int], rules: RowRules) -> None:
    unexpected = [one for one in ids if one in rules.control_ids and one not in markers]
    if unexpected:
        raise _PackError("special_tokens", f"unexpected control id {unexpected[0]} between files")


def _window_lines(ids: list[int], segments: list[dict[str, Any]], rules: RowRules) -> Iterator[bytes]:
    """Yield the JSON line of each window as if it were not packed. The ids that end a document are left out."""
    for one in segments:
        content = ids[one["at"] : one["at"] + one["length"]]
        fields = {name: one[name] for name in rules.columns[1:]}
        yield orjson.dumps({"input_ids": [*rules.prefix, *content, *rules.suffix], **fields})
