"""Asks git which files a work tree has, without letting anything in that repository run.

An untrusted repository's own configuration can name programs: `core.fsmonitor` is executed by `git ls-files`, a
promisor remote by a lazy fetch. Both are switched off here, on the command line and in the environment, which outrank
it.
"""

import os
import subprocess
from typing import NamedTuple

from gristmill.errors import InputError

HARDENED = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.untrackedCache=false"),
    *("-c", "core.pager=cat"),
    # With nothing of the repository able to run, whose it is does not matter: a mounted or copied tree can be read.
    *("-c", "safe.directory=*"),
)
ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
NOT_A_REPOSITORY = 128
SECONDS_TO_ANSWER = 600


class GitEntry(NamedTuple):
    path: str
    """Relative to the folder asked about, in the system's form; ends in `/` for a nested repository."""
    is_tracked: bool


class Listing(NamedTuple):
    entries: list[GitEntry]
    commit: str | None
    complaints: str
    """What git wrote to its error stream: folders it could not open, say."""


def list_files(folder: str) -> Listing | None:
    """What `git ls-files --cached --others --exclude-standard` lists; None where no work tree takes this folder in."""
    prefix = _git(folder, "rev-parse", "--show-prefix")
    if prefix is None:
        return None
    if prefix.returncode == NOT_A_REPOSITORY:
        if not os.path.lexists(os.path.join(folder, ".git")):
            return None
        raise InputError(f"git cannot read the repository in {folder!r}: {_last_line(prefix)}.")
    # A folder that the work tree around it ignores (an environment, a download) was named on purpose: a plain folder.
    if prefix.stdout.strip() and _succeeds(_git(folder, "check-ignore", "--quiet", ".")):
        return None
    # -t marks what is tracked; a file in the middle of a merge is listed once per side, hence the dict.
    listed = _git(folder, "ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
    if listed is None or listed.returncode != 0:
        raise InputError(f"git cannot list the files of {folder!r}: {_last_line(listed)}.")
    entries: dict[str, GitEntry] = {}
    for line in os.fsdecode(listed.stdout).split("\0"):
        if line:
            tag, path = line[0], line[2:]
            entries[path] = GitEntry(path, is_tracked=tag != "?")
    return Listing(list(entries.values()), _commit(folder), os.fsdecode(listed.stderr).strip())


def _commit(folder: str) -> str | None:
    answer = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    return answer.stdout.decode().strip() if answer is not None and answer.returncode == 0 else None


def _git(folder: str, *arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    """None where git is not installed."""
    # GIT_DIR and its like, as set inside a hook, would answer for another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", *HARDENED, *arguments]
    environment = inherited | ENVIRONMENT
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=SECONDS_TO_ANSWER,
        )
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired:
        raise InputError(f"git gave no answer about {folder!r} within {SECONDS_TO_ANSWER} s.") from None


def _succeeds(answer: subprocess.CompletedProcess[bytes] | None) -> bool:
    return answer is not None and answer.returncode == 0


def _last_line(answer: subprocess.CompletedProcess[bytes] | None) -> str:
    lines = os.fsdecode(answer.stderr).strip().splitlines() if answer is not None else []
    return lines[-1].removeprefix("fatal: ") if lines else "it gave no reason"
