"""The licence of a path: by its header, else by the nearest folder that says anything.

In one folder a package manifest outranks licence texts: it says whether LICENSE-MIT beside LICENSE-APACHE is a choice.
A manifest that contradicts the texts of its folder, or of the nearest folder above it that has any, leaves the licence
open. What is near wins, also when it is not understood: an unknown licence in `vendor/x/` is not covered up by the MIT
at the top.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from gristmill.cleaning.licenses import (
    LAYOUTS,
    NOASSERTION,
    OTHER_TERMS,
    identify_license,
    ids_in,
    is_satisfied,
    key_of_id,
    name_qualifiers,
    named_license,
)
from gristmill.cleaning.package_manifests import Declaration, PackageManifest

HEADER = "header"
TABLE = "table"
PAGE_SUFFIXES = (".rst", ".md", ".adoc", ".html")
"""docs/license.rst, if it is no licence text, is a page about the licence."""
MAX_IDS_COMPARED = 8
"""Two expressions with more ids between them are the same only if they are spelled the same."""


class License(NamedTuple):
    spdx: str
    """An SPDX id or expression, or NOASSERTION."""
    found_in: str | None
    """`header`, `table`, or the file in the source that says so; for NOASSERTION the files that left it open, or None.

    Files above the source are named from it: `../LICENSE`.
    """
    is_contradiction: bool = False
    """Two files name different licences; `found_in` has both, with what each says."""


class LicenseText(NamedTuple):
    spdx: str | None
    """The id of its text; None if it is not known or cannot be read."""
    family: str | None = None
    """A family of licences that a text without an id names in words."""

    @classmethod
    def of(cls, text: str | None) -> "LicenseText":
        spdx = identify_license(text) if text is not None else None
        return cls(spdx, named_license(text.encode()) if text is not None and spdx is None else None)


class LicenseFiles(NamedTuple):
    """What one source, and the folders above it in its work tree, have to say about licences. All by path."""

    texts: Mapping[str, LicenseText]
    manifests: Mapping[str, PackageManifest] = {}
    named: Mapping[str, LicenseText] = {}
    """Texts that manifests name."""
    num_above: int = 0
    """Folders above the source that count: `..`, `../..` and so on."""


def license_of(
    path: str, header: str | None, named: str | None, folders: "FolderLicenses", declared: str | None = None
) -> License:
    """By its SPDX tag; else by what its table says or by its folder, unless the file itself names something else."""
    if header is not None:
        return License(header, HEADER)
    found = folders.of(path) if declared is None else License(declared, TABLE)
    if named is None:
        return found
    families = tuple(named.split(" OR "))
    # Every alternative must have an id of a family that the file names.
    is_other = is_satisfied(found.spdx, lambda spdx: not spdx.startswith(families))
    return License(NOASSERTION, HEADER) if is_other else found


def named_path(manifest: str, declared: Declaration) -> str | None:
    """The text that a manifest names, from the source: `crates/a/Cargo.toml`, `../../LICENSE` -> `LICENSE`."""
    if declared.file is None:
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(manifest), declared.file))


class _Said(NamedTuple):
    """One manifest's word."""

    place: str
    said: str
    expression: str | None

    @property
    def told(self) -> str:
        return f"{self.place} ({self.said})"


class FolderLicenses:
    """The licence files and package manifests of one source, asked by path."""

    def __init__(self, files: LicenseFiles) -> None:
        self._files = files
        self._texts: dict[str, dict[str, LicenseText]] = {}
        for path, text in sorted(files.texts.items()):
            folder, _, name = path.rpartition("/")
            if text.spdx is not None or not (name.islower() and name.endswith(PAGE_SUFFIXES)):
                self._texts.setdefault(folder, {})[path] = text
        said: dict[str, list[_Said]] = {}
        for path, manifest in sorted(files.manifests.items()):
            if manifest.declared is not None:
                said.setdefault(posixpath.dirname(path), []).append(self._resolved(path, manifest.declared))
        self._by_folder = {folder: _by_texts(texts) for folder, texts in self._texts.items()}
        self._by_folder |= {folder: self._by_manifests(folder, words) for folder, words in said.items()}
        self._found: dict[str, License] = {}
        """By any folder that was asked about."""

    def of(self, path: str) -> License:
        folder = path.rpartition("/")[0]
        if folder not in self._found:
            speaking = (self._by_folder[one] for one in self._with_parents(folder) if one in self._by_folder)
            self._found[folder] = next(speaking, License(NOASSERTION, None))
        return self._found[folder]

    def _with_parents(self, folder: str) -> Iterator[str]:
        """`src/a`, `src`, the source itself, and the folders above it that count: `..`, `../..`."""
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

    def _resolved(self, path: str, declared: Declaration) -> _Said:
        """With what the workspace or the named text says."""
        place = path
        if declared.is_inherited:
            for folder in self._with_parents(posixpath.dirname(path)):
                root = posixpath.join(folder, "Cargo.toml")
                manifest = self._files.manifests.get(root)
                if manifest is not None and manifest.is_workspace_root:
                    inherited = manifest.for_members
                    if inherited is not None and not inherited.is_inherited:
                        place, declared = root, inherited
                    break
        named = named_path(place, declared)
        if named is not None:
            text = self._files.texts.get(named) or self._files.named.get(named)
            if text is not None and text.spdx is not None:
                return _Said(named, text.spdx, text.spdx)
        return _Said(place, declared.said, declared.expression)

    def _by_manifests(self, folder: str, words: Sequence[_Said]) -> License:
        near = next((self._texts[one] for one in self._with_parents(folder) if one in self._texts), {})
        known = [one for one in words if one.expression is not None]
        if not known:
            return _by_unknown_words(words, _by_texts(near) if near else None)
        first, expression = known[0], str(known[0].expression)
        others = [
            one.told
            for one in words
            if not (
                _means_the_same(expression, one.expression)
                if one.expression is not None
                else any(_names(one.said, spdx) for spdx in ids_in(expression))
            )
        ]
        others += [
            f"{path} ({text.spdx or 'not recognised'})"
            for path, text in _speaking(near).items()
            if path != first.place and not _takes_in(expression, path, text)
        ]
        return _contradiction(first.told, others) if others else License(expression, first.place)


