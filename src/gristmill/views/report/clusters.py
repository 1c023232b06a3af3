"""Files that are the same or nearly so: which one stands for them, and what differs."""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gristmill.core.files_table import FileRow, file_rows
from gristmill.core.records import DropReason
from gristmill.views.report.facts import Cluster, DiffLine, Twin, brief
from gristmill.views.report.read_back import Missing, ShownTexts, Sources

# Two texts -> their lines side by side: what differs, with a few lines around it.

CONTEXT = 3
MOST_LINES = 120
LONGEST_LINE = 400
"""Characters of a line that are shown."""
LEAD = 100
"""Characters before the first that differs, in lines that differ only further on."""
MOST_COMPARED = 1000
"""Lines of each text, from the first that differs: what takes difflib a second is not shown anyway."""

Lines = Sequence[str]
Opcode = tuple[str, int, int, int, int]


class Difference(NamedTuple):
    lines: list[DiffLine]
    num_left_out: int
    """Lines behind them."""


def side_by_side(left: str, right: str, most: int = MOST_LINES) -> Difference:
    old, new = _lines(left), _lines(right)
    opcodes, ends = _opcodes(old, new)
    lines = list(islice(_told(old, new, opcodes), most))
    shown = [max((number or 0) for number in numbers) for numbers in _numbers(lines)]
    if len(lines) < most and ends == (len(old), len(new)):
        return Difference(lines, 0)
    return Difference(lines, max(len(old) - shown[0], len(new) - shown[1]))


def size_of(lines: Sequence[DiffLine]) -> int:
    """About what they take in a page."""
    return sum(len(html.escape(f"{line.left}{line.right}").encode()) + LEAD for line in lines)


def _lines(text: str) -> list[str]:
    """By line feeds alone, as everything here counts lines."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _numbers(lines: Sequence[DiffLine]) -> tuple[list[int | None], list[int | None]]:
    return [0, *(line.left_number for line in lines)], [0, *(line.right_number for line in lines)]


def _opcodes(old: Lines, new: Lines) -> tuple[list[Opcode], tuple[int, int]]:
    """As difflib's, and the lines of both texts up to which they hold."""
    head = _num_same(old, new)
    tail = _num_same(old[head:][::-1], new[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    is_all = max(old_end, new_end) - head <= MOST_COMPARED
    if not is_all:
        old_end, new_end = min(old_end, head + MOST_COMPARED), min(new_end, head + MOST_COMPARED)
    matcher = SequenceMatcher(None, old[head:old_end], new[head:new_end])
    middle = [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in matcher.get_opcodes()]
    if is_all:
        ends = [("equal", old_end, len(old), new_end, len(new))]
        return [("equal", 0, head, 0, head), *middle, *ends], (len(old), len(new))
    # What comes after the last line that both have may well have its like further on.
    last = max((number for number, one in enumerate(middle, 1) if one[0] == "equal"), default=len(middle))
    return [("equal", 0, head, 0, head), *middle[:last]], (middle[last - 1][2], middle[last - 1][4])


def _num_same(old: Lines, new: Lines) -> int:
    pairs = zip(old, new, strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), min(len(old), len(new)))


def _told(old: Lines, new: Lines, opcodes: Sequence[Opcode]) -> Iterator[DiffLine]:
    opcodes = [one for one in opcodes if one[1] < one[2] or one[3] < one[4]]
    for number, (tag, old_start, old_end, new_start, new_end) in enumerate(opcodes):
        if tag == "equal":
            before = CONTEXT if number else 0
            after = CONTEXT if number < len(opcodes) - 1 else 0
            yield from _same(old, (old_start, old_end), new_start - old_start, before, after)
            continue
        num_pairs = min(old_end - old_start, new_end - new_start)
        for at in range(num_pairs):
            yield _changed(old[old_start + at], new[new_start + at], old_start + at + 1, new_start + at + 1)
        for at in range(old_start + num_pairs, old_end):
            yield DiffLine(kind="removed", left=_shortened(old[at]), left_number=at + 1)
        for at in range(new_start + num_pairs, new_end):
            yield DiffLine(kind="added", right=_shortened(new[at]), right_number=at + 1)


def _same(old: Lines, span: tuple[int, int], shift: int, before: int, after: int) -> Iterator[DiffLine]:
    """The first and the last of them, and how many are between."""
    start, end = span
    skipped = range(start + before, end - after)
    for at in range(start, end):
        if len(skipped) > 1 and at in skipped:
            if at == skipped.start:
                yield DiffLine(kind="skipped", num_skipped=len(skipped))
            continue
        text = _shortened(old[at])
        yield DiffLine(kind="same", left=text, right=text, left_number=at + 1, right_number=at + shift + 1)


def _changed(left: str, right: str, left_number: int, right_number: int) -> DiffLine:
    """Of two long lines, from a little before where they differ."""
    same = _num_same(left, right)
    start = same - LEAD if same > LONGEST_LINE - LEAD else 0
    return DiffLine(
        kind="changed",
        left=_shortened(left, start),
        right=_shortened(right, start),
        left_number=left_number,
        right_number=right_number,
    )


def _shortened(text: str, start: int = 0) -> str:
    rest = text[start : start + LONGEST_LINE]
    return f"{'…' if start else ''}{rest}{'…' if len(text) > start + LONGEST_LINE else ''}"


MOST_CLUSTERS = 30
MOST_TWINS = 6
MOST_BYTES = 400_000
"""Of all differences together: a report must stay one that can be sent."""
MOST_LINES_MORE = 40
"""Of the second twin of a cluster and those after it."""
LEAST_BYTES = 2_000
"""With less left, nothing more is compared."""
SAME_TEXT = "it is the same text"
NO_ROOM = "there is no room for more differences here"
NOTHING = Difference([], 0)


class _Link(NamedTuple):
    """From a dropped file to the one it was held against."""

    to: str
    similarity: float
    is_exact: bool


class _Member(NamedTuple):
    name: str
    similarity: float
    is_exact: bool


class Outline(NamedTuple):
    """A cluster by its names."""

    kept: str
    num_twins: int
    twins: list[_Member]


class Twins:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self._links: dict[str, _Link] = {}
        self._ends: dict[str, _Link] = {}
        """Those that are followed to what stands for them: each once, however long a chain is."""

    def add(self, row: FileRow) -> None:
        if row.twin is not None and row.reason in {DropReason.EXACT_DUPLICATE, DropReason.NEAR_DUPLICATE}:
            is_exact = row.reason is DropReason.EXACT_DUPLICATE
            self._links[row.name] = _Link(row.twin, 1.0 if is_exact else row.similarity or 0.0, is_exact)

    def outlines(self) -> tuple[list[Outline], int, int]:
        """The largest clusters; how many there are, and files in them."""
        members: dict[str, list[_Member]] = {}
        for name in self._links:
            kept, member = self._resolved(name)
            members.setdefault(kept, []).append(member)
        largest = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST_CLUSTERS]
        outlines = [
            # What is not quite the same is worth looking at first.
            Outline(kept, len(own), sorted(own, key=lambda one: (one.is_exact, one.name))[:MOST_TWINS])
            for kept, own in largest
        ]
        return outlines, len(members), len(members) + len(self._links)

    def _resolved(self, name: str) -> tuple[str, _Member]:
        """A copy of a near-duplicate is as near to what stands for both."""
        passed: dict[str, _Link] = {}
        at = name
        while at not in self._ends and at not in passed and at in self._links:
            passed[at] = self._links[at]
            at = passed[at].to
        end = self._ends.get(at, _Link(at, 1.0, is_exact=True))
        for one, link in reversed(passed.items()):
            end = _Link(end.to, min(end.similarity, link.similarity), end.is_exact and link.is_exact)
            self._ends[one] = end
        end = self._ends[name]
        return end.to, _Member(name, end.similarity, end.is_exact)


