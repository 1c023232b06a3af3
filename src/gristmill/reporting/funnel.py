"""What became of the files that were found: how many are left after each step, and why the others are not."""

from collections import Counter
from collections.abc import Iterable

from gristmill.filestable import FileRow
from gristmill.naming import counted
from gristmill.records import DROP_REASONS, DropReason
from gristmill.reporting.facts import Example, Reason, Stage, brief

MOST_EXAMPLES = 8
STAGES: dict[str, tuple[DropReason, ...]] = {
    "read as text": (
        DropReason.EXCLUDED,
        DropReason.TRANSLATION,
        DropReason.EXCLUDED_BY_USER,
        DropReason.NOT_INCLUDED,
        DropReason.LANGUAGE_NOT_WANTED,
        DropReason.SYMLINK,
        DropReason.OUTSIDE_SOURCE,
        DropReason.NOT_A_FILE,
        DropReason.TOO_LARGE,
        DropReason.UNREADABLE,
        DropReason.VANISHED,
        DropReason.CHANGED_WHILE_READ,
        DropReason.EMPTY,
        DropReason.BINARY,
        DropReason.BAD_ROW,
        DropReason.BAD_NOTEBOOK,
        DropReason.FAILED,
    ),
    "clean": (
        DropReason.VENDORED,
        DropReason.LOCK_FILE,
        DropReason.GENERATED,
        DropReason.MINIFIED,
        DropReason.ONE_LINE,
        DropReason.ENCODED_DATA,
        DropReason.TOO_SHORT,
        DropReason.MEAN_LINE_TOO_LONG,
        DropReason.LINE_TOO_LONG,
        DropReason.TOO_LITTLE_ALPHABETIC,
        DropReason.HOLDS_SECRET,
        DropReason.LICENSE_NOT_ALLOWED,
        DropReason.NO_TOKENS,
        DropReason.CONTROL_TOKEN,
    ),
    "distinct": (DropReason.EXACT_DUPLICATE, DropReason.NEAR_DUPLICATE),
    "kept": (DropReason.CONTAMINATED,),
}
"""By stage, the reasons for which a file does not come to it."""


class _Dropped:
    """Files of one reason."""

    def __init__(self) -> None:
        self.num_files = self.num_bytes = 0
        self._first: list[Example] = []
        self._of_folders: dict[str, Example] = {}

    def add(self, row: FileRow) -> None:
        self.num_files += 1
        self.num_bytes += row.bytes or 0
        example = Example(name=brief(row.name), detail=brief(row.detail or ""))
        if len(self._first) < MOST_EXAMPLES:
            self._first.append(example)
        if len(self._of_folders) < MOST_EXAMPLES:
            self._of_folders.setdefault(row.name.rstrip("/").rpartition("/")[0], example)

    def examples(self) -> list[Example]:
        """The first of each folder, then the first of all, in path order."""
        chosen = {example.name: example for example in (*self._of_folders.values(), *self._first)}
        return sorted(list(chosen.values())[:MOST_EXAMPLES], key=lambda example: example.name)


class Drops:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self.num_found = 0
        self._dropped: dict[DropReason, _Dropped] = {}

    def add(self, row: FileRow) -> None:
        self.num_found += 1
        if row.reason is not None:
            self._dropped.setdefault(row.reason, _Dropped()).add(row)

    @property
    def num_dropped(self) -> int:
        return sum(one.num_files for one in self._dropped.values())

    def reasons(self) -> list[Reason]:
        """Most files first."""
        order = {reason: number for number, reason in enumerate(DropReason)}
        found = sorted(self._dropped.items(), key=lambda item: (-item[1].num_files, order[item[0]]))
        return [
            Reason(
                reason=reason,
                told=DROP_REASONS[reason],
                files=one.num_files,
                bytes=one.num_bytes,
                examples=one.examples(),
            )
            for reason, one in found
        ]

    def funnel(self, num_sources: int) -> list[Stage]:
        sources = counted(num_sources, "source")
        stages = [Stage(name="found", files=self.num_found, note=f"in {sources}")]
        for name, reasons in STAGES.items():
            gone = Counter({reason: self._dropped[reason].num_files for reason in reasons if reason in self._dropped})
            stages.append(Stage(name=name, files=stages[-1].files - gone.total(), note=_note(gone.most_common())))
        return stages


def _note(gone: Iterable[tuple[DropReason, int]]) -> str:
    """`250 excluded, 55 binary`"""
    return ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in gone) or "nothing dropped"
