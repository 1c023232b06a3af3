"""A source word -> its kind: a path here, a git repository, or files behind an fsspec address. Nothing is opened.

    src, data/train.parquet                                        LOCAL
    https://github.com/org/name, git@host:org/name.git#v1.2        GIT: `#` and a branch, tag or commit at the end
    s3://bucket/data/*.parquet, hf://datasets/org/name/, https://host/rows.jsonl.zst        REMOTE

What an address says of its user is never shown: `without_credentials` is the form for messages, rows and the manifest.
"""

import base64
import os
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from gristmill.core.errors import InputError
from gristmill.core.names import SCHEME, SCP_FORM, path_text

USER_INFO = re.compile(r"(?<=://)[^/?#]*@")
# A password with a bare `/`, `?` or `#` in it: what stands before the slash looks like a port, and is none.
TORN_USER_INFO = re.compile(r"(?<=://)[^/?#@:]*:(?!\d*[/?#])[^@/?#]*[/?#].*@", re.DOTALL)
ALWAYS_GIT = frozenset({"ssh", "git"})
GIT_TRANSPORTS = frozenset({"https", "http", "ssh", "git", "file"})
"""All that git is ever allowed to speak: `ext::` would run a command."""
FORGES = frozenset({"github.com", "gitlab.com", "bitbucket.org"})
NAME_PARTS = 2
"""org/name."""
REF = re.compile(r"\w[\w./+@-]*")
GLOB = re.compile(r"[*?\[]")

TABLE_SUFFIXES = (".parquet", ".jsonl", ".ndjson")
PACKED_SUFFIXES = (".gz", ".zst")


class Kind(StrEnum):
    LOCAL = "local"
    GIT = "git"
    REMOTE = "remote"


class GitAddress(NamedTuple):
    url: str
    """As git gets it: without credentials."""
    transport: str
    ref: str | None
    """A branch, tag or commit; None for the repository's own default."""
    authorization: str | None
    """The value of an HTTP header. For git's environment only."""

    @property
    def name(self) -> str:
        return last_part(self.url, "repository").removesuffix(".git") or "repository"


def kind_of(word: str) -> Kind:
    scheme = scheme_of(word)
    if scheme is None:
        return Kind.GIT if SCP_FORM.fullmatch(word) else Kind.LOCAL
    is_git = scheme in ALWAYS_GIT or scheme.startswith("git+") or _names_repository(scheme, word)
    return Kind.GIT if is_git else Kind.REMOTE


def scheme_of(word: str) -> str | None:
    """`s3://bucket/x` -> `s3`; None for what is no address."""
    match = SCHEME.match(word)
    return match[1].lower() if match else None


def git_address(word: str) -> GitAddress:
    """`git+https://me:token@host/name.git#v1` -> its parts."""
    shown = without_credentials(word)
    if TORN_USER_INFO.search(word):
        raise InputError(f"the password in the address of {shown!r} must be percent-encoded: %2F for '/', %23 for '#'.")
    url, _, ref = word.partition("#")
    if ref and (not REF.fullmatch(ref) or ".." in ref):
        raise InputError(f"{shown!r} names no branch, tag or commit after its '#'.")
    scheme = scheme_of(url)
    if scheme is None:
        return GitAddress(url, "ssh", ref or None, None)
    url = url[len("git+") :] if scheme.startswith("git+") else url
    transport = scheme.removeprefix("git+")
    if transport not in GIT_TRANSPORTS:
        raise InputError(f"git is not asked for {shown!r}: of {transport!r} and such, only https, ssh, git and file.")
    parts = _split(url)
    if parts is None or (parts.hostname or "").startswith("-") or not parts.path.strip("/"):
        raise InputError(f"{shown!r} names no repository. Try https://HOST/ORG/NAME.")
    if transport not in {"https", "http"}:
        return GitAddress(without_credentials(url), transport, ref or None, None)
    authorization = None
    if "@" in parts.netloc:
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        authorization = f"Authorization: Basic {base64.b64encode(login.encode()).decode()}"
    return GitAddress(USER_INFO.sub("", url).partition("?")[0], transport, ref or None, authorization)


def without_credentials(word: str) -> str:
    """`https://me:token@host/x?signature=1` -> `https://host/x`; an ssh user is no secret, and stays."""
    scheme = scheme_of(word)
    if scheme is None:
        return word
    if scheme.removeprefix("git+") == "ssh":
        return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1@", word)
    word = USER_INFO.sub("", TORN_USER_INFO.sub("", word))
    if scheme.removeprefix("git+") in {"http", "https"}:
        word = re.sub(r"\?[^#]*", "", word)
    return word


