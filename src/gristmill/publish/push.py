"""gristmill push: a finished dataset to the Hugging Face Hub, if nothing speaks against it.

1. look    what lies in the repository already
2. check   the dataset, now, with the formats that go
3. gates   all of them, whatever the first one says
4. commit  what has changed, and away with what is gone: one commit, or nothing

Without `upload` it ends before 4, and nothing has been written anywhere but check.json in the folder.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from gristmill.checks.check import check
from gristmill.core.errors import ConfigError, GristmillError
from gristmill.core.layout import CARDS, CHECK
from gristmill.core.manifest import Edition, Manifest
from gristmill.core.names import counted
from gristmill.core.progress import Progress
from gristmill.core.version import __version__
from gristmill.pipeline.work_folder import foreign_names
from gristmill.publish.contents import Outgoing, chosen, outgoing
from gristmill.publish.gates import OVERRIDES, dataset_gates, hub_gate, places_here
from gristmill.publish.hub_repository import Repository, There
from gristmill.publish.push_result import Change, Push, PushedFile


def push(
    folder: str | os.PathLike[str],
    repo_id: str,
    *,
    upload: bool = False,
    private: bool = True,
    revision: str | None = None,
    message: str | None = None,
    formats: Sequence[str] | None = None,
    allow: Collection[str] = (),
    progress: Progress | None = None,
    workers: int | Literal["auto"] = "auto",
) -> Push:
    """What would go, and with `upload` goes; `allow` names gates that are not to refuse. A refusal is no exception."""
    progress = progress or Progress()
    path = Path(os.path.expanduser(folder))
    unknown = sorted(set(allow) - OVERRIDES.keys())
    if unknown:
        raise ConfigError(f"allow takes {', '.join(OVERRIDES)}, got {', '.join(unknown)}.")
    edition = Edition(path)
    manifest = edition.manifest
    repository = Repository(repo_id, revision)
    there, trouble = _look(repository, must=upload)
    with chosen(path, manifest, formats) as place:
        with edition.reading():
            report = check(place.folder, progress=progress, workers=workers)
            files = outgoing(place, report)
        small = {file.name: file.content for file in files if isinstance(file.content, bytes)}
        gates = dataset_gates(place.manifest, report, small, [*places_here(path)], allow)
        found = _push(repository, path, place.manifest, files, there)
        found.visibility = "private" if (private if there is None else there.private) else "public"
        found.is_new = None if trouble is not None else there is None
        found.gates = [*gates, hub_gate(there, trouble, private=private)]
        if upload and found.ok and not found.is_unchanged:
            made = repository.make(there, private=private)
            changed = [file for file in files if _change(file, made) != "same"]
            deleted = made.outdated([file.name for file in files])
            found.commit = repository.commit(made, changed, deleted, message or _message(manifest), progress)
    return found


def _look(repository: Repository, *, must: bool) -> tuple[There | None, str | None]:
    """What lies there, or why nobody knows: where nothing is sent, that is one verdict among others."""
    try:
        return repository.look(), None
    except GristmillError as error:
        if must:
            raise
        return None, str(error)


def _push(
    repository: Repository, folder: Path, manifest: Manifest, files: Sequence[Outgoing], there: There | None
) -> Push:
    changes = {file.name: _change(file, there) for file in files}
    deleted = there.outdated([*changes]) if there is not None else []
    # check.json says how long it took: by itself it is no other dataset.
    is_unchanged = not deleted and all(change == "same" or name == CHECK for name, change in changes.items())
    return Push(
        repo_id=repository.repo_id,
        revision=repository.revision,
        url=repository.url,
        visibility="private",
        is_new=None,
        files=[
            PushedFile(name=file.name, bytes=file.facts.bytes, format=file.facts.format, change=changes[file.name])
            for file in files
        ],
        deleted=deleted,
        left_here=[name for name in foreign_names(folder) if name not in CARDS],
        gates=[],
        num_names=manifest.counts.found,
        is_unchanged=is_unchanged and there is not None and there.has_revision,
    )


def _change(file: Outgoing, there: There | None) -> Change:
    if there is None or file.name not in there.files:
        return "new"
    return "same" if there.files[file.name].is_same(file) else "changed"


def _message(manifest: Manifest) -> str:
    num_windows = sum(facts.windows for facts in manifest.splits.values())
    return f"gristmill {__version__}: {counted(num_windows, 'window')}, content {manifest.content_sha256[:12]}"
