"""Source words of every kind -> what the scan reads: trees and files here, and tables unpacked into the cache.

    a folder or file           stays where it is
    a git URL                  cache/clones/    (intake.cloning)
    a table, here or remote    cache/tables/    (intake.unpacking)
    other remote files         cache/trees/     one folder per address and state

All that touches the network runs as tasks of the map that is handed in, so that this process starts no threads and can
still fork; whatever goes wrong there is over before the scan begins.
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
    free_name,
    git_address,
    is_glob,
    is_table_name,
    kind_of,
    last_part,
    resolve_sources,
    with_own_names,
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
    sources: list[Source]
    """Trees and single files, each under a name of its own."""
    tables: list[Table]
    """Unpacked; their names are no source's."""


def fetch(names: Sequence[str], config: Config, cache: Path, map_tasks: MapFunction) -> Fetched:
    """`cache`: a folder that is ours alone; what lies there from earlier is used again where it is still right."""
    cache = Path(os.path.realpath(cache))
    cache.mkdir(parents=True, exist_ok=True)
    cache.chmod(0o700)  # what was brought may be for its owner's eyes alone
    words = {kind: [name for name in names if kind_of(name) is kind] for kind in Kind}
    _refuse_twice((git_address(word)[:3], word) for word in words[Kind.GIT])
    tables, plain = _local_tables(words[Kind.LOCAL], config, cache, map_tasks)
    sources = resolve_sources(plain)
    fetched = _cloned(words[Kind.GIT], cache, map_tasks)
    listings = list(map_tasks(list_files, words[Kind.REMOTE]))  # all of them: a runner does one map at a time
    for word, files in zip(words[Kind.REMOTE], listings, strict=True):
        found = [file for file in files if is_table_name(file.name)]
        if found:
            tables += [remote_table(file, config, cache) for file in found]
        else:
            fetched.append(_tree(word, files, cache, map_tasks))
    _refuse_twice((source.root, source.origin) for source in fetched)
    sources = with_own_names([*sources, *sorted(fetched, key=lambda source: (source.repo, source.origin))])
    tables = _with_own_names(tables, {source.repo for source in sources})
    unpack_tables(tables, map_tasks)
    return Fetched(sources, tables)


def scan_rows(
    tables: Sequence[Table], sources: Sequence[Source], config: ScanConfig
) -> tuple[list[SourceFile], list[Drop]]:
    """The rows of all tables, in path order, as files; and those that are left out, as `intake.trees.scan` does it."""
    paths = PathFilter(config)
    files: list[SourceFile] = []
    drops: list[Drop] = []
    rows = [(table, location, row) for table in tables for location, part in read_rows(table) for row in part]
    names = _names_of([(table, row) for table, _, row in rows], {source.repo for source in sources})
    for (table, location, row), (repo, path) in zip(rows, names, strict=True):
        drop = partial(Drop, repo=repo, path=path, size=row.size)
        verdict = paths.judge_file(path, is_tracked=True, folders_judged=False)
        if row.defect is not None:
            detail = f"row {row.number} of {printable(table.repo)}: {printable(row.defect)}"
            drops.append(drop(reason=DropReason.BAD_ROW, detail=detail, size=None))
        elif verdict is not None:
            drops.append(drop(reason=verdict.reason, detail=verdict.detail))
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


def _refuse_twice(named: Iterable[tuple[object, str]]) -> None:
    """What each is, and the word for it."""
    seen: set[object] = set()
    for what, word in named:
        if what in seen:
            raise InputError(f"the source {printable(without_credentials(word))!r} is named twice.")
        seen.add(what)


def _local_tables(
    words: Sequence[str], config: Config, cache: Path, map_tasks: MapFunction
) -> tuple[list[Table], list[str]]:
    """The tables of texts among the words, and the other words."""
    maybe = {
        word: local_table(word, config, cache)
        for word in words
        if is_table_name(os.path.basename(word)) and os.path.isfile(os.path.expanduser(word))
    }
    surveys = dict(zip(maybe, map_tasks(survey_table, maybe.values()), strict=True))
    tables = {word: table for word, table in maybe.items() if surveys[word].columns.text is not None}
    _refuse_twice((tables[word].location, word) for word in words if word in tables)
    return list(tables.values()), [word for word in words if word not in tables]


