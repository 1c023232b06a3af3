"""Add formats to a finished dataset. The rows are read from a format that the dataset already has.

New files are written to a staging folder inside the dataset folder, and moved into the dataset folder when all are
complete. Then the manifest and the cards are replaced.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from gristmill.cards.card_files import write_cards
from gristmill.config.settings import OutputConfig
from gristmill.core.errors import ConfigError, DatasetError, OutputError
from gristmill.core.layout import (
    CARDS,
    EXPORT_PREFIX,
    MANIFEST,
    MOVED_NAMES,
    UNFINISHED,
    partly_exported_names,
    sync_folder,
    sync_tree,
    write_atomically,
)
from gristmill.core.manifest import FileFacts, Manifest, read_manifest, write_manifest
from gristmill.core.names import shell_quote
from gristmill.core.output_formats import DOCUMENT_FORMATS, FORMATS
from gristmill.core.progress import Progress
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.formats.batch import WindowBatch, equals_previous
from gristmill.formats.format import format_folder, get_format
from gristmill.formats.jsonl import max_piece_bytes
from gristmill.formats.shares import Share, WrittenDataset, WrittenFiles, divide_into_shares, write_share
from gristmill.formats.stored_split import StoredSplit
from gristmill.pipeline.other_formats import write_shares
from gristmill.pipeline.work_folder import Workspace
from gristmill.runners.local import LocalRunner, num_workers

ROWS_AT_ONCE = 1000


class _Task(NamedTuple):
    """Rows of a split to write in one format."""

    share: Share
    stored: StoredSplit
    folder: Path
    schema: Schema
    compressed_piece_bytes: int | None
    """Maximum size of the pieces in which JSONL is compressed. None without compression."""

    def batches(self) -> Iterator[WindowBatch]:
        first, stop, step = self.share.first, self.share.stop, self.schema.num_rows_at_once(ROWS_AT_ONCE)
        for start in range(first, stop, step):
            yield self.stored.read(start, min(start + step, stop))


def export(
    folder: str | os.PathLike[str],
    formats: str | Sequence[str],
    *,
    progress: Progress | None = None,
    workers: int | Literal["auto"] = "auto",
) -> Manifest:
    """Add these formats to the dataset and return its new manifest.

    Formats that the dataset already has do not change.
    """
    requested = [formats] if isinstance(formats, str) else list(formats)
    unknown = [name for name in requested if name not in FORMATS]
    if unknown or not requested:
        raise ConfigError(f"--format must be one of {', '.join(FORMATS)}, got {', '.join(unknown) or 'none'}.")
    dataset = open_dataset(folder)
    unsupported = [name for name in requested if name not in DOCUMENT_FORMATS]
    if dataset.manifest.has_documents and unsupported:
        raise ConfigError(
            f"{str(dataset.folder)!r} was built with --rows documents, so it lacks the ids that {unsupported[0]} "
            f"needs. Try --format {' or '.join(DOCUMENT_FORMATS)}, or build the dataset with --rows windows."
        )
    with dataset.edition.guard_reading(), _exclusive_access(dataset.folder), _staging_folder(dataset.folder) as staging:
        missing_formats = [name for name in FORMATS if name in requested and name not in dataset.manifest.formats]
        for name in missing_formats:
            get_format(name).require()
        facts = _write(dataset, missing_formats, staging, progress or Progress(), workers)
        return _move_into_dataset(dataset, missing_formats, facts, staging)


def _write(
    dataset: Dataset, missing_formats: Sequence[str], staging: Path, progress: Progress, workers: int | Literal["auto"]
) -> dict[str, FileFacts]:
    tasks = [task for name in missing_formats for task in _tasks(dataset, name, staging)]
    files = WrittenDataset()
    num_bytes = sum(facts.bytes for facts in dataset.manifest.files.values())
    with (
        LocalRunner(num_workers(workers, num_bytes)) as runner,
        progress.phase("export", total=sum(task.share.num_rows for task in tasks), unit="rows") as step,
    ):
        schema = Schema.of(dataset.manifest)
        write_shares(_write_task, tasks, files, runner, step, dataset=staging, schema=schema)
    files.finish(missing_formats, staging, schema)
    if missing_formats and files.content_sha256() != dataset.manifest.content_sha256:
        raise DatasetError(
            f"{str(dataset.folder)!r} is damaged: its rows do not match the content digest in its manifest. "
            f"Run gristmill check {shell_quote(str(dataset.folder))} for details."
        )
    return files.facts


def _tasks(dataset: Dataset, name: str, staging: Path) -> Iterator[_Task]:
    manifest = dataset.manifest
    format_folder(staging, name).mkdir(exist_ok=True)
    try:
        output = msgspec.convert(manifest.settings.get("output"), OutputConfig)
    except (msgspec.ValidationError, ConfigError) as error:
        raise DatasetError(
            f"the manifest of {str(dataset.folder)!r} is damaged: {error}. Build the dataset again."
        ) from None
    compressed_piece_bytes = max_piece_bytes(output.shard_bytes) if output.compress == "zstd" else None
    schema = Schema.of(manifest)
    for split in Split:
        stored = dataset.stored_split(manifest.formats[0], split)
        for share in divide_into_shares(
            name, split, schema, manifest.shards.get(split, []), partial(_next_document_start, stored)
        ):
            yield _Task(share, stored, staging, schema, compressed_piece_bytes)


def _next_document_start(stored: StoredSplit, row: int) -> int:
    """Return the first row at or after `row` that starts a document, or the number of rows if there is none.

    Packed rows may be separated anywhere, so for them `row` itself is returned. Call this before workers are forked, so
    that workers inherit readers that have already located the rows.
    """
    if stored.schema.is_packed:
        return row
    step = 1
    while row < len(stored):
        step = min(2 * step, stored.schema.num_rows_at_once(ROWS_AT_ONCE))
        rows = stored.read(row - 1, min(row + step, len(stored)))
        is_same_document = equals_previous(rows)
        if not is_same_document.all():
            return row + int(is_same_document.argmin())
        row += len(is_same_document)
    return len(stored)


def _write_task(task: _Task) -> WrittenFiles:
    return write_share(task.share, task.folder, task.schema, task.batches(), task.compressed_piece_bytes)


def _move_into_dataset(
    dataset: Dataset, missing_formats: Sequence[str], facts: dict[str, FileFacts], staging: Path
) -> Manifest:
    """Move the staged files into the dataset folder, then replace its manifest and cards."""
    folder = dataset.folder
    manifest = read_manifest(folder)
    if manifest != dataset.manifest:
        raise DatasetError(f"the dataset in {str(folder)!r} changed during the export. Export it again.")
    names = sorted(path.name for path in staging.iterdir())
    for name in names:
        if os.path.lexists(folder / name):
            raise OutputError(
                f"{str(folder / name)!r} already exists and is not part of the dataset. "
                "Move it elsewhere, then export again."
            )
    write_atomically(staging / MOVED_NAMES, "\n".join(names).encode(), is_synced=False)
    sync_tree(staging)
    for name in names:
        os.rename(staging / name, folder / name)
    sync_folder(folder)
    updated_manifest = msgspec.structs.replace(
        manifest,
        formats=[name for name in FORMATS if name in {*manifest.formats, *missing_formats}],
        files=dict(sorted({**manifest.files, **facts}.items())),
    )
    ready_folder = staging / "ready"
    ready_folder.mkdir()
    write_cards(updated_manifest, ready_folder, folder)
    write_manifest(updated_manifest, ready_folder, is_synced=False)
    sync_tree(ready_folder)
    for name in (MANIFEST, *CARDS):
        os.replace(ready_folder / name, folder / name)
    sync_folder(folder)
    return updated_manifest


@contextmanager
def _exclusive_access(folder: Path) -> Iterator[None]:
    """Lock the dataset against other exports and builds. Raise OutputError if an export or a build is running."""
    build_lock = Workspace(os.fspath(folder)).folder / "lock"  # held by a build until it ends
    with ExitStack() as locks:
        _lock(folder, f"another export into {str(folder)!r} is running. Wait until it ends.", locks)
        if build_lock.is_file():
            _lock(build_lock, f"a build into {str(folder)!r} is running. Wait until it ends.", locks)
        yield


def _lock(path: Path, message_if_locked: str, locks: ExitStack) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    locks.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(message_if_locked) from None


@contextmanager
def _staging_folder(folder: Path) -> Iterator[Path]:
    """Create a staging folder on the same disk as the dataset, and delete it at the end.

    Before the folder is created, roll back exports that were interrupted.
    """
    staging = folder / f"{EXPORT_PREFIX}{secrets.token_hex(4)}{UNFINISHED}"
    try:
        for leftover in folder.glob(f"{EXPORT_PREFIX}*{UNFINISHED}"):
            _roll_back(leftover, folder)
        staging.mkdir()
        yield staging
    except OSError as error:
        raise OutputError(f"cannot write to {str(folder)!r}: {error.strerror or error}.") from None
    finally:
        _roll_back(staging, folder)


def _roll_back(staging: Path, folder: Path) -> None:
    """Delete the staging folder, and the files moved from it that are not in the manifest.

    Such files remain if an export is interrupted after it moved files and before it wrote the manifest.
    """
    with suppress(OSError, DatasetError):
        for name in partly_exported_names(staging, read_manifest(folder).files):
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
        (staging / MOVED_NAMES).unlink(missing_ok=True)
    shutil.rmtree(staging, ignore_errors=True)
