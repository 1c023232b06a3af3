"""Asks git which files a work tree has, without letting anything in that repository run.

An untrusted repository's own configuration can name programs: `core.fsmonitor` is executed by `git ls-files`, a
promisor remote by a lazy fetch. Both are switched off here, on the command line and in the environment, which outrank
it.

A `.git` may also lead to somebody else's repository, whose file names would get into a dataset: by a link, a `gitdir:`
line, `commondir` or `core.worktree`. So a repository must be this tree's own: a folder in it, or one elsewhere that
points back at it, as those of linked work trees and submodules do. And a FIFO in the place of a file that git opens
would hold git up: those of the repository are looked at before git runs.
"""

import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gristmill.core.errors import InputError
from gristmill.core.plain_files import open_plain, require_plain

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
SECONDS_UNTIL_LOOK = 1
"""After these, FIFOs that may hold git up are looked for."""
GIT_OPENS = (
    *("HEAD", "ORIG_HEAD", "config", "config.worktree", "commondir", "gitdir", "packed-refs", "shallow"),
    *("info/exclude", "info/attributes", "info/grafts", "info/sparse-checkout", "objects/info/alternates"),
)
WORK_TREE_FILES = (".git", ".gitignore", ".gitattributes", ".gitmodules")
INDEXES = ("index", "sharedindex.*")
"""Lists of file names. Not even a link to another one counts."""
MAX_CONFIG_BYTES = 1 << 20
MAX_POINTER_BYTES = 1 << 16
"""For files that hold one path or name."""
CONFIG_VALUE = re.compile(
    rb'^[ \t]*(?:\[[^\]\n]*\])?[ \t]*([a-z-]+)[ \t]*=[ \t]*"?([^"\n#;]+)', re.IGNORECASE | re.MULTILINE
)
MAX_INCLUDES = 10
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
    if work_tree_of(folder) is None:
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


def work_tree_of(folder: str) -> str | None:
    """The root of the work tree that takes this folder in, or None."""
    holder = holder_of(folder)
    if holder is None or shutil.which("git") is None:
        return None
    _require_own_repository(holder)
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    if top.returncode != 0:
        if not os.path.lexists(os.path.join(folder, ".git")):
            return None
        raise InputError(f"git cannot read this repository: {_last_line(top)}.")
    work_tree = os.path.realpath(_text(top))
    if work_tree != holder:
        raise InputError("git takes another folder for its work tree.")
    # A folder that the work tree around it ignores (an environment, a download) was named on purpose: a plain folder.
    ignored = _git(folder, "check-ignore", "--quiet", ".") if work_tree != folder else None
    return None if ignored is not None and ignored.returncode == 0 else work_tree


