"""Asks git which files a work tree has, without letting anything in that repository run.

An untrusted repository's own configuration can name programs: `core.fsmonitor` is executed by `git ls-files`, a
promisor remote by a lazy fetch. Both are switched off here, on the command line and in the environment, which outrank
it. It can also name another work tree, or another repository's folder: such a one is not believed.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from gristmill.errors import InputError
from gristmill.plainfile import read_plain_text

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
SECONDS_TO_ANSWER = 120
"""A pipe in the place of one of git's files would hold it up for ever."""
UNREADABLE = re.compile(r"warning: could not open directory '(.+)': (.+)")


class GitEntry(NamedTuple):
    path: str
    """Relative to the folder asked about, in the system's form; ends in `/` for a nested repository."""
    is_tracked: bool


class Listing(NamedTuple):
    entries: list[GitEntry]
    commit: str | None
    unreadable: list[tuple[str, str]]
    """Folders that git could not open, and why."""
    complaints: list[str]
    """What else it wrote to its error stream."""


def list_files(folder: str) -> Listing | None:
    """What `git ls-files --cached --others --exclude-standard` lists; None where no work tree takes this folder in."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    if top.returncode != 0:
        if not os.path.lexists(os.path.join(folder, ".git")):
            return None
        raise InputError(f"git cannot read this repository: {_last_line(top)}.")
    work_tree = os.path.realpath(_text(top))
    _refuse_borrowed_repository(folder, work_tree)
    # A folder that the work tree around it ignores (an environment, a download) was named on purpose: a plain folder.
    ignored = _git(folder, "check-ignore", "--quiet", ".") if work_tree != folder else None
    if ignored is not None and ignored.returncode == 0:
        return None
    # -t marks what is tracked; a file in the middle of a merge is listed once per side, hence the dict.
    listed = _git(folder, "ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
    if listed is None or listed.returncode != 0:
        raise InputError(f"git cannot list the files: {_last_line(listed)}.")
    entries: dict[str, GitEntry] = {}
    for line in os.fsdecode(listed.stdout).split("\0"):
        if line:
            tag, path = line[0], line[2:]
            entries[path] = GitEntry(path, is_tracked=tag != "?")
    complaints = os.fsdecode(listed.stderr).splitlines()
    unreadable = [match.groups() for line in complaints if (match := UNREADABLE.fullmatch(line))]
    others = [line for line in complaints if not UNREADABLE.fullmatch(line)]
    return Listing(list(entries.values()), _commit(folder), [(path, why) for path, why in unreadable], others)


def _refuse_borrowed_repository(folder: str, top: str) -> None:
    """`core.worktree` may point elsewhere, and a `.git` file to a repository that knows nothing of this folder."""
    if folder != top and not folder.startswith(top.rstrip("/") + "/"):
        raise InputError("its configuration names another work tree.")
    pointer = Path(top, ".git")
    if not pointer.is_file():
        return
    answer = _git(top, "rev-parse", "--absolute-git-dir")
    repository = Path(_text(answer)) if answer is not None else Path()
    try:
        # A linked work tree: its folder in the repository points back here.
        if os.path.realpath(read_plain_text(repository / "gitdir").strip()) == str(pointer):
            return
    except (OSError, ValueError):
        pass
    # A submodule: its configuration does.
    answer = _git(top, "config", "--file", str(repository / "config"), "core.worktree")
    if answer is None or os.path.realpath(repository / _text(answer)) != top or not _text(answer):
        raise InputError("its .git file points to a repository that is not its own.")


def _commit(folder: str) -> str | None:
    answer = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    return _text(answer) if answer is not None and answer.returncode == 0 else None


def _git(folder: str, *arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    """None where git is not installed."""
    # GIT_DIR and its like, as set inside a hook, would answer for another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            ["git", *HARDENED, *arguments],  # noqa: S607 - the git that is on the path
            cwd=folder,
            env=inherited | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=SECONDS_TO_ANSWER,
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"git cannot be asked: {error.strerror}.") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"git gave no answer within {SECONDS_TO_ANSWER} s.") from None


def _text(answer: subprocess.CompletedProcess[bytes]) -> str:
    return os.fsdecode(answer.stdout).removesuffix("\n")


def _last_line(answer: subprocess.CompletedProcess[bytes] | None) -> str:
    lines = os.fsdecode(answer.stderr).strip().splitlines() if answer is not None else []
    return lines[-1].removeprefix("fatal: ") if lines else "it gave no reason"
