"""Clone a git repository into the cache: the work tree of one commit, without history.

    cache/clones/<key of URL and ref>/          a complete clone
    cache/clones/<key of URL and ref>.part/     an unfinished clone, which is renamed when it is complete

No code from the repository may run, and git may use only the transport of the URL. Credentials are passed to git only
in environment variables, so no command line, configuration file or message contains them.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from gristmill.core.errors import InputError
from gristmill.core.names import printable
from gristmill.sources.addresses import GitAddress, git_address
from gristmill.sources.git import HARDENED

ATTEMPTS = 3
RETRY_DELAY_SECONDS = (1.0, 3.0)
FETCH_TIMEOUT_SECONDS = 3600.0
MAX_STALL_SECONDS = 60
# The only GIT_* variables of the user that are passed to git: certificates, the ssh command, proxies and configuration
# files.
KEPT_VARIABLES = re.compile(r"GIT_(SSH|SSH_COMMAND|SSL_\w+|PROXY_\w+|HTTP_\w+|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM))")
OPTIONS = (
    *("-c", "submodule.recurse=false"),
    *("-c", "fetch.recurseSubmodules=false"),
    *("-c", "core.protectHFS=true"),
    *("-c", "core.protectNTFS=true"),
    *("-c", "core.autocrlf=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "advice.detachedHead=false"),
    *("-c", "http.lowSpeedLimit=1000"),
    *("-c", f"http.lowSpeedTime={MAX_STALL_SECONDS}"),
)
ENVIRONMENT = {
    "GIT_ASKPASS": "",  # never prompt for credentials
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
AUTHENTICATION_FAILED = re.compile(
    r"Authentication failed|could not read (Username|Password)|Permission denied|error: 40[13]|Access denied"
)
UNKNOWN_HOST_KEY = re.compile(r"Host key verification failed|host key is (not )?known", re.IGNORECASE)
REPOSITORY_NOT_FOUND = re.compile(
    r"not found|does not exist|not appear to be a git repository|no such (repository|project)|not exported"
    r"|error: 404|[Pp]roject you were looking for",
    re.IGNORECASE,
)
REF_NOT_FOUND = re.compile(r"couldn't find remote ref|not our ref|Server does not allow request|no such remote ref")
NETWORK_ERROR = re.compile(
    r"Could not resolve|Name or service not known|Temporary failure|Connection (refused|reset|timed out|closed)"
    r"|unable to connect|[Nn]o route to host|Network is unreachable|timed out|Timeout|early EOF|RPC failed|hung up"
    r"|error: 5\d\d|SSL|Empty reply|transfer closed|Operation too slow|unable to access",
)


class _GitError(Exception):
    """A git command failed or timed out. The message is the error output of git, or states the timeout."""


def clone(url: str, cache: Path) -> Path:
    """Clone or update a repository, and return the folder of its work tree.

    `url` may end in a ref, as in `https://host/org/name.git#ref`. Raise InputError if the repository cannot be cloned.
    """
    address = git_address(url)
    if shutil.which("git") is None:
        raise InputError(f"git is not installed. Install it to clone {_quoted(address)}, or use a local folder.")
    folder = cache / "clones" / _key(address)
    if _is_complete(folder):
        try:
            _fetch_with_retries(address, folder)
            _check_out(address, folder)
        except _GitError:  # the clone is unusable, for example because git was killed and left a lock
            shutil.rmtree(folder)
        else:
            return folder
    part_folder = folder.with_name(folder.name + ".part")
    shutil.rmtree(part_folder, ignore_errors=True)
    part_folder.mkdir(parents=True)
    try:
        _git(address, part_folder, "init", "--quiet", "--template=", "--initial-branch=none")
        _fetch_with_retries(address, part_folder)
        _check_out(address, part_folder)
    except _GitError as failure:
        raise InputError(
            f"cannot clone {_quoted(address)}: {_last_error_line(failure)}. Try again, or use a local clone as the "
            "source."
        ) from None
    if os.path.lexists(folder):
        shutil.rmtree(folder)
    os.rename(part_folder, folder)
    return folder


def _key(address: GitAddress) -> str:
    return hashlib.sha256(f"{address.url}#{address.ref or ''}".encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _is_complete(folder: Path) -> bool:
    return (folder / ".git/HEAD").is_file() and not folder.is_symlink()


def _fetch_with_retries(address: GitAddress, folder: Path) -> None:
    """Fetch the ref, and retry after network errors.

    Raise InputError if all attempts fail, or at once if a retry cannot succeed. Raise _GitError for other errors.
    """
    for attempt in range(ATTEMPTS):
        try:
            # The URL is an argument, because a remote in the configuration of the clone could have been changed.
            remote = ("--", address.url, address.ref or "HEAD")
            _git(address, folder, "fetch", "--quiet", "--depth=1", "--no-tags", "--force", "--update-shallow", *remote)
        except _GitError as failure:
            text = str(failure)
            _raise_if_permanent(address, text)
            if not NETWORK_ERROR.search(text):
                raise
            if attempt == ATTEMPTS - 1:
                raise InputError(
                    f"cannot reach {_quoted(address)} in {ATTEMPTS} attempts: {_last_error_line(failure)}. "
                    "Check the address and the network, then try again."
                ) from None
            time.sleep(RETRY_DELAY_SECONDS[min(attempt, len(RETRY_DELAY_SECONDS) - 1)])
        else:
            return


def _raise_if_permanent(address: GitAddress, text: str) -> None:
    """Raise InputError if the error output shows that a retry cannot succeed."""
    quoted = _quoted(address)
    if REF_NOT_FOUND.search(text):
        if not address.ref:
            raise InputError(f"{quoted} has no commit yet. Remove it from the sources.")
        raise InputError(
            f"{quoted} has no branch, tag or commit {address.ref!r}. Use a branch, a tag or a full commit hash after "
            "the '#'."
        )
    if UNKNOWN_HOST_KEY.search(text):
        raise InputError(
            f"ssh cannot verify the host key of {quoted}. Connect to the host once with ssh, then try again."
        )
    if AUTHENTICATION_FAILED.search(text):
        problem = "refused the credentials for" if address.authorization else "requires credentials to access"
        raise InputError(
            f"the server {problem} {quoted}. Check the address. Set up an ssh key or a credential helper of git, or "
            "use https://USER:TOKEN@HOST/ORG/NAME."
        )
    if REPOSITORY_NOT_FOUND.search(text):
        raise InputError(
            f"no git repository found at {quoted}. Check the address. A private repository needs credentials."
        )


def _check_out(address: GitAddress, folder: Path) -> None:
    _git(address, folder, "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD")
    _git(address, folder, "clean", "--quiet", "-ffdx")


def _git(address: GitAddress, folder: Path, *arguments: str) -> None:
    inherited_variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    kept_variables = {name: value for name, value in os.environ.items() if KEPT_VARIABLES.fullmatch(name)}
    credentials = {}
    if address.authorization is not None:
        host = "/".join(address.url.split("/", 3)[:3])
        credentials = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{host}/.extraHeader",
            "GIT_CONFIG_VALUE_0": address.authorization,
        }
    # If the clone is broken, git must not search the folders above it for a repository.
    restrictions = {"GIT_CEILING_DIRECTORIES": str(folder.parent), "GIT_ALLOW_PROTOCOL": address.transport}
    process = subprocess.Popen(
        ["git", *HARDENED, *OPTIONS, *arguments],  # noqa: S607 - git from PATH
        cwd=folder,
        env=inherited_variables | kept_variables | ENVIRONMENT | restrictions | credentials,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # ssh gets no terminal for prompts, and all processes can be killed as one group
    )
    try:
        _, errors = process.communicate(timeout=FETCH_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise _GitError(f"git timed out after {FETCH_TIMEOUT_SECONDS:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != 0:
        raise _GitError(os.fsdecode(errors))


def _quoted(address: GitAddress) -> str:
    return repr(printable(address.url + (f"#{address.ref}" if address.ref else "")))


def _last_error_line(failure: _GitError) -> str:
    """Return the last line of the error output that gives a reason, without a prefix such as `fatal:`."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    reasons = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))] or lines
    return printable(reasons[-1].partition(": ")[2].rstrip(".") or reasons[-1]) if reasons else "git gave no reason"
