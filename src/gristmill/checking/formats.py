"""`formats`: each one that is there holds the windows that the manifest was written for, all of them and no others."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gristmill.checking.result import Faults, Verdict
from gristmill.checking.settings import Settings
from gristmill.errors import DatasetError, MissingExtraError
from gristmill.formats.batch import Schema
from gristmill.formats.content import Content, row_digests
from gristmill.formats.stored_split import StoredSplit
from gristmill.manifest import Manifest
from gristmill.records import Split
from gristmill.runners.local import LocalRunner

CHECK = "formats"
ROWS_AT_ONCE = 4096
DAMAGED = frozenset({"schema", "ids", "special_tokens", "windows"})
"""Faults with which rows that were read are not those that are there."""


class _Range(NamedTuple):
    stored: StoredSplit
    split: Split
    start: int
    stop: int


def check_formats(
    settings: Settings, first: str, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]
) -> Verdict:
    """`first`: the content of the format whose rows were looked at one by one."""
    folder, manifest = settings.folder, settings.manifest
    names = manifest.formats
    if first != manifest.content_sha256 and not DAMAGED & faults.counts.keys():
        faults.add(CHECK, f"{names[0]}: its windows are not those of content_sha256 in the manifest")
    skipped = []
    for name in names[1:]:
        try:
            found = _content(folder, manifest, name, runner, advance)
        except MissingExtraError as error:
            skipped.append(f"{name} was not looked at: {error}")
        except (OSError, DatasetError) as error:
            faults.add(CHECK, f"{name}: {error}")
        else:
            if found != manifest.content_sha256:
                faults.add(CHECK, f"{name}: its windows are not those of content_sha256 in the manifest")
    num_windows = sum(facts.windows for facts in manifest.splits.values())
    summary = f"{', '.join(names)}: {num_windows:,} windows{' in each' if len(names) > 1 else ''}"
    return Verdict("; ".join((summary, *skipped)), "reported" if skipped else "ok")


def _content(folder: Path, manifest: Manifest, name: str, runner: LocalRunner, advance: Callable[[int], None]) -> str:
    ranges = list(_ranges(folder, manifest, name))
    content = Content()
    for one, digests in zip(ranges, runner.map(_digested, ranges), strict=True):
        if isinstance(digests, Exception):
            raise digests
        content.add(one.split, digests)
        advance(one.stop - one.start)
    return content.sha256()


def _ranges(folder: Path, manifest: Manifest, name: str) -> Iterator[_Range]:
    schema = Schema.of(manifest)
    step = schema.num_rows_at_once(ROWS_AT_ONCE)
    for split, facts in manifest.splits.items():
        stored = StoredSplit(folder, name, split, schema, facts.windows)
        for start in range(0, facts.windows, step):
            yield _Range(stored, split, start, min(start + step, facts.windows))


def _digested(one: _Range) -> bytes | Exception:
    try:
        return row_digests(one.split, one.stored.read(one.start, one.stop))
    except (OSError, DatasetError, MissingExtraError) as error:
        return error