def rows_named(table: Path, outlines: Iterable[Outline]) -> dict[str, FileRow]:
    """Those of the files in these clusters."""
    names = {name for one in outlines for name in (one.kept, *(twin.name for twin in one.twins))}
    return {row.name: row for row in file_rows(table) if row.name in names} if names else {}


class Comparing:
    """Clusters with what differs in them, while there is room."""

    def __init__(self, shown: ShownTexts, sources: Sources, rows: Mapping[str, FileRow]) -> None:
        self._shown, self._sources, self._rows = shown, sources, rows
        self._kept: dict[str, bytes | Missing] = {}
        self._num_bytes_left = MOST_BYTES

    def clusters(self, outlines: Sequence[Outline], advance: Callable[[int], None]) -> list[Cluster]:
        twins: dict[str, list[Twin]] = {outline.kept: [] for outline in outlines}
        for rank in range(MOST_TWINS):  # of each cluster the first, before any gets a second
            most_lines = MOST_LINES if rank == 0 else MOST_LINES_MORE
            for outline in outlines:
                if rank < len(outline.twins):
                    twins[outline.kept].append(self._compared(outline.kept, outline.twins[rank], most_lines))
                    advance(1)
        return [Cluster(kept=brief(one.kept), num_twins=one.num_twins, twins=twins[one.kept]) for one in outlines]

    def _compared(self, kept: str, member: _Member, most_lines: int) -> Twin:
        if member.is_exact:
            return _twin(member, Missing(SAME_TEXT))
        if self._num_bytes_left < LEAST_BYTES:
            return _twin(member, Missing(NO_ROOM))
        row = self._rows.get(member.name)
        right = Missing("files.jsonl tells of no such file") if row is None else self._sources.text_of(row)
        if isinstance(right, Missing):
            return _twin(member, right)
        left = self._text_of_kept(kept)
        if isinstance(left, Missing):
            return _twin(member, Missing(f"of the file that stands for it, {left.why}"))
        difference = side_by_side(left.decode(), right.decode(), most_lines)
        num_bytes = size_of(difference.lines)
        if num_bytes > self._num_bytes_left:
            return _twin(member, Missing(NO_ROOM))
        self._num_bytes_left -= num_bytes
        return _twin(member, difference)

    def _text_of_kept(self, name: str) -> bytes | Missing:
        if name not in self._kept:
            self._kept[name] = self._read_kept(self._rows.get(name))
        return self._kept[name]

    def _read_kept(self, row: FileRow | None) -> bytes | Missing:
        if row is None:
            return Missing("files.jsonl tells nothing")
        text = self._shown.text_of(row)
        return self._sources.text_of(row) if text is None else text


def _twin(member: _Member, found: Difference | Missing) -> Twin:
    difference, why_not = (NOTHING, found.why) if isinstance(found, Missing) else (found, None)
    return Twin(
        name=brief(member.name),
        similarity=member.similarity,
        is_exact=member.is_exact,
        lines=difference.lines,
        num_lines_left_out=difference.num_left_out,
        why_not=why_not,
    )
