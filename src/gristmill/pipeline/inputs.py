"""The inputs of a build: source files, license declarations and benchmarks. Settings are checked first."""

import operator
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from heapq import merge
from pathlib import Path
from typing import NamedTuple

from gristmill.cleaning.clean import redact_name
from gristmill.cleaning.folder_licenses import LicenseFiles, LicenseText, license_file_path
from gristmill.cleaning.licenses import AllowList, is_license_name
from gristmill.cleaning.package_manifests import MANIFEST_NAMES, PackageManifest, read_manifest
from gristmill.config.config import Config
from gristmill.core.names import is_remote_address, path_text
from gristmill.core.records import SourceFile
from gristmill.pipeline.context import is_large
from gristmill.runners.local import LocalRunner, num_cores
from gristmill.sources.addresses import Source, is_table_name, resolve_sources
from gristmill.sources.benchmark_files import Benchmark
from gristmill.sources.fetch import Fetched, fetch, scan_rows
from gristmill.sources.languages import check_languages
from gristmill.sources.license_files import (
    FoundLicenseFiles,
    find_license_files,
    read_text,
    select_files,
    unlisted_file,
)
from gristmill.sources.path_filter import check_patterns
from gristmill.sources.table_cache import num_rows
from gristmill.sources.trees import Scan, iter_files
from gristmill.splits.previous import read_previous_splits
from gristmill.windows.weights import check_weights, weighted_languages, weighted_patterns

CONNECTIONS = 8
"""Minimum number of processes for downloads, which mostly wait for the network."""
BY_PATH = operator.attrgetter("repo", "path")
MAX_LICENSE_BYTES = 1 << 17
MAX_MANIFEST_BYTES = 1 << 20


class Inputs(NamedTuple):
    """The inputs of a build."""

    sources: list[Source]
    found: Scan
    licenses: Mapping[str, LicenseFiles]
    """License files, keyed by source."""
    benchmarks: list[Benchmark]


def check_settings(config: Config) -> None:
    """Raise for unknown languages and licenses, and for invalid weights and patterns.

    If a file with earlier splits is configured, read it, so that an invalid file is rejected before any work is done.
    """
    check_languages((*config.scan.languages, *config.rules.languages, *weighted_languages(config.sampling)))
    check_weights(config.sampling)
    check_patterns("--weight", weighted_patterns(config.sampling))
    if config.split.previous is not None:
        read_previous_splits(config)
    AllowList.of(config.licenses.allow)


def read_inputs(config: Config, benchmarks: list[Benchmark], fetched: Path, leave_out: Sequence[Path]) -> Inputs:
    """Find the source files and read the license files.

    `fetched` is the folder for clones, downloads and the rows of tables. Folders in `leave_out` are not scanned.
    """
    reader = InputReader(config, benchmarks, fetched, leave_out)
    files = list(reader.files)
    inputs = reader.inputs()
    return inputs._replace(found=inputs.found._replace(files=files))


class InputReader:
    """Reader of the inputs. It yields files as they are found, so that preparing can start before the scan ends."""

    def __init__(self, config: Config, benchmarks: list[Benchmark], fetched: Path, leave_out: Sequence[Path]) -> None:
        """Fetch the sources into the folder `fetched` and start the scan, which skips the folders `leave_out`."""
        self._config, self._benchmarks = config, benchmarks
        self.sources, tables = _fetch_sources(config, fetched)
        self._found = Scan([], [], {}, [], {table.repo: num_rows(table) for table in tables})
        self._rows, self._row_drops = scan_rows(tables, self.sources, config.scan)
        self._license_files: list[SourceFile] = []
        self._read_declaration = cache(read_declaration)
        self._large_file_warnings: list[str] = []
        files = iter_files(self._found, self.sources, config.scan, leave_out=leave_out)
        self._found.commits.update({table.repo: None for table in tables})
        self.files = self._track(merge(files, self._rows, key=BY_PATH) if self._rows else files)
        """Source files in path order."""

    def inputs(self) -> Inputs:
        """Return the inputs without the files. Iterate over all of `files` first."""
        found = self._found._replace(drops=list(merge(self._found.drops, self._row_drops, key=BY_PATH)))
        seen = found._replace(files=[*self._license_files, *self._rows])
        licenses = read_license_files(self.sources, seen, self._read_declaration)
        found.warnings.extend(self._large_file_warnings)
        found.warnings.extend(_table_warnings(self.sources))
        return Inputs(self.sources, found, licenses, self._benchmarks)

    def read_licenses(self) -> Iterator[None]:
        """Read the license files, one per step, because reading all of them is slow. Call after all files are found."""
        for file in self._license_files:
            self._read_declaration(file)
            yield

    def _track(self, files: Iterator[SourceFile]) -> Iterator[SourceFile]:
        for file in files:
            if is_license_source(file.path.rpartition("/")[2]):
                self._license_files.append(file)
            if is_large(file.size) and file.size <= self._config.scan.max_file_bytes:
                self._large_file_warnings.append(_large_file_warning(file, self._config))
            yield file


