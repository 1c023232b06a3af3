"""Tests of the licenses that package manifests declare, and of their combination with license texts."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from identify.vendor.licenses import LICENSES

from gristmill.cleaning.folder_licenses import FolderLicenses, License, LicenseFiles, LicenseText, license_of
from gristmill.cleaning.licenses import NOASSERTION, AllowList, canonical_expression, is_satisfied, named_license
from gristmill.cleaning.package_manifests import (
    EMPTY_MANIFEST,
    MANIFEST_NAMES,
    MAX_JSON_CHARACTERS,
    MAX_TOML_CHARACTERS,
    read_manifest,
)

TEXTS = dict(LICENSES)
MIT, APACHE, BSD3, GPL3, LGPL3 = (TEXTS[spdx] for spdx in ("MIT", "Apache-2.0", "BSD-3-Clause", "GPL-3.0", "LGPL-3.0"))
OSI = "License :: OSI Approved :: "
CHOICE = "MIT OR Apache-2.0"
COMMONS_CLAUSE = "“Commons Clause” License Condition v1.0\n\nThe Software is provided to you under the License.\n\n"


def cargo(license):  # noqa: A002
    return f'[package]\nname = "a"\nlicense = "{license}"\n'


def package_json(license):  # noqa: A002
    return json.dumps({"name": "a", "license": license})


def folder_licenses(files, num_above=0):
    """Return the licenses of the folders that contain `files`, a dict from paths to contents.

    A file that is named neither like a manifest nor like a license is a text to which a manifest refers.
    """
    names = {path: path.rpartition("/")[2] for path in files}
    manifests = {path: read_manifest(names[path], files[path]) for path in files if names[path] in MANIFEST_NAMES}
    texts = {path: LicenseText.of(files[path]) for path in files if names[path].startswith(("LICENSE", "COPYING"))}
    named = {path: LicenseText.of(text) for path, text in files.items() if path not in {*manifests, *texts}}
    return FolderLicenses(LicenseFiles(texts, manifests, named, num_above))


# Single manifests


@pytest.mark.parametrize(
    ("name", "text", "expression"),
    [
        ("Cargo.toml", cargo("MIT OR Apache-2.0"), CHOICE),
        ("Cargo.toml", cargo("MIT/Apache-2.0"), CHOICE),
        ("Cargo.toml", cargo("MIT / apache-2.0"), CHOICE),
        ("Cargo.toml", cargo("Apache-2.0 WITH LLVM-exception/MIT"), "Apache-2.0 WITH LLVM-exception OR MIT"),
        ("Cargo.toml", cargo("MIT/Apache-2.0 AND ISC"), None),
        ("Cargo.toml", cargo("Ours"), None),
        ("Cargo.toml", '[workspace.package]\nlicense = "ISC"\n', "ISC"),
        ("package.json", package_json("MIT"), "MIT"),
        ("package.json", package_json("(MIT OR Apache-2.0)"), CHOICE),
        ("package.json", package_json("(MIT OR ISC) AND (MIT OR 0BSD)"), "(MIT OR ISC) AND (MIT OR 0BSD)"),
        ("package.json", package_json("MIT/Apache-2.0"), None),
        ("package.json", package_json("UNLICENSED"), None),
        ("package.json", package_json({"type": "MIT", "url": "https://example.org"}), "MIT"),
        ("package.json", json.dumps({"licenses": [{"type": "MIT"}, {"type": "Apache-2.0"}]}), CHOICE),
        ("package.json", json.dumps({"licenses": [{"type": "MIT"}]}), "MIT"),
        ("package.json", json.dumps({"licenses": [{"type": "MIT"}, {"type": "Ours"}]}), None),
        ("package.json", json.dumps({"license": "ISC", "licenses": [{"type": "MIT"}]}), "ISC"),
        ("pyproject.toml", '[project]\nlicense = "mit or apache-2.0"\n', CHOICE),
        ("pyproject.toml", '[project]\nlicense = {text = "MIT"}\n', "MIT"),
        ("pyproject.toml", f"[project.license]\ntext = '''{MIT}'''\n", "MIT"),
        ("pyproject.toml", '[project]\nlicense = {text = "The MIT License"}\n', None),
        (
            "pyproject.toml",
            f"[project]\nlicense = {{text = 'Mozilla'}}\nclassifiers = ['{OSI}Mozilla Public License 2.0 (MPL 2.0)']\n",
            "MPL-2.0",
        ),
        ("pyproject.toml", '[tool.poetry]\nlicense = "BSD-3-Clause"\n', "BSD-3-Clause"),
    ],
)
def test_expression_is_read(name, text, expression):
    declared = read_manifest(name, text).declared
    assert declared is not None
    assert declared.expression == expression


@pytest.mark.parametrize(
    ("name", "text", "file"),
    [
        ("Cargo.toml", '[package]\nlicense-file = "../LICENSE-OURS"\n', "../LICENSE-OURS"),
        ("package.json", package_json("SEE LICENSE IN legal/terms.txt"), "legal/terms.txt"),
        ("package.json", package_json("see licence in ./LICENSE"), "LICENSE"),
        ("pyproject.toml", '[project]\nlicense = {file = "LICENSE"}\n', "LICENSE"),
        ("Cargo.toml", '[package]\nlicense-file = "/etc/passwd"\n', None),
        ("Cargo.toml", '[package]\nlicense-file = "."\n', None),
        ("Cargo.toml", '[package]\nlicense-file = ""\n', None),
        ("package.json", package_json("SEE LICENSE IN a\0b"), None),
        ("package.json", package_json("SEE LICENSE IN " + "a/" * 5000), None),
    ],
)
def test_license_file_path_is_read(name, text, file):
    declared = read_manifest(name, text).declared
    assert declared.file == file
    assert declared.expression is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Cargo.toml", '[package]\nname = "a"\n'),
        ("Cargo.toml", "[package]\nlicense = 3\n"),
        ("Cargo.toml", "[package]\nlicense = ' '\n"),
        ("pyproject.toml", "[project]\nlicense = ''\n"),
        ("Cargo.toml", "package = 3\n"),
        ("Cargo.toml", "license = 'MIT'\n"),
        ("package.json", "{}"),
        ("package.json", '{"license": null, "licenses": [1, {"type": 2}, null]}'),
        ("package.json", "[]"),
        ("pyproject.toml", "[project]\ndynamic = ['license']\n"),
        ("pyproject.toml", f"[project]\nclassifiers = ['{OSI}BSD License']\n"),
        ("pyproject.toml", f"[project]\nclassifiers = ['{OSI}MIT License', '{OSI}ISC License (ISCL)']\n"),
        ("pyproject.toml", f"[project]\nclassifiers = '{OSI}MIT License'\n"),
    ],
)
def test_manifest_without_a_license_declares_nothing(name, text):
    assert read_manifest(name, text).declared is None


@pytest.mark.parametrize("name", sorted(MANIFEST_NAMES))
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "{{ cookiecutter.name }}",
        "a = " + "[" * 50_000,
        "a = " + "{a = " * 20_000,
        '{"license": ' + "[" * 500_000,
        '{"license": "\\ud800"}',
        '{"license": ' + "9" * 5000 + "}",
        "a = " + "9" * 5000,
        "a." * 60_000 + "a = 1",
        "[" + "a." * 60_000 + "a]",
        ("a." * 40 + '"\u2028".') * 1400 + "a = 1",
        "x" * (MAX_JSON_CHARACTERS + 1),
        "#" * (MAX_TOML_CHARACTERS + 1),
        cargo("MIT") + "#" * MAX_TOML_CHARACTERS,
        package_json("MIT") + " " * MAX_JSON_CHARACTERS,
    ],
    ids=lambda text: repr(text[:12]),
)
@pytest.mark.timeout(20)
def test_invalid_or_huge_manifest_declares_nothing(name, text):
    assert read_manifest(name, text) == EMPTY_MANIFEST


def test_declared_value_is_short_and_printable():
    declared = read_manifest("package.json", json.dumps({"license": "\x1b[31mOurs\n\n" + "x" * 500})).declared
    assert declared.value.startswith("\\x1b[31mOurs x")
    assert declared.value.isprintable()
    assert len(declared.value) <= 60


@given(st.sampled_from(sorted(MANIFEST_NAMES)), st.text())
def test_any_text_can_be_read(name, text):
    assert read_manifest(name, text) is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "name", "x"]), inner),
)


@given(JSON, JSON)
def test_any_json_value_can_be_read(license, licenses):  # noqa: A002
    declared = read_manifest("package.json", json.dumps({"license": license, "licenses": licenses})).declared
    assert declared is None or declared.expression is None or canonical_expression(declared.expression)


# Manifests and texts together


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"LICENSE-MIT": MIT, "LICENSE-APACHE": APACHE, "Cargo.toml": cargo("MIT OR Apache-2.0")},
            License(CHOICE, "Cargo.toml"),
        ),
        (
            {"LICENSE-MIT": MIT, "LICENSE-APACHE": APACHE, "Cargo.toml": cargo("")},
            License(NOASSERTION, "LICENSE-APACHE, LICENSE-MIT"),
        ),
        (
            {"LICENSE-MIT": MIT, "LICENSE-APACHE": APACHE, "Cargo.toml": cargo("MIT")},
            "Cargo.toml (MIT) against LICENSE-APACHE (Apache-2.0)",
        ),
        ({"LICENSE": MIT, "package.json": package_json("MIT")}, License("MIT", "package.json")),
        ({"LICENSE": MIT, "package.json": package_json("(MIT OR Apache-2.0)")}, License(CHOICE, "package.json")),
        (
            {"LICENSE": APACHE, "package.json": package_json("MIT")},
            "package.json (MIT) against LICENSE (Apache-2.0)",
        ),
        ({"LICENSE": MIT, "package.json": package_json("UNLICENSED")}, "package.json (UNLICENSED) against LICENSE (MIT)"),
        ({"UNLICENSE": "", "package.json": package_json("UNLICENSED")}, License(NOASSERTION, "package.json (UNLICENSED)")),
        (
            {"LICENSE": TEXTS["Unlicense"], "package.json": package_json("UNLICENSED")},
            "package.json (UNLICENSED) against LICENSE (Unlicense)",
        ),
        ({"COPYING": GPL3, "Cargo.toml": cargo("GPL-3.0-or-later")}, License("GPL-3.0-or-later", "Cargo.toml")),
        ({"COPYING": GPL3, "Cargo.toml": cargo("GPL-2.0-or-later")}, "Cargo.toml (GPL-2.0-or-later) against COPYING (GPL-3.0)"),
        (
            {"COPYING": GPL3, "COPYING.LESSER": LGPL3, "Cargo.toml": cargo("LGPL-3.0-only")},
            License("LGPL-3.0-only", "Cargo.toml"),
        ),
        ({"LICENSE": "A text of our own.", "Cargo.toml": cargo("MIT")}, License("MIT", "Cargo.toml")),
        ({"LICENSE": "GNU General Public License, changed", "Cargo.toml": cargo("MIT")}, "Cargo.toml (MIT) against LICENSE (not recognized)"),
        ({"LICENSE": COMMONS_CLAUSE + APACHE, "Cargo.toml": cargo("Apache-2.0")}, "Cargo.toml (Apache-2.0) against LICENSE (not recognized)"),
        (
            {"LICENSE": MIT, "LICENSE-COMMERCIAL": "Pay.", "Cargo.toml": cargo("MIT")},
            "Cargo.toml (MIT) against LICENSE-COMMERCIAL (not recognized)",
        ),
        ({"LICENSE": MIT, "LICENSE.python": "Of a part.", "Cargo.toml": cargo("MIT")}, License("MIT", "Cargo.toml")),
        ({"LICENSE": MIT, "pyproject.toml": "[project]\nlicense = {text = 'MIT License'}"}, License("MIT", "LICENSE")),
        ({"LICENSE": BSD3, "pyproject.toml": "[tool.poetry]\nlicense = 'BSD'"}, License("BSD-3-Clause", "LICENSE")),
        ({"LICENSE": GPL3, "pyproject.toml": "[project]\nlicense = {text = 'GPLv2'}"}, "pyproject.toml (GPLv2) against LICENSE (GPL-3.0)"),
        ({"LICENSE": MIT, "pyproject.toml": "[project]\nlicense = {file = 'LICENSE'}"}, License("MIT", "LICENSE")),
        ({"terms.txt": MIT, "package.json": package_json("SEE LICENSE IN terms.txt")}, License("MIT", "terms.txt")),
        (
            {"terms.txt": "Ask.", "package.json": package_json("SEE LICENSE IN terms.txt")},
            License(NOASSERTION, "package.json (SEE LICENSE IN terms.txt)"),
        ),
        (
            {"terms.txt": APACHE, "LICENSE": MIT, "package.json": package_json("SEE LICENSE IN terms.txt")},
            "terms.txt (Apache-2.0) against LICENSE (MIT)",
        ),
        (
            {"Cargo.toml": cargo("MIT OR Apache-2.0"), "pyproject.toml": "[project]\nlicense = 'Apache-2.0 OR MIT'"},
            License(CHOICE, "Cargo.toml"),
        ),
        (
            {"Cargo.toml": cargo("MIT OR Apache-2.0"), "pyproject.toml": "[project]\nlicense = 'MIT'"},
            "Cargo.toml (MIT OR Apache-2.0) against pyproject.toml (MIT)",
        ),
        ({"Cargo.toml": cargo("MIT"), "package.json": "{}"}, License("MIT", "Cargo.toml")),
    ],
)  # fmt: skip
def test_manifest_and_texts_of_one_folder_are_combined(files, expected):
    if isinstance(expected, str):
        expected = License(NOASSERTION, expected, is_contradiction=True)
    assert folder_licenses(files).of("src/a.rs") == expected


def test_nearest_manifest_or_license_text_applies():
    found = folder_licenses(
        {
            "LICENSE": MIT,
            "Cargo.toml": cargo("MIT"),
            "vendor/x/LICENSE": BSD3,
            "vendor/y/LICENSE": "Ask first.",
            "vendor/z/package.json": package_json("ISC"),
            "crates/a/Cargo.toml": '[package]\nname = "a"\n',
        }
    )
    assert found.of("a.rs") == License("MIT", "Cargo.toml")
    assert found.of("vendor/x/a.c") == License("BSD-3-Clause", "vendor/x/LICENSE")
    assert found.of("vendor/y/a.c") == License(NOASSERTION, "vendor/y/LICENSE")
    assert found.of("vendor/z/a.js") == License(
        NOASSERTION, "vendor/z/package.json (ISC) against LICENSE (MIT)", is_contradiction=True
    )
    assert found.of("crates/a/a.rs") == License("MIT", "Cargo.toml")


def test_crate_inherits_the_license_of_its_workspace():
    member = "[package]\nlicense.workspace = true\n"
    root = '[workspace]\nmembers = ["a"]\n[workspace.package]\nlicense = "MIT OR Apache-2.0"\n'
    texts = {"LICENSE-MIT": MIT, "LICENSE-APACHE": APACHE}
    found = folder_licenses({**texts, "Cargo.toml": root, "crates/a/Cargo.toml": member, "b/Cargo.toml": cargo("MIT")})
    assert found.of("crates/a/src/lib.rs") == License(CHOICE, "Cargo.toml")
    assert found.of("scripts/run.py") == License(CHOICE, "Cargo.toml")
    assert found.of("b/lib.rs").is_contradiction
    assert folder_licenses({"a/Cargo.toml": member}).of("a/lib.rs").spdx == NOASSERTION
    no_root = '[package]\nlicense = "MIT"\n'
    assert folder_licenses({"Cargo.toml": no_root, "a/Cargo.toml": member}).of("a/lib.rs").spdx == NOASSERTION
    loop = "[workspace.package]\nlicense.workspace = true\n"
    assert folder_licenses({"Cargo.toml": loop, "a/Cargo.toml": member}).of("a/lib.rs").spdx == NOASSERTION
    by_file = "[workspace.package]\nlicense-file = 'LICENSE-MIT'\n"
    inherits_file = "[package]\nlicense-file.workspace = true\n"
    found = folder_licenses({"LICENSE-MIT": MIT, "Cargo.toml": by_file, "x/a/Cargo.toml": inherits_file})
    assert found.of("x/a/lib.rs") == License("MIT", "LICENSE-MIT")


def test_folders_above_the_source_are_searched_up_to_the_limit():
    member = "[package]\nlicense.workspace = true\n"
    root = "[workspace.package]\nlicense = 'ISC'\n"
    files = {"Cargo.toml": member, "../../Cargo.toml": root, "../../../LICENSE": MIT}
    assert folder_licenses(files, num_above=2).of("src/a.rs") == License("ISC", "../../Cargo.toml")
    assert folder_licenses({"../LICENSE": MIT}, num_above=1).of("a.py") == License("MIT", "../LICENSE")
    assert folder_licenses({"../../LICENSE": MIT}, num_above=1).of("a.py") == License(NOASSERTION, None)
    # With num_above=0, as in a table, `..` in a path does not refer to a parent folder.
    assert folder_licenses({"../LICENSE": MIT}).of("a.py") == License(NOASSERTION, None)


def test_header_that_offers_two_licenses_agrees_with_the_manifest():
    mit_or_apache = folder_licenses({"Cargo.toml": cargo("MIT OR Apache-2.0")})
    rust = (
        b"// Licensed under the Apache License, Version 2.0 <LICENSE-APACHE or\n"
        b"// https://www.apache.org/licenses/LICENSE-2.0> or the MIT license\n// <LICENSE-MIT>, at your option.\n"
    )
    swapped = b"// Dual licensed under the MIT license or the Apache License, Version 2.0\n"
    for header in (rust, swapped):
        assert license_of("a.rs", None, named_license(header), mit_or_apache) == License(CHOICE, "Cargo.toml")
        gpl = folder_licenses({"LICENSE": GPL3})
        assert license_of("a.rs", None, named_license(header), gpl) == License(NOASSERTION, "header")
    only_apache = named_license(b"// Licensed under the Apache License, Version 2.0\n")
    assert license_of("a.rs", None, only_apache, mit_or_apache) == License(NOASSERTION, "header")
    assert license_of("a.rs", "ISC", only_apache, mit_or_apache) == License("ISC", "header")
    parts = folder_licenses({"Cargo.toml": cargo("Apache-2.0 AND BSD-3-Clause")})
    assert license_of("a.rs", None, only_apache, parts).spdx == "Apache-2.0 AND BSD-3-Clause"


IDS = ("MIT", "ISC", "0BSD", "Zlib")


@given(
    st.recursive(
        st.sampled_from(IDS),
        lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda one: f"({' '.join(one)})"),
        max_leaves=8,
    )
)
def test_license_expression_gives_the_same_result_as_a_python_expression(text):
    python = text.replace("AND", "and").replace("OR", "or").replace("0BSD", "BSD")
    for chosen in itertools.product((False, True), repeat=len(IDS)):
        held = dict(zip(IDS, chosen, strict=True))
        names = {spdx.replace("0BSD", "BSD"): value for spdx, value in held.items()}
        assert is_satisfied(text, held.__getitem__) is eval(python, names)
        allowed = [spdx for spdx in IDS if held[spdx]]
        assert not allowed or AllowList.of(allowed).allows(text) is eval(python, names)
