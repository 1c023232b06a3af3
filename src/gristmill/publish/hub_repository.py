"""Read a dataset repository on the Hugging Face Hub, and change it in a single commit, with huggingface_hub.

Any exception of that library becomes a GristmillError with a one-line message that never contains the token.
"""

import hashlib
import json
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gristmill.core.errors import GristmillError, InputError, MissingExtraError, OutputError
from gristmill.core.layout import CARDS, MANIFEST
from gristmill.core.output_formats import FORMATS
from gristmill.core.plain_files import open_plain, read_plain
from gristmill.core.progress import Progress
from gristmill.core.records import Split
from gristmill.pipeline.work_folder import temporary_folder
from gristmill.publish.contents import UploadFile
from gristmill.sources.addresses import without_credentials

# Messages for errors of the Hub and the network.

MAX_REASON_CHARACTERS = 200
TOKEN = re.compile(r"hf_\w{4,}|Bearer \S+", re.IGNORECASE)
QUERY = re.compile(r"\?\S+")
"""Query part of a URL. In the URL of a storage service, it may contain a signature."""
RETRY = "Push again. Files that were already uploaded are not sent again."

ADVICE = {
    400: "Check the YAML header of README.md, and that --revision is a branch.",
    401: "The token is not valid. Run 'hf auth login', or set HF_TOKEN to a token with write access.",
    402: "The Hub requires payment. Check the storage limits of your account.",
    403: "The token has no write access to this repository. Check the name of the repository, or use another token.",
    404: "The repository does not exist or is hidden from you. Check its name, --revision and the token's permissions.",
    409: f"The repository was changed at the same time. {RETRY}",
    412: f"The repository was changed during the push. {RETRY}",
    413: "The upload is too large for the Hub. Try fewer formats (--format).",
    429: f"Too many requests. Wait a few minutes. {RETRY}",
}
"""Advice by HTTP status."""


@contextmanager
def translate_errors(action: str, error_type: type[GristmillError]) -> Iterator[None]:
    """Raise any exception except GristmillError as `error_type`, with the action and advice in the message.

    All exceptions are caught, because their classes differ between versions of huggingface_hub.
    """
    try:
        yield
    except GristmillError:
        raise
    except Exception as error:  # noqa: BLE001 - any error of the library
        raise error_type(f"{action} failed: {_describe(error)}") from None


def _describe(error: BaseException) -> str:
    chain = list(_chain(error))
    if any(type(cause).__name__ == "OfflineModeIsEnabled" for cause in chain):
        return "HF_HUB_OFFLINE is set. Unset it."
    for cause in chain:
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if isinstance(status, int):
            detail = _clean(str(getattr(cause, "server_message", None) or ""))
            general = f"The Hub has an internal error. Wait a few minutes. {RETRY}" if status >= 500 else RETRY  # noqa: PLR2004
            advice = ADVICE.get(status, general)
            return f"the Hub answered {status}{f' ({detail})' if detail else ''}. {advice}"
    if isinstance(chain[0], json.JSONDecodeError):
        return "the answer is not JSON, so the server is not the Hub. Check HF_ENDPOINT."
    if isinstance(chain[0], ValueError):
        return f"{_clean(str(chain[0])).rstrip('.')}."
    return f"{_clean(str(chain[-1])) or type(chain[-1]).__name__}. Check the network. {RETRY}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _clean(text: str) -> str:
    """Return the text as one line, without tokens and URL queries."""
    token = _token()
    line = QUERY.sub("", " ".join((text.replace(token, "…") if token else text).split()))
    line = TOKEN.sub("…", line)
    return line if len(line) <= MAX_REASON_CHARACTERS else f"{line[:MAX_REASON_CHARACTERS]}…"


def _token() -> str | None:
    from huggingface_hub import get_token  # noqa: PLC0415 - slow to import, and optional

    with suppress(Exception):  # reading the token may be what failed
        return get_token()
    return None


@contextmanager
def silence_hub() -> Iterator[None]:
    """Suppress progress bars, log lines and warnings of huggingface_hub, because gristmill prints its own."""
    from huggingface_hub.utils.tqdm import (  # noqa: PLC0415
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    logger = logging.getLogger("huggingface_hub")
    level, had_bars = logger.level, not are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL)
        disable_progress_bars()
        try:
            yield
        finally:
            logger.setLevel(level)
            if had_bars:
                enable_progress_bars()


