"""The licence that a package manifest declares: Cargo.toml, package.json and pyproject.toml.

Manifests come from anywhere. One that is too large, cannot be parsed or has no licence field declares nothing.
"""

import posixpath
import re
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from gristmill.cleaning.licenses import canonical_expression, identify_license
from gristmill.core.names import printable

MAX_TOML_CHARACTERS = 1 << 17
MAX_DOTS_IN_LINE = 50
"""tomllib takes the square of the parts of a dotted key: 86 s for one of 128 KiB. Under this limit, 1 s for a file."""
MAX_JSON_CHARACTERS = 1 << 20
MAX_SAID_CHARACTERS = 60
MAX_PATH_CHARACTERS = 200
SEE_FILE = re.compile(r"see licen[sc]e in (.+)", re.IGNORECASE)
# Trove classifiers that mean one licence. "BSD License" and "Apache Software License" may be one of several.
CLASSIFIER = "License :: "
ID_BY_CLASSIFIER = {
    f"License :: OSI Approved :: {name}": spdx
    for name, spdx in {
        "Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
        "Eclipse Public License 1.0 (EPL-1.0)": "EPL-1.0",
        "Eclipse Public License 2.0 (EPL-2.0)": "EPL-2.0",
        "European Union Public Licence 1.1 (EUPL 1.1)": "EUPL-1.1",
        "European Union Public Licence 1.2 (EUPL 1.2)": "EUPL-1.2",
        "GNU Affero General Public License v3": "AGPL-3.0-only",
        "GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
        "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
        "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
        "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
        "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
        "GNU Lesser General Public License v2 (LGPLv2)": "LGPL-2.0-only",
        "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
        "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
        "GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
        "ISC License (ISCL)": "ISC",
        "MIT License": "MIT",
        "MIT No Attribution License (MIT-0)": "MIT-0",
        "Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
        "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
        "The Unlicense (Unlicense)": "Unlicense",
        "Zero-Clause BSD (0BSD)": "0BSD",
    }.items()
}


class Declaration(NamedTuple):
    said: str
    """As the manifest has it, shortened."""
    expression: str | None = None
    """Canonical SPDX; None where it is none, or is said elsewhere: in `file` or in the workspace."""
    file: str | None = None
    """A licence text, relative to the manifest's folder."""
    is_inherited: bool = False
    """From the root of the Cargo workspace."""


class PackageManifest(NamedTuple):
    declared: Declaration | None
    """For its own folder."""
    for_members: Declaration | None = None
    """For the crates of its Cargo workspace that inherit their licence."""
    is_workspace_root: bool = False


NOTHING = PackageManifest(None)


class _PackageJson(msgspec.Struct):
    license: Any = None
    licenses: Any = None


def read_manifest(name: str, text: str) -> PackageManifest:
    """`name` is one of MANIFEST_NAMES."""
    try:
        return READERS[name](text)
    except (ValueError, RecursionError):  # of tomllib and msgspec: neither TOML nor JSON, or nested without end
        return NOTHING


def _read_cargo(text: str) -> PackageManifest:
    manifest = _toml(text)
    workspace = _table(manifest, "workspace")
    for_members = _of_cargo(_table(workspace, "package"))
    is_virtual = "package" not in manifest
    return PackageManifest(
        for_members if is_virtual else _of_cargo(_table(manifest, "package")), for_members, "workspace" in manifest
    )


def _of_cargo(package: dict[str, Any]) -> Declaration | None:
    said, file = package.get("license"), package.get("license-file")
    if isinstance(said, str) and said.strip():
        # Before SPDX expressions, Cargo had a slash for OR; beside an AND, its precedence is unclear.
        is_clear = " AND " not in said.upper()
        return _expression(said, canonical_expression(said.replace("/", " OR ") if is_clear else said))
    if _table(package, "license").get("workspace") is True or _table(package, "license-file").get("workspace") is True:
        return Declaration("license.workspace = true", is_inherited=True)
    return _file(f"license-file = {file}", file) if isinstance(file, str) else None