def _fetch_sources(config: Config, cache: Path) -> Fetched:
    names = config.sources
    if not any(is_remote_address(name) or is_table_name(os.path.basename(name)) for name in names):
        return Fetched(resolve_sources(names), [])
    with LocalRunner(max(num_cores(), CONNECTIONS)) as runner:
        return fetch(names, config, cache, runner.map)


def local_sources(config: Config) -> list[Source]:
    """Return the sources on this machine, without remote sources."""
    return resolve_sources([name for name in config.sources if not is_remote_address(name)])


def _table_warnings(sources: Sequence[Source]) -> Iterator[str]:
    for source in sources:
        for name in source.only_files or ():
            if is_table_name(name):
                yield f"{path_text(name)} is read as one file: no column is known to contain text (see --text-column)."


def _large_file_warning(file: SourceFile, config: Config) -> str:
    name = redact_name(f"{file.repo}/{file.path}", config.secrets)
    return (
        f"{name} is {file.size / 1e6:,.0f} MB: a separate process prepares this file, "
        "and needs memory in proportion to its size."
    )


LicenseDeclaration = LicenseText | PackageManifest | None


def is_license_source(name: str) -> bool:
    """True if a file with this name is a license text or a package manifest."""
    return name in MANIFEST_NAMES or is_license_name(name)


def read_declaration(file: SourceFile) -> LicenseDeclaration:
    """Read the declaration in a license text or package manifest. Return None for a manifest that cannot be read."""
    name = posixpath.basename(file.path)
    if name not in MANIFEST_NAMES:
        return LicenseText.of(read_text(file, MAX_LICENSE_BYTES))
    text = read_text(file, MAX_MANIFEST_BYTES)
    return None if text is None else read_manifest(name, text)


def read_license_files(
    sources: Sequence[Source],
    scan: Scan,
    read_declaration: Callable[[SourceFile], LicenseDeclaration] = read_declaration,
) -> dict[str, LicenseFiles]:
    """Read the license files of all sources, and return them by source.

    Every build reads the license files again, so that every change is noticed.
    """
    found = find_license_files(sources, scan, is_license_source)
    texts: dict[str, dict[str, LicenseText]] = {}
    manifests: dict[str, dict[str, PackageManifest]] = {}
    for repo, license_files in found.items():
        declarations = {path: read_declaration(file) for path, file in license_files.files.items()}
        texts[repo] = {path: one for path, one in declarations.items() if isinstance(one, LicenseText)}
        manifests[repo] = {path: one for path, one in declarations.items() if isinstance(one, PackageManifest)}
    referenced = {repo: list(_referenced_texts(manifests[repo], found[repo])) for repo in found}
    rows = select_files(
        scan, {(repo, path) for repo, paths in referenced.items() for path in paths if found[repo].root is None}
    )

    def referenced_file(repo: str, path: str) -> SourceFile | None:
        root = found[repo].root
        return rows.get((repo, path)) if root is None else unlisted_file(root, repo, path)

    return {
        repo: LicenseFiles(
            texts[repo],
            manifests[repo],
            {
                path: LicenseText.of(read_text(file, MAX_LICENSE_BYTES))
                for path in referenced[repo]
                if (file := referenced_file(repo, path)) is not None
            },
            len(license_files.above),
        )
        for repo, license_files in found.items()
    }


def _referenced_texts(manifests: Mapping[str, PackageManifest], license_files: FoundLicenseFiles) -> Iterator[str]:
    """Yield the paths of license texts that package manifests reference, unless the text was already found by its name.

    Paths outside the source's work tree are ignored.
    """
    for path, manifest in manifests.items():
        for declared in (manifest.declared, manifest.for_members):
            referenced = license_file_path(path, declared) if declared is not None else None
            is_inside = referenced is not None and referenced.split("/").count("..") <= len(license_files.above)
            if referenced is not None and is_inside and referenced not in license_files.files:
                yield referenced