def _cloned(words: Sequence[str], cache: Path, map_tasks: MapFunction) -> list[Source]:
    folders = map_tasks(partial(clone, cache=cache), words)
    return [
        Source(git_address(word).name, str(folder), None, without_credentials(word))
        for word, folder in zip(words, folders, strict=True)
    ]


class _Wanted(NamedTuple):
    file: RemoteFile
    target: str


def _tree(word: str, files: Sequence[RemoteFile], cache: Path, map_tasks: MapFunction) -> Source:
    """Files as they are, below one folder; complete under its name, since it takes that by rename."""
    origin = without_credentials(word)
    state = [(without_credentials(file.address), file.name, file.size, file.stamp) for file in files]
    key = hashlib.sha256(msgspec.json.encode([origin, state])).hexdigest()[:32]
    root = cache / "trees" / key
    _refuse_odd_names(files, origin)
    if not root.is_dir():
        beside = root.with_name(f"{root.name}.part")
        tasks = [_Wanted(file, str(beside / file.name)) for file in files]
        for _ in map_tasks(_download, tasks):
            pass
        sync_tree(beside)
        os.rename(beside, root)
        sync_folder(root.parent)
    is_one = len(files) == 1 and not is_glob(word) and not word.endswith("/")
    repo = last_part(origin.rpartition("/")[0] if is_one else origin, "files")
    return Source(repo, str(root), (files[0].name,) if is_one else None, origin, is_download=True)


def _download(wanted: _Wanted) -> None:
    if not os.path.isfile(wanted.target):
        download(wanted.file, Path(wanted.target))


def _refuse_odd_names(files: Sequence[RemoteFile], origin: str) -> None:
    """A key is any text: one with `..` in it would be written elsewhere, and `a` cannot be a file beside `a/b`."""
    names = {file.name for file in files}
    for name in sorted(names):
        parts = name.split("/")
        folders = {"/".join(parts[:end]) for end in range(1, len(parts))}
        if not {"", ".", "..", ".git"}.isdisjoint(parts) or "\0" in name or folders & names:
            advice = f" Is it a repository? Try git+{printable(origin)}." if ".git" in parts else ""
            raise InputError(f"{printable(origin)!r} holds {printable(name)!r}, which cannot be a file here.{advice}")


def _with_own_names(tables: Sequence[Table], taken: set[str]) -> list[Table]:
    """In an order that does not depend on how they were named; the second of a name becomes `name~2`."""
    _refuse_twice((table.remote.address, table.origin) for table in tables if table.remote is not None)
    named: list[Table] = []
    for table in sorted(tables, key=lambda table: (table.repo, table.origin)):
        named.append(table._replace(repo=free_name(table.repo, {*taken, *(other.repo for other in named)})))
    return named


def _names_of(rows: Sequence[tuple[Table, UnpackedRow]], taken: set[str]) -> list[tuple[str, str]]:
    """Repo and path of each, so that no two rows, and no row and file of a source, share `repo/path`."""
    plain = [(row.repo or table.repo, row.path or f"rows/{row.number:08d}") for table, row in rows]
    owners = {repo.partition("/")[0] for repo, _ in plain}
    # A source `org` and a row of `org/name` would share names like `org/name/x`, so it is the owner that must be free.
    own = {owner: free_name(owner, taken | owners) if owner in taken else owner for owner in owners}
    renamed = [(own[owner] + rest, path) for (owner, rest), path in ((_owner(repo), path) for repo, path in plain)]
    given = {f"{repo}/{path}" for repo, path in renamed}
    used: set[str] = set()
    counts: Counter[str] = Counter()
    names: list[tuple[str, str]] = []
    for repo, path in renamed:
        whole = name = f"{repo}/{path}"
        while name in used or (name != whole and name in given):
            counts[whole] += 1
            name = f"{repo}/{_numbered(path, counts[whole] + 1)}"
        used.add(name)
        names.append((repo, name[len(repo) + 1 :]))
    return names


def _owner(repo: str) -> tuple[str, str]:
    """`org/name` -> `org`, `/name`"""
    owner = repo.partition("/")[0]
    return owner, repo[len(owner) :]


def _numbered(path: str, number: int) -> str:
    """`src/a.py` -> `src/a~2.py`"""
    folder, slash, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    return f"{folder}{slash}{stem}~{number}{dot}{suffix}" if stem else f"{folder}{slash}{name}~{number}"
