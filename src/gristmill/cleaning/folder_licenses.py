"""Find the license of a file: from its header, its table row, or license files and package manifests in its folders.

In one folder, a package manifest outranks license texts, because only the manifest states whether LICENSE-MIT and
LICENSE-APACHE are a choice. If a manifest contradicts the nearest license texts, in its folder or above, the license is
unknown (NOASSERTION). The nearest folder decides even if its license is not recognized: an unknown license in
`vendor/x/` is not overruled by the MIT license at the top.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from gristmill.cleaning.licenses import (
    NOASSERTION,
    TEXT_FORMATS,
    WARNING_WORDS,
    identify_license,
    ids_in,
    is_satisfied,
    name_qualifiers,
    named_license,
    normalize_id,
)
from gristmill.cleaning.package_manifests import Declaration, PackageManifest

HEADER = "header"
TABLE = "table"
PAGE_SUFFIXES = (".rst", ".md", ".adoc", ".html")
"""A file with such a suffix and a lowercase name (docs/license.rst) is ignored unless its text is a known license."""
MAX_IDS_COMPARED = 8
"""Two expressions with more distinct ids in total are treated as equivalent only if they are identical."""


class License(NamedTuple):
    """License of a file, and the place where it was found."""

    spdx: str
    """An SPDX id or expression, or NOASSERTION."""
    found_in: str | None
    """`header`, `table`, or the path of the file that states the license, relative to the source (`../LICENSE`).

    For NOASSERTION, it may also list the files that are not recognized or contradict each other. None if no file was
    found.
    """
    is_contradiction: bool = False
    """True if files state different licenses. `found_in` then names these files, with the license of each."""


class LicenseText(NamedTuple):
    """License that was recognized in the text of a license file."""

    spdx: str | None
    """SPDX id. None if the text is not recognized or cannot be read."""
    family: str | None = None
    """License family that an unrecognized text mentions in words."""

    @classmethod
    def of(cls, text: str | None) -> "LicenseText":
        """Recognize the license of a text. Pass None for a file that cannot be read."""
        spdx = identify_license(text) if text is not None else None
        return cls(spdx, named_license(text.encode()) if text is not None and spdx is None else None)


class LicenseFiles(NamedTuple):
    """License files of one source and of the folders above it in its work tree, keyed by path."""

    texts: Mapping[str, LicenseText]
    manifests: Mapping[str, PackageManifest] = {}
    named_texts: Mapping[str, LicenseText] = {}
    """License texts that manifests refer to."""
    num_above: int = 0
    """Number of folders above the source that are considered: `..`, `../..` and so on."""


def license_of(
    path: str, header: str | None, family: str | None, folders: "FolderLicenses", declared: str | None = None
) -> License:
    """Return the license of a file: from its SPDX tag, or else from its table row or folder.

    `header` is the expression of the tag, `family` the family that the header mentions, and `declared` the license in
    the file's table row. If the family contradicts the table or folder, the license is NOASSERTION.
    """
    if header is not None:
        return License(header, HEADER)
    found = folders.of(path) if declared is None else License(declared, TABLE)
    if family is None:
        return found
    families = tuple(family.split(" OR "))
    # Every alternative must contain an id of a family that the header mentions.
    is_other = is_satisfied(found.spdx, lambda spdx: not spdx.startswith(families))
    return License(NOASSERTION, HEADER) if is_other else found


def license_file_path(manifest: str, declared: Declaration) -> str | None:
    """Return the path in the source of the license text that a manifest refers to, or None.

    `crates/a/Cargo.toml`, `../../LICENSE` -> `LICENSE`
    """
    if declared.file is None:
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(manifest), declared.file))


class _Statement(NamedTuple):
    """License stated by a manifest, or by the license text that the manifest refers to."""

    file: str
    value: str
    expression: str | None

    @property
    def description(self) -> str:
        return f"{self.file} ({self.value})"


class FolderLicenses:
    """Lookup of the license of a path, from the license files and package manifests of one source."""

    def __init__(self, files: LicenseFiles) -> None:
        self._files = files
        self._texts: dict[str, dict[str, LicenseText]] = {}
        for path, text in sorted(files.texts.items()):
            folder, _, name = path.rpartition("/")
            if text.spdx is not None or not (name.islower() and name.endswith(PAGE_SUFFIXES)):
                self._texts.setdefault(folder, {})[path] = text
        by_folder: dict[str, list[_Statement]] = {}
        for path, manifest in sorted(files.manifests.items()):
            if manifest.declared is not None:
                by_folder.setdefault(posixpath.dirname(path), []).append(self._resolve(path, manifest.declared))
        self._stated = {folder: _license_from_texts(texts) for folder, texts in self._texts.items()}
        self._stated |= {
            folder: self._license_from_manifests(folder, statements) for folder, statements in by_folder.items()
        }
        self._cache: dict[str, License] = {}
        """Licenses that were looked up, keyed by folder."""

    def of(self, path: str) -> License:
        """Return the license that applies to a path."""
        folder = path.rpartition("/")[0]
        if folder not in self._cache:
            licenses = (self._stated[parent] for parent in self._iter_folders_up(folder) if parent in self._stated)
            self._cache[folder] = next(licenses, License(NOASSERTION, None))
        return self._cache[folder]

    def _iter_folders_up(self, folder: str) -> Iterator[str]:
        """Yield the folder, its parents, the source (""), and `num_above` folders above the source (`..`, `../..`)."""
        num_above = self._files.num_above
        while True:
            yield folder
            parts = folder.split("/")
            is_above = num_above > 0 and parts[0] == ".."
            if folder and not is_above:
                folder = folder.rpartition("/")[0]
            elif parts.count("..") < num_above:
                folder = posixpath.join("..", folder) if folder else ".."
            else:
                return

    def _resolve(self, path: str, declared: Declaration) -> _Statement:
        """Return the license that a manifest declares itself, or through its workspace or a license text."""
        file = path
        if declared.is_inherited:
            for folder in self._iter_folders_up(posixpath.dirname(path)):
                root = posixpath.join(folder, "Cargo.toml")
                manifest = self._files.manifests.get(root)
                if manifest is not None and manifest.is_workspace_root:
                    inherited = manifest.for_members
                    if inherited is not None and not inherited.is_inherited:
                        file, declared = root, inherited
                    break
        text_path = license_file_path(file, declared)
        if text_path is not None:
            text = self._files.texts.get(text_path) or self._files.named_texts.get(text_path)
            if text is not None and text.spdx is not None:
                return _Statement(text_path, text.spdx, text.spdx)
        return _Statement(file, declared.value, declared.expression)

    def _license_from_manifests(self, folder: str, statements: Sequence[_Statement]) -> License:
        nearest_texts = next(
            (self._texts[above] for above in self._iter_folders_up(folder) if above in self._texts), {}
        )
        known_statements = [statement for statement in statements if statement.expression is not None]
        if not known_statements:
            return _license_from_unknown_values(
                statements, _license_from_texts(nearest_texts) if nearest_texts else None
            )
        first, expression = known_statements[0], str(known_statements[0].expression)
        contradictions = [
            statement.description
            for statement in statements
            if not (
                _is_equivalent(expression, statement.expression)
                if statement.expression is not None
                else any(_may_mean(statement.value, spdx) for spdx in ids_in(expression))
            )
        ]
        contradictions += [
            f"{path} ({text.spdx or 'not recognized'})"
            for path, text in _folder_wide_texts(nearest_texts).items()
            if path != first.file and not _is_compatible(expression, path, text)
        ]
        return _contradiction(first.description, contradictions) if contradictions else License(expression, first.file)


def _license_from_unknown_values(statements: Sequence[_Statement], from_texts: License | None) -> License:
    """Return the license of the texts if the unrecognized values may mean it: `MIT License` may mean MIT."""
    described = ", ".join(statement.description for statement in statements)
    if from_texts is None or from_texts.spdx == NOASSERTION:
        return License(NOASSERTION, described)
    if all(_may_mean(statement.value, from_texts.spdx) for statement in statements):
        return from_texts
    return _contradiction(described, [f"{from_texts.found_in} ({from_texts.spdx})"])


def _contradiction(first: str, others: Sequence[str]) -> License:
    return License(NOASSERTION, f"{first} against {', '.join(others)}", is_contradiction=True)


def _license_from_texts(texts: Mapping[str, LicenseText]) -> License:
    """Return the license that all texts of one folder contain, or NOASSERTION."""
    paths = {text.spdx: path for path, text in reversed(_folder_wide_texts(texts).items())}
    [spdx, *other_ids] = paths
    if other_ids or spdx is None:
        return License(NOASSERTION, ", ".join(texts))
    return License(spdx, paths[spdx])


def _folder_wide_texts(texts: Mapping[str, LicenseText]) -> dict[str, LicenseText]:
    """Return the texts that apply to the complete folder.

    If there is a plain LICENSE or COPYING, a file with a longer name (LICENSE.python) applies only to parts of the
    folder. But if a name contains one of WARNING_WORDS, all texts apply to the complete folder. The LGPL-3.0 is an
    addition to the GPL-3.0, so projects contain both, as COPYING.LESSER and COPYING. The LGPL-2.1 is complete: next to
    a GPL, each may cover different files.
    """
    paths = {text.spdx: path for path, text in reversed(dict(texts).items())}
    if set(paths) == {"LGPL-3.0", "GPL-3.0"} and "lesser" in posixpath.basename(paths["LGPL-3.0"]).lower():
        return {paths["LGPL-3.0"]: LicenseText("LGPL-3.0")}
    qualifiers = {path: name_qualifiers(posixpath.basename(path)) for path in texts}
    plain = {path: text for path, text in texts.items() if not qualifiers[path] - TEXT_FORMATS}
    has_warning = any(names & WARNING_WORDS for names in qualifiers.values())
    return plain if plain and not has_warning else dict(texts)


def _is_compatible(expression: str, path: str, text: LicenseText) -> bool:
    """Return True if a text does not contradict an expression: `GPL-3.0-or-later` allows the text of the GPL-3.0."""
    ids = ids_in(expression)
    base_ids = {_base_id(spdx) for spdx in ids}
    if text.spdx is not None:
        is_part_of_lgpl = text.spdx == "GPL-3.0" and "lgpl-3.0" in base_ids
        return _base_id(text.spdx) in base_ids or is_part_of_lgpl
    if text.family is not None:
        return any(spdx.startswith(text.family) for spdx in ids)
    warnings = name_qualifiers(posixpath.basename(path)) & WARNING_WORDS
    return all(any(spdx.lower().startswith(qualifier) for spdx in ids) for qualifier in warnings)


def _base_id(spdx: str) -> str:
    """Return the id without suffix and exception: `GPL-3.0-or-later WITH x` -> `gpl-3.0`."""
    return normalize_id(spdx).partition(" with ")[0].removesuffix("+")


def _is_equivalent(left: str, right: str) -> bool:
    """Return True if both expressions allow the same sets of licenses."""
    if left == right:
        return True
    ids = sorted({normalize_id(spdx) for spdx in (*ids_in(left), *ids_in(right))})
    if len(ids) > MAX_IDS_COMPARED:
        return False
    for chosen in product((False, True), repeat=len(ids)):
        holds = dict(zip(ids, chosen, strict=True))
        if len({is_satisfied(each, lambda spdx: holds[normalize_id(spdx)]) for each in (left, right)}) > 1:  # noqa: B023
            return False
    return True


def _may_mean(value: str, spdx: str) -> bool:
    """Return True if a value may mean this id: `Apache License` may mean Apache-2.0, `BSD` may mean BSD-3-Clause."""
    text, family = value.lower(), re.search(r"[A-Za-z]+", spdx)
    numbers, id_numbers = re.findall(r"\d+", text), re.findall(r"\d+", spdx)
    if family is None or (numbers and id_numbers and numbers[0] not in id_numbers):
        return False
    named_family = named_license(text.encode())
    if named_family is not None:
        return spdx.startswith(named_family)
    return re.search(rf"(?<![a-z]){family[0].lower()}(?:v?\d[\d.+]*)?(?![a-z])", text) is not None
