"""Read files.jsonl and check its rows for consistency (checks `files_table` and `groups`)."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

from gristmill.checks.findings import Faults, value_text
from gristmill.core.files_table import Count, FileRow, FimRow, VariantRow
from gristmill.core.layout import FILES
from gristmill.core.plain_files import open_plain
from gristmill.core.records import Cut, DropReason, Redaction, Respelling, Split

CHECK = "files_table"
DIGEST = re.compile(r"[0-9a-f]{64}")
DUPLICATES = frozenset({DropReason.EXACT_DUPLICATE, DropReason.NEAR_DUPLICATE})
MIN_SIMILARITY = 0.7
FileKey = tuple[str, str]


class KeptFile(msgspec.Struct, frozen=True, kw_only=True):
    """Row of a kept file in files.jsonl, with the columns that every kept file must have."""

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
    respellings: tuple[Respelling, ...]
    cuts: tuple[Cut, ...]

    @property
    def key(self) -> FileKey:
        return self.repo, self.path

    @property
    def name(self) -> str:
        return f"{self.repo}/{self.path}"

    @property
    def is_rewritten(self) -> bool:
        """True if rows of the file are rewritten for fill-in-the-middle."""
        return self.fim is not None and self.fim.missing is None

    @property
    def covered_tokens(self) -> int:
        """Number of tokens in the drawn windows, each counted once. Tokens of a dropped tail are included."""
        return self.tokens - self.cut_tokens - self.left_tokens


class FilesTable(msgspec.Struct, frozen=True):
    """Rows of files.jsonl, keyed by repository and path."""

    kept: dict[FileKey, KeptFile]
    dropped: dict[FileKey, FileRow]

    def __len__(self) -> int:
        return len(self.kept) + len(self.dropped)


def read_files_table(folder: Path, faults: Faults) -> FilesTable:
    """Read all valid rows of files.jsonl, and add a fault for every invalid line."""
    table = FilesTable({}, {})
    try:
        with open_plain(folder / FILES) as stream:
            content = stream.read()
    except OSError as error:
        faults.add(CHECK, f"the file cannot be read: {error.strerror}", file=FILES)
        return table
    if not content.endswith(b"\n") or b"\r" in content:
        faults.add(
            CHECK, "the last line does not end with a line feed, or a line contains a carriage return", file=FILES
        )
    last: FileKey | None = None
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        try:
            row = _decoder().decode(line)
            for message in (*_add_row(row, table), *_find_row_faults(row)):
                faults.add(CHECK, message, file=FILES, row=number, path=row.name)
            if last is not None and row.key < last:
                faults.add(CHECK, "the row is not in path order", file=FILES, row=number, path=row.name)
            last = row.key
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            faults.add(CHECK, f"the line is not a valid row: {error}", file=FILES, row=number)
    _check_twins(table, faults)
    return table


def _add_row(row: FileRow, table: FilesTable) -> Iterator[str]:
    """Add a row to the table. Yield a fault if the file is already in the table."""
    if row.key in table.kept or row.key in table.dropped:
        yield "the same file appears twice"
    elif row.status == "dropped":
        table.dropped[row.key] = row
    else:
        kept = msgspec.convert(row, KeptFile, from_attributes=True)
        # A cut outside of the file could have any size, so invalid cuts are not used to compute windows.
        table.kept[row.key] = kept if _are_cuts_valid(row) else msgspec.structs.replace(kept, cuts=())


@cache
def _decoder() -> msgspec.json.Decoder[FileRow]:
    return msgspec.json.Decoder(FileRow)


def _find_row_faults(row: FileRow) -> Iterator[str]:
    if any(DIGEST.fullmatch(one) is None for one in (row.sha256, row.text_sha256) if one is not None):
        yield "sha256 or text_sha256 is not a valid digest"
    if row.status == "dropped":
        yield from ["the file is dropped without a reason"] if row.reason is None else []
        yield from ["the file is dropped, but has windows"] if row.windows or row.variants or row.fim else []
    else:
        yield from [f"the file is kept, but has the drop reason {row.reason}"] if row.reason is not None else []
        yield from ["the file is kept, but has no window"] if not row.windows and row.draw != (0, 0) else []
        yield from ["the file is held out, but has variants"] if row.variants and row.split is not Split.TRAIN else []
        yield from (
            ["the file is held out, but has fill-in-the-middle rows"]
            if row.fim and row.split is not Split.TRAIN
            else []
        )
        yield from ["left_tokens is set, but draw is not"] if row.left_tokens and row.draw is None else []
        yield from ["cuts are not in ascending order, or end after the last token"] if not _are_cuts_valid(row) else []
        yield from (
            ["the file must have either sha256 or redactions, but not both"]
            if (row.sha256 is None) != bool(row.redactions)
            else []
        )
        yield from (
            ["redactions are not in ascending order, or one is after the last line"]
            if not _are_redactions_valid(row)
            else []
        )
        yield from (
            ["respellings are not in ascending order, or one is after the last line"]
            if not _are_respellings_valid(row)
            else []
        )


def _are_cuts_valid(row: FileRow) -> bool:
    edges = [0, *(edge for cut in row.cuts for edge in (cut.start, cut.end)), row.tokens or 0]
    return edges == sorted(edges)


def _are_redactions_valid(row: FileRow) -> bool:
    edges = [0, *(edge for one in row.redactions for edge in (one.start, one.end))]
    lines = [1, *(one.line for one in row.redactions), row.lines or 0]
    return not row.redactions or (edges == sorted(edges) and lines == sorted(lines))


def _are_respellings_valid(row: FileRow) -> bool:
    positions = [0, *(one.at for one in row.respellings)]
    lines = [1, *(one.line for one in row.respellings), row.lines or 0]
    return not row.respellings or (positions == sorted(positions) and lines == sorted(lines))


def _check_twins(table: FilesTable, faults: Faults) -> None:
    """Check the twin of each dropped duplicate: the file that it duplicates must be in the table and similar enough."""
    names = {f"{repo}/{path}" for repo, path in (*table.kept, *table.dropped)}
    for row in table.dropped.values():
        if row.reason not in DUPLICATES:
            continue
        if row.twin not in names or row.twin == row.name:
            faults.add(CHECK, f"the twin {row.twin!r} must be a different file in {FILES}", file=FILES, path=row.name)
        if not MIN_SIMILARITY <= (row.similarity or 0) <= 1:
            faults.add(
                CHECK,
                f"the file is dropped as {row.reason}, but its similarity is {value_text(row.similarity)}, "
                f"expected {MIN_SIMILARITY} to 1",
                file=FILES,
                path=row.name,
            )


def check_groups(table: FilesTable, faults: Faults) -> None:
    """Check that all files of a group are in the same split."""
    first_by_group: dict[str, KeptFile] = {}
    for file in table.kept.values():
        first = first_by_group.setdefault(file.group, file)
        if first.split is not file.split:
            message = f"the file is in {file.split}, but {first.name} of the same group is in {first.split}"
            faults.add("groups", message, file=FILES, path=file.name)
