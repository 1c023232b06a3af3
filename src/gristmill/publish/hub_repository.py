"""A dataset repository on the Hugging Face Hub, by way of huggingface_hub: what lies there, and one commit to it.

Whatever that library raises ends in one line of ours, without the token.
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
from gristmill.publish.contents import Outgoing
from gristmill.sources.addresses import without_credentials

# What goes wrong between here and the Hub -> one line that says what to do, and never a token.

LONGEST_REASON = 200
TOKEN = re.compile(r"hf_\w{4,}|Bearer \S+", re.IGNORECASE)
QUERY = re.compile(r"\?\S+")
"""Of an address: storage is signed in there."""
AGAIN = "Push again: what is there already is not sent twice."

ADVICE = {
    400: "Is README.md's head in order, and --revision a branch?",
    401: "The token is not valid: run 'hf auth login', or set HF_TOKEN to one that may write.",
    402: "The Hub wants it paid for: look at the storage of your account.",
    403: "The token may not write there: take one that may, and a name of yours or of an organisation of yours.",
    404: "It is not there, or not for you: check the name, --revision, and what your token may do.",
    409: f"Somebody else was at it just then. {AGAIN}",
    412: f"Somebody else has changed it in the meantime. {AGAIN}",
    413: "That is too much for the Hub at once: try fewer formats (--format).",
    429: f"Too many requests: wait a few minutes. {AGAIN}",
}


@contextmanager
def as_ours(doing: str, kind: type[GristmillError]) -> Iterator[None]:
    """Whatever the library raises, or what it uses: which classes these are differs between its versions."""
    try:
        yield
    except GristmillError:
        raise
    except Exception as error:  # noqa: BLE001 - a foreign library that speaks to a foreign server
        raise kind(f"{doing} failed: {_told(error)}") from None


def _told(error: BaseException) -> str:
    chain = list(_chain(error))
    if any(type(one).__name__ == "OfflineModeIsEnabled" for one in chain):
        return "HF_HUB_OFFLINE forbids it. Unset it."
    for one in chain:
        status = getattr(getattr(one, "response", None), "status_code", None)
        if isinstance(status, int):
            said = _clean(str(getattr(one, "server_message", None) or ""))
            advice = ADVICE.get(status, f"The Hub has trouble of its own: wait. {AGAIN}" if status >= 500 else AGAIN)  # noqa: PLR2004
            return f"it answers {status}{f' ({said})' if said else ''}. {advice}"
    if isinstance(chain[0], json.JSONDecodeError):
        return "it does not answer as the Hub does. Is HF_ENDPOINT right?"
    if isinstance(chain[0], ValueError):
        return f"{_clean(str(chain[0])).rstrip('.')}."
    return f"{_clean(str(chain[-1])) or type(chain[-1]).__name__}. Check the network. {AGAIN}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


def _clean(text: str) -> str:
    """In one line, without what nobody may see."""
    token = _token()
    line = QUERY.sub("", " ".join((text.replace(token, "…") if token else text).split()))
    line = TOKEN.sub("…", line)
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}…"


def _token() -> str | None:
    from huggingface_hub import get_token  # noqa: PLC0415 - slow to import, and not always there

    with suppress(Exception):  # asking for it may be what went wrong
        return get_token()
    return None


@contextmanager
def silenced() -> Iterator[None]:
    """No bars, log lines or warnings of huggingface_hub: what there is to say, we say."""
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
SECONDS_TO_ANSWER = 30
MAX_MANIFEST_BYTES = 1 << 26
FILES_AT_ONCE = 32
BYTES_AT_ONCE = 1 << 28
"""After so many, progress is told; huggingface_hub sends several files at a time."""
NOTHING_IGNORED = "# What a .gitignore there says is not about datasets.\n"
REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
SHARD = re.compile(
    rf"(?:(?:{'|'.join(FORMATS)})/)?(?:{'|'.join(Split)})(?:-[0-9]{{5,}}-of-[0-9]{{5,}})\.\w+(?:\.\w+)?", re.ASCII
)


class RemoteFile(NamedTuple):
    bytes: int
    git_sha1: str
    """Of a file that lies in git itself."""
    sha256: str | None
    """Of one in large storage; None: it is not there."""

    def is_same(self, file: Outgoing) -> bool:
        if self.sha256 is not None:
            return self.sha256 == file.facts.sha256
        if self.bytes != file.facts.bytes:
            return False
        content = file.content if isinstance(file.content, bytes) else read_plain(file.content)
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == self.git_sha1


class There(NamedTuple):
    """What lies in a repository."""

    private: bool
    has_revision: bool
    """If not, it would branch off from `main`."""
    commit: str
    files: Mapping[str, RemoteFile]
    named: frozenset[str] | None
    """By the manifest there; None where there is none of ours."""

    def outdated(self, names: Sequence[str]) -> list[str]:
        """Files of the dataset there that one of these names no longer has; nobody else's."""
        if self.named is None:
            return []
        ours = {name for name in self.files if name in self.named or name in CARDS[1:] or SHARD.fullmatch(name)}
        return sorted(ours - set(names))


