"""Is a dataset what a build from scratch gives, byte for byte? It is made once more, without the cache."""

import os
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

import msgspec

from gristmill.config.config import Config
from gristmill.core.errors import DatasetError, InputError
from gristmill.core.manifest import Manifest, facts_of, read_manifest
from gristmill.core.progress import Progress
from gristmill.pipeline.build import BUILT, Built, build_without
from gristmill.pipeline.cache import recall
from gristmill.pipeline.work_folder import Workspace, temporary_folder


def against_clean(folder: str | os.PathLike[str], progress: Progress | None = None) -> list[str]:
    """What differs between the dataset and one built anew from the same sources and earlier splits; [] for nothing."""
    work = Workspace(os.fspath(folder))
    there = read_manifest(work.target)
    kept = recall(work.built, BUILT, str)
    if kept is None:
        raise DatasetError(
            f"{str(work.folder)!r} does not say how {str(work.target)!r} was built: clean and --cache-bytes 0 "
            "leave nothing to go by. Build it once more."
        )
    built = Built.of(kept)
    _require_previous(work, there)
    found = _found(there, work.target)
    with temporary_folder(f".{work.target.name}-clean-", work.target.parent) as beside:
        Workspace(f"{beside}/{work.target.name}").take_answers(work)
        try:
            with chdir(built.folder):
                anew = build_without(
                    _clean(built, work, there.formats, beside), progress, hidden=(work.target, work.folder, beside)
                )
        except FileNotFoundError:
            raise InputError(
                f"the folder {built.folder!r}, from which it was built, is gone. Build it once more."
            ) from None
    return _differences(there, found, anew)


def _require_previous(work: Workspace, there: Manifest) -> None:
    """A power cut may have taken what was copied there."""
    is_there = work.previous.is_file()
    found = facts_of(work.previous).sha256 if is_there else None
    if found != (there.previous_splits and there.previous_splits.sha256):
        what = "is not what it was" if is_there else "is gone"
        raise DatasetError(
            f"{str(work.previous)!r} {what}: it held the earlier splits that {str(work.target)!r} was built with. "
            "Build it once more."
        )


def _clean(built: Built, work: Workspace, formats: Sequence[str], beside: Path) -> Config:
    replace, config = msgspec.structs.replace, built.config
    has_previous = work.previous.is_file()
    return replace(
        config,
        out=str(beside / work.target.name),
        output=replace(config.output, formats=formats),
        split=replace(config.split, previous=str(work.previous) if has_previous else None, fresh=not has_previous),
        run=replace(config.run, cache_bytes=0, runner="local", ray_address=None, device="cpu"),
    )


def _found(manifest: Manifest, folder: Path) -> dict[str, str]:
    """The digests of its files as they are: what it says of them may not be so any more."""
    return {name: facts_of(folder / name).sha256 for name in manifest.files if (folder / name).is_file()}


def _differences(there: Manifest, found: dict[str, str], anew: Manifest) -> list[str]:
    """Files by their digests, then the manifests but for the run."""
    wanted = {name: facts.sha256 for name, facts in anew.files.items()}
    files = [
        f"{name}: {_digest(found.get(name))} where a clean build gives {_digest(wanted.get(name))}"
        for name in sorted({*there.files, *wanted})
        if found.get(name) != wanted.get(name)
    ]
    told = {"run", "files"} if files else {"run"}
    return files + [
        f"manifest.json: {field.name} is another in a clean build"
        for field in msgspec.structs.fields(Manifest)
        if field.name not in told and getattr(there, field.name) != getattr(anew, field.name)
    ]


def _digest(sha256: str | None) -> str:
    return f"sha256 {sha256[:12]}…" if sha256 else "nothing"
