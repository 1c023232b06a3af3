"""`formats`: each one that is there holds the windows that the manifest was written for, all of them and no others.

Of the first, whose rows are looked at one by one, the digest of split, path, start and ids. All others must tell the
same in every column; and where no other package has a say in a format's bytes, it is written once more from its own
rows, into a folder that goes away: so whatever no row shows is found too, as foreign tokens in a stream would be.
Streams of tokens are read a third time, without the code that writes them: end tokens stand where they must.
"""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gristmill.checks.findings import Faults, Verdict
from gristmill.checks.requirements import Settings
from gristmill.checks.streams import STREAMS, stream_fault
from gristmill.core.columns import Schema
from gristmill.core.errors import DatasetError, GristmillError, MissingExtraError
from gristmill.core.manifest import Manifest
from gristmill.core.names import counted
from gristmill.core.records import Split
from gristmill.formats.batch import WindowBatch
from gristmill.formats.content_digest import Content, line_digest, row_digests
from gristmill.formats.format import format_named
from gristmill.formats.jsonl import lines_of
from gristmill.formats.shares import shares_of, write_share
from gristmill.formats.stored_split import StoredSplit
from gristmill.pipeline.work_folder import temporary_folder
from gristmill.runners.local import LocalRunner

CHECK = "formats"
ROWS_AT_ONCE = 4096
DAMAGED = frozenset({"schema", "ids", "special_tokens", "windows"})
"""Faults with which rows that were read are not those that are there."""


class First(NamedTuple):
    """What was found of the format whose rows were looked at."""

    content_sha256: str
    lines_sha256: str


class _Range(NamedTuple):
    stored: StoredSplit
    start: int
    stop: int


class _Digests(NamedTuple):
    rows: bytes
    lines: bytes


def check_formats(
    settings: Settings, first: First, runner: LocalRunner, faults: Faults, advance: Callable[[int], None]
) -> Verdict:
    folder, manifest = settings.folder, settings.manifest
    names, is_sound = manifest.formats, not DAMAGED & faults.counts.keys()
    if first.content_sha256 != manifest.content_sha256 and is_sound:
        faults.add(CHECK, f"{names[0]}: its windows are not those of content_sha256 in the manifest")
    skipped = []
    for name in names:
        try:
            if name != names[0]:
                for what in _differences(settings, name, first if is_sound else None, runner, advance):
                    faults.add(CHECK, f"{name}: {what}")
            looks = [_written_again] if format_named(name).is_all_ours else []
            looks += [stream_fault] if name in STREAMS else []
            for look in looks:
                found = runner.map(partial(look, folder, manifest), [(name, split) for split in Split])
                for what in filter(None, found):
                    faults.add(CHECK, f"{name}: {what}")
        except MissingExtraError as error:
            skipped.append(f"{name} was not looked at: {error}")
        except (OSError, DatasetError) as error:
            faults.add(CHECK, f"{name}: {error}")
    num_windows = sum(facts.windows for facts in manifest.splits.values())
    summary = f"{', '.join(names)}: {counted(num_windows, 'window')}{' in each' if len(names) > 1 else ''}"
    return Verdict("; ".join((summary, *skipped)), "reported" if skipped else "ok")


def _differences(
    settings: Settings, name: str, first: First | None, runner: LocalRunner, advance: Callable[[int], None]
) -> Iterator[str]:
    """From the manifest; and, if that is known, from what the first format tells."""
    manifest = settings.manifest
    ranges = list(_ranges(settings.folder, manifest, name))
    content, lines = Content(), Content()
    for one, found in zip(ranges, runner.map(_digested, ranges), strict=True):
        if isinstance(found, Exception):
            raise found
        content.add(one.stored.split, found.rows)
        lines.add(one.stored.split, found.lines)
        advance(one.stop - one.start)
    if content.sha256() != manifest.content_sha256:
        yield "its windows are not those of content_sha256 in the manifest"
    elif first is not None and lines.sha256() != first.lines_sha256:
        yield f"its rows tell something else than those of {manifest.formats[0]}"


def _ranges(folder: Path, manifest: Manifest, name: str) -> Iterator[_Range]:
    schema = Schema.of(manifest)
    step = schema.num_rows_at_once(ROWS_AT_ONCE)
    for split, facts in manifest.splits.items():
        stored = StoredSplit(folder, name, split, schema, facts.windows).require()
        for start in range(0, facts.windows, step):
            yield _Range(stored, start, min(start + step, facts.windows))


def _digested(one: _Range) -> _Digests | Exception:
    try:
        batch = one.stored.read(one.start, one.stop)
        lines = b"".join(line_digest(line[:-1]) for line in lines_of(batch, one.stored.schema))
        return _Digests(row_digests(one.stored.split, batch), lines)
    except (OSError, DatasetError, MissingExtraError) as error:
        return error


def _written_again(folder: Path, manifest: Manifest, what: tuple[str, Split]) -> str | None:
    """What is not as its own rows give it."""
    name, split = what
    wanted = {file: facts.sha256 for file, facts in manifest.files.items() if (facts.format, facts.split) == what}
    shares = shares_of(name, split, manifest.shards.get(split, []))
    try:
        stored = StoredSplit(folder, name, split, Schema.of(manifest), manifest.splits[split].windows)
        with temporary_folder("gristmill-check-") as place:
            (place / name).mkdir()
            made = [write_share(share, place, stored.schema, _batches(stored)) for share in shares]
        found = {file: facts.sha256 for one in made for file, facts in one.facts.items()}
    except OSError as error:
        return f"{split} could not be written again in {tempfile.gettempdir()!r}: {error.strerror or error}"
    except GristmillError as error:
        return str(error)
    other = sorted(file for file in found.keys() | wanted.keys() if found.get(file) != wanted.get(file))
    return f"{other[0]} is not what its rows give: it holds something else beside them" if other else None


def _batches(stored: StoredSplit) -> Iterator[WindowBatch]:
    step = stored.schema.num_rows_at_once(ROWS_AT_ONCE)
    return (stored.read(start, min(start + step, len(stored))) for start in range(0, len(stored), step))