def holder_of(folder: str) -> str | None:
    """The nearest folder, from this one upwards, with a `.git` that git would take: an empty one it passes over."""
    folder = os.path.realpath(folder)
    while not _is_repository(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
    return folder


def _is_repository(path: str) -> bool:
    return os.path.lexists(os.path.join(path, "HEAD") if os.path.isdir(path) else path)


def _require_own_repository(top: str) -> None:
    """Raise InputError if the repository is not this tree's own, or has a file that would hold git up."""
    pointer = Path(top, ".git")
    try:
        kind = stat.S_IFMT(pointer.lstat().st_mode)
        if kind == stat.S_IFREG:
            repository = Path(os.path.realpath(os.path.join(top, _pointed_at(pointer))))
        else:
            repository = Path(os.path.realpath(pointer))
        common = _common(repository)
        for folder in {repository, common}:
            _require_plain_files(folder, Path(top))
    except OSError as error:
        name = os.path.basename(error.filename or "") or ".git"
        raise InputError(f"git cannot read this repository: {name}: {error.strerror or error}.") from None
    except ValueError:
        raise InputError("git cannot read this repository: its .git file is not one.") from None
    if kind == stat.S_IFDIR:
        is_own = common == repository
    else:
        is_own = _is_linked_tree(repository, common, pointer) or _is_submodule(repository, common, top)
    if not is_own:
        raise InputError("its .git leads to a repository that is not its own.")


def _pointed_at(pointer: Path) -> str:
    content = _short_file(pointer)
    if not content.startswith(b"gitdir: ") or b"\0" in content:
        raise ValueError
    return os.fsdecode(content.removeprefix(b"gitdir: ").rstrip(b"\r\n"))


def _short_file(path: Path, max_bytes: int = MAX_POINTER_BYTES) -> bytes:
    """Read a file of git's own; raise OSError if it is larger, as no such file is."""
    with open_plain(path) as stream:
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(0, f"larger than {max_bytes:,} bytes", str(path))
    return content


def _common(repository: Path) -> Path:
    """The folder that a linked work tree shares with others; else the repository itself."""
    path = repository / "commondir"
    if not os.path.lexists(path):
        return repository
    return Path(os.path.realpath(repository / os.fsdecode(_short_file(path).rstrip(b"\r\n"))))


def _is_linked_tree(repository: Path, common: Path, pointer: Path) -> bool:
    """Say if it is of `git worktree add`: its folder among the repository's points back here."""
    try:
        back = os.fsdecode(_short_file(repository / "gitdir").rstrip(b"\r\n"))
    except OSError:
        return False
    leads_back = os.path.realpath(repository / back) == os.path.realpath(pointer.parent) + "/.git"
    return leads_back and repository.parent == common / "worktrees"


def _is_submodule(repository: Path, common: Path, top: str) -> bool:
    """Say if its configuration points back here; a sparse checkout moves that into a file of its own."""
    if common != repository:
        return False
    answers = (
        _git(top, "config", "--file", str(repository / name), "core.worktree") for name in ("config", "config.worktree")
    )
    named = [_text(answer) for answer in answers if answer is not None and _text(answer)]
    return any(os.path.realpath(repository / path) == top for path in named)


def _require_plain_files(repository: Path, top: Path) -> None:
    """Raise OSError if anything but a regular file stands where git opens one."""
    for name in GIT_OPENS:
        if os.path.lexists(repository / name):
            require_plain(repository / name)
    for path in (path for pattern in INDEXES for path in repository.glob(pattern)):
        if path.is_symlink():
            raise OSError(0, "it is a link to another one", str(path))
        require_plain(path)
    for path in _refs(repository):
        require_plain(path)
    pending = {repository / "config", repository / "config.worktree"}
    seen: set[Path] = set()  # files may include each other
    for _ in range(MAX_INCLUDES):
        seen |= pending
        pending = {path for one in sorted(pending) for path in _named_in_config(one, top)} - seen


def _refs(repository: Path) -> Iterator[Path]:
    """The branches that HEAD leads to: each is a file, or in packed-refs."""
    name = "HEAD"
    for _ in range(MAX_INCLUDES):
        path = repository / name
        if not path.is_file():
            return
        content = _short_file(path)
        if not content.startswith(b"ref:") or b"\0" in content:
            return
        name = os.fsdecode(content.removeprefix(b"ref:").strip())
        if os.path.lexists(repository / name) and not (repository / name).is_dir():
            yield repository / name


def _named_in_config(config: Path, top: Path) -> Iterator[Path]:
    """The files that it includes. Raise OSError if one of its values names a FIFO or the like, which git would open."""
    if not config.is_file():
        return
    for key, value in CONFIG_VALUE.findall(_short_file(config, MAX_CONFIG_BYTES)):
        name = os.path.expanduser(os.fsdecode(value.strip().replace(b"\0", b"")))
        for path in {config.parent / name, top / name}:
            if os.path.exists(path) and not path.is_dir() and str(path) != os.devnull:
                require_plain(path)
                if key.lower() == b"path":
                    yield path


def _commit(folder: str) -> str | None:
    answer = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    return _text(answer) if answer is not None and answer.returncode == 0 else None


def _git(folder: str, *arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    """None where git is not installed."""
    # GIT_DIR and its like, as set inside a hook, would answer for another repository.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = subprocess.Popen(
            ["git", *HARDENED, *arguments],  # noqa: S607 - the git that is on the path
            cwd=folder,
            env=inherited | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"git cannot be asked: {error.strerror}.") from None
    with process:
        try:
            output, errors = _answer(process, folder)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _answer(process: subprocess.Popen[bytes], folder: str) -> tuple[bytes, bytes]:
    """Read git's output. If it takes long, release it from FIFOs that may hold it up."""
    deadline = time.monotonic() + SECONDS_TO_ANSWER
    fifos: list[str] | None = None
    while time.monotonic() < deadline:
        try:
            return process.communicate(timeout=SECONDS_UNTIL_LOOK)
        except subprocess.TimeoutExpired:
            if fifos is None:
                began = time.monotonic()
                fifos = list(_fifos(folder))
                deadline += time.monotonic() - began  # git's time, not that of the walk
            for fifo in fifos:
                _let_go_on(fifo)
    raise InputError(f"git gave no answer within {SECONDS_TO_ANSWER} s.")


def _fifos(folder: str) -> Iterator[str]:
    """Those below a folder under names that git opens: ignore files, and all that is in the .git of nested trees."""
    for place, _, names in os.walk(folder):
        is_gits = ".git" in place[len(folder) :].split(os.sep)
        for name in names:
            path = os.path.join(place, name)
            if (is_gits or name in WORK_TREE_FILES) and _is_fifo(path):
                yield path


def _is_fifo(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except OSError:  # git's own locks come and go
        return False


def _let_go_on(fifo: str) -> None:
    """Give a process that waits to read from the FIFO an end of file: to git, an ignore file without patterns."""
    with suppress(OSError):  # no process waits
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))


def _text(answer: subprocess.CompletedProcess[bytes]) -> str:
    return os.fsdecode(answer.stdout).removesuffix("\n")


def _last_line(answer: subprocess.CompletedProcess[bytes] | None) -> str:
    lines = os.fsdecode(answer.stderr).strip().splitlines() if answer is not None else []
    return lines[-1].removeprefix("fatal: ") if lines else "it gave no reason"
