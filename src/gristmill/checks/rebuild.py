"""Compare a dataset byte for byte with a build from scratch, without the cache."""

import os
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

import msgspec

from gristmill.config.config import Config
from gristmill.core.errors import DatasetError, InputError
from gristmill.core.manifest import Manifest, file_facts, read_manifest
from gristmill.core.progress import Progress
from gristmill.pipeline.build import BUILD_RECORD, BuildRecord, build_excluding
from gristmill.pipeline.cache import read_cached
from gristmill.pipeline.work_folder import Workspace, temporary_folder


def compare_with_clean_build(folder: str | os.PathLike[str], progress: Progress | None = None) -> list[str]:
    """Build the dataset again from the same sources and earlier splits, and return the differences.

    Returns an empty list if every byte is the same. Raises DatasetError if the work folder has no record of the build
    or of the earlier splits, and InputError if the folder in which the build ran is missing.
    """
    work = Workspace(os.fspath(folder))
    manifest = read_manifest(work.target)
    record = read_cached(work.built, BUILD_RECORD, str)
    if record is None:
        raise DatasetError(
            f"{str(work.folder)!r} has no record of how {str(work.target)!r} was built. `gristmill clean` and "
            "--cache-bytes 0 remove this record. Build the dataset again."
        )
    built = BuildRecord.of(record)
    _require_previous(work, manifest)
    found = _current_digests(manifest, work.target)
    with temporary_folder(f".{work.target.name}-clean-", work.target.parent) as scratch:
        Workspace(f"{scratch}/{work.target.name}").copy_answers(work)
        try:
            with chdir(built.folder):
                rebuilt = build_excluding(
                    _clean_config(built, work, manifest.formats, scratch),
                    progress,
                    excluded=(work.target, work.folder, scratch),
                )
        except FileNotFoundError:
            raise InputError(
                f"the folder {built.folder!r}, in which the build ran, is missing. Build the dataset again."
            ) from None
    return _differences(manifest, found, rebuilt)


def _require_previous(work: Workspace, manifest: Manifest) -> None:
    """Check that the copy of the earlier splits is intact, because a power cut may have damaged it."""
    exists = work.previous.is_file()
    found = file_facts(work.previous).sha256 if exists else None
    if found != (manifest.previous_splits and manifest.previous_splits.sha256):
        problem = "has changed" if exists else "is missing"
        raise DatasetError(
            f"{str(work.previous)!r} {problem}. This file contained the earlier splits that "
            f"{str(work.target)!r} was built with. Build the dataset again."
        )


def _clean_config(built: BuildRecord, work: Workspace, formats: Sequence[str], scratch: Path) -> Config:
    replace, config = msgspec.structs.replace, built.config
    has_previous = work.previous.is_file()
    return replace(
        config,
        out=str(scratch / work.target.name),
        output=replace(config.output, formats=formats),
        split=replace(config.split, previous=str(work.previous) if has_previous else None, fresh=not has_previous),
        run=replace(config.run, cache_bytes=0, runner="local", ray_address=None, device="cpu"),
    )


def _current_digests(manifest: Manifest, folder: Path) -> dict[str, str]:
    """Return the current digests of the files. The digests in the manifest may be out of date."""
    return {name: file_facts(folder / name).sha256 for name in manifest.files if (folder / name).is_file()}


def _differences(manifest: Manifest, found: dict[str, str], rebuilt: Manifest) -> list[str]:
    """Compare the digests of the files, and the manifests without the field `run`."""
    expected = {name: facts.sha256 for name, facts in rebuilt.files.items()}
    files = [
        f"{name}: {_digest(found.get(name))}, but a clean build gives {_digest(expected.get(name))}"
        for name in sorted({*manifest.files, *expected})
        if found.get(name) != expected.get(name)
    ]
    ignored = {"run", "files"} if files else {"run"}
    return files + [
        f"manifest.json: {field.name} differs in a clean build"
        for field in msgspec.structs.fields(Manifest)
        if field.name not in ignored and getattr(manifest, field.name) != getattr(rebuilt, field.name)
    ]


def _digest(sha256: str | None) -> str:
    return f"sha256 {sha256[:12]}…" if sha256 else "no file"
