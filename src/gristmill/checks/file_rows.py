"""files.jsonl by itself: `files_table` and `groups`."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from gristmill.checks.findings import Faults
from gristmill.core.files_table import Count, FileRow, FimRow, VariantRow
from gristmill.core.layout import FILES
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Cut, DropReason, Redaction, Split

CHECK = "files_table"
DIGEST = re.compile(r"[0-9a-f]{64}")
DUPLICATES = frozenset({DropReason.EXACT_DUPLICATE, DropReason.NEAR_DUPLICATE})
MIN_SIMILARITY = 0.7
FileKey = tuple[str, str]


class KeptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A kept file's row, with all that every kept file has."""

    repo: str
    path: str
    split: Split
    group: str
    language: str
    encoding: str
    bytes: Count
    lines: Count
    tokens: Count
    cut_tokens: Count
    windows: Count
    draw: tuple[Count, Count] | None
    left_tokens: Count
    weight: float
    fim: FimRow | None
    variants: tuple[VariantRow, ...]
    sha256: str | None
    text_sha256: str
    license: str | None
    redactions: tuple[Redaction, ...]
    cuts: tuple[Cut, ...]

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"

    @property
    def is_rewritten(self) -> bool:
        """Its rows are of fill in the middle."""
        return self.fim is not None and self.fim.missing is None

    @property
    def shown_tokens(self) -> int:
        """Each once; those in a dropped tail count as shown."""
        return self.tokens - self.cut_tokens - self.left_tokens


class FilesTable(msgspec.Struct, frozen=True):
    kept: dict[FileKey, KeptFile]
    dropped: dict[FileKey, FileRow]

    def __len__(self) -> int:
        return len(self.kept) + len(self.dropped)


def read_files_table(folder: Path, faults: Faults) -> FilesTable:
    """What can be read of it."""
    table = FilesTable({}, {})
    try:
        with open_plain(folder / FILES) as stream:
            content = stream.read()
    except OSError as error:
        faults.add(CHECK, f"cannot be read: {error.strerror}", file=FILES)
        return table
    if not content.endswith(b"\n") or b"\r" in content:
        faults.add(CHECK, "each line ends with a line feed and nothing else; here one does not", file=FILES)
    last: FileKey | None = None
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        try:
            row = _decoder().decode(line)
            for defect in (*_take(row, table), *_defects(row)):
                faults.add(CHECK, defect, file=FILES, row=number, path=row.name)
            if last is not None and row.key < last:
                faults.add(CHECK, "not in path order", file=FILES, row=number, path=row.name)
            last = row.key
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            faults.add(CHECK, str(error), file=FILES, row=number)
    _check_twins(table, faults)
    return table


def _take(row: FileRow, table: FilesTable) -> Iterator[str]:
    """Into the table; what is wrong with that."""
    if row.key in table.kept or row.key in table.dropped:
        yield "the same file twice"
    elif row.status == "dropped":
        table.dropped[row.key] = row
    else:
        kept = msgspec.convert(row, KeptFile, from_attributes=True)
        # A cut beyond the tokens could be of any size: nothing is laid out by it.
        table.kept[row.key] = kept if _are_in_order(row) else msgspec.structs.replace(kept, cuts=())


@cache
def _decoder() -> msgspec.json.Decoder[FileRow]:
    return msgspec.json.Decoder(FileRow)


def _defects(row: FileRow) -> Iterator[str]:
    if any(DIGEST.fullmatch(one) is None for one in (row.sha256, row.text_sha256) if one is not None):
        yield "a digest that is none"
    if row.status == "dropped":
        yield from ["dropped without a reason"] if row.reason is None else []
        yield from ["dropped, but with windows"] if row.windows or row.variants or row.fim else []
    else:
        yield from [f"kept, but for {row.reason}"] if row.reason is not None else []
        yield from ["kept without a window"] if not row.windows and row.draw != (0, 0) else []
        yield from ["variants of a file that is held out"] if row.variants and row.split is not Split.TRAIN else []
        yield from ["fill in the middle of a file that is held out"] if row.fim and row.split is not Split.TRAIN else []
        yield from ["left_tokens without a draw"] if row.left_tokens and row.draw is None else []
        yield from ["cuts that are not in order, or beyond its tokens"] if not _are_in_order(row) else []
        yield from ["sha256 with redactions, or neither"] if (row.sha256 is None) != bool(row.redactions) else []
        yield from ["redactions that are not in order, or beyond its lines"] if not _are_redactions(row) else []


def _are_in_order(row: FileRow) -> bool:
    edges = [0, *(edge for cut in row.cuts for edge in (cut.start, cut.end)), row.tokens or 0]
    return edges == sorted(edges)


def _are_redactions(row: FileRow) -> bool:
    edges = [0, *(edge for one in row.redactions for edge in (one.start, one.end))]
    lines = [1, *(one.line for one in row.redactions), row.lines or 0]
    return not row.redactions or (edges == sorted(edges) and lines == sorted(lines))


def _check_twins(table: FilesTable, faults: Faults) -> None:
    """A duplicate's twin is in the table, and as like as it must be."""
    names = {f"{repo}/{path}" for repo, path in (*table.kept, *table.dropped)}
    for row in table.dropped.values():
        if row.reason not in DUPLICATES:
            continue
        if row.twin not in names or row.twin == row.name:
            faults.add(CHECK, f"its twin {row.twin!r} is not in the table", file=FILES, path=row.name)
        if not MIN_SIMILARITY <= (row.similarity or 0) <= 1:
            faults.add(CHECK, f"a {row.reason}, with a similarity of {row.similarity}", file=FILES, path=row.name)


def check_groups(table: FilesTable, faults: Faults) -> None:
    split_of: dict[str, KeptFile] = {}
    for file in table.kept.values():
        first = split_of.setdefault(file.group, file)
        if first.split is not file.split:
            what = f"in {file.split}, but {first.name} of the same group is in {first.split}"
            faults.add("groups", what, file=FILES, path=file.name)
