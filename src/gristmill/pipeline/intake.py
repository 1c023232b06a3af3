"""What comes into a build: source files, what licence files say, and benchmarks. Settings are checked first."""

import operator
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from heapq import merge
from pathlib import Path
from typing import NamedTuple

from gristmill.cleaning.clean import without_secret
from gristmill.cleaning.folder_licenses import LicenseFiles, LicenseText, named_path
from gristmill.cleaning.licenses import AllowList, is_license_name
from gristmill.cleaning.package_manifests import MANIFEST_NAMES, PackageManifest, read_manifest
from gristmill.config.config import Config
from gristmill.core.names import is_address, path_text
from gristmill.core.records import SourceFile
from gristmill.pipeline.context import is_large
from gristmill.runners.local import LocalRunner, num_cores
from gristmill.sources.addresses import Source, is_table_name, resolve_sources
from gristmill.sources.benchmark_files import Benchmark
from gristmill.sources.fetch import Fetched, fetch, scan_rows
from gristmill.sources.languages import check_languages
from gristmill.sources.license_files import SpeakingFiles, file_below, find_speaking_files, read_text, rows_at
from gristmill.sources.path_filter import check_patterns
from gristmill.sources.table_cache import num_rows
from gristmill.sources.trees import Scan, scanned
from gristmill.splits.previous import read_previous_splits
from gristmill.windows.weights import check_weights, weighted_languages, weighted_patterns

CONNECTIONS = 8
"""At once, where sources are brought from elsewhere: they wait more than they work."""
BY_PATH = operator.attrgetter("repo", "path")
MAX_LICENSE_BYTES = 1 << 17
MAX_MANIFEST_BYTES = 1 << 20


class Intake(NamedTuple):
    """All that comes in."""

    sources: list[Source]
    found: Scan
    licenses: Mapping[str, LicenseFiles]
    """By source."""
    benchmarks: list[Benchmark]


def check_settings(config: Config) -> None:
    """Refuse what only tables of the steps can tell is wrong: unknown languages, weights, patterns and licences.

    Earlier splits that are named are read, so that a wrong file is refused before any work is done.
    """
    check_languages((*config.scan.languages, *config.rules.languages, *weighted_languages(config.sampling)))
    check_weights(config.sampling)
    check_patterns("--weight", weighted_patterns(config.sampling))
    if config.split.previous is not None:
        read_previous_splits(config)
    AllowList.of(config.licenses.allow)


def take_in(config: Config, benchmarks: list[Benchmark], fetched: Path, leave_out: Sequence[Path]) -> Intake:
    """`fetched`: where that is brought to which does not lie here as files: clones, downloads, the rows of tables."""
    arrival = Arrival(config, benchmarks, fetched, leave_out)
    files = list(arrival.files)
    intake = arrival.intake()
    return intake._replace(found=intake.found._replace(files=files))


class Arrival:
    """What comes in, file by file: the first are prepared while others are still being found."""

    def __init__(self, config: Config, benchmarks: list[Benchmark], fetched: Path, leave_out: Sequence[Path]) -> None:
        """As `take_in`."""
        self._config, self._benchmarks = config, benchmarks
        self.sources, tables = _fetched(config, fetched)
        self._found = Scan([], [], {}, [], {table.repo: num_rows(table) for table in tables})
        self._rows, self._row_drops = scan_rows(tables, self.sources, config.scan)
        self._speaking: list[SourceFile] = []
        self._said = cache(said_in)
        self._large: list[str] = []
        files = scanned(self._found, self.sources, config.scan, leave_out=leave_out)
        self._found.commits.update({table.repo: None for table in tables})
        self.files = self._noted(merge(files, self._rows, key=BY_PATH) if self._rows else files)
        """In path order."""

    def intake(self) -> Intake:
        """All but the files, when these have come in."""
        found = self._found._replace(drops=list(merge(self._found.drops, self._row_drops, key=BY_PATH)))
        seen = found._replace(files=[*self._speaking, *self._rows])
        licenses = read_license_files(self.sources, seen, self._said)
        found.warnings.extend(self._large)
        found.warnings.extend(_tables_as_files(self.sources))
        return Intake(self.sources, found, licenses, self._benchmarks)

    def read_licenses(self) -> Iterator[None]:
        """A file in each step, once all have come in: together they take long."""
        for file in self._speaking:
            self._said(file)
            yield

    def _noted(self, files: Iterator[SourceFile]) -> Iterator[SourceFile]:
        for file in files:
            if is_speaking(file.path.rpartition("/")[2]):
                self._speaking.append(file)
            if is_large(file.size) and file.size <= self._config.scan.max_file_bytes:
                self._large.append(_large_file(file, self._config))
            yield file


