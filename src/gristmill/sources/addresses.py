"""Parse source addresses, and resolve local paths. An address names a local path, a git repository or remote files.

    src, data/train.parquet                                        LOCAL
    https://github.com/org/name, git@host:org/name.git#v1.2        GIT, with an optional branch, tag or commit after `#`
    s3://bucket/data/*.parquet, hf://datasets/org/name/, https://host/rows.jsonl.zst        REMOTE

Credentials in an address must not be printed or stored, so messages, rows and the manifest use `without_credentials`.
"""

import base64
import os
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from gristmill.core.errors import InputError
from gristmill.core.names import SCHEME, SCP_ADDRESS, path_text

USER_INFO = re.compile(r"(?<=://)[^/?#]*@")
# A login whose password contains an unencoded `/`, `?` or `#`. The text between `:` and that character is not a number,
# so it cannot be a port.
UNENCODED_USER_INFO = re.compile(r"(?<=://)[^/?#@:]*:(?!\d*[/?#])[^@/?#]*[/?#].*@", re.DOTALL)
ALWAYS_GIT = frozenset({"ssh", "git"})
GIT_TRANSPORTS = frozenset({"https", "http", "ssh", "git", "file"})
"""The only transports that git may use. With `ext::`, git would run a command."""
FORGES = frozenset({"github.com", "gitlab.com", "bitbucket.org"})
NAME_PARTS = 2
"""Number of parts in `org/name`."""
REF = re.compile(r"\w[\w./+@-]*")
GLOB = re.compile(r"[*?\[]")

TABLE_SUFFIXES = (".parquet", ".jsonl", ".ndjson")
COMPRESSION_SUFFIXES = (".gz", ".zst")


class Kind(StrEnum):
    """Kind of a source address."""

    LOCAL = "local"
    GIT = "git"
    REMOTE = "remote"


class GitAddress(NamedTuple):
    """Parts of the address of a git repository."""

    url: str
    """URL for git, without credentials."""
    transport: str
    ref: str | None
    """A branch, tag or commit. None for the default branch."""
    authorization: str | None
    """HTTP header with the credentials. It is passed to git only in the environment."""

    @property
    def name(self) -> str:
        """Name of the repository."""
        return last_part(self.url, "repository").removesuffix(".git") or "repository"


def kind_of(address: str) -> Kind:
    """Return the kind of a source address."""
    scheme = scheme_of(address)
    if scheme is None:
        return Kind.GIT if SCP_ADDRESS.fullmatch(address) else Kind.LOCAL
    is_git = scheme in ALWAYS_GIT or scheme.startswith("git+") or _is_repository_url(scheme, address)
    return Kind.GIT if is_git else Kind.REMOTE


def scheme_of(address: str) -> str | None:
    """Return the scheme of an address: `s3://bucket/x` -> `s3`. Return None for a path."""
    match = SCHEME.match(address)
    return match[1].lower() if match else None


def git_address(address: str) -> GitAddress:
    """Parse the address of a git repository, such as `git+https://me:token@host/name.git#v1`.

    Raise InputError if the address is invalid or its transport is not allowed.
    """
    safe_address = without_credentials(address)
    if UNENCODED_USER_INFO.search(address):
        raise InputError(
            f"the password in {safe_address!r} must be percent-encoded: %2F for '/', %3F for '?', %23 for '#'."
        )
    url, _, ref = address.partition("#")
    if ref and (not REF.fullmatch(ref) or ".." in ref):
        raise InputError(f"{safe_address!r} must have a valid branch, tag or commit after the '#', such as '#v1.2'.")
    scheme = scheme_of(url)
    if scheme is None:
        return GitAddress(url, "ssh", ref or None, None)
    url = url[len("git+") :] if scheme.startswith("git+") else url
    transport = scheme.removeprefix("git+")
    if transport not in GIT_TRANSPORTS:
        raise InputError(
            f"git may not use {transport!r}, the transport of {safe_address!r}. Use https, ssh, git or file."
        )
    parts = _split(url)
    if parts is None or (parts.hostname or "").startswith("-") or not parts.path.strip("/"):
        raise InputError(f"{safe_address!r} is not the address of a repository. Use https://HOST/ORG/NAME.")
    if transport not in {"https", "http"}:
        return GitAddress(without_credentials(url), transport, ref or None, None)
    authorization = None
    if "@" in parts.netloc:
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        authorization = f"Authorization: Basic {base64.b64encode(login.encode()).decode()}"
    return GitAddress(USER_INFO.sub("", url).partition("?")[0], transport, ref or None, authorization)


def without_credentials(address: str) -> str:
    """Remove credentials from an address: `https://me:token@host/x?signature=1` -> `https://host/x`.

    The user name of an ssh address is not secret and is kept.
    """
    scheme = scheme_of(address)
    if scheme is None:
        return address
    if scheme.removeprefix("git+") == "ssh":
        return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1@", address)
    address = USER_INFO.sub("", UNENCODED_USER_INFO.sub("", address))
    if scheme.removeprefix("git+") in {"http", "https"}:
        address = re.sub(r"\?[^#]*", "", address)
    return address


