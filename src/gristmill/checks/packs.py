"""Rows that hold windows of several files (--pack) -> these windows, each as a row of its own: so all else is checked.

Here it is checked that segments lie in their row without gap or overlap, between the special tokens that belong there,
and that `segment_ids` and `position_ids` say the same. Whether a file, or a repository, ends where an end token stands
can be seen in files.jsonl alone: `check_ends`.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import orjson

from gristmill.checks.findings import Faults
from gristmill.checks.rows import LARGEST, Row, read_rows
from gristmill.checks.tokens import RowRules, path_of
from gristmill.core.columns import SEGMENT_PLACE
from gristmill.core.errors import DatasetError
from gristmill.core.names import counted
from gristmill.formats.content_digest import places_of


class PackRules(NamedTuple):
    columns: tuple[str, ...]
    """Of the rows; those of the windows are in their RowRules."""
    length: int
    vocab_size: int
    pad_id: int | None
    end_id: int | None
    """What may end a document, where the tokenizer puts nothing there by itself."""
    markers: frozenset[int] | None
    """Between the files of a repository; None: each window has its special tokens around it."""


class PackedRow(NamedTuple):
    place: bytes
    """Of all its segments, as the digest wants it."""
    ids: list[int]
    """Without padding."""
    num_ids: int
    """With it."""
    num_ends: int
    """End tokens outside of its segments."""


class PackedRows(NamedTuple):
    rows: list[PackedRow]
    windows: list[Row]


def read_packed(lines: Sequence[bytes], first: int, pack: PackRules, rules: RowRules, faults: Faults) -> PackedRows:
    """The windows go by the number of their row."""
    rows: list[PackedRow] = []
    natural: list[bytes] = []
    numbers: list[int] = []
    are_ended: list[bool] = []
    groups: list[int] = []
    for number, line in enumerate(lines, first):
        row: Any = None
        try:
            row = orjson.loads(line)
            ids = _ids(row, pack)
            segments = _segments(row, rules)
            _require_groups(row, ids, segments, pack)
            _require_special(ids, segments, pack, rules)
            if pack.markers is not None:
                _require_ends(ids, row["segment_ids"], segments, pack)
        except (ValueError, LookupError, TypeError, AttributeError, DatasetError) as error:
            what = str(error) if isinstance(error, _WrongError) else f"not a row of segments: {error!r}"
            path = path_of(row["segments"][0]) if isinstance(error, _WrongError) and row["segments"] else None
            check = error.check if isinstance(error, _WrongError) else "schema"
            faults.add(check, what, file=rules.file, row=number, path=path)
            continue
        num_ends = sum(ids[at] == pack.end_id for at in _places_between(ids, segments))
        rows.append(PackedRow(places_of(segments), ids, len(row["input_ids"]), num_ends))
        for one, window in zip(segments, _windows(ids, segments, rules), strict=True):
            natural.append(window)
            numbers.append(number)
            after = ids[one["at"] + one["length"] :]
            are_ended.append(_is_ended(after, pack, rules))
            groups.append(row["segment_ids"][one["at"]])
    own = Faults()
    windows = [
        row._replace(number=numbers[row.number], is_ended=are_ended[row.number], group=groups[row.number])
        for row in read_rows(natural, 0, rules, own)
    ]
    own.renumber(numbers)
    faults.merge(own)
    return PackedRows(rows, windows)


def _is_ended(after: list[int], pack: PackRules, rules: RowRules) -> bool:
    """An end token follows the segment: that of its document or, between markers, that of its repository."""
    if pack.markers is not None:
        return pack.end_id is not None and after[:1] == [pack.end_id]
    num_suffix, closing = len(rules.suffix), list(rules.closing)
    return bool(closing) and after[num_suffix : num_suffix + len(closing)] == closing


class _WrongError(ValueError):
    def __init__(self, check: str, what: str) -> None:
        super().__init__(what)
        self.check = check


def _ids(row: Any, pack: PackRules) -> list[int]:
    if tuple(row) != pack.columns:
        raise ValueError(f"columns {', '.join(map(str, row))[:80]}; the manifest says {', '.join(pack.columns)}")
    ids: list[int] = row["input_ids"]
    for name in pack.columns:
        if name != "segments" and (len(row[name]) != len(ids) or set(map(type, row[name])) - {int}):
            raise ValueError(f"{name} is not a whole number for each of {counted(len(ids), 'id')}")
    if pack.pad_id is not None:
        mask = row["attention_mask"]
        num_real = sum(mask)
        if len(ids) != pack.length or mask != [1] * num_real + [0] * (len(mask) - num_real):
            raise ValueError("its attention_mask is none, or not of the full length")
        if any(one != pack.pad_id for one in ids[num_real:]):
            raise _WrongError("special_tokens", f"padded with something else than {pack.pad_id}")
        ids = ids[:num_real]
    if not ids or len(ids) > pack.length:
        raise _WrongError("windows", f"{counted(len(ids), 'id')}, where 1 to {pack.length} may be")
    if not 0 <= min(ids) <= max(ids) < pack.vocab_size:
        raise _WrongError("ids", f"an id that is not of {pack.vocab_size}")
    return ids


def _segments(row: Any, rules: RowRules) -> list[dict[str, Any]]:
    segments: list[dict[str, Any]] = row["segments"]
    wanted = (*rules.columns[1:], *SEGMENT_PLACE)
    for one in segments:
        if tuple(one) != wanted:
            raise ValueError(f"a segment tells {', '.join(map(str, one))[:80]}, and not {', '.join(wanted)}")
        if any(type(one[name]) is not int or not 0 <= one[name] < LARGEST for name in SEGMENT_PLACE):
            raise ValueError("a segment at no place")
    return segments


def _require_groups(row: Any, ids: list[int], segments: list[dict[str, Any]], pack: PackRules) -> None:
    """Groups are counted from 1, positions from 0 in each; padding has neither."""
    groups, positions = row["segment_ids"], row["position_ids"]
    sizes = [len(list(own)) for _, own in groupby(groups[: len(ids)])]
    if groups[: len(ids)] != [number for number, size in enumerate(sizes, 1) for _ in range(size)]:
        raise _WrongError("windows", "segment_ids that do not count from 1")
    if positions[: len(ids)] != [position for size in sizes for position in range(size)]:
        raise _WrongError("windows", "position_ids that do not begin anew with each of its segment_ids")
    if any(groups[len(ids) :]) or any(positions[len(ids) :]):
        raise _WrongError("windows", "padding with segment_ids or position_ids")
    if pack.markers is None and len(sizes) != len(segments):
        raise _WrongError("windows", f"{counted(len(sizes), 'group')} of ids, and {counted(len(segments), 'segment')}")


def _require_special(ids: list[int], segments: list[dict[str, Any]], pack: PackRules, rules: RowRules) -> None:
    """What is no segment's is what it must be."""
    end = 0
    for one in segments:
        between = ids[end : one["at"]]
        if one["at"] < end or one["at"] + one["length"] > len(ids) or not one["length"]:
            raise _WrongError("windows", "segments that lie over each other, or beyond the row")
        _require_between(between, pack, rules, is_first=one is segments[0])
        end = one["at"] + one["length"]
    _require_after(ids[end:], pack, rules)


