"""Files that are the same or nearly so: which one stands for them, and what differs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gristmill.filestable import FileRow, file_rows
from gristmill.records import DropReason
from gristmill.reporting.facts import Cluster, Twin, brief
from gristmill.reporting.read_back import Missing, ShownTexts, Sources
from gristmill.reporting.side_by_side import MOST_LINES, Difference, side_by_side, size_of

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