def is_glob(address: str) -> bool:
    """Return True if the address contains a wildcard."""
    return GLOB.search(address) is not None


def fixed_part(path: str) -> str:
    """Return the folder before the first wildcard, or the path itself if it has no wildcard."""
    wildcard = GLOB.search(path)
    return path[: wildcard.start()].rpartition("/")[0] if wildcard else path


def is_table_name(name: str) -> bool:
    """Return True for the name of a Parquet file, or of a JSONL file that may be compressed."""
    return table_stem(name) != name


def table_stem(name: str) -> str:
    """Remove the suffixes of a table: `train-00.jsonl.zst` -> `train-00`. Other names are returned unchanged."""
    lowered = name.lower()
    compression = next((suffix for suffix in COMPRESSION_SUFFIXES if lowered.endswith(suffix)), "")
    plain = lowered.removesuffix(compression)
    suffix = next((suffix for suffix in TABLE_SUFFIXES if plain.endswith(suffix)), "")
    if not suffix or (compression and suffix == ".parquet"):
        return name
    return name[: -len(compression + suffix)]


def last_part(address: str, default: str) -> str:
    """Return the last part of an address before any wildcard: `s3://bucket/code/*.py` -> `code`.

    Return `default` if that part is empty, `.` or `..`.
    """
    path = fixed_part(SCHEME.sub("", address, count=1))
    name = re.split(r"[/:]", path.rstrip("/"))[-1]
    return path_text(name) if name not in {"", ".", ".."} else default


def _is_repository_url(scheme: str, address: str) -> bool:
    if scheme not in {"https", "http", "file"}:
        return False
    parts = _split(address)
    if parts is None:
        return False
    path = parts.path.rstrip("/")
    if path.endswith(".git"):
        return True
    host = (parts.hostname or "").removeprefix("www.") if scheme != "file" else ""
    folders = path.strip("/").split("/")
    if host not in FORGES or is_table_name(path):
        return False
    if host == "gitlab.com":  # groups can be nested, and `/-/` is only in the paths of pages about a repository
        return len(folders) >= NAME_PARTS and "-" not in folders
    return len(folders) == NAME_PARTS


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:  # `https://[::1/x`
        return None


# Resolve local paths to folders and files, and give each source a name for the column `repo`.


class Source(NamedTuple):
    """A local folder, or single files in a folder."""

    repo: str
    """Value of the column `repo` in the rows."""
    root: str
    """Absolute path of the folder, with symbolic links resolved."""
    only_files: tuple[str, ...] | None
    """Names of the single files, or None for the complete folder."""
    origin: str
    """Address that the user gave, without credentials. For several files, the address of the first."""
    is_download: bool = False
    """True for downloaded files. They are in no git repository, even if the download folder is inside one."""


def as_sources(sources: Sequence[str] | Sequence[Source]) -> list[Source]:
    """Resolve local paths to sources. A Source is returned unchanged."""
    names = [source for source in sources if isinstance(source, str)]
    return [*(source for source in sources if isinstance(source, Source)), *resolve_sources(names)]


def resolve_sources(names: Sequence[str]) -> list[Source]:
    """Resolve local paths to sources with unique names. Single files in the same folder form one source.

    Raise InputError if a path does not exist or is given twice.
    """
    complete_folders: list[str] = []
    origins: dict[str, str] = {}
    single_files: dict[str, list[str]] = {}
    for name in names:
        path = os.path.realpath(os.path.expanduser(name))
        folder, file = os.path.split(path)
        if not name or not os.path.lexists(path):
            raise InputError(f"source {name!r} does not exist. Check the path.")
        if path in complete_folders or file in single_files.get(folder, ()):
            raise InputError(f"the source {name!r} is given twice. Remove one.")
        if os.path.isdir(path):
            complete_folders.append(path)
            origins[path] = name
        else:
            origins.setdefault(folder, name)
            single_files.setdefault(folder, []).append(file)
    found = [(root, None) for root in complete_folders] + [(root, tuple(only)) for root, only in single_files.items()]
    return with_unique_names(
        [Source(path_text(os.path.basename(root)) or "root", root, only, origins[root]) for root, only in found]
    )


def with_unique_names(sources: Sequence[Source]) -> list[Source]:
    """Make the names of the sources unique: a second source called `name` becomes `name~2`."""
    unique_sources: list[Source] = []
    used_names: set[str] = set()
    for source in sources:
        unique_sources.append(source._replace(repo=unique_name(source.repo, used_names)))
        used_names.add(unique_sources[-1].repo)
    return unique_sources


def unique_name(name: str, used_names: set[str]) -> str:
    """Return `name` if it is unused, or else the first unused name among `name~2`, `name~3` and so on."""
    candidates = (name if number == 1 else f"{name}~{number}" for number in range(1, len(used_names) + 2))
    return next(candidate for candidate in candidates if candidate not in used_names)