def _require_between(between: list[int], pack: PackRules, rules: RowRules, *, is_first: bool) -> None:
    prefix, suffix = list(rules.prefix), list(rules.suffix)
    if pack.markers is not None:
        _require_markers(between, pack.markers, rules)
        return
    ends = [[]] if is_first else [suffix, [*suffix, *rules.closing]]
    if between not in [[*end, *prefix] for end in ends]:
        raise _WrongError("special_tokens", f"{between[:8]} between two segments")


def _require_after(after: list[int], pack: PackRules, rules: RowRules) -> None:
    if pack.markers is not None:
        _require_markers(after, pack.markers, rules)
    elif after not in (list(rules.suffix), [*rules.suffix, *rules.closing]):
        raise _WrongError("special_tokens", f"{after[:8]} behind the last segment")


def _require_ends(ids: list[int], groups: list[int], segments: list[dict[str, Any]], pack: PackRules) -> None:
    """A repository's end token is the last of its group, and stands behind a segment or alone."""
    behind = {one["at"] + one["length"] for one in segments}
    for at in _places_between(ids, segments):
        is_last = at + 1 == len(ids) or groups[at + 1] != groups[at]
        is_first = at == 0 or groups[at - 1] != groups[at]
        if ids[at] == pack.end_id and not (is_last and (is_first or at in behind)):
            raise _WrongError("special_tokens", f"the end token {pack.end_id} at {at}, where no repository ends")


def _places_between(ids: list[int], segments: list[dict[str, Any]]) -> Iterator[int]:
    """Places of special ids."""
    edges = [0, *(edge for one in segments for edge in (one["at"], one["at"] + one["length"])), len(ids)]
    for start, end in list(pairwise(edges))[::2]:
        yield from range(start, end)


def _require_markers(between: list[int], markers: frozenset[int], rules: RowRules) -> None:
    wrong = [one for one in between if one in rules.control_ids and one not in markers]
    if wrong:
        raise _WrongError("special_tokens", f"the control id {wrong[0]} between files")


def _windows(ids: list[int], segments: list[dict[str, Any]], rules: RowRules) -> Iterator[bytes]:
    """As the rows they would be by themselves."""
    for one in segments:
        content = ids[one["at"] : one["at"] + one["length"]]
        fields = {name: one[name] for name in rules.columns[1:]}
        yield orjson.dumps({"input_ids": [*rules.prefix, *content, *rules.suffix], **fields})