def _fetched(config: Config, cache: Path) -> Fetched:
    names = config.sources
    if not any(is_address(name) or is_table_name(os.path.basename(name)) for name in names):
        return Fetched(resolve_sources(names), [])
    with LocalRunner(max(num_cores(), CONNECTIONS)) as runner:
        return fetch(names, config, cache, runner.map)


def local_sources(config: Config) -> list[Source]:
    """Those that lie here; known before anything is brought."""
    return resolve_sources([name for name in config.sources if not is_address(name)])


def _tables_as_files(sources: Sequence[Source]) -> Iterator[str]:
    for source in sources:
        for name in source.only or ():
            if is_table_name(name):
                yield f"{path_text(name)} is read as one file: it has no column known to hold text (see --text-column)."


def _large_file(file: SourceFile, config: Config) -> str:
    name = without_secret(f"{file.repo}/{file.path}", config.secrets)
    return f"{name} has {file.size / 1e6:,.0f} MB: it is worked on in a process of its own, whose memory grows with it."


Said = LicenseText | PackageManifest | None


def is_speaking(name: str) -> bool:
    """Say if a file of this name is about licences."""
    return name in MANIFEST_NAMES or is_license_name(name)


def said_in(file: SourceFile) -> Said:
    """What a licence text or a package manifest says; None for a manifest that cannot be read."""
    name = posixpath.basename(file.path)
    if name not in MANIFEST_NAMES:
        return LicenseText.of(read_text(file, MAX_LICENSE_BYTES))
    text = read_text(file, MAX_MANIFEST_BYTES)
    return None if text is None else read_manifest(name, text)


def read_license_files(
    sources: Sequence[Source], scan: Scan, said_in: Callable[[SourceFile], Said] = said_in
) -> dict[str, LicenseFiles]:
    """By source. Read anew by each build, so that a change is noticed wherever it is."""
    found = find_speaking_files(sources, scan, is_speaking)
    texts: dict[str, dict[str, LicenseText]] = {}
    manifests: dict[str, dict[str, PackageManifest]] = {}
    for repo, speaking in found.items():
        said = {path: said_in(file) for path, file in speaking.files.items()}
        texts[repo] = {path: one for path, one in said.items() if isinstance(one, LicenseText)}
        manifests[repo] = {path: one for path, one in said.items() if isinstance(one, PackageManifest)}
    named = {repo: list(_named_texts(manifests[repo], found[repo])) for repo in found}
    rows = rows_at(scan, {(repo, path) for repo, paths in named.items() for path in paths if found[repo].root is None})

    def named_file(repo: str, path: str) -> SourceFile | None:
        root = found[repo].root
        return rows.get((repo, path)) if root is None else file_below(root, repo, path)

    return {
        repo: LicenseFiles(
            texts[repo],
            manifests[repo],
            {
                path: LicenseText.of(read_text(file, MAX_LICENSE_BYTES))
                for path in named[repo]
                if (file := named_file(repo, path)) is not None
            },
            len(speaking.above),
        )
        for repo, speaking in found.items()
    }


def _named_texts(manifests: Mapping[str, PackageManifest], speaking: SpeakingFiles) -> Iterator[str]:
    """Texts that manifests name and whose own names are no licence file's. None leads out of the source."""
    for path, manifest in manifests.items():
        for declared in (manifest.declared, manifest.for_members):
            named = named_path(path, declared) if declared is not None else None
            is_inside = named is not None and named.split("/").count("..") <= len(speaking.above)
            if named is not None and is_inside and named not in speaking.files:
                yield named
