"""Is a dataset what a build from scratch gives, byte for byte? It is made once more, without the cache."""

import os
import shutil
import tempfile
from contextlib import chdir
from pathlib import Path

import msgspec

from gristmill.config import Config
from gristmill.errors import DatasetError, InputError
from gristmill.manifest import Manifest, read_manifest
from gristmill.pipeline import BUILT, Built, build_without
from gristmill.progress import Progress
from gristmill.steps.finish import digest_of
from gristmill.steps.remembering import recall
from gristmill.workspace import Workspace


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
    beside = tempfile.mkdtemp(prefix=f".{work.target.name}-clean-", dir=work.target.parent)
    try:
        with chdir(built.folder):
            anew = build_without(_clean(built, work, Path(beside)), progress, hidden=(work.target, work.folder))
    except FileNotFoundError:
        raise InputError(
            f"the folder {built.folder!r}, from which it was built, is gone. Build it once more."
        ) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return _differences(work.target, there, anew)


def _clean(built: Built, work: Workspace, beside: Path) -> Config:
    replace, config = msgspec.structs.replace, built.config
    has_previous = work.previous.is_file()
    return replace(
        config,
        out=str(beside / work.target.name),
        split=replace(config.split, previous=str(work.previous) if has_previous else None, fresh=not has_previous),
        run=replace(config.run, cache_bytes=0, runner="local", ray_address=None),
    )


def _differences(folder: Path, there: Manifest, anew: Manifest) -> list[str]:
    """Files by the digests of what is in them now, then the manifests but for the run."""
    found = []
    for name in sorted({*there.files, *anew.files}):
        is_here, is_wanted = _digest(folder / name), anew.files[name].sha256 if name in anew.files else None
        if is_here != is_wanted:
            found.append(f"{name}: {_told(is_here)} where a clean build gives {_told(is_wanted)}")
    others = (field.name for field in msgspec.structs.fields(Manifest) if field.name not in {"run", "files"})
    return found + [
        f"manifest.json: {name} is another in a clean build"
        for name in others
        if getattr(there, name) != getattr(anew, name)
    ]


def _digest(path: Path) -> str | None:
    try:
        return digest_of(path).sha256
    except OSError:
        return None


def _told(sha256: str | None) -> str:
    return f"sha256 {sha256[:12]}…" if sha256 else "nothing"
