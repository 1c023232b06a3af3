"""files.jsonl by itself and against the manifest: `files_table` and `groups`."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gristmill.checking.result import Faults
from gristmill.filestable import Count, FileRow
from gristmill.layout import FILES
from gristmill.manifest import Manifest
from gristmill.records import Cut, Redaction, Split

CHECK = "files_table"
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


class FilesTable(msgspec.Struct, frozen=True):
    kept: dict[FileKey, KeptFile]
    dropped: dict[FileKey, FileRow]

    def __len__(self) -> int:
        return len(self.kept) + len(self.dropped)


def read_files_table(folder: Path, faults: Faults) -> FilesTable:
    """What can be read of it."""
    table = FilesTable({}, {})
    try:
        lines = (folder / FILES).read_bytes().removesuffix(b"\n").split(b"\n")
    except OSError as error:
        faults.add(CHECK, f"cannot be read: {error.strerror}", file=FILES)
        return table
    for number, line in enumerate(lines, 1):
        try:
            row = _decoder().decode(line)
            key = (row.repo, row.path)
            if key in table.kept or key in table.dropped:
                faults.add(CHECK, "the same file twice", file=FILES, row=number, path=row.name)
            elif row.status == "kept":
                table.kept[key] = msgspec.convert(row, KeptFile, from_attributes=True)
            else:
                table.dropped[key] = row
            _check_row(row, number, faults)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            faults.add(CHECK, str(error), file=FILES, row=number)
    return table


@cache
def _decoder() -> msgspec.json.Decoder[FileRow]:
    return msgspec.json.Decoder(FileRow)


def _check_row(row: FileRow, number: int, faults: Faults) -> None:
    defects = []
    if row.status == "dropped":
        defects += ["dropped without a reason"] if row.reason is None else []
        defects += ["dropped, but with windows"] if row.windows else []
    else:
        defects += [f"kept, but for {row.reason}"] if row.reason is not None else []
        defects += ["kept without a window"] if not row.windows else []
        defects += ["cuts that are not in order, or beyond its tokens"] if not _are_in_order(row) else []
    for defect in defects:
        faults.add(CHECK, defect, file=FILES, row=number, path=row.name)


def _are_in_order(row: FileRow) -> bool:
    edges = [0, *(edge for cut in row.cuts for edge in (cut.start, cut.end)), row.tokens or 0]
    return edges == sorted(edges)


def check_counts(table: FilesTable, manifest: Manifest, faults: Faults) -> None:
    """The manifest's counts are those of files.jsonl."""
    kept, dropped, counts = table.kept.values(), table.dropped.values(), manifest.counts
    by_language: dict[str, dict[Split, int]] = {}
    for file in kept:
        by_split = by_language.setdefault(file.language, dict.fromkeys(Split, 0))
        by_split[file.split] += file.tokens - file.cut_tokens
    said_and_found: Sequence[tuple[str, Any, Any]] = (
        ("counts.found", counts.found, len(table)),
        ("counts.kept", counts.kept, len(kept)),
        ("counts.dropped", counts.dropped, len(dropped)),
        ("counts.dropped_by_reason", counts.dropped_by_reason, _tally(row.reason for row in dropped)),
        ("counts.licenses", counts.licenses, _tally(file.license or "" for file in kept)),
        ("counts.redactions", counts.redactions, _tally(one.kind for file in kept for one in file.redactions)),
        ("tokens_by_language", manifest.tokens_by_language, by_language),
        ("sources", {one.repo: one.found for one in manifest.sources if one.found}, _found_per_repo(table)),
    )
    for name, said, found in said_and_found:
        if said != found:
            faults.add(CHECK, f"{name}: {_difference(said, found)}", file="manifest.json")


def _tally(names: Iterable[Any]) -> dict[Any, int]:
    return dict(Counter(names))


def _found_per_repo(table: FilesTable) -> dict[str, int]:
    return _tally(repo for repo, _ in (*table.kept, *table.dropped))


def _difference(said: Any, found: Any) -> str:
    if not isinstance(said, Mapping):
        return f"it says {said}, files.jsonl has {found}"
    names = [name for name in dict.fromkeys((*said, *found)) if said.get(name) != found.get(name)]
    return f"it says {said.get(names[0])} for {str(names[0])!r}, files.jsonl has {found.get(names[0])}"


def check_groups(table: FilesTable, faults: Faults) -> None:
    split_of: dict[str, KeptFile] = {}
    for file in table.kept.values():
        first = split_of.setdefault(file.group, file)
        if first.split is not file.split:
            what = f"in {file.split}, but {first.name} of the same group is in {first.split}"
            faults.add("groups", what, file=FILES, path=file.name)