class Repository:
    def __init__(self, repo_id: str, revision: str | None) -> None:
        hub = import_hub()
        if not REPO_ID.fullmatch(repo_id):
            raise InputError(
                f"{repo_id!r} is no name of a dataset on the Hub. Try one like 'yourname/{_last(repo_id)}'."
            )
        self.repo_id, self.revision = repo_id, revision or MAIN
        # HF_ENDPOINT as it is now, not as it was when the library was loaded.
        self._api: Any = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
        self.url = without_credentials(f"{self._api.endpoint}/datasets/{repo_id}")
        self._of = {"repo_id": repo_id, "repo_type": DATASET}

    def look(self) -> There | None:
        """What lies there; None where there is no such repository. Only reads."""
        from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError  # noqa: PLC0415

        with silenced(), as_ours(f"asking for {self.url}", InputError):
            self._require_login()
            has_revision = True
            try:
                info = self._api.repo_info(**self._of, revision=self.revision, timeout=SECONDS_TO_ANSWER)
            except RevisionNotFoundError:
                has_revision = False
                info = self._api.repo_info(**self._of, timeout=SECONDS_TO_ANSWER)
            except RepositoryNotFoundError as error:
                if error.response.status_code == 404:  # noqa: PLR2004
                    return None
                raise
            files = self._files(info.sha)
            named = self._named(info.sha) if MANIFEST in files else None
            return There(bool(info.private), has_revision, info.sha, files, named)

    def _require_login(self) -> None:
        if import_hub().get_token() is None:
            raise InputError(
                f"nobody is logged in to {without_credentials(self._api.endpoint)}. "
                "Run 'hf auth login', or set HF_TOKEN to a token that may write."
            )

    def _files(self, commit: str) -> dict[str, RemoteFile]:
        entries = self._api.list_repo_tree(**self._of, recursive=True, revision=commit)
        return {
            entry.path: RemoteFile(entry.size, entry.blob_id, entry.lfs.sha256 if entry.lfs else None)
            for entry in entries
            if hasattr(entry, "blob_id")
        }

    def _named(self, commit: str) -> frozenset[str] | None:
        with temporary_folder("gristmill-push-") as cache:
            path = Path(self._api.hf_hub_download(**self._of, filename=MANIFEST, revision=commit, cache_dir=cache))
            with open_plain(path) as stream:
                content = stream.read(MAX_MANIFEST_BYTES)
        try:
            manifest = msgspec.json.decode(content, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        files = manifest.get("files")
        return frozenset(files) if "gristmill" in manifest and isinstance(files, dict) else None

    def make(self, there: There | None, *, private: bool) -> There:
        """The repository and its revision, where they are not there yet."""
        with silenced(), as_ours(f"making {self.url}", OutputError):
            if there is None:
                self._api.create_repo(**self._of, private=private, exist_ok=True)
            if self.revision != MAIN and (there is None or not there.has_revision):
                self._api.create_branch(**self._of, branch=self.revision, exist_ok=True)
        found = there if there is not None and there.has_revision else self.look()
        if found is None or (private and not found.private):
            raise OutputError(f"{self.url} is not the private dataset that was asked for. Look at it, and push again.")
        return found

    def commit(
        self, there: There, files: Sequence[Outgoing], deleted: Sequence[str], message: str, progress: Progress
    ) -> str:
        """All of it in one commit; its address."""
        hub = import_hub()
        with silenced(), as_ours(f"pushing to {self.url}", OutputError):
            additions = [hub.CommitOperationAdd(file.name, _content(file)) for file in files]
            with progress.phase("upload", sum(file.facts.bytes for file in files), "bytes") as step:
                for batch in _batches(additions):
                    self._api.preupload_lfs_files(
                        self.repo_id,
                        batch,
                        repo_type=DATASET,
                        revision=self.revision,
                        free_memory=False,
                        gitignore_content=NOTHING_IGNORED,
                    )
                    step.advance(sum(addition.upload_info.size for addition in batch))
            for file, addition in zip(files, additions, strict=True):
                if addition.upload_info.sha256.hex() != file.facts.sha256:
                    raise OutputError(
                        f"{file.name} has changed while it was sent, and nothing was committed. Push again."
                    )
            done = self._api.create_commit(
                **self._of,
                revision=self.revision,
                parent_commit=there.commit,
                operations=[*additions, *(hub.CommitOperationDelete(name, is_folder=False) for name in deleted)],
                commit_message=message,
            )
            self._require_arrived(done.oid, files, deleted)
            return str(done.commit_url)

    def _require_arrived(self, commit: str, files: Sequence[Outgoing], deleted: Sequence[str]) -> None:
        found = self._files(commit)
        missing = [file.name for file in files if file.name not in found or not found[file.name].is_same(file)]
        missing += [name for name in deleted if name in found]
        if missing:
            raise OutputError(f"{self.url} has not taken {missing[0]!r} as it was sent. Look at it, and push again.")


def import_hub() -> Any:
    try:
        import huggingface_hub  # noqa: PLC0415 - slow to import, and not always there
    except ImportError:
        raise MissingExtraError("push needs huggingface_hub: pip install 'gristmill[hub]'.") from None
    return huggingface_hub


def _content(file: Outgoing) -> bytes | str:
    return file.content if isinstance(file.content, bytes) else str(file.content)


def _batches(additions: Sequence[Any]) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for addition in additions:
        batch.append(addition)
        if len(batch) == FILES_AT_ONCE or sum(one.upload_info.size for one in batch) >= BYTES_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _last(repo_id: str) -> str:
    name = re.sub(r"[^\w.-]+", "-", repo_id.rstrip("/").rpartition("/")[2], flags=re.ASCII).strip("-._")
    return name or "dataset"
