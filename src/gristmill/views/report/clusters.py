"""Clusters of duplicate and near-duplicate files, with diffs between the kept file and the dropped files."""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gristmill.core.files_table import FileRow, read_file_rows
from gristmill.core.records import DropReason
from gristmill.views.report.facts import Cluster, DiffLine, Duplicate, truncate
from gristmill.views.report.read_back import Missing, SourceTexts, WindowTexts

# Side-by-side diff of two texts, with a few lines of context.

CONTEXT = 3
MAX_LINES = 120
MAX_LINE_LENGTH = 400
"""Maximum number of displayed characters of a line."""
LEAD_LENGTH = 100
"""Number of displayed characters before the first difference of two long lines."""
MAX_COMPARED_LINES = 1000
"""Maximum number of lines compared in each text. Comparing more would take about a second and display no more lines."""

Lines = Sequence[str]
Opcode = tuple[str, int, int, int, int]


class LineDiff(NamedTuple):
    lines: list[DiffLine]
    num_left_out: int
    """Number of lines omitted after `lines`."""


def side_by_side(left: str, right: str, max_lines: int = MAX_LINES) -> LineDiff:
    """Return the first `max_lines` lines of the diff of two texts."""
    old, new = _lines(left), _lines(right)
    opcodes, ends = _opcodes(old, new)
    lines = list(islice(_diff_lines(old, new, opcodes), max_lines))
    last = [max((number or 0) for number in numbers) for numbers in _numbers(lines)]
    if len(lines) < max_lines and ends == (len(old), len(new)):
        return LineDiff(lines, 0)
    return LineDiff(lines, max(len(old) - last[0], len(new) - last[1]))


def html_size(lines: Sequence[DiffLine]) -> int:
    """Return the approximate size of diff lines in a page, in bytes."""
    return sum(len(html.escape(f"{line.left}{line.right}").encode()) + LEAD_LENGTH for line in lines)