DATASET = "dataset"
MAIN = "main"
TIMEOUT_SECONDS = 30
MAX_MANIFEST_BYTES = 1 << 26
BATCH_FILES = 32
BATCH_BYTES = 1 << 28
"""A batch of uploads ends after BATCH_FILES files or BATCH_BYTES bytes. Progress is updated after each batch, and
huggingface_hub uploads several files of a batch in parallel."""
GITIGNORE_WITHOUT_RULES = "# Replaces the .gitignore of the repository, which must not exclude files of the dataset.\n"
REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
SHARD = re.compile(
    rf"(?:(?:{'|'.join(FORMATS)})/)?(?:{'|'.join(Split)})(?:-[0-9]{{5,}}-of-[0-9]{{5,}})\.\w+(?:\.\w+)?", re.ASCII
)


class RemoteFile(NamedTuple):
    """A file in a repository on the Hub."""

    bytes: int
    git_sha1: str
    """Blob id in git. It is the digest of the content if `sha256` is None, and otherwise that of a pointer file."""
    sha256: str | None
    """Digest of the content in large file storage. None if the content is in git."""

    def has_content_of(self, file: UploadFile) -> bool:
        if self.sha256 is not None:
            return self.sha256 == file.facts.sha256
        if self.bytes != file.facts.bytes:
            return False
        content = file.content if isinstance(file.content, bytes) else read_plain(file.content)
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == self.git_sha1


class RemoteContents(NamedTuple):
    """Contents of a repository at one commit."""

    private: bool
    has_revision: bool
    """False if the revision does not exist yet. In this case, the other fields describe `main`."""
    commit: str
    files: Mapping[str, RemoteFile]
    manifest_files: frozenset[str] | None
    """Names of the files in the repository's manifest. None if the repository has no gristmill manifest."""

    def outdated_files(self, names: Sequence[str]) -> list[str]:
        """Return the files of the repository's dataset that are not in `names`.

        Files that do not belong to a gristmill dataset are never returned.
        """
        if self.manifest_files is None:
            return []
        dataset_files = {
            name for name in self.files if name in self.manifest_files or name in CARDS[1:] or SHARD.fullmatch(name)
        }
        return sorted(dataset_files - set(names))


