"""Between step 1 and step 2: every document gets its licence; those that are not allowed are dropped."""

from collections.abc import Mapping, Sequence

import msgspec

from gristmill.cleaning.licenses import HEADER, TABLE, AllowList, FolderLicenses, license_of
from gristmill.config import Config
from gristmill.records import Drop, DropReason, PreparedDocument
from gristmill.steps.clean import without_secret

LicenseFiles = Mapping[str, Mapping[str, str | None]]
"""By source, then by path: the id of its text; None for one that is not known or cannot be read."""


def license_documents(
    documents: Sequence[PreparedDocument], license_files: LicenseFiles, config: Config
) -> tuple[list[PreparedDocument], list[Drop]]:
    folders = {repo: FolderLicenses(files) for repo, files in license_files.items()}
    nothing = FolderLicenses({})
    allowed = AllowList.of(config.licenses.allow) if config.licenses.allow else None
    places: dict[str | None, str | None] = {None: None}
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
        if allowed is None or allowed.allows(found.spdx):
            kept.append(licensed)
        else:
            drops.append(
                Drop.of(licensed, DropReason.LICENSE_NOT_ALLOWED, f"{found.spdx}, {_place(licensed.license_from)}")
            )
    return kept, drops


def _place(found_in: str | None) -> str:
    if found_in == HEADER:
        return "by what its first lines say"
    if found_in == TABLE:
        return "by what its table says"
    return f"by {found_in}" if found_in else "no licence file in its folder or above"
