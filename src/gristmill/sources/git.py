"""List the files of a work tree with git, without running programs that its repository names.

The configuration of an untrusted repository can name programs: `git ls-files` runs `core.fsmonitor`, and a lazy fetch
runs the transport of a promisor remote. Options and environment variables, which take precedence over the configuration
of the repository, switch both off.

A `.git` may also lead to the repository of a different tree, through a link, a `gitdir:` line, `commondir` or
`core.worktree`. The dataset would then contain file names of that repository. So a repository must belong to its tree:
either it is a folder in the tree, or it is elsewhere and points back to the tree, as in linked work trees and
submodules.

If a file that git opens is a FIFO, git blocks. So the files of the repository are checked before git runs, and FIFOs in
the tree are unblocked while git runs.
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
    # Nothing from the repository can run, so it may belong to a different user, as in mounted and copied trees.
    *("-c", "safe.directory=*"),
)
ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}
TIMEOUT_SECONDS = 120
SECONDS_UNTIL_FIFO_SEARCH = 1
"""If git takes longer than this, the folder is searched for FIFOs that may block git."""
FILES_GIT_OPENS = (
    *("HEAD", "ORIG_HEAD", "config", "config.worktree", "commondir", "gitdir", "packed-refs", "shallow"),
    *("info/exclude", "info/attributes", "info/grafts", "info/sparse-checkout", "objects/info/alternates"),
)
WORK_TREE_FILES = (".git", ".gitignore", ".gitattributes", ".gitmodules")
INDEX_FILES = ("index", "sharedindex.*")
"""Files in which git lists the tracked files. Links are refused, because they may lead to a different repository."""
MAX_CONFIG_BYTES = 1 << 20
MAX_POINTER_BYTES = 1 << 16
"""Maximum size of files that contain a single path or name."""
CONFIG_VALUE = re.compile(
    rb'^[ \t]*(?:\[[^\]\n]*\])?[ \t]*([a-z-]+)[ \t]*=[ \t]*"?([^"\n#;]+)', re.IGNORECASE | re.MULTILINE
)
MAX_INCLUDES = 10
UNREADABLE = re.compile(r"warning: could not open directory '(.+)': (.+)")


class GitEntry(NamedTuple):
    """A file or nested repository that git lists."""

    path: str
    """Path relative to the listed folder, not escaped. It ends in `/` for a nested repository."""
    is_tracked: bool


class Listing(NamedTuple):
    """Result of listing a work tree."""

    entries: list[GitEntry]
    commit: str | None
    """Commit that is checked out. None if the repository has no commit yet."""
    unreadable: list[tuple[str, str]]
    """Folders that git could not open, each with the reason."""
    messages: list[str]
    """Other lines that git wrote to its error stream."""


def list_files(folder: str) -> Listing | None:
    """List a folder as `git ls-files --cached --others --exclude-standard` does.

    Return None if `work_tree_of` returns None. Raise InputError if git cannot list the folder.
    """
    if work_tree_of(folder) is None:
        return None
    # -t marks tracked files. The dict removes repetitions: a file with a merge conflict is listed several times.
    listed = _git(folder, "ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard")
    if listed is None or listed.returncode != 0:
        raise InputError(f"git cannot list the files: {_last_error_line(listed)}.")
    entries: dict[str, GitEntry] = {}
    for line in os.fsdecode(listed.stdout).split("\0"):
        if line:
            tag, path = line[0], line[2:]
            entries[path] = GitEntry(path, is_tracked=tag != "?")
    messages = os.fsdecode(listed.stderr).splitlines()
    unreadable = [match.groups() for line in messages if (match := UNREADABLE.fullmatch(line))]
    others = [line for line in messages if not UNREADABLE.fullmatch(line)]
    return Listing(list(entries.values()), _commit(folder), [(path, reason) for path, reason in unreadable], others)


def work_tree_of(folder: str) -> str | None:
    """Return the root of the work tree that contains the folder.

    Return None if there is no work tree, if git is not installed, if the work tree ignores the folder, or if `git
    rev-parse` fails for a repository above the folder. Raise InputError if the repository cannot be read or belongs to
    a different tree.
    """
    repository_folder = nearest_repository(folder)
    if repository_folder is None or shutil.which("git") is None:
        return None
    _require_own_repository(repository_folder)
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    if top.returncode != 0:
        if not os.path.lexists(os.path.join(folder, ".git")):
            return None
        raise InputError(f"git cannot read this repository: {_last_error_line(top)}.")
    work_tree = os.path.realpath(_output_text(top))
    if work_tree != repository_folder:
        raise InputError("git reports a different folder as the work tree.")
    # A folder that its work tree ignores (an environment, a download) is a plain folder: the user named it on purpose.
    ignored = _git(folder, "check-ignore", "--quiet", ".") if work_tree != folder else None
    return None if ignored is not None and ignored.returncode == 0 else work_tree


def nearest_repository(folder: str) -> str | None:
    """Return the nearest folder with a `.git`, from `folder` upwards. As in git, a `.git` folder must contain HEAD."""
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
    """Raise InputError if the repository belongs to a different tree, or contains a file that would block git."""
    pointer = Path(top, ".git")
    try:
        kind = stat.S_IFMT(pointer.lstat().st_mode)
        if kind == stat.S_IFREG:
            repository = Path(os.path.realpath(os.path.join(top, _read_git_file(pointer))))
        else:
            repository = Path(os.path.realpath(pointer))
        common_folder = _common_folder(repository)
        for folder in {repository, common_folder}:
            _require_plain_files(folder, Path(top))
    except OSError as error:
        name = os.path.basename(error.filename or "") or ".git"
        raise InputError(f"git cannot read this repository: {name}: {error.strerror or error}.") from None
    except ValueError:
        raise InputError("git cannot read this repository: its .git file has no valid 'gitdir:' line.") from None
    if kind == stat.S_IFDIR:
        is_own = common_folder == repository
    else:
        is_own = _is_linked_tree(repository, common_folder, pointer) or _is_submodule(repository, common_folder, top)
    if not is_own:
        raise InputError("the .git of this folder leads to the repository of a different folder.")


def _read_git_file(pointer: Path) -> str:
    """Return the path in the `gitdir:` line of a .git file."""
    content = _read_small_file(pointer)
    if not content.startswith(b"gitdir: ") or b"\0" in content:
        raise ValueError
    return os.fsdecode(content.removeprefix(b"gitdir: ").rstrip(b"\r\n"))


def _read_small_file(path: Path, max_bytes: int = MAX_POINTER_BYTES) -> bytes:
    """Read a small file of a repository. Raise OSError if the file is larger than `max_bytes`."""
    with open_plain(path) as stream:
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(0, f"larger than {max_bytes:,} bytes", str(path))
    return content


def _common_folder(repository: Path) -> Path:
    """Return the folder that linked work trees share, or the repository itself if it has no `commondir`."""
    path = repository / "commondir"
    if not os.path.lexists(path):
        return repository
    return Path(os.path.realpath(repository / os.fsdecode(_read_small_file(path).rstrip(b"\r\n"))))


def _is_linked_tree(repository: Path, common_folder: Path, pointer: Path) -> bool:
    """Return True for a linked work tree (`git worktree add`): `gitdir` in its repository points back to the tree."""
    try:
        target = os.fsdecode(_read_small_file(repository / "gitdir").rstrip(b"\r\n"))
    except OSError:
        return False
    leads_back = os.path.realpath(repository / target) == os.path.realpath(pointer.parent) + "/.git"
    return leads_back and repository.parent == common_folder / "worktrees"


def _is_submodule(repository: Path, common_folder: Path, top: str) -> bool:
    """Return True if `core.worktree` in the configuration of the repository points back to the tree.

    A sparse checkout moves this setting from `config` to `config.worktree`.
    """
    if common_folder != repository:
        return False
    results = (
        _git(top, "config", "--file", str(repository / name), "core.worktree") for name in ("config", "config.worktree")
    )
    worktrees = [_output_text(result) for result in results if result is not None and _output_text(result)]
    return any(os.path.realpath(repository / path) == top for path in worktrees)


def _require_plain_files(repository: Path, top: Path) -> None:
    """Raise OSError if a file that git opens is not a regular file, or if the index is a link."""
    for name in FILES_GIT_OPENS:
        if os.path.lexists(repository / name):
            require_plain(repository / name)
    for path in (path for pattern in INDEX_FILES for path in repository.glob(pattern)):
        if path.is_symlink():
            raise OSError(0, "the index must not be a link", str(path))
        require_plain(path)
    for path in _branch_files(repository):
        require_plain(path)
    pending = {repository / "config", repository / "config.worktree"}
    seen: set[Path] = set()  # configuration files can include each other
    for _ in range(MAX_INCLUDES):
        seen |= pending
        pending = {path for config in sorted(pending) for path in _included_files(config, top)} - seen


def _branch_files(repository: Path) -> Iterator[Path]:
    """Yield the file of each ref that HEAD leads to. A ref without a file is in packed-refs."""
    name = "HEAD"
    for _ in range(MAX_INCLUDES):
        path = repository / name
        if not path.is_file():
            return
        content = _read_small_file(path)
        if not content.startswith(b"ref:") or b"\0" in content:
            return
        name = os.fsdecode(content.removeprefix(b"ref:").strip())
        if os.path.lexists(repository / name) and not (repository / name).is_dir():
            yield repository / name


def _included_files(config: Path, top: Path) -> Iterator[Path]:
    """Yield the files that a configuration file includes.

    Raise OSError if a value in the file names a FIFO or another special file, because git may open it.
    """
    if not config.is_file():
        return
    for key, value in CONFIG_VALUE.findall(_read_small_file(config, MAX_CONFIG_BYTES)):
        name = os.path.expanduser(os.fsdecode(value.strip().replace(b"\0", b"")))
        for path in {config.parent / name, top / name}:
            if os.path.exists(path) and not path.is_dir() and str(path) != os.devnull:
                require_plain(path)
                if key.lower() == b"path":
                    yield path


def _commit(folder: str) -> str | None:
    result = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    return _output_text(result) if result is not None and result.returncode == 0 else None


def _git(folder: str, *arguments: str) -> subprocess.CompletedProcess[bytes] | None:
    """Run git in a folder. Return None if git is not installed."""
    # GIT_DIR and similar variables would select a different repository. Git sets them when it runs a hook.
    inherited_variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = subprocess.Popen(
            ["git", *HARDENED, *arguments],  # noqa: S607 - git from PATH
            cwd=folder,
            env=inherited_variables | ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot start git: {error.strerror}.") from None
    with process:
        try:
            output, errors = _communicate(process, folder)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _communicate(process: subprocess.Popen[bytes], folder: str) -> tuple[bytes, bytes]:
    """Return the output and the error output of git. If git takes long, unblock the FIFOs that it may be reading."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    fifos: list[str] | None = None
    while time.monotonic() < deadline:
        try:
            return process.communicate(timeout=SECONDS_UNTIL_FIFO_SEARCH)
        except subprocess.TimeoutExpired:
            if fifos is None:
                search_started_at = time.monotonic()
                fifos = list(_fifos(folder))
                deadline += time.monotonic() - search_started_at  # the timeout of git does not include the search
            for fifo in fifos:
                _unblock_reader(fifo)
    raise InputError(f"git did not finish within {TIMEOUT_SECONDS} s.")


def _fifos(folder: str) -> Iterator[str]:
    """Yield the FIFOs below a folder that git may open: those named in WORK_TREE_FILES, and all inside a `.git`."""
    for parent, _, names in os.walk(folder):
        is_in_repository = ".git" in parent[len(folder) :].split(os.sep)
        for name in names:
            path = os.path.join(parent, name)
            if (is_in_repository or name in WORK_TREE_FILES) and _is_fifo(path):
                yield path


def _is_fifo(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except OSError:  # the file may be a lock that git has deleted
        return False


def _unblock_reader(fifo: str) -> None:
    """Send an end of file to a process that is waiting to read the FIFO. Git then reads the FIFO as an empty file."""
    with suppress(OSError):  # no process is waiting
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))


def _output_text(result: subprocess.CompletedProcess[bytes]) -> str:
    return os.fsdecode(result.stdout).removesuffix("\n")


def _last_error_line(result: subprocess.CompletedProcess[bytes] | None) -> str:
    lines = os.fsdecode(result.stderr).strip().splitlines() if result is not None else []
    return lines[-1].removeprefix("fatal: ") if lines else "git gave no reason"
