"""Leaves what a method wrote as a dataset folder that `open_dataset` and `datasets.load_dataset` read.

A build's folder moves as it is. Of any other method the rows become JSON Lines, and a manifest says truthfully what
they are; there is no files.jsonl, as such a method keeps no record of its files. All grows beside the target, which
appears complete.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from gristmill.bench.describing import KeptRun, KeptSplit, describe
from gristmill.bench.job import Job
from gristmill.bench.reading import Row, data_files, decoded, raw_rows
from gristmill.errors import OutputError
from gristmill.layout import FILES, data_file_name, sync_folder, sync_tree
from gristmill.manifest import FileFacts, write_manifest
from gristmill.records import Split
from gristmill.tokenizing.definition import Definition


def keep_as_dataset(out: Path, target: Path, job: Job, run: KeptRun, definition: Definition) -> None:
    """Takes `out` apart: its rows are moved where that is enough."""
    with _beside(target) as folder:
        if (out / FILES).is_file():
            for path in sorted(out.iterdir()):
                shutil.move(path, folder / path.name)
            return
        definition.write(folder)
        splits = {split: _take(split, out, folder, job) for split in Split}
        write_manifest(describe(folder, splits, job, run, definition), folder, is_synced=False)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    folder = target.with_name(target.name + ".part")
    try:
        if target.exists():
            raise OutputError(f"{str(target)!r} exists already. Move it, or name another folder.")
        folder.mkdir(parents=True)
    except FileExistsError:
        raise OutputError(f"{str(folder)!r} is in the way, left by an earlier run. Remove it.") from None
    except OSError as error:
        raise OutputError(f"cannot write beside {str(target)!r}: {error.strerror}.") from None
    try:
        yield folder
        sync_tree(folder)
        os.rename(folder, target)
        sync_folder(target.parent)
    except OSError as error:
        raise OutputError(f"cannot write {str(target)!r}: {error.strerror}.") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take(split: Split, out: Path, folder: Path, job: Job) -> KeptSplit:
    """Brings over a split's rows; of one without rows, nothing."""
    kept = KeptSplit(split, num_special=len(job.prefix) + len(job.suffix))
    paths = [path for path in data_files(out, split) if next(raw_rows(path), None) is not None]
    for index, path in enumerate(paths):
        name = data_file_name(split, index, len(paths), compressed=False)
        if path.name.endswith(".jsonl"):
            shutil.move(path, folder / name)
        else:
            _write_rows(path, folder / name)
        kept.files[name] = _measure(folder / name, split, kept)
    return kept


def _write_rows(path: Path, target: Path) -> None:
    encoder = msgspec.json.Encoder()
    with target.open("wb") as stream:
        for row in decoded(path, raw_rows(path), dict[str, Any]):
            stream.write(encoder.encode(row) + b"\n")


def _measure(path: Path, split: Split, kept: KeptSplit) -> FileFacts:
    digest, num_bytes, num_rows = hashlib.sha256(), 0, 0

    def lines() -> Iterator[bytes]:
        nonlocal num_bytes, num_rows
        for line in raw_rows(path):
            digest.update(line)
            num_bytes += len(line)
            num_rows += 1
            yield line

    kept.columns = kept.columns or list(next(decoded(path, raw_rows(path), dict[str, Any])))
    for row in decoded(path, lines(), Row):
        kept.add(row)
    return FileFacts(bytes=num_bytes, sha256=digest.hexdigest(), rows=num_rows, split=split, format="jsonl")
