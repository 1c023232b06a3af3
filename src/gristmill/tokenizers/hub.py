"""Download tokenizers from the Hugging Face Hub into the cache. A cached tokenizer is read without network access.

gigatoken's Hub client downloads the files. The client respects HF_ENDPOINT and HF_TOKEN and uses the cache layout of
huggingface_hub. A tokenizer that is already in the user's Hugging Face cache is not downloaded again. Each revision is
a separate cache entry.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from gristmill.core.errors import HubError, TokenizerError
from gristmill.core.layout import TOKENIZER, TOKENIZER_CONFIG
from gristmill.core.plain_files import read_plain_text

MAX_ID_CHARACTERS = 200
VOCAB_AND_MERGES = ("vocab.json", "merges.txt")
FILE_SETS = ((TOKENIZER,), VOCAB_AND_MERGES)


class CachedTokenizer(NamedTuple):
    """A tokenizer in the cache."""

    folder: Path
    commit: str


class _NotFoundError(Exception):
    pass


def is_repo_id(name: str) -> bool:
    """Return True if the name has the form `org/name` or `org/name@revision` and does not look like a file path."""
    from gigatoken.gigatoken_rs import looks_like_repo_id  # noqa: PLC0415 - --help does not need gigatoken

    return name.isascii() and len(name) <= MAX_ID_CHARACTERS and looks_like_repo_id(name.partition("@")[0])


def download(name: str, cache_dir: str | None) -> CachedTokenizer:
    """Return the location of a tokenizer in the cache. Download the tokenizer first if needed.

    Raise HubError if the Hub cannot be reached or must not be used, and TokenizerError if the Hub has no such tokenizer
    or denies access.
    """
    repo, _, revision = name.partition("@")
    revision = revision or "main"
    with _use_cache_folder(cache_dir) as cache:
        for names in sorted(FILE_SETS, key=lambda files: _find_cached_file(cache, repo, revision, files[-1]) is None):
            try:
                files = [_fetch(cache, repo, revision, file) for file in names]
            except _NotFoundError:
                continue
            _fetch_optional(cache, repo, files[0].parent.name, revision, TOKENIZER_CONFIG)
            return CachedTokenizer(files[0].parent, files[0].parent.name)
    raise TokenizerError(
        f"{_endpoint()} has no tokenizer {repo!r} at revision {revision!r}: "
        f"there is neither {TOKENIZER} nor {' and '.join(VOCAB_AND_MERGES)}. Check the name."
    )


def _fetch(cache: Path, repo: str, revision: str, file: str) -> Path:
    from gigatoken.gigatoken_rs import hub_file  # noqa: PLC0415

    cached_file = _find_cached_file(cache, repo, revision, file)
    if cached_file is not None:
        return cached_file
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in {"1", "TRUE", "YES", "ON"}:
        raise HubError(
            f"{repo}@{revision} is not in the cache {str(cache)!r}, and HF_HUB_OFFLINE forbids downloading it. Unset "
            "HF_HUB_OFFLINE, or use a tokenizer that is on this machine."
        )
    try:
        return hub_file(repo, file, revision=revision)
    except FileNotFoundError:
        raise _NotFoundError from None
    except PermissionError:
        raise TokenizerError(
            f"{_endpoint()} denies access to {repo!r}. "
            "Set HF_TOKEN to a token with read access. If the model has terms of use, accept them on its page."
        ) from None
    except (OSError, RuntimeError) as error:
        raise HubError(
            f"downloading {file} of {repo!r} from {_endpoint()} failed: {_root_cause(error)}. Run the command again."
        ) from None


def _fetch_optional(cache: Path, repo: str, commit: str, revision: str, file: str) -> None:
    """Download a file that a repository may not have.

    If the file is missing, record this in the cache as huggingface_hub does, so that later calls skip the request.
    """
    marker = _repo_folder(cache, repo) / ".no_exist" / commit / file
    if marker.exists():
        return
    try:
        _fetch(cache, repo, revision, file)
    except _NotFoundError:
        with suppress(OSError):
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()


def _repo_folder(cache: Path, repo: str) -> Path:
    return cache / f"models--{repo.replace('/', '--')}"


def _find_cached_file(cache: Path, repo: str, revision: str, file: str) -> Path | None:
    """Return the path of a cached file, or None.

    In the layout of huggingface_hub, the file refs/REVISION contains the commit, and the folder snapshots/COMMIT
    contains the files.
    """
    entry = _repo_folder(cache, repo)
    try:
        commit = read_plain_text(entry / "refs" / revision, "ascii").strip()
    except (OSError, ValueError):
        commit = revision
    path = entry / "snapshots" / commit / file
    return path if path.is_file() else None


@contextmanager
def _use_cache_folder(cache_dir: str | None) -> Iterator[Path]:
    """Set the environment variable from which gigatoken reads the cache folder, and restore the variable afterwards."""
    variable = "HF_HUB_CACHE"
    previous = os.environ.get(variable)
    if cache_dir is not None:
        os.environ[variable] = os.path.abspath(os.path.expanduser(cache_dir))
    try:
        yield _cache_folder()
    finally:
        if cache_dir is not None:
            os.environ.pop(variable)
            if previous is not None:
                os.environ[variable] = previous


def _cache_folder() -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.path.expanduser(os.environ[variable]))
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expanduser(home)) / "hub"


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co")


def _root_cause(error: Exception) -> str:
    """Return the root cause of an error. The client reports one cause per line, with the root cause last."""
    lines = [line.strip() for line in str(error).partition("Location:")[0].splitlines() if line.strip()]
    return lines[-1].partition(": ")[2] or lines[-1] if lines else type(error).__name__
