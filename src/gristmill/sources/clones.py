"""A git URL -> a work tree in the cache, at its newest commit and without history.

    cache/clones/<key of URL and ref>/          complete, since it takes this name by rename
    cache/clones/<key of URL and ref>.part/     under way, or left behind: begun again

Nothing that a repository brings along may run, and nothing but the one transport of its URL is spoken. Credentials
reach git by its environment alone: no command line, configuration or message holds them.
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
SECONDS_BETWEEN = (1.0, 3.0)
SECONDS_TO_FETCH = 3600.0
SECONDS_WITHOUT_DATA = 60
# What a user may have set up for git and is no repository's: certificates, an ssh of their own, their configuration.
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
    *("-c", f"http.lowSpeedTime={SECONDS_WITHOUT_DATA}"),
)
ENVIRONMENT = {
    "GIT_ASKPASS": "",  # nobody is asked: neither here
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
NOT_ALLOWED = re.compile(
    r"Authentication failed|could not read (Username|Password)|Permission denied|error: 40[13]|Access denied"
)
NOT_KNOWN = re.compile(r"Host key verification failed|host key is (not )?known", re.IGNORECASE)
NOT_THERE = re.compile(
    r"not found|does not exist|not appear to be a git repository|no such (repository|project)|not exported"
    r"|error: 404|[Pp]roject you were looking for",
    re.IGNORECASE,
)
NO_SUCH_REF = re.compile(r"couldn't find remote ref|not our ref|Server does not allow request|no such remote ref")
NO_NETWORK = re.compile(
    r"Could not resolve|Name or service not known|Temporary failure|Connection (refused|reset|timed out|closed)"
    r"|unable to connect|[Nn]o route to host|Network is unreachable|timed out|Timeout|early EOF|RPC failed|hung up"
    r"|error: 5\d\d|SSL|Empty reply|transfer closed|Operation too slow|unable to access",
)


class _GitError(Exception):
    """What git wrote to its error stream."""


def clone(url: str, cache: Path) -> Path:
    """`https://host/org/name.git#ref` -> the folder of its work tree, brought up to date."""
    address = git_address(url)
    if shutil.which("git") is None:
        raise InputError(f"git is not installed, and {_shown(address)} needs it. Install it, or name a local folder.")
    folder = cache / "clones" / _key(address)
    if _is_complete(folder):
        try:
            _fetch_retrying(address, folder)
            _check_out(address, folder)
        except _GitError:  # a lock that a killed git left, a file that was altered: of no use any more
            shutil.rmtree(folder)
        else:
            return folder
    beside = folder.with_name(folder.name + ".part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        _git(address, beside, "init", "--quiet", "--template=", "--initial-branch=none")
        _fetch_retrying(address, beside)
        _check_out(address, beside)
    except _GitError as failure:
        raise InputError(f"cannot clone {_shown(address)}: {_last_line(failure)}.") from None
    if os.path.lexists(folder):
        shutil.rmtree(folder)
    os.rename(beside, folder)
    return folder


def _key(address: GitAddress) -> str:
    return hashlib.sha256(f"{address.url}#{address.ref or ''}".encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _is_complete(folder: Path) -> bool:
    return (folder / ".git/HEAD").is_file() and not folder.is_symlink()


def _fetch_retrying(address: GitAddress, folder: Path) -> None:
    """Faults of the network are tried again, then told; others that have a name are told at once."""
    for attempt in range(ATTEMPTS):
        try:
            # The URL is named each time and the configuration has no remote, so there is none to alter.
            wanted = ("--", address.url, address.ref or "HEAD")
            _git(address, folder, "fetch", "--quiet", "--depth=1", "--no-tags", "--force", "--update-shallow", *wanted)
        except _GitError as failure:
            text = str(failure)
            _refuse_for_good(address, text)
            if not NO_NETWORK.search(text):
                raise
            if attempt == ATTEMPTS - 1:
                raise InputError(
                    f"cannot reach {_shown(address)} in {ATTEMPTS} attempts: {_last_line(failure)}. "
                    "Check the address and the network, then try again."
                ) from None
            time.sleep(SECONDS_BETWEEN[min(attempt, len(SECONDS_BETWEEN) - 1)])
        else:
            return


def _refuse_for_good(address: GitAddress, text: str) -> None:
    """What another attempt would not change."""
    shown = _shown(address)
    if NO_SUCH_REF.search(text):
        lack = f"no branch, tag or commit {address.ref!r}" if address.ref else "no commit yet"
        raise InputError(f"{shown} has {lack}. Name another after a '#', or another repository.")
    if NOT_KNOWN.search(text):
        raise InputError(f"ssh does not know the host of {shown}. Connect to it once with ssh, then try again.")
    if NOT_ALLOWED.search(text):
        what = "refused the credentials for" if address.authorization else "asked for credentials, or there is no"
        raise InputError(
            f"the server {what} {shown}. Check the address; log in with git or an ssh key, or write https://USER:TOKEN@…"
        )
    if NOT_THERE.search(text):
        raise InputError(f"there is no git repository at {shown}. Check the address; a private one needs credentials.")


def _check_out(address: GitAddress, folder: Path) -> None:
    _git(address, folder, "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD")
    _git(address, folder, "clean", "--quiet", "-ffdx")


def _git(address: GitAddress, folder: Path, *arguments: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    kept = {name: value for name, value in os.environ.items() if KEPT_VARIABLES.fullmatch(name)}
    secret = {}
    if address.authorization is not None:
        host = "/".join(address.url.split("/", 3)[:3])
        secret = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{host}/.extraHeader",
            "GIT_CONFIG_VALUE_0": address.authorization,
        }
    # A repository around the cache is none of ours: git must not fall back on it where ours is broken.
    ours = {"GIT_CEILING_DIRECTORIES": str(folder.parent), "GIT_ALLOW_PROTOCOL": address.transport}
    process = subprocess.Popen(
        ["git", *HARDENED, *OPTIONS, *arguments],  # noqa: S607 - the git that is on the path
        cwd=folder,
        env=inherited | kept | ENVIRONMENT | ours | secret,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # no terminal on which ssh could ask, and one group to end
    )
    try:
        _, complaints = process.communicate(timeout=SECONDS_TO_FETCH)
    except subprocess.TimeoutExpired:
        raise _GitError(f"git timed out after {SECONDS_TO_FETCH:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode != 0:
        raise _GitError(os.fsdecode(complaints))


def _shown(address: GitAddress) -> str:
    return repr(printable(address.url + (f"#{address.ref}" if address.ref else "")))


def _last_line(failure: _GitError) -> str:
    """The last that says something, without what every failure ends with."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))] or lines
    return printable(telling[-1].partition(": ")[2].rstrip(".") or telling[-1]) if telling else "git gave no reason"
