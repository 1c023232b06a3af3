"""All data files, part by part over processes -> runs of windows, each whole again."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gristmill.checks.data_parts import Part, PartRows, parts_of, read_part, stored_parts
from gristmill.checks.findings import Faults
from gristmill.checks.requirements import Settings
from gristmill.checks.runs import ROW, START, Run, joined
from gristmill.checks.text_column import PartRules
from gristmill.checks.windows_by_file import Packed, PlacedRun, Rows
from gristmill.core.columns import Schema
from gristmill.core.errors import DatasetError
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.records import Split, VariantKind
from gristmill.formats.content_digest import Content
from gristmill.formats.stored_split import StoredSplit
from gristmill.runners.local import LocalRunner


class ReadRows(NamedTuple):
    rows: Rows
    content_sha256: str
    """Of those that could be read."""
    lines_sha256: str
    """Of all lines."""


class _DataFile(NamedTuple):
    name: str
    split: Split
    num_rows: int | None
    parts: list[Part]


def read_data_files(
    settings: Settings, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]
) -> ReadRows:
    files = list(_data_files(settings.folder, settings.manifest, faults))
    read = runner.map(partial(read_part, _part_rules(settings)), [part for file in files for part in file.parts])
    placed: list[PlacedRun] = []
    content, lines = Content(), Content()
    packed = {split: Packed(0, 0, 0) for split in Split}
    num_rows = 0
    for file in files:
        whole = _WholeFile(file.name, is_packed=settings.pack is not None)
        for _ in file.parts:
            part = next(read)
            whole.take(part, faults)
            content.add(file.split, part.content)
            lines.add(file.split, part.lines)
            packed[file.split] = packed[file.split].plus(part.num_rows, part.num_packed_ids, part.num_packed_ends)
            advance(part.num_bytes)
        if whole.num_rows != file.num_rows:
            faults.add(
                "digests", f"{counted(whole.num_rows, 'row')}, the manifest says {file.num_rows}", file=file.name
            )
        placed += [PlacedRun(run, file.name, file.split) for run in whole.runs]
        num_rows += whole.num_rows
    rows = Rows.of(placed, num_rows)
    if settings.pack is not None:
        rows = Rows.of(_in_order(placed, faults), num_rows)._replace(packed=packed)
    return ReadRows(rows, content.sha256(), lines.sha256())


def _in_order(placed: list[PlacedRun], faults: Faults) -> list[PlacedRun]:
    """Windows that were in rows with others, each a run -> the runs of their files."""
    runs: list[PlacedRun] = []
    for one in sorted(placed, key=_place):
        last = runs[-1] if runs else None
        if last is not None and (last.split, last.run.key) == (one.split, one.run.key):
            runs[-1] = last._replace(run=joined(last.run, one.run, one.file, faults))
        else:
            runs.append(one)
    return runs


def _place(placed: PlacedRun) -> tuple[Any, ...]:
    key = placed.run.key
    variant = list(VariantKind).index(key.variant) if key.variant in list(VariantKind) else -1
    order = (key.repo, key.path, variant, key.repeat or 0, repr(key.seed), repr(key.weight))
    return (list(Split).index(placed.split), *order, int(placed.run.windows[0, START]))


def _part_rules(settings: Settings) -> PartRules:
    secrets = settings.secrets
    is_needed = secrets.action != "keep" and not settings.spelling.is_close
    return PartRules(settings.rules, settings.spelling, is_needed, secrets.emails, settings.pack)


def _data_files(folder: Path, manifest: Manifest, faults: Faults) -> Iterator[_DataFile]:
    if "jsonl" not in manifest.formats:
        yield from _stored_splits(folder, manifest, faults)
        return
    for name, facts in sorted(manifest.files.items()):
        if facts.split is None or facts.format != "jsonl":
            continue
        try:
            yield _DataFile(name, facts.split, facts.rows, parts_of(folder / name, facts.split))
        except OSError:  # digests say so
            continue
        except DatasetError as error:
            faults.add("schema", str(error), file=name)


def _stored_splits(folder: Path, manifest: Manifest, faults: Faults) -> Iterator[_DataFile]:
    """In the first of its formats."""
    name = manifest.formats[0]
    for split, facts in manifest.splits.items():
        stored = StoredSplit(folder, name, split, Schema.of(manifest), facts.windows)
        try:
            yield _DataFile(f"{name}/{split}", split, facts.windows, stored_parts(stored.require(), split))
        except DatasetError as error:
            faults.add("schema", str(error), file=f"{name}/{split}")


class _WholeFile:
    def __init__(self, name: str, *, is_packed: bool) -> None:
        self._name, self._is_packed = name, is_packed
        self.num_rows = 0
        self.runs: list[Run] = []

    def take(self, part: PartRows, faults: Faults) -> None:
        faults.merge(part.faults, self.num_rows)
        for index, run in enumerate(part.runs):
            run.windows[:, ROW] += self.num_rows
            goes_on = not self._is_packed and index == 0 and self.runs and self.runs[-1].key == run.key
            if goes_on:
                self.runs[-1] = joined(self.runs[-1], run, self._name, faults)
            else:
                self.runs.append(run)
        self.num_rows += part.num_rows