def _by_unknown_words(words: Sequence[_Said], by_texts: License | None) -> License:
    """The texts decide, if the words fit to them: `license = {text = "MIT License"}`."""
    told = ", ".join(word.told for word in words)
    if by_texts is None or by_texts.spdx == NOASSERTION:
        return License(NOASSERTION, told)
    if all(_names(word.said, by_texts.spdx) for word in words):
        return by_texts
    return _contradiction(told, [f"{by_texts.found_in} ({by_texts.spdx})"])


def _contradiction(one: str, others: Sequence[str]) -> License:
    return License(NOASSERTION, f"{one} against {', '.join(others)}", is_contradiction=True)


def _by_texts(texts: Mapping[str, LicenseText]) -> License:
    """The id that the licence texts of one folder agree on."""
    paths = {text.spdx: path for path, text in reversed(_speaking(texts).items())}
    [spdx, *others] = paths
    if others or spdx is None:
        return License(NOASSERTION, ", ".join(texts))
    return License(spdx, paths[spdx])


def _speaking(texts: Mapping[str, LicenseText]) -> dict[str, LicenseText]:
    """Those of one folder's texts that speak for all of it.

    A plain LICENSE or COPYING speaks for the folder, and what is beside it under a longer name (LICENSE.python) for
    parts of it, unless that name is a warning. The LGPL-3.0 is written as an addition to the GPL-3.0: it comes as
    COPYING + COPYING.LESSER. (The LGPL-2.1 stands alone. Beside a GPL, each may cover other files.)
    """
    paths = {text.spdx: path for path, text in reversed(dict(texts).items())}
    if set(paths) == {"LGPL-3.0", "GPL-3.0"} and "lesser" in posixpath.basename(paths["LGPL-3.0"]).lower():
        return {paths["LGPL-3.0"]: LicenseText("LGPL-3.0")}
    qualifiers = {path: name_qualifiers(posixpath.basename(path)) for path in texts}
    plain = {path: text for path, text in texts.items() if not qualifiers[path] - LAYOUTS}
    has_warning = any(words & OTHER_TERMS for words in qualifiers.values())
    return plain if plain and not has_warning else dict(texts)


def _takes_in(expression: str, path: str, text: LicenseText) -> bool:
    """A text and an expression fit together: `GPL-3.0-or-later` and the text of the GPL-3.0."""
    ids = ids_in(expression)
    versions = {_version(spdx) for spdx in ids}
    if text.spdx is not None:
        is_part_of_lgpl = text.spdx == "GPL-3.0" and "lgpl-3.0" in versions
        return _version(text.spdx) in versions or is_part_of_lgpl
    if text.family is not None:
        return any(spdx.startswith(text.family) for spdx in ids)
    warnings = name_qualifiers(posixpath.basename(path)) & OTHER_TERMS
    return all(any(spdx.lower().startswith(word) for spdx in ids) for word in warnings)


def _version(spdx: str) -> str:
    """`GPL-3.0-or-later WITH x` -> `gpl-3.0`"""
    return key_of_id(spdx).partition(" with ")[0].removesuffix("+")


def _means_the_same(one: str, other: str) -> bool:
    """Whoever may choose among these licences has the same choice by both."""
    if one == other:
        return True
    ids = sorted({key_of_id(spdx) for spdx in (*ids_in(one), *ids_in(other))})
    if len(ids) > MAX_IDS_COMPARED:
        return False
    for chosen in product((False, True), repeat=len(ids)):
        holds = dict(zip(ids, chosen, strict=True))
        if len({is_satisfied(each, lambda spdx: holds[key_of_id(spdx)]) for each in (one, other)}) > 1:  # noqa: B023
            return False
    return True


def _names(said: str, spdx: str) -> bool:
    """A name in words that may be this id's: `Apache License 2.0` and Apache-2.0, `BSD` and BSD-3-Clause."""
    word, family = said.lower(), re.search(r"[A-Za-z]+", spdx)
    numbers, own_numbers = re.findall(r"\d+", word), re.findall(r"\d+", spdx)
    if family is None or (numbers and own_numbers and numbers[0] not in own_numbers):
        return False
    by_words = named_license(word.encode())
    if by_words is not None:
        return spdx.startswith(by_words)
    return re.search(rf"(?<![a-z]){family[0].lower()}(?:v?\d[\d.+]*)?(?![a-z])", word) is not None
