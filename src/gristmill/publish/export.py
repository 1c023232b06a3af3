"""A finished dataset in another format as well: the same windows, written from those that are there.

Each format grows in a folder beside its place; the manifest that names it is written last.
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
    EXPORTING,
    MANIFEST,
    TAKEN,
    UNFINISHED,
    half_exported,
    sync_folder,
    sync_tree,
    write_atomically,
)
from gristmill.core.manifest import FileFacts, Manifest, read_manifest, write_manifest
from gristmill.core.output_formats import DOCUMENT_FORMATS, FORMATS
from gristmill.core.progress import Progress
from gristmill.core.records import Split
from gristmill.core.schema import Schema
from gristmill.dataset.dataset import Dataset, open_dataset
from gristmill.formats.batch import WindowBatch, are_alike
from gristmill.formats.format import folder_of, format_named
from gristmill.formats.jsonl import piece_bytes
from gristmill.formats.shares import AllFiles, Share, WrittenFiles, shares_of, write_share
from gristmill.formats.stored_split import StoredSplit
from gristmill.pipeline.other_formats import write_all
from gristmill.pipeline.work_folder import Workspace
from gristmill.runners.local import LocalRunner, num_workers

ROWS_AT_ONCE = 1000


class _Task(NamedTuple):
    share: Share
    stored: StoredSplit
    folder: Path
    schema: Schema
    compressed_at: int | None

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
    """Adds these formats to the dataset; those that are there already stay as they are."""
    wanted = [formats] if isinstance(formats, str) else list(formats)
    unknown = [name for name in wanted if name not in FORMATS]
    if unknown or not wanted:
        raise ConfigError(f"--format takes {', '.join(FORMATS)}, got {', '.join(unknown) or 'none'}.")
    dataset = open_dataset(folder)
    refused = [name for name in wanted if name not in DOCUMENT_FORMATS]
    if dataset.manifest.has_documents and refused:
        raise ConfigError(
            f"{str(dataset.folder)!r} was built with --rows documents, without the ids that {refused[0]} holds. Try "
            f"--format {' or '.join(DOCUMENT_FORMATS)}, or build it with --rows windows."
        )
    with dataset.edition.reading(), _alone_in(dataset.folder), _beside(dataset.folder) as growing:
        missing = [name for name in FORMATS if name in wanted and name not in dataset.manifest.formats]
        for name in missing:
            format_named(name).require()
        facts = _write(dataset, missing, growing, progress or Progress(), workers)
        return _take_in(dataset, missing, facts, growing)


def _write(
    dataset: Dataset, missing: Sequence[str], growing: Path, progress: Progress, workers: int | Literal["auto"]
) -> dict[str, FileFacts]:
    tasks = [task for name in missing for task in _tasks(dataset, name, growing)]
    files = AllFiles()
    num_bytes = sum(one.bytes for one in dataset.manifest.files.values())
    with (
        LocalRunner(num_workers(workers, num_bytes)) as runner,
        progress.phase("export", total=sum(task.share.num_rows for task in tasks), unit="windows") as step,
    ):
        schema = Schema.of(dataset.manifest)
        write_all(_written, tasks, files, runner, step, dataset=growing, schema=schema)
    files.finish(missing, growing, schema)
    if missing and files.content_sha256() != dataset.manifest.content_sha256:
        raise DatasetError(
            f"{str(dataset.folder)!r} is damaged: its rows are not those that its manifest was written for. "
            "gristmill check says more."
        )
    return files.facts


def _tasks(dataset: Dataset, name: str, growing: Path) -> Iterator[_Task]:
    manifest = dataset.manifest
    folder_of(growing, name).mkdir(exist_ok=True)
    try:
        output = msgspec.convert(manifest.settings.get("output"), OutputConfig)
    except (msgspec.ValidationError, ConfigError) as error:
        raise DatasetError(f"the manifest of {str(dataset.folder)!r} is damaged: {error}. Build it again.") from None
    compressed_at = piece_bytes(output.shard_bytes) if output.compress == "zstd" else None
    schema = Schema.of(manifest)
    for split in Split:
        stored = dataset.stored(manifest.formats[0], split)
        for share in shares_of(name, split, schema, manifest.shards.get(split, []), partial(_edge_at, stored)):
            yield _Task(share, stored, growing, schema, compressed_at)


def _edge_at(stored: StoredSplit, row: int) -> int:
    """The first row from this one on at which a document begins.

    Called before workers are forked: they find the places of rows in the readers that this has filled.
    """
    if stored.schema.is_packed:
        return row
    step = 1
    while row < len(stored):
        step = min(2 * step, stored.schema.num_rows_at_once(ROWS_AT_ONCE))
        rows = stored.read(row - 1, min(row + step, len(stored)))
        is_same = are_alike(rows)
        if not is_same.all():
            return row + int(is_same.argmin())
        row += len(is_same)
    return len(stored)


def _written(task: _Task) -> WrittenFiles:
    return write_share(task.share, task.folder, task.schema, task.batches(), task.compressed_at)


def _take_in(dataset: Dataset, missing: Sequence[str], facts: dict[str, FileFacts], growing: Path) -> Manifest:
    folder = dataset.folder
    manifest = read_manifest(folder)
    if manifest != dataset.manifest:
        raise DatasetError(f"{str(folder)!r} has become another dataset in the meantime. Export it again.")
    made = sorted(path.name for path in growing.iterdir())
    for name in made:
        if os.path.lexists(folder / name):
            raise OutputError(f"{str(folder / name)!r} is not of the dataset, and stands in its way. Move it.")
    write_atomically(growing / TAKEN, "\n".join(made).encode(), is_synced=False)
    sync_tree(growing)
    for name in made:
        os.rename(growing / name, folder / name)
    sync_folder(folder)
    grown = msgspec.structs.replace(
        manifest,
        formats=[name for name in FORMATS if name in {*manifest.formats, *missing}],
        files=dict(sorted({**manifest.files, **facts}.items())),
    )
    ready = growing / "ready"
    ready.mkdir()
    write_cards(grown, ready, folder)
    write_manifest(grown, ready, is_synced=False)
    sync_tree(ready)
    for name in (MANIFEST, *CARDS):
        os.replace(ready / name, folder / name)
    sync_folder(folder)
    return grown


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    work = Workspace(os.fspath(folder)).folder / "lock"  # builds hold it until they are done
    with ExitStack() as held:
        _lock(folder, f"another export into {str(folder)!r} is running. Wait for it.", held)
        if work.is_file():
            _lock(work, f"a build into {str(folder)!r} is running. Wait for it.", held)
        yield


def _lock(path: Path, why_not: str, held: ExitStack) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    held.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(why_not) from None


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder in the dataset's own: on the same disk, and gone afterwards."""
    growing = folder / f"{EXPORTING}{secrets.token_hex(4)}{UNFINISHED}"
    try:
        for left in folder.glob(f"{EXPORTING}*{UNFINISHED}"):
            _take_back(left, folder)
        growing.mkdir()
        yield growing
    except OSError as error:
        raise OutputError(f"cannot write into {str(folder)!r}: {error.strerror or error}.") from None
    finally:
        _take_back(growing, folder)


def _take_back(growing: Path, folder: Path) -> None:
    """What was moved into the dataset, if it did not come to the manifest that names it: it broke off in between."""
    with suppress(OSError, DatasetError):
        for name in half_exported(growing, read_manifest(folder).files):
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)
        (growing / TAKEN).unlink(missing_ok=True)
    shutil.rmtree(growing, ignore_errors=True)
