"""A tokenizer from the Hugging Face Hub: fetched once into the cache, read from there ever after, also offline.

gigatoken's Hub client does the transfer. It follows HF_ENDPOINT, HF_TOKEN and the cache layout of huggingface_hub, so a
tokenizer that is in the user's Hugging Face cache already is not fetched at all; each revision is an entry of its own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from gristmill.core.errors import HubError, TokenizerError
from gristmill.core.layout import TOKENIZER, TOKENIZER_CONFIG
from gristmill.core.plain_files import read_plain_text

LONGEST_ID = 200
OLDER_PAIR = ("vocab.json", "merges.txt")
WAYS_TO_SHIP = ((TOKENIZER,), OLDER_PAIR)


class Downloaded(NamedTuple):
    folder: Path
    commit: str


class _NotThereError(Exception):
    pass


def is_repo_id(name: str) -> bool:
    """`org/name` or `org/name@revision`; never what looks like a file."""
    from gigatoken.gigatoken_rs import looks_like_repo_id  # noqa: PLC0415 - --help does without

    return name.isascii() and len(name) <= LONGEST_ID and looks_like_repo_id(name.partition("@")[0])


def download(name: str, cache_dir: str | None) -> Downloaded:
    repo, _, revision = name.partition("@")
    revision = revision or "main"
    with _cache(cache_dir) as cache:
        for wanted in sorted(WAYS_TO_SHIP, key=lambda files: _cached(cache, repo, revision, files[-1]) is None):
            try:
                files = [_fetch(cache, repo, revision, file) for file in wanted]
            except _NotThereError:
                continue
            _fetch_if_there(cache, repo, files[0].parent.name, revision, TOKENIZER_CONFIG)
            return Downloaded(files[0].parent, files[0].parent.name)
    raise TokenizerError(
        f"{_endpoint()} has no tokenizer {repo!r} at revision {revision!r}: "
        f"neither {TOKENIZER} nor {' and '.join(OLDER_PAIR)}. Check the name."
    )


def _fetch(cache: Path, repo: str, revision: str, file: str) -> Path:
    from gigatoken.gigatoken_rs import hub_file  # noqa: PLC0415

    present = _cached(cache, repo, revision, file)
    if present is not None:
        return present
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in {"1", "TRUE", "YES", "ON"}:
        raise HubError(f"{repo}@{revision} is not in the cache {str(cache)!r}, and HF_HUB_OFFLINE forbids fetching it.")
    try:
        return hub_file(repo, file, revision=revision)
    except FileNotFoundError:
        raise _NotThereError from None
    except PermissionError:
        raise TokenizerError(
            f"{_endpoint()} does not give out {repo!r} without permission. "
            "Set HF_TOKEN to a token that may read it, and accept the model's terms on its page if it has any."
        ) from None
    except (OSError, RuntimeError) as error:
        raise HubError(
            f"fetching {file} of {repo!r} from {_endpoint()} failed: {_cause(error)}. Run the command again."
        ) from None


def _fetch_if_there(cache: Path, repo: str, commit: str, revision: str, file: str) -> None:
    """That it is not there is noted as huggingface_hub notes it, so that nobody has to ask again."""
    absent = _entry(cache, repo) / ".no_exist" / commit / file
    if absent.exists():
        return
    try:
        _fetch(cache, repo, revision, file)
    except _NotThereError:
        with suppress(OSError):
            absent.parent.mkdir(parents=True, exist_ok=True)
            absent.touch()


def _entry(cache: Path, repo: str) -> Path:
    return cache / f"models--{repo.replace('/', '--')}"


def _cached(cache: Path, repo: str, revision: str, file: str) -> Path | None:
    """huggingface_hub's layout: refs/REVISION holds the commit, snapshots/COMMIT the files."""
    entry = _entry(cache, repo)
    try:
        commit = read_plain_text(entry / "refs" / revision, "ascii").strip()
    except (OSError, ValueError):
        commit = revision
    path = entry / "snapshots" / commit / file
    return path if path.is_file() else None


@contextmanager
def _cache(cache_dir: str | None) -> Iterator[Path]:
    """gigatoken takes the cache folder from the environment alone."""
    variable = "HF_HUB_CACHE"
    before = os.environ.get(variable)
    if cache_dir is not None:
        os.environ[variable] = os.path.abspath(os.path.expanduser(cache_dir))
    try:
        yield _cache_folder()
    finally:
        if cache_dir is not None:
            os.environ.pop(variable)
            if before is not None:
                os.environ[variable] = before


def _cache_folder() -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.path.expanduser(os.environ[variable]))
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expanduser(home)) / "hub"


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co")


def _cause(error: Exception) -> str:
    """The client reports a chain of causes over several lines; the last one says what happened."""
    lines = [line.strip() for line in str(error).partition("Location:")[0].splitlines() if line.strip()]
    return lines[-1].partition(": ")[2] or lines[-1] if lines else type(error).__name__