def is_glob(address: str) -> bool:
    return GLOB.search(address) is not None


def fixed_part(path: str) -> str:
    """The folder above any wildcard; a path without one is itself."""
    wild = GLOB.search(path)
    return path[: wild.start()].rpartition("/")[0] if wild else path


def is_table_name(name: str) -> bool:
    return table_stem(name) != name


def table_stem(name: str) -> str:
    """`train-00.jsonl.zst` -> `train-00`; a name that is no table's is itself."""
    lowered = name.lower()
    packed = next((suffix for suffix in PACKED_SUFFIXES if lowered.endswith(suffix)), "")
    plain = lowered.removesuffix(packed)
    suffix = next((suffix for suffix in TABLE_SUFFIXES if plain.endswith(suffix)), "")
    if not suffix or (packed and suffix == ".parquet"):
        return name
    return name[: -len(packed + suffix)]


def last_part(address: str, otherwise: str) -> str:
    """What a source goes by: the last part before any wildcard. `s3://bucket/code/*.py` -> `code`"""
    path = fixed_part(SCHEME.sub("", address, count=1))
    name = re.split(r"[/:]", path.rstrip("/"))[-1]
    return path_text(name) if name not in {"", ".", ".."} else otherwise


def _names_repository(scheme: str, word: str) -> bool:
    if scheme not in {"https", "http", "file"}:
        return False
    parts = _split(word)
    if parts is None:
        return False
    path = parts.path.rstrip("/")
    if path.endswith(".git"):
        return True
    host = (parts.hostname or "").removeprefix("www.") if scheme != "file" else ""
    folders = path.strip("/").split("/")
    if host not in FORGES or is_table_name(path):
        return False
    if host == "gitlab.com":  # groups may hold groups; `-` begins what is a page about a repository
        return len(folders) >= NAME_PARTS and "-" not in folders
    return len(folders) == NAME_PARTS


def _split(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:  # `https://[::1/x`
        return None


# Words on the command line -> the folders and files they mean, and the name each goes by in the rows.


class Source(NamedTuple):
    repo: str
    root: str
    """Absolute, without links."""
    only: tuple[str, ...] | None
    """The files named one by one, or None for the whole folder."""
    origin: str
    """The word that named it, without credentials; of several files, the first one's."""
    is_download: bool = False
    """Files brought here one by one: a repository around the folder they lie in is not theirs."""


def resolved(sources: Sequence[str] | Sequence[Source]) -> list[Source]:
    """Words of the local kind are resolved; what is a Source already stays as it is."""
    names = [source for source in sources if isinstance(source, str)]
    return [*(source for source in sources if isinstance(source, Source)), *resolve_sources(names)]


def resolve_sources(names: Sequence[str]) -> list[Source]:
    """Folders as they are, single files grouped by their folder; two folders of one name become `name` and `name~2`."""
    whole: list[str] = []
    origins: dict[str, str] = {}
    single: dict[str, list[str]] = {}
    for name in names:
        path = os.path.realpath(os.path.expanduser(name))
        folder, file = os.path.split(path)
        if not name or not os.path.lexists(path):
            raise InputError(f"there is no source {name!r}. Check the path.")
        if path in whole or file in single.get(folder, ()):
            raise InputError(f"the source {name!r} is named twice.")
        if os.path.isdir(path):
            whole.append(path)
            origins[path] = name
        else:
            origins.setdefault(folder, name)
            single.setdefault(folder, []).append(file)
    found = [(root, None) for root in whole] + [(root, tuple(only)) for root, only in single.items()]
    return with_own_names(
        [Source(path_text(os.path.basename(root)) or "root", root, only, origins[root]) for root, only in found]
    )


def with_own_names(sources: Sequence[Source]) -> list[Source]:
    """The second of a name becomes `name~2`."""
    named: list[Source] = []
    taken: set[str] = set()
    for source in sources:
        named.append(source._replace(repo=free_name(source.repo, taken)))
        taken.add(named[-1].repo)
    return named


def free_name(name: str, taken: set[str]) -> str:
    candidates = (name if number == 1 else f"{name}~{number}" for number in range(1, len(taken) + 2))
    return next(candidate for candidate in candidates if candidate not in taken)
