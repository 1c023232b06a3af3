"""Fetch sources of every kind, so that the scan finds local folders, files and unpacked tables.

    a local folder or file      is used in place
    a git URL                   cache/clones/    (see clones.py)
    a local or remote table     cache/tables/    (see table_cache.py)
    other remote files          cache/trees/     one folder per address and state of its files

All network access runs in tasks of `map_tasks`, so that this process starts no threads and can still fork. Sources are
not accessed over the network after this step.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from gristmill.config.config import Config
from gristmill.config.settings import ScanConfig
from gristmill.core.errors import InputError
from gristmill.core.layout import sync_folder, sync_tree
from gristmill.core.names import printable
from gristmill.core.progress import MapFunction
from gristmill.core.records import Drop, DropReason, SourceFile
from gristmill.sources.addresses import (
    Kind,
    Source,
    git_address,
    is_glob,
    is_table_name,
    kind_of,
    last_part,
    resolve_sources,
    unique_name,
    with_unique_names,
    without_credentials,
)
from gristmill.sources.clones import clone
from gristmill.sources.path_filter import PathFilter
from gristmill.sources.remote import RemoteFile, download, list_files
from gristmill.sources.table_cache import (
    Table,
    UnpackedRow,
    local_table,
    read_rows,
    remote_table,
    survey_table,
    unpack_tables,
)


class Fetched(NamedTuple):
    """Local sources and unpacked tables, all with unique repo names."""

    sources: list[Source]
    """Folders and single files."""
    tables: list[Table]


def fetch(names: Sequence[str], config: Config, cache: Path, map_tasks: MapFunction) -> Fetched:
    """Clone, download and unpack the sources.

    `cache` is a folder that only gristmill uses. Its contents are reused if they are still valid.
    """
    cache = Path(os.path.realpath(cache))
    cache.mkdir(parents=True, exist_ok=True)
    cache.chmod(0o700)  # the sources may be private
    addresses = {kind: [name for name in names if kind_of(name) is kind] for kind in Kind}
    _refuse_repeated((git_address(address)[:3], address) for address in addresses[Kind.GIT])
    tables, others = _local_tables(addresses[Kind.LOCAL], config, cache, map_tasks)
    sources = resolve_sources(others)
    fetched = _clone_all(addresses[Kind.GIT], cache, map_tasks)
    listings = list(map_tasks(list_files, addresses[Kind.REMOTE]))  # finished before the next `map_tasks` begins
    for address, files in zip(addresses[Kind.REMOTE], listings, strict=True):
        found = [file for file in files if is_table_name(file.name)]
        if found:
            tables += [remote_table(file, config, cache) for file in found]
        else:
            fetched.append(_download_tree(address, files, cache, map_tasks))
    _refuse_repeated((source.root, source.origin) for source in fetched)
    sources = with_unique_names([*sources, *sorted(fetched, key=lambda source: (source.repo, source.origin))])
    tables = _with_unique_table_names(tables, {source.repo for source in sources})
    unpack_tables(tables, map_tasks)
    return Fetched(sources, tables)


def scan_rows(
    tables: Sequence[Table], sources: Sequence[Source], config: ScanConfig
) -> tuple[list[SourceFile], list[Drop]]:
    """Return the usable rows of all tables as files, and all other rows as drops, both sorted by repo and path."""
    paths = PathFilter(config)
    files: list[SourceFile] = []
    drops: list[Drop] = []
    rows = [(table, location, row) for table in tables for location, part in read_rows(table) for row in part]
    names = _row_names([(table, row) for table, _, row in rows], {source.repo for source in sources})
    for (table, location, row), (repo, path) in zip(rows, names, strict=True):
        drop = partial(Drop, repo=repo, path=path, size=row.size)
        exclusion = paths.check_file(path, is_tracked=True, folders_checked=False)
        if row.defect is not None:
            detail = f"row {row.number} of {printable(table.repo)}: {printable(row.defect)}"
            drops.append(drop(reason=DropReason.BAD_ROW, detail=detail, size=None))
        elif exclusion is not None:
            drops.append(drop(reason=exclusion.reason, detail=exclusion.detail))
        else:
            file = SourceFile(
                repo=repo,
                path=path,
                location=location,
                size=row.size,
                offset=row.offset,
                license=row.license,
                may_be_translation=paths.may_be_translation(path),
            )
            files.append(file)
    files.sort(key=lambda file: (file.repo, file.path))
    drops.sort(key=lambda drop: (drop.repo, drop.path))
    return files, drops


def _refuse_repeated(sources: Iterable[tuple[object, str]]) -> None:
    """Raise InputError if a source is given twice. `sources` are pairs of an identity and an address."""
    seen: set[object] = set()
    for identity, address in sources:
        if identity in seen:
            raise InputError(f"the source {printable(without_credentials(address))!r} is given twice. Remove one.")
        seen.add(identity)


def _local_tables(
    addresses: Sequence[str], config: Config, cache: Path, map_tasks: MapFunction
) -> tuple[list[Table], list[str]]:
    """Return the local sources that are tables of texts, and the addresses of all other local sources."""
    candidates = {
        address: local_table(address, config, cache)
        for address in addresses
        if is_table_name(os.path.basename(address)) and os.path.isfile(os.path.expanduser(address))
    }
    surveys = dict(zip(candidates, map_tasks(survey_table, candidates.values()), strict=True))
    tables = {address: table for address, table in candidates.items() if surveys[address].columns.text is not None}
    _refuse_repeated((tables[address].location, address) for address in addresses if address in tables)
    return list(tables.values()), [address for address in addresses if address not in tables]


def _clone_all(addresses: Sequence[str], cache: Path, map_tasks: MapFunction) -> list[Source]:
    folders = map_tasks(partial(clone, cache=cache), addresses)
    return [
        Source(git_address(address).name, str(folder), None, without_credentials(address))
        for address, folder in zip(addresses, folders, strict=True)
    ]


class _Download(NamedTuple):
    file: RemoteFile
    target: str


def _download_tree(address: str, files: Sequence[RemoteFile], cache: Path, map_tasks: MapFunction) -> Source:
    """Download files into one folder. The folder gets its final name when all files are complete."""
    origin = without_credentials(address)
    state = [(without_credentials(file.address), file.name, file.size, file.stamp) for file in files]
    key = hashlib.sha256(msgspec.json.encode([origin, state])).hexdigest()[:32]
    root = cache / "trees" / key
    _refuse_unusable_names(files, origin)
    if not root.is_dir():
        part_folder = root.with_name(f"{root.name}.part")
        tasks = [_Download(file, str(part_folder / file.name)) for file in files]
        for _ in map_tasks(_download_if_missing, tasks):
            pass
        sync_tree(part_folder)
        os.rename(part_folder, root)
        sync_folder(root.parent)
    is_single_file = len(files) == 1 and not is_glob(address) and not address.endswith("/")
    repo = last_part(origin.rpartition("/")[0] if is_single_file else origin, "files")
    return Source(repo, str(root), (files[0].name,) if is_single_file else None, origin, is_download=True)


def _download_if_missing(task: _Download) -> None:
    if not os.path.isfile(task.target):
        download(task.file, Path(task.target))


def _refuse_unusable_names(files: Sequence[RemoteFile], origin: str) -> None:
    """Raise InputError for a remote name that cannot or must not be a local path.

    A key in remote storage can be any text. A key with `..` would be written outside the folder, a folder `.git` would
    be read as a repository, and a local `a` cannot be a file if `a/b` exists.
    """
    names = {file.name for file in files}
    for name in sorted(names):
        parts = name.split("/")
        folders = {"/".join(parts[:end]) for end in range(1, len(parts))}
        found = f"{printable(origin)!r} contains {printable(name)!r}"
        if ".git" in parts:
            raise InputError(f"{found}, part of a git repository. Use a local clone of the repository as the source.")
        if not {"", ".", ".."}.isdisjoint(parts) or "\0" in name or folders & names:
            raise InputError(f"{found}, which cannot be a local file. Rename it, or use an address that leaves it out.")


def _with_unique_table_names(tables: Sequence[Table], used_repos: set[str]) -> list[Table]:
    """Make the names of the tables unique: a second table called `name` becomes `name~2`.

    The result does not depend on the order in which the tables were given.
    """
    _refuse_repeated((table.remote.address, table.origin) for table in tables if table.remote is not None)
    unique_tables: list[Table] = []
    for table in sorted(tables, key=lambda table: (table.repo, table.origin)):
        unique_tables.append(
            table._replace(repo=unique_name(table.repo, {*used_repos, *(other.repo for other in unique_tables)}))
        )
    return unique_tables


def _row_names(rows: Sequence[tuple[Table, UnpackedRow]], used_repos: set[str]) -> list[tuple[str, str]]:
    """Return the repo and path of each row. Each `repo/path` is unique among all rows and files."""
    declared_names = [(row.repo or table.repo, row.path or f"rows/{row.number:08d}") for table, row in rows]
    owners = {repo.partition("/")[0] for repo, _ in declared_names}
    # The source `org` and the repo `org/name` of a row could both contain `org/name/x`. So the owner of a repo (`org`)
    # is renamed if it has the name of a source.
    unique_owners = {
        owner: unique_name(owner, used_repos | owners) if owner in used_repos else owner for owner in owners
    }
    unique_names = [
        (unique_owners[owner] + rest, path)
        for (owner, rest), path in ((_split_owner(repo), path) for repo, path in declared_names)
    ]
    all_names = {f"{repo}/{path}" for repo, path in unique_names}
    used_names: set[str] = set()
    counts: Counter[str] = Counter()
    names: list[tuple[str, str]] = []
    for repo, path in unique_names:
        full_name = name = f"{repo}/{path}"
        while name in used_names or (name != full_name and name in all_names):
            counts[full_name] += 1
            name = f"{repo}/{_add_number(path, counts[full_name] + 1)}"
        used_names.add(name)
        names.append((repo, name[len(repo) + 1 :]))
    return names


def _split_owner(repo: str) -> tuple[str, str]:
    """Split `org/name` into `org` and `/name`."""
    owner = repo.partition("/")[0]
    return owner, repo[len(owner) :]


def _add_number(path: str, number: int) -> str:
    """Add a number to a file name: `src/a.py` -> `src/a~2.py`."""
    folder, slash, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    return f"{folder}{slash}{stem}~{number}{dot}{suffix}" if stem else f"{folder}{slash}{name}~{number}"
