"""Upload a finished dataset to the Hugging Face Hub, if all safety checks pass.

1. Read the contents of the repository.
2. Check the dataset, with only the formats to upload.
3. Run all safety checks, even if one of them fails.
4. Upload changed files and delete outdated files, in a single commit.

Without `upload`, step 4 is left out, and no file of the dataset folder changes except check.json.
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from gristmill.checks.check import check
from gristmill.core.errors import ConfigError, GristmillError
from gristmill.core.layout import CARDS, CHECK
from gristmill.core.manifest import Manifest, OpenedBuild
from gristmill.core.names import counted
from gristmill.core.progress import Progress
from gristmill.core.version import __version__
from gristmill.pipeline.work_folder import foreign_names
from gristmill.publish.contents import UploadFile, list_upload_files, select_formats
from gristmill.publish.gates import OVERRIDES, dataset_gates, hub_gate, local_folders
from gristmill.publish.hub_repository import RemoteContents, Repository
from gristmill.publish.push_result import Change, PushedFile, PushResult


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
) -> PushResult:
    """Check a dataset for publication. With `upload`, upload it to the Hugging Face Hub if all safety checks pass.

    `allow` names safety checks to override. A safety check that fails is recorded in the result, not raised.
    """
    progress = progress or Progress()
    path = Path(os.path.expanduser(folder))
    unknown = sorted(set(allow) - OVERRIDES.keys())
    if unknown:
        raise ConfigError(f"allow must contain only {', '.join(OVERRIDES)}, got {', '.join(unknown)}.")
    edition = OpenedBuild(path)
    manifest = edition.manifest
    repository = Repository(repo_id, revision)
    remote, problem = _read_remote(repository, is_required=upload)
    with select_formats(path, manifest, formats) as selection:
        with edition.guard_reading():
            report = check(selection.folder, progress=progress, workers=workers)
            files = list_upload_files(selection, report)
        small_files = {file.name: file.content for file in files if isinstance(file.content, bytes)}
        gates = dataset_gates(selection.manifest, report, small_files, [*local_folders(path)], allow)
        result = _compare_with_remote(repository, path, selection.manifest, files, remote)
        result.visibility = "private" if (private if remote is None else remote.private) else "public"
        result.is_new = None if problem is not None else remote is None
        result.gates = [*gates, hub_gate(remote, problem, private=private)]
        if upload and result.ok and not result.is_unchanged:
            current = repository.create_missing(remote, private=private)
            changed = [file for file in files if _change_of(file, current) != "same"]
            deleted = current.outdated_files([file.name for file in files])
            result.commit = repository.commit(
                current, changed, deleted, message or _default_message(manifest), progress
            )
    return result


def _read_remote(repository: Repository, *, is_required: bool) -> tuple[RemoteContents | None, str | None]:
    """Return the contents of the repository, and an error message if the contents cannot be read.

    If the contents are required, raise the error instead. A returned message makes the `hub` safety check fail.
    """
    try:
        return repository.read_contents(), None
    except GristmillError as error:
        if is_required:
            raise
        return None, str(error)


def _compare_with_remote(
    repository: Repository, folder: Path, manifest: Manifest, files: Sequence[UploadFile], remote: RemoteContents | None
) -> PushResult:
    """Return the result without safety checks. The caller sets `gates`, `visibility` and `is_new`."""
    changes = {file.name: _change_of(file, remote) for file in files}
    deleted = remote.outdated_files([*changes]) if remote is not None else []
    # check.json records how long the check took, so it always differs and is ignored here.
    is_unchanged = not deleted and all(change == "same" or name == CHECK for name, change in changes.items())
    return PushResult(
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
        skipped=[name for name in foreign_names(folder) if name not in CARDS],
        gates=[],
        num_names=manifest.counts.found,
        is_unchanged=is_unchanged and remote is not None and remote.has_revision,
    )


def _change_of(file: UploadFile, remote: RemoteContents | None) -> Change:
    if remote is None or file.name not in remote.files:
        return "new"
    return "same" if remote.files[file.name].has_content_of(file) else "changed"


def _default_message(manifest: Manifest) -> str:
    num_windows = sum(facts.windows for facts in manifest.splits.values())
    return f"gristmill {__version__}: {counted(num_windows, 'window')}, content {manifest.content_sha256[:12]}"