def _lines(text: str) -> list[str]:
    """Split a text at line feeds only, because all line numbers in gristmill count line feeds."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _numbers(lines: Sequence[DiffLine]) -> tuple[list[int | None], list[int | None]]:
    return [0, *(line.left_number for line in lines)], [0, *(line.right_number for line in lines)]


def _opcodes(old: Lines, new: Lines) -> tuple[list[Opcode], tuple[int, int]]:
    """Return opcodes like those of difflib, and the end of the compared lines in each text."""
    head = _num_same(old, new)
    tail = _num_same(old[head:][::-1], new[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    compares_all = max(old_end, new_end) - head <= MAX_COMPARED_LINES
    if not compares_all:
        old_end, new_end = min(old_end, head + MAX_COMPARED_LINES), min(new_end, head + MAX_COMPARED_LINES)
    matcher = SequenceMatcher(None, old[head:old_end], new[head:new_end])
    middle = [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in matcher.get_opcodes()]
    if compares_all:
        ends = [("equal", old_end, len(old), new_end, len(new))]
        return [("equal", 0, head, 0, head), *middle, *ends], (len(old), len(new))
    # Omit lines after the last common line, because they may match lines beyond the compared lines.
    last = max((number for number, one in enumerate(middle, 1) if one[0] == "equal"), default=len(middle))
    return [("equal", 0, head, 0, head), *middle[:last]], (middle[last - 1][2], middle[last - 1][4])


def _num_same(old: Lines, new: Lines) -> int:
    pairs = zip(old, new, strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), min(len(old), len(new)))


def _diff_lines(old: Lines, new: Lines, opcodes: Sequence[Opcode]) -> Iterator[DiffLine]:
    opcodes = [one for one in opcodes if one[1] < one[2] or one[3] < one[4]]
    for number, (tag, old_start, old_end, new_start, new_end) in enumerate(opcodes):
        if tag == "equal":
            before = CONTEXT if number else 0
            after = CONTEXT if number < len(opcodes) - 1 else 0
            yield from _same_lines(old, (old_start, old_end), new_start - old_start, before, after)
            continue
        num_pairs = min(old_end - old_start, new_end - new_start)
        for at in range(num_pairs):
            yield _changed_line(old[old_start + at], new[new_start + at], old_start + at + 1, new_start + at + 1)
        for at in range(old_start + num_pairs, old_end):
            yield DiffLine(kind="removed", left=_truncate_line(old[at]), left_number=at + 1)
        for at in range(new_start + num_pairs, new_end):
            yield DiffLine(kind="added", right=_truncate_line(new[at]), right_number=at + 1)


def _same_lines(old: Lines, span: tuple[int, int], shift: int, before: int, after: int) -> Iterator[DiffLine]:
    """Yield the first and last lines of an equal range, and one entry for the lines skipped in between."""
    start, end = span
    skipped = range(start + before, end - after)
    for at in range(start, end):
        if len(skipped) > 1 and at in skipped:
            if at == skipped.start:
                yield DiffLine(kind="skipped", num_skipped=len(skipped))
            continue
        text = _truncate_line(old[at])
        yield DiffLine(kind="same", left=text, right=text, left_number=at + 1, right_number=at + shift + 1)


def _changed_line(left: str, right: str, left_number: int, right_number: int) -> DiffLine:
    """Return a changed line. If the first difference is far from the start, both texts begin shortly before it."""
    same = _num_same(left, right)
    start = same - LEAD_LENGTH if same > MAX_LINE_LENGTH - LEAD_LENGTH else 0
    return DiffLine(
        kind="changed",
        left=_truncate_line(left, start),
        right=_truncate_line(right, start),
        left_number=left_number,
        right_number=right_number,
    )


def _truncate_line(text: str, start: int = 0) -> str:
    rest = text[start : start + MAX_LINE_LENGTH]
    return f"{'…' if start else ''}{rest}{'…' if len(text) > start + MAX_LINE_LENGTH else ''}"


MAX_CLUSTERS = 30
MAX_DUPLICATES = 6
MAX_DIFF_BYTES = 400_000
"""Maximum size of all diffs of a report, so that the report remains small enough to send."""
MAX_LINES_OF_LATER_DIFFS = 40
"""Maximum number of lines of each diff after the first diff of a cluster."""
MIN_BYTES_LEFT = 2_000
"""When less than this is left of MAX_DIFF_BYTES, no more files are compared."""
SAME_TEXT = "the texts are the same"
LIMIT_REACHED = "the report has reached its size limit for diffs"
NO_DIFF = LineDiff([], 0)


class _Link(NamedTuple):
    """Link from a dropped file to the file of which it is a duplicate."""

    target: str
    similarity: float
    is_exact: bool


class _Member(NamedTuple):
    """A dropped file of a cluster, with its similarity to the kept file."""

    name: str
    similarity: float
    is_exact: bool


class Outline(NamedTuple):
    """A cluster before its files are compared."""

    kept: str
    num_duplicates: int
    duplicates: list[_Member]


class Duplicates:
    """Collects links between duplicates and converts the links to clusters."""

    def __init__(self) -> None:
        self._links: dict[str, _Link] = {}
        self._resolved: dict[str, _Link] = {}
        """Links from dropped files directly to kept files. Each is resolved once, so long chains take linear time."""

    def add(self, row: FileRow) -> None:
        if row.twin is not None and row.reason in {DropReason.EXACT_DUPLICATE, DropReason.NEAR_DUPLICATE}:
            is_exact = row.reason is DropReason.EXACT_DUPLICATE
            self._links[row.name] = _Link(row.twin, 1.0 if is_exact else row.similarity or 0.0, is_exact)

    def outlines(self) -> tuple[list[Outline], int, int]:
        """Return the largest clusters, the total number of clusters, and the number of files in all clusters."""
        members: dict[str, list[_Member]] = {}
        for name in self._links:
            kept, member = self._resolve(name)
            members.setdefault(kept, []).append(member)
        largest = sorted(members.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_CLUSTERS]
        outlines = [
            # Near-duplicates come first, because they are more interesting than exact copies.
            Outline(kept, len(dropped), sorted(dropped, key=lambda one: (one.is_exact, one.name))[:MAX_DUPLICATES])
            for kept, dropped in largest
        ]
        return outlines, len(members), len(members) + len(self._links)

    def _resolve(self, name: str) -> tuple[str, _Member]:
        """Return the kept file of the cluster, and the dropped file as a member.

        The similarity of the member is the smallest similarity along the chain of links.
        """
        passed: dict[str, _Link] = {}
        at = name
        while at not in self._resolved and at not in passed and at in self._links:
            passed[at] = self._links[at]
            at = passed[at].target
        end = self._resolved.get(at, _Link(at, 1.0, is_exact=True))
        for one, link in reversed(passed.items()):
            end = _Link(end.target, min(end.similarity, link.similarity), end.is_exact and link.is_exact)
            self._resolved[one] = end
        end = self._resolved[name]
        return end.target, _Member(name, end.similarity, end.is_exact)


def read_named_rows(table: Path, outlines: Iterable[Outline]) -> dict[str, FileRow]:
    """Return the rows of files.jsonl for the files in these clusters, keyed by name."""
    names = {name for one in outlines for name in (one.kept, *(duplicate.name for duplicate in one.duplicates))}
    return {row.name: row for row in read_file_rows(table) if row.name in names} if names else {}


class ClusterComparer:
    """Compares the files of clusters until the size limit of all diffs is reached."""

    def __init__(self, windows: WindowTexts, sources: SourceTexts, rows: Mapping[str, FileRow]) -> None:
        self._windows, self._sources, self._rows = windows, sources, rows
        self._kept_texts: dict[str, bytes | Missing] = {}
        self._num_bytes_left = MAX_DIFF_BYTES

    def clusters(self, outlines: Sequence[Outline], advance: Callable[[int], None]) -> list[Cluster]:
        duplicates: dict[str, list[Duplicate]] = {outline.kept: [] for outline in outlines}
        for rank in range(MAX_DUPLICATES):  # compare one file of each cluster before the second file of any cluster
            max_lines = MAX_LINES if rank == 0 else MAX_LINES_OF_LATER_DIFFS
            for outline in outlines:
                if rank < len(outline.duplicates):
                    duplicates[outline.kept].append(self._compare(outline.kept, outline.duplicates[rank], max_lines))
                    advance(1)
        return [
            Cluster(kept=truncate(one.kept), num_duplicates=one.num_duplicates, duplicates=duplicates[one.kept])
            for one in outlines
        ]

    def _compare(self, kept: str, member: _Member, max_lines: int) -> Duplicate:
        if member.is_exact:
            return _duplicate(member, Missing(SAME_TEXT))
        if self._num_bytes_left < MIN_BYTES_LEFT:
            return _duplicate(member, Missing(LIMIT_REACHED))
        row = self._rows.get(member.name)
        right = Missing("files.jsonl does not list the file") if row is None else self._sources.text_of(row)
        if isinstance(right, Missing):
            return _duplicate(member, right)
        left = self._kept_text(kept)
        if isinstance(left, Missing):
            return _duplicate(member, Missing(f"the kept file cannot be read: {left.reason}"))
        diff = side_by_side(left.decode(), right.decode(), max_lines)
        num_bytes = html_size(diff.lines)
        if num_bytes > self._num_bytes_left:
            return _duplicate(member, Missing(LIMIT_REACHED))
        self._num_bytes_left -= num_bytes
        return _duplicate(member, diff)

    def _kept_text(self, name: str) -> bytes | Missing:
        if name not in self._kept_texts:
            self._kept_texts[name] = self._read_kept(self._rows.get(name))
        return self._kept_texts[name]

    def _read_kept(self, row: FileRow | None) -> bytes | Missing:
        if row is None:
            return Missing("files.jsonl does not list the file")
        text = self._windows.text_of(row)
        return self._sources.text_of(row) if text is None else text


def _duplicate(member: _Member, found: LineDiff | Missing) -> Duplicate:
    diff, no_diff_reason = (NO_DIFF, found.reason) if isinstance(found, Missing) else (found, None)
    return Duplicate(
        name=truncate(member.name),
        similarity=member.similarity,
        is_exact=member.is_exact,
        lines=diff.lines,
        num_lines_left_out=diff.num_left_out,
        no_diff_reason=no_diff_reason,
    )
