"""What became of the files that were found: how many are left after each step, and why the others are not."""

from collections import Counter
from collections.abc import Iterable

from gristmill.core.files_table import FileRow
from gristmill.core.names import counted
from gristmill.core.records import DropReason, DropStage, Split
from gristmill.views.report.facts import Example, Folder, PerSplit, Reason, Share, Stage, brief

# Kept files by folder, for a treemap: what is small is counted in the folder above it.

MOST_FOLDERS = 400
DEEPEST = 12
"""Below it, a folder is counted in the one above: a path may have two thousand slashes."""
OTHERS = "other sources"

Parts = tuple[str, ...]
"""Of a folder: its source, then the names on its way."""


class _Sizes:
    __slots__ = ("num_files", "num_tokens")

    def __init__(self) -> None:
        self.num_files = self.num_tokens = 0

    def add(self, num_files: int, num_tokens: int) -> None:
        self.num_files += num_files
        self.num_tokens += num_tokens


class Folders:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self._own: dict[tuple[str, str], _Sizes] = {}
        """By repo and folder: files right there."""

    def add(self, row: FileRow) -> None:
        if row.status == "kept":
            folder = row.path.rpartition("/")[0]
            self._own.setdefault((row.repo, folder), _Sizes()).add(1, row.shown_tokens)

    def tree(self) -> tuple[list[Folder], int]:
        """Parents first, the largest of each first; and how many folders are not among them."""
        sizes, num_too_deep = self._with_parents()
        # A folder is never larger than the one it is in, so a parent always comes before what is below it.
        order = sorted(sizes, key=lambda parts: (-sizes[parts].num_tokens, -sizes[parts].num_files, len(parts), parts))
        shown = order[:MOST_FOLDERS]
        left_out = order[MOST_FOLDERS:]
        ids = _ids(shown)
        folders = [
            Folder(
                id=ids[parts],
                parent=ids[parts[:-1]] if len(parts) > 1 else "",
                name=parts[-1] or "/",
                files=sizes[parts].num_files,
                tokens=sizes[parts].num_tokens,
            )
            for parts in shown
        ]
        others = [sizes[parts] for parts in left_out if len(parts) == 1]
        if others:
            folders.append(_others(others, set(ids.values())))
        return folders, num_too_deep + len(left_out)

    def _with_parents(self) -> tuple[dict[Parts, _Sizes], int]:
        sizes: dict[Parts, _Sizes] = {}
        num_too_deep = 0
        for (repo, folder), own in self._own.items():
            names = folder.split("/") if folder else []
            num_too_deep += len(names) > DEEPEST
            parts = (repo, *names[:DEEPEST])
            for length in range(1, len(parts) + 1):
                sizes.setdefault(parts[:length], _Sizes()).add(own.num_files, own.num_tokens)
        return sizes, num_too_deep


def _ids(shown: list[Parts]) -> dict[Parts, str]:
    """Names may be anything: a source `a/b` and the folder `b` of a source `a` must not be one."""
    ids: dict[Parts, str] = {}
    taken: set[str] = set()
    for parts in shown:
        above = f"{ids[parts[:-1]]}/" if len(parts) > 1 else ""
        ids[parts] = _free(f"{above}{parts[-1] or '/'}", taken)
        taken.add(ids[parts])
    return ids


def _free(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}~{number}"
    return free


def _others(sizes: list[_Sizes], taken: set[str]) -> Folder:
    return Folder(
        id=_free(OTHERS, taken),
        parent="",
        name=f"{len(sizes):,} {OTHERS}",
        files=sum(one.num_files for one in sizes),
        tokens=sum(one.num_tokens for one in sizes),
    )


MOST_EXAMPLES = 8


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
                told=reason.meaning,
                files=one.num_files,
                bytes=one.num_bytes,
                examples=one.examples(),
            )
            for reason, one in found
        ]

    def funnel(self, num_sources: int) -> list[Stage]:
        sources = counted(num_sources, "source")
        stages = [Stage(name="found", files=self.num_found, note=f"in {sources}")]
        for stage in DropStage:
            reasons = [reason for reason in DropReason if reason.stage is stage and reason in self._dropped]
            gone = Counter({reason: self._dropped[reason].num_files for reason in reasons})
            stages.append(
                Stage(name=stage.value, files=stages[-1].files - gone.total(), note=_note(gone.most_common()))
            )
        return stages


def _note(gone: Iterable[tuple[DropReason, int]]) -> str:
    """`250 excluded, 55 binary`"""
    return ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in gone) or "nothing dropped"


# Kept files by language and by licence, with their tokens in each split; and those that secrets were taken out of.

SECRET_FILES = 20
LINES_NAMED = 5


class Shares:
    """Counted as the rows of files.jsonl come in."""

    def __init__(self) -> None:
        self._languages: dict[str, _Tally] = {}
        self._licenses: dict[str, _Tally] = {}
        self.secret_files: list[Example] = []
        """The first of them."""

    def add(self, row: FileRow) -> None:
        if row.split is None or row.status != "kept":
            return
        for tallies, name in ((self._languages, row.language), (self._licenses, row.license)):
            tallies.setdefault(brief(name or ""), _Tally()).add(row.split, row.shown_tokens)
        if row.redactions and len(self.secret_files) < SECRET_FILES:
            self.secret_files.append(Example(name=brief(row.name), detail=brief(_redacted(row))))

    def languages(self) -> list[Share]:
        return _by_tokens(self._languages)

    def licenses(self) -> list[Share]:
        return _by_tokens(self._licenses)


class _Tally:
    def __init__(self) -> None:
        self.num_files = 0
        self.tokens: PerSplit = dict.fromkeys(Split, 0)

    def add(self, split: Split, num_tokens: int) -> None:
        self.num_files += 1
        self.tokens[split] += num_tokens


def _by_tokens(tallies: dict[str, _Tally]) -> list[Share]:
    """Most first."""
    shares = [Share(name=name, files=one.num_files, tokens=one.tokens) for name, one in tallies.items()]
    return sorted(shares, key=lambda share: (-sum(share.tokens.values()), share.name))


def _redacted(row: FileRow) -> str:
    """`2 private-key in lines 3, 9`: never what was there."""
    kinds = Counter(one.kind for one in row.redactions)
    lines = sorted({one.line for one in row.redactions})
    named = ", ".join(f"{line:,}" for line in lines[:LINES_NAMED]) + (", …" if len(lines) > LINES_NAMED else "")
    told = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return f"{told} in line{'s' if len(lines) > 1 else ''} {named}"
