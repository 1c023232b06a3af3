"""All data files, part by part over processes -> runs of windows, each whole again."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gristmill.checking.files import PlacedRun, Rows
from gristmill.checking.parts import Part, PartRows, parts_of, read_part
from gristmill.checking.result import Faults
from gristmill.checking.runs import ROW, Run, joined
from gristmill.checking.settings import Settings
from gristmill.checking.textcolumn import PartRules
from gristmill.errors import DatasetError
from gristmill.manifest import Manifest
from gristmill.records import Split
from gristmill.runners.local import LocalRunner


class _DataFile(NamedTuple):
    path: Path
    split: Split
    num_rows: int | None
    parts: list[Part]


def read_data_files(settings: Settings, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]) -> Rows:
    files = list(_data_files(settings.folder, settings.manifest, faults))
    read = runner.map(partial(read_part, _part_rules(settings)), [part for file in files for part in file.parts])
    placed: list[PlacedRun] = []
    num_rows = 0
    for file in files:
        whole = _WholeFile(file.path.name)
        for _ in file.parts:
            part = next(read)
            whole.take(part, faults)
            advance(part.num_bytes)
        if whole.num_rows != file.num_rows:
            faults.add("digests", f"{whole.num_rows} rows, the manifest says {file.num_rows}", file=file.path.name)
        placed += [PlacedRun(run, file.path.name, file.split) for run in whole.runs]
        num_rows += whole.num_rows
    return Rows.of(placed, num_rows)


def _part_rules(settings: Settings) -> PartRules:
    secrets = settings.secrets
    is_needed = secrets.action != "keep" and not settings.spelling.is_close
    return PartRules(settings.rules, settings.spelling, is_needed, secrets.emails)


def _data_files(folder: Path, manifest: Manifest, faults: Faults) -> Iterator[_DataFile]:
    for name, facts in sorted(manifest.files.items()):
        if facts.split is None:
            continue
        try:
            yield _DataFile(folder / name, facts.split, facts.rows, parts_of(folder / name))
        except OSError:  # digests say so
            continue
        except DatasetError as error:
            faults.add("schema", str(error), file=name)


class _WholeFile:
    def __init__(self, name: str) -> None:
        self._name = name
        self.num_rows = 0
        self.runs: list[Run] = []

    def take(self, part: PartRows, faults: Faults) -> None:
        faults.merge(part.faults, self.num_rows)
        for index, run in enumerate(part.runs):
            run.windows[:, ROW] += self.num_rows
            goes_on = index == 0 and self.runs and self.runs[-1].key == run.key
            if goes_on:
                self.runs[-1] = joined(self.runs[-1], run, self._name, faults)
            else:
                self.runs.append(run)
        self.num_rows += part.num_rows