def _read_package_json(text: str) -> PackageManifest:
    if len(text) > MAX_JSON_CHARACTERS:
        return NOTHING
    package = msgspec.json.decode(text, type=_PackageJson)
    said = [word for word in (_npm_word(one) for one in _listed(package.license)) if word] or [
        word for word in (_npm_word(one) for one in _listed(package.licenses)) if word
    ]
    if not said:
        return NOTHING
    if len(said) == 1 and (see := SEE_FILE.fullmatch(said[0].strip())):
        return PackageManifest(_file(said[0], see[1]))
    # npm's old list is a choice. Its word UNLICENSED, "no rights are granted", is no SPDX id.
    whole = " OR ".join(said)
    is_known = all(canonical_expression(word) is not None for word in said)
    return PackageManifest(_expression(whole, canonical_expression(whole) if is_known else None))


def _npm_word(said: Any) -> str | None:
    """`"MIT"`, or of old `{"type": "MIT", "url": "…"}`."""
    if isinstance(said, dict):
        said = said.get("type") or said.get("name")
    return said if isinstance(said, str) and said.strip() else None


def _listed(said: Any) -> list[Any]:
    return said if isinstance(said, list) else [said]


def _read_pyproject(text: str) -> PackageManifest:
    manifest = _toml(text)
    project, poetry = _table(manifest, "project"), _table(_table(manifest, "tool"), "poetry")
    found = [*_of_project(project), *_of_project({"license": poetry.get("license")})]
    known = [one for one in found if one.expression is not None or one.file is not None]
    return PackageManifest(next(iter(known or found), None))


def _of_project(project: dict[str, Any]) -> Iterator[Declaration]:
    """From what says most to what says least."""
    said, table = project.get("license"), _table(project, "license")
    text, file = table.get("text"), table.get("file")
    if isinstance(said, str) and said.strip():
        yield _expression(said, canonical_expression(said))
    if isinstance(text, str) and text.strip():
        yield _expression(text, canonical_expression(text.strip()) or identify_license(text))
    if isinstance(file, str):
        yield _file(f"file = {file}", file)
    classifiers = project.get("classifiers")
    listed = [one for one in classifiers if isinstance(one, str)] if isinstance(classifiers, list) else []
    licenses = [one for one in listed if one.startswith(CLASSIFIER)]
    if len(licenses) == 1 and licenses[0] in ID_BY_CLASSIFIER:
        yield Declaration(_shortened(licenses[0]), ID_BY_CLASSIFIER[licenses[0]])


def _toml(text: str) -> dict[str, Any]:
    if len(text) > MAX_TOML_CHARACTERS or any(line.count(".") > MAX_DOTS_IN_LINE for line in text.split("\n")):
        return {}
    return tomllib.loads(text)


def _table(parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _expression(said: str, expression: str | None) -> Declaration:
    return Declaration(_shortened(said), expression and _without_parentheses(expression))


def _without_parentheses(expression: str) -> str:
    """Around the whole, as npm asks for them: `(MIT OR ISC)` -> `MIT OR ISC`."""
    inner = expression[1:-1]
    is_around = expression.startswith("(") and canonical_expression(inner) == inner
    return _without_parentheses(inner) if is_around else expression


def _file(said: str, file: str) -> Declaration:
    """A path that no file here can have, or that is absolute, is said and not looked for."""
    path = posixpath.normpath(file.strip())
    is_path = path.isprintable() and "\\" not in path and len(path) <= MAX_PATH_CHARACTERS and path[0] != "/"
    return Declaration(_shortened(said), file=path if is_path and path != "." else None)


def _shortened(said: str) -> str:
    words = printable(" ".join(said.split()))
    return words if len(words) <= MAX_SAID_CHARACTERS else words[: MAX_SAID_CHARACTERS - 1] + "…"


READERS = {"Cargo.toml": _read_cargo, "package.json": _read_package_json, "pyproject.toml": _read_pyproject}
MANIFEST_NAMES = frozenset(READERS)
