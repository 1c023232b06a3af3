"""Read the license that a package manifest (Cargo.toml, package.json or pyproject.toml) declares.

Manifests are untrusted input. A manifest that is too large, invalid or without a license declares nothing.
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
"""tomllib takes quadratic time in the number of parts of a dotted key: 86 s for 128 KiB, or 1 s with this limit."""
MAX_JSON_CHARACTERS = 1 << 20
MAX_VALUE_CHARACTERS = 60
MAX_PATH_CHARACTERS = 200
SEE_FILE = re.compile(r"see licen[sc]e in (.+)", re.IGNORECASE)
# Trove classifiers that mean exactly one license. "BSD License" and "Apache Software License" may mean several.
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
    """License that a manifest declares."""

    value: str
    """Value in the manifest, shortened."""
    expression: str | None = None
    """Canonical SPDX expression. None if the value is not an expression, or refers to `file` or to the workspace."""
    file: str | None = None
    """Path of a license text, relative to the folder of the manifest."""
    is_inherited: bool = False
    """True if the license is inherited from the root of the Cargo workspace."""


class PackageManifest(NamedTuple):
    """Licenses that one manifest declares."""

    declared: Declaration | None
    """License of the folder that contains the manifest."""
    for_members: Declaration | None = None
    """License that the crates of the Cargo workspace can inherit."""
    is_workspace_root: bool = False


EMPTY_MANIFEST = PackageManifest(None)


class _PackageJson(msgspec.Struct):
    license: Any = None
    licenses: Any = None


def read_manifest(name: str, text: str) -> PackageManifest:
    """Parse a manifest whose file name is one of MANIFEST_NAMES. Invalid content declares nothing."""
    try:
        return READERS[name](text)
    except (ValueError, RecursionError):  # invalid TOML or JSON, or nested too deeply
        return EMPTY_MANIFEST


def _read_cargo(text: str) -> PackageManifest:
    manifest = _parse_toml(text)
    workspace = _subtable(manifest, "workspace")
    for_members = _cargo_declaration(_subtable(workspace, "package"))
    is_virtual = "package" not in manifest
    return PackageManifest(
        for_members if is_virtual else _cargo_declaration(_subtable(manifest, "package")),
        for_members,
        "workspace" in manifest,
    )


def _cargo_declaration(package: dict[str, Any]) -> Declaration | None:
    value, file = package.get("license"), package.get("license-file")
    if isinstance(value, str) and value.strip():
        # Cargo used a slash for OR before it used SPDX expressions. If a value contains a slash and AND, it is unclear
        # which takes precedence.
        is_unambiguous = " AND " not in value.upper()
        return _declare_expression(value, canonical_expression(value.replace("/", " OR ") if is_unambiguous else value))
    if (
        _subtable(package, "license").get("workspace") is True
        or _subtable(package, "license-file").get("workspace") is True
    ):
        return Declaration("license.workspace = true", is_inherited=True)
    return _declare_file(f"license-file = {file}", file) if isinstance(file, str) else None


def _read_package_json(text: str) -> PackageManifest:
    if len(text) > MAX_JSON_CHARACTERS:
        return EMPTY_MANIFEST
    package = msgspec.json.decode(text, type=_PackageJson)
    values = [value for value in (_npm_license(entry) for entry in _as_list(package.license)) if value] or [
        value for value in (_npm_license(entry) for entry in _as_list(package.licenses)) if value
    ]
    if not values:
        return EMPTY_MANIFEST
    if len(values) == 1 and (see := SEE_FILE.fullmatch(values[0].strip())):
        return PackageManifest(_declare_file(values[0], see[1]))
    # A list of licenses, which npm has deprecated, is a choice. UNLICENSED ("no rights are granted") is not an SPDX id.
    combined = " OR ".join(values)
    is_known = all(canonical_expression(value) is not None for value in values)
    return PackageManifest(_declare_expression(combined, canonical_expression(combined) if is_known else None))


def _npm_license(value: Any) -> str | None:
    """Return the license of an entry, which is a string or the deprecated object `{"type": "MIT", "url": "…"}`."""
    if isinstance(value, dict):
        value = value.get("type") or value.get("name")
    return value if isinstance(value, str) and value.strip() else None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _read_pyproject(text: str) -> PackageManifest:
    manifest = _parse_toml(text)
    project, poetry = _subtable(manifest, "project"), _subtable(_subtable(manifest, "tool"), "poetry")
    found = [*_project_declarations(project), *_project_declarations({"license": poetry.get("license")})]
    known = [declaration for declaration in found if declaration.expression is not None or declaration.file is not None]
    return PackageManifest(next(iter(known or found), None))


def _project_declarations(project: dict[str, Any]) -> Iterator[Declaration]:
    """Yield the licenses that a project table declares, most specific first."""
    value, table = project.get("license"), _subtable(project, "license")
    text, file = table.get("text"), table.get("file")
    if isinstance(value, str) and value.strip():
        yield _declare_expression(value, canonical_expression(value))
    if isinstance(text, str) and text.strip():
        yield _declare_expression(text, canonical_expression(text.strip()) or identify_license(text))
    if isinstance(file, str):
        yield _declare_file(f"file = {file}", file)
    classifiers = project.get("classifiers")
    names = (
        [classifier for classifier in classifiers if isinstance(classifier, str)]
        if isinstance(classifiers, list)
        else []
    )
    licenses = [classifier for classifier in names if classifier.startswith(CLASSIFIER)]
    if len(licenses) == 1 and licenses[0] in ID_BY_CLASSIFIER:
        yield Declaration(_shorten(licenses[0]), ID_BY_CLASSIFIER[licenses[0]])


def _parse_toml(text: str) -> dict[str, Any]:
    if len(text) > MAX_TOML_CHARACTERS or any(line.count(".") > MAX_DOTS_IN_LINE for line in text.split("\n")):
        return {}
    return tomllib.loads(text)


def _subtable(parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _declare_expression(value: str, expression: str | None) -> Declaration:
    return Declaration(_shorten(value), expression and _strip_parentheses(expression))


def _strip_parentheses(expression: str) -> str:
    """Remove enclosing parentheses, which npm requires: `(MIT OR ISC)` -> `MIT OR ISC`."""
    inner = expression[1:-1]
    is_enclosed = expression.startswith("(") and canonical_expression(inner) == inner
    return _strip_parentheses(inner) if is_enclosed else expression


def _declare_file(value: str, file: str) -> Declaration:
    """Return a declaration that refers to a license text. An absolute or invalid path is kept only as `value`."""
    path = posixpath.normpath(file.strip())
    is_path = path.isprintable() and "\\" not in path and len(path) <= MAX_PATH_CHARACTERS and path[0] != "/"
    return Declaration(_shorten(value), file=path if is_path and path != "." else None)


def _shorten(value: str) -> str:
    text = printable(" ".join(value.split()))
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"


READERS = {"Cargo.toml": _read_cargo, "package.json": _read_package_json, "pyproject.toml": _read_pyproject}
MANIFEST_NAMES = frozenset(READERS)
