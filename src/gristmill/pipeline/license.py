"""Between step 1 and step 2: every document gets its licence; those that are not allowed are dropped."""

import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gristmill.cleaning.clean import without_secret
from gristmill.cleaning.folder_licenses import (
    HEADER,
    TABLE,
    FolderLicenses,
    LicenseFiles,
    LicenseText,
    license_of,
    named_path,
)
from gristmill.cleaning.licenses import NOASSERTION, AllowList, is_license_name
from gristmill.cleaning.package_manifests import MANIFEST_NAMES, PackageManifest, read_manifest
from gristmill.config.config import Config
from gristmill.core.names import counted
from gristmill.core.records import Drop, DropReason, PreparedDocument, SourceFile
from gristmill.sources.addresses import Source
from gristmill.sources.license_files import SpeakingFiles, file_below, find_speaking_files, read_text, rows_at
from gristmill.sources.trees import Scan

MAX_LICENSE_BYTES = 1 << 17
MAX_MANIFEST_BYTES = 1 << 20


class Licensed(NamedTuple):
    kept: list[PreparedDocument]
    drops: list[Drop]
    warnings: list[str]


def read_license_files(sources: Sequence[Source], scan: Scan) -> dict[str, LicenseFiles]:
    """By source. Read anew by each build, so that a change is noticed wherever it is."""
    found = find_speaking_files(sources, scan, lambda name: name in MANIFEST_NAMES or is_license_name(name))
    texts: dict[str, dict[str, LicenseText]] = {}
    manifests: dict[str, dict[str, PackageManifest]] = {}
    for repo, speaking in found.items():
        names = {path: posixpath.basename(path) for path in speaking.files}
        texts[repo] = {
            path: LicenseText.of(read_text(file, MAX_LICENSE_BYTES))
            for path, file in speaking.files.items()
            if names[path] not in MANIFEST_NAMES
        }
        contents = {
            path: read_text(file, MAX_MANIFEST_BYTES)
            for path, file in speaking.files.items()
            if names[path] in MANIFEST_NAMES
        }
        manifests[repo] = {
            path: read_manifest(names[path], text) for path, text in contents.items() if text is not None
        }
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


def license_documents(
    documents: Sequence[PreparedDocument], license_files: Mapping[str, LicenseFiles], config: Config
) -> Licensed:
    folders = {repo: FolderLicenses(files) for repo, files in license_files.items()}
    nothing = FolderLicenses(LicenseFiles({}))
    allowed = AllowList.of(config.licenses.allow) if config.licenses.allow else None
    places: dict[str | None, str | None] = {None: None}
    contradictions: Counter[str] = Counter()
    kept: list[PreparedDocument] = []
    drops: list[Drop] = []
    for document in documents:
        folder = folders.get(document.repo, nothing)
        found = license_of(
            document.path, document.header_license, document.named_license, folder, document.declared_license
        )
        if found.found_in not in places:
            places[found.found_in] = without_secret(found.found_in or "", config.secrets)
        licensed = msgspec.structs.replace(document, license=found.spdx, license_from=places[found.found_in])
        if found.is_contradiction:
            contradictions[f"{document.repo}: {licensed.license_from}"] += 1
        if allowed is None or allowed.allows(found.spdx):
            kept.append(licensed)
        else:
            detail = f"{found.spdx}, {_place(found.spdx, licensed.license_from)}"
            drops.append(Drop.of(licensed, DropReason.LICENSE_NOT_ALLOWED, detail))
    return Licensed(kept, drops, list(_warnings(contradictions)))


def _warnings(contradictions: Counter[str]) -> Iterator[str]:
    if contradictions:
        [first, *others] = contradictions
        more = f", and {len(others):,} more such in files.jsonl" if others else ""
        yield (
            f"the licence of {counted(contradictions.total(), 'file')} is unknown, as a manifest contradicts another "
            f"one or a licence text. In {first}{more}."
        )


def _place(spdx: str, found_in: str | None) -> str:
    if found_in == HEADER:
        return "by what its first lines say"
    if found_in == TABLE:
        return "by what its table says"
    if found_in is None:
        return "no licence file in its folder or above"
    return f"left open by {found_in}" if spdx == NOASSERTION else f"by {found_in}"