class Repository:
    """A dataset repository on the Hub, at one revision."""

    def __init__(self, repo_id: str, revision: str | None) -> None:
        hub = import_hub()
        if not REPO_ID.fullmatch(repo_id):
            raise InputError(f"{repo_id!r} is not a valid Hub dataset name. Try 'yourname/{_suggested_name(repo_id)}'.")
        self.repo_id, self.revision = repo_id, revision or MAIN
        # huggingface_hub itself reads HF_ENDPOINT only at import.
        self._api: Any = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
        self.url = without_credentials(f"{self._api.endpoint}/datasets/{repo_id}")
        self._repo = {"repo_id": repo_id, "repo_type": DATASET}

    def read_contents(self) -> RemoteContents | None:
        """Read the contents of the repository. Return None if the repository does not exist."""
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError  # noqa: PLC0415

        with silence_hub(), translate_errors(f"reading {self.url}", InputError):
            self._require_login()
            has_revision = True
            try:
                info = self._api.repo_info(**self._repo, revision=self.revision, timeout=TIMEOUT_SECONDS)
            except RevisionNotFoundError:
                has_revision = False
                info = self._api.repo_info(**self._repo, timeout=TIMEOUT_SECONDS)
            except RepositoryNotFoundError as error:
                if error.response.status_code == 404:  # noqa: PLR2004
                    return None
                raise
            files = self._list_files(info.sha)
            manifest_files = self._read_manifest_files(info.sha) if MANIFEST in files else None
            return RemoteContents(bool(info.private), has_revision, info.sha, files, manifest_files)

    def _require_login(self) -> None:
        if import_hub().get_token() is None:
            raise InputError(
                f"not logged in to {without_credentials(self._api.endpoint)}. "
                "Run 'hf auth login', or set HF_TOKEN to a token with write access."
            )

    def _list_files(self, commit: str) -> dict[str, RemoteFile]:
        entries = self._api.list_repo_tree(**self._repo, recursive=True, revision=commit)
        return {
            entry.path: RemoteFile(entry.size, entry.blob_id, entry.lfs.sha256 if entry.lfs else None)
            for entry in entries
            if hasattr(entry, "blob_id")
        }

    def _read_manifest_files(self, commit: str) -> frozenset[str] | None:
        """Return the file names in the repository's manifest, or None if gristmill did not write the manifest."""
        with temporary_folder("gristmill-push-") as cache:
            path = Path(self._api.hf_hub_download(**self._repo, filename=MANIFEST, revision=commit, cache_dir=cache))
            with open_plain(path) as stream:
                content = stream.read(MAX_MANIFEST_BYTES)
        try:
            manifest = msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        files = manifest.get("files")
        return frozenset(files) if "gristmill" in manifest and isinstance(files, dict) else None

    def create_missing(self, remote: RemoteContents | None, *, private: bool) -> RemoteContents:
        """Create the repository and the revision if they do not exist, and return the contents of the revision."""
        with silence_hub(), translate_errors(f"creating {self.url}", OutputError):
            if remote is None:
                self._api.create_repo(**self._repo, private=private, exist_ok=True)
            if self.revision != MAIN and (remote is None or not remote.has_revision):
                self._api.create_branch(**self._repo, branch=self.revision, exist_ok=True)
        found = remote if remote is not None and remote.has_revision else self.read_contents()
        if found is None or (private and not found.private):
            raise OutputError(
                f"{self.url} was not created as requested. Check the repository on the Hub, then push again."
            )
        return found

    def commit(
        self,
        remote: RemoteContents,
        files: Sequence[UploadFile],
        deleted: Sequence[str],
        message: str,
        progress: Progress,
    ) -> str:
        """Upload and delete files in a single commit on top of `remote`, and return the URL of the commit."""
        hub = import_hub()
        with silence_hub(), translate_errors(f"pushing to {self.url}", OutputError):
            additions = [hub.CommitOperationAdd(file.name, _upload_content(file)) for file in files]
            with progress.phase("upload", sum(file.facts.bytes for file in files), "bytes") as step:
                for batch in _batches(additions):
                    self._api.preupload_lfs_files(
                        self.repo_id,
                        batch,
                        repo_type=DATASET,
                        revision=self.revision,
                        free_memory=False,
                        gitignore_content=GITIGNORE_WITHOUT_RULES,
                    )
                    step.advance(sum(addition.upload_info.size for addition in batch))
            for file, addition in zip(files, additions, strict=True):
                if addition.upload_info.sha256.hex() != file.facts.sha256:
                    raise OutputError(f"{file.name} changed during the upload, and nothing was committed. Push again.")
            commit = self._api.create_commit(
                **self._repo,
                revision=self.revision,
                parent_commit=remote.commit,
                operations=[*additions, *(hub.CommitOperationDelete(name, is_folder=False) for name in deleted)],
                commit_message=message,
            )
            self._require_uploaded(commit.oid, files, deleted)
            return str(commit.commit_url)

    def _require_uploaded(self, commit: str, files: Sequence[UploadFile], deleted: Sequence[str]) -> None:
        """Raise if the repository does not have these files, or still has a deleted file."""
        found = self._list_files(commit)
        for file in files:
            if file.name not in found or not found[file.name].has_content_of(file):
                raise OutputError(f"{file.name!r} in {self.url} differs from the uploaded file. Push again.")
        for name in deleted:
            if name in found:
                raise OutputError(f"{name!r} is still in {self.url}, although the push deleted it. Push again.")


def import_hub() -> Any:
    try:
        import huggingface_hub  # noqa: PLC0415 - slow to import, and optional
    except ImportError:
        raise MissingExtraError("push needs huggingface_hub: pip install 'gristmill[hub]'.") from None
    return huggingface_hub


def _upload_content(file: UploadFile) -> bytes | str:
    return file.content if isinstance(file.content, bytes) else str(file.content)


def _batches(additions: Sequence[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for addition in additions:
        batch.append(addition)
        if len(batch) == BATCH_FILES or sum(operation.upload_info.size for operation in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _suggested_name(repo_id: str) -> str:
    """Return a valid dataset name close to the last part of `repo_id`."""
    name = re.sub(r"[^\w.-]+", "-", repo_id.rstrip("/").rpartition("/")[2], flags=re.ASCII).strip("-._")
    return name or "dataset"
