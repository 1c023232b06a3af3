import itertools
import random
import re
from functools import cache
from importlib.metadata import distributions

import pytest
from hypothesis import given
from hypothesis import strategies as st
from identify.vendor.licenses import LICENSES as CHOOSE_A_LICENSE

from gristmill.cleaning.folder_licenses import FolderLicenses, License, LicenseFiles, LicenseText, license_of
from gristmill.cleaning.license_texts import MAX_CHARACTERS, TERMS_DIGESTS
from gristmill.cleaning.licenses import (
    APACHE_OR_MIT,
    FAMILIES,
    NOASSERTION,
    AllowList,
    canonical_expression,
    header_licenses,
    identify_license,
    is_license_name,
    named_license,
    tagged_license,
)
from gristmill.core.errors import ConfigError

TEXTS = dict(CHOOSE_A_LICENSE)
MIT, APACHE, BSD3, GPL3, LGPL3 = (TEXTS[spdx] for spdx in ("MIT", "Apache-2.0", "BSD-3-Clause", "GPL-3.0", "LGPL-3.0"))
COMMONS_CLAUSE = """“Commons Clause” License Condition v1.0

The Software is provided to you by the Licensor under the License, as defined below, subject to the following condition.
"""


def folder_licenses(texts):
    return FolderLicenses(LicenseFiles({path: LicenseText.of(text) for path, text in texts.items()}))


@cache
def installed_license_files():
    """Return (package, file, text, License-Expression) for each installed license file, sorted by package."""
    return [
        (
            package.name,
            str(file),
            file.locate().read_text(encoding="utf-8", errors="replace"),
            package.metadata.get("License-Expression"),
        )
        for package in sorted(distributions(), key=lambda package: package.name)
        for file in package.files or ()
        if ".dist-info" in file.parts[0] and is_license_name(file.name) and file.locate().is_file()
    ]


# Texts


@pytest.mark.parametrize("spdx", sorted(set(TERMS_DIGESTS) & set(TEXTS)))
def test_reference_texts_are_recognized(spdx):
    assert identify_license(TEXTS[spdx]) == spdx


def test_reference_texts_of_unsupported_licenses_are_not_recognized():
    others = {spdx: identify_license(text) for spdx, text in TEXTS.items() if spdx not in TERMS_DIGESTS}
    assert len(others) >= 10
    assert set(others.values()) == {None}


def test_license_files_of_installed_packages_match_their_metadata():
    checked, num_same = [], 0
    for package, file, text, declared in installed_license_files():
        if declared is None or file.count("/") > 2:  # files in deeper folders are licenses of vendored code
            continue
        found = identify_license(text)
        checked.append(package)
        num_same += found == declared
        assert found is None or found in re.split(r"[() ]+", declared), (file, found, declared)
    assert len(set(checked)) >= 15
    assert num_same >= 10
    assert {"numpy", "orjson", "hypothesis", "packaging"} <= set(checked)


@pytest.mark.parametrize(
    ("package", "expected"),
    [("rich", "MIT"), ("msgspec", "BSD-3-Clause"), ("transformers", "Apache-2.0"), ("pathspec", "MPL-2.0")],
)
def test_license_files_of_known_packages_are_recognized(package, expected):
    found = [identify_license(text) for name, _, text, _ in installed_license_files() if name == package]
    assert found == [expected]


def test_file_with_several_licenses_is_not_recognized():
    stacks = {name: text for name, file, text, _ in installed_license_files() if file.count("/") <= 2}
    assert identify_license(stacks["numpy"]) is None
    # typing_extensions has the license of Python, which consists of the licenses of PSF, BeOpen, CNRI and CWI.
    assert identify_license(stacks["typing_extensions"]) is None


@pytest.mark.parametrize(
    "text",
    [
        MIT.upper(),
        MIT.replace("\n", "\r\n"),
        "Permission" + MIT.partition("Permission")[2].replace("\n", " "),
        "# The MIT License (MIT)\n\n" + MIT,
        "\ufeff" + MIT,
        "".join(f"> {line}\n" for line in MIT.splitlines()),
        MIT.replace('"', "“").replace("NONINFRINGEMENT", "NON-INFRINGEMENT"),
        MIT.replace(
            "Permission is",
            "Copyright © 2019, 2020 Größe & Söhne <a@b.example>\nAll rights reserved.\n\nPermission is",
            1,
        ),
        MIT.replace("Permission is", "2009-2026 (c) Somebody\n\nPermission is", 1),
        MIT.replace("AUTHORS OR COPYRIGHT HOLDERS", "ACME CORPORATION"),
    ],
)
def test_genuine_copies_are_recognized(text):
    assert identify_license(text) == "MIT"


def test_license_with_filled_in_names_is_recognized():
    text = BSD3.replace("the copyright holder nor", "the Regents of the University of Nowhere nor")
    assert text != BSD3
    assert identify_license(text) == "BSD-3-Clause"
    assert identify_license(BSD3.replace("1. ", "* ").replace("2. ", "* ").replace("3. ", "* ")) == "BSD-3-Clause"


def test_apache_is_recognized_with_or_without_its_appendix():
    assert identify_license(APACHE.replace("[yyyy] [name of copyright owner]", "2020 Somebody")) == "Apache-2.0"
    assert identify_license(APACHE.partition("APPENDIX")[0]) == "Apache-2.0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "MIT License\n\nCopyright (c) 2020 Somebody\n",
        MIT.replace("THE SOFTWARE IS", "The Software shall be used for Good, not Evil.\n\nTHE SOFTWARE IS", 1),
        MIT + "\nThe Software may not be used by companies with more than 100 employees.\n",
        "For evaluation within the company:\n\n" + MIT,
        MIT.replace("Permission is", "Copyright 2020 A. Non-commercial use only.\n\nPermission is", 1),
        MIT.replace("Permission is", "Copyright 2020 A\nfor schools in Nowhere\n\nPermission is", 1),
        BSD3.replace("THE COPYRIGHT HOLDERS AND CONTRIBUTORS", "THE AUTHORS FOR NONCOMMERCIAL USE"),
        MIT.replace("without restriction", "with restriction"),
        MIT[: len(MIT) // 2],
        BSD3 + "\nYou acknowledge that this software is not designed or intended for use in a nuclear facility.\n",
        BSD3.replace(
            "THIS SOFTWARE IS", "No licenses to any patent are granted by this license.\n\nTHIS SOFTWARE IS", 1
        ),
        COMMONS_CLAUSE + APACHE,
        APACHE + COMMONS_CLAUSE,
        APACHE.partition("APPENDIX")[0] + COMMONS_CLAUSE,
        MIT + APACHE,
        APACHE + MIT,
        MIT + MIT,
        GPL3 + LGPL3,
        f"Proprietary. All rights reserved. Parts of it came under this licence:\n\n{MIT}\nOur own licence follows.",
        "Lizenz\n\nHiermit wird unentgeltlich jeder Person die Erlaubnis erteilt, uneingeschränkt mit ihr zu verfahren.",
        "特此免费授予任何获得本软件副本的人不受限制地处理本软件的权利。",
        MIT + "不得用于商业用途。",
        "x" * 1_000_000,
    ],
)
def test_changed_text_is_not_recognized(text):
    assert identify_license(text) is None


def test_text_with_an_added_or_removed_word_is_not_recognized():
    top, start, body = MIT.partition("Permission")
    words = body.split()
    for at in range(len(words)):
        more = [*words[:at], "never", *words[at:]]
        less = words[:at] + words[at + 1 :]
        is_in_name = "SHALL" in words[max(0, at - 6) : at] and "BE" in words[at : at + 7]
        if not is_in_name:
            assert identify_license(top + start + " " + " ".join(more)) is None, at
            assert identify_license(top + start + " " + " ".join(less)) is None, at


@pytest.mark.parametrize(
    "piece", ["(c) ", "copyright ", "in no event shall a ", "neither the name of ", "license\n", "a\n", "1. ", " ", "ﷺ"]
)
@pytest.mark.timeout(20)
def test_long_texts_take_bounded_time(piece):
    assert identify_license(piece * (MAX_CHARACTERS // len(piece))) is None
    assert identify_license(piece * 1_000_000) is None


@given(st.text(st.characters()))
def test_any_text_gives_an_id_or_none(text):
    assert identify_license(text) is None
    assert identify_license(MIT + text) in {None, "MIT"}


# Headers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"# SPDX-License-Identifier: MIT\nx = 1\n", "MIT"),
        (b"#!/bin/sh\n# SPDX-License-Identifier: apache-2.0\n", "Apache-2.0"),
        (b"/* SPDX-License-Identifier: GPL-2.0 */\r\nint x;", "GPL-2.0"),
        (
            b"/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR MIT) */",
            "((GPL-2.0 WITH Linux-syscall-note) OR MIT)",
        ),
        (b"<!-- SPDX-License-Identifier: CC-BY-4.0 --><p>", "CC-BY-4.0"),
        (b"{# SPDX-License-Identifier: BSD-3-Clause #}", "BSD-3-Clause"),
        (b"(* SPDX-License-Identifier: ISC *)", "ISC"),
        (b'"""SPDX-License-Identifier: MIT"""', "MIT"),
        (b'" SPDX-License-Identifier: MIT', "MIT"),
        (b'.\\" SPDX-License-Identifier: MIT', "MIT"),
        (b"# Copyright 2020 A. SPDX-License-Identifier: GPL-2.0+.", "GPL-2.0+"),
        (b"#  SPDX-License-Identifier:MIT   #\n", "MIT"),
        (b"rem SPDX-License-Identifier: LicenseRef-Ours", "LicenseRef-Ours"),
        (b"# SPDX-License-Identifier: MIT\n# SPDX-License-Identifier: mit\n", "MIT"),
        (b"# SPDX-License-Identifier: MIT\n# SPDX-License-Identifier: ISC OR 0BSD\n", "MIT AND (ISC OR 0BSD)"),
        (b"# SPDX-License-Identifier: MIT\n# SPDX-License-Identifier: Ours\n", NOASSERTION),
        (b"# SPDX-License-Identifier: MIT, ISC\n", NOASSERTION),
        (b"# SPDX-License-Identifier: Proprietary\n", NOASSERTION),
        (b"# SPDX-License-Identifier: NOASSERTION\n", NOASSERTION),
        (b"# SPDX-License-Identifier:\n", NOASSERTION),
        (b"# SPDX-License-Identifier: \xff\xfe\n", NOASSERTION),
        (b"# SPDX-License-Identifier: " + b"(" * 500, NOASSERTION),
        (b"# SPDX-License-Identifier: MIT" + b" AND MIT" * 400, NOASSERTION),
        (b"print('# SPDX-License-Identifier: MIT')\n", None),
        (b'HEAD = "SPDX-License-Identifier: MIT"\n', None),
        (b"# a licence\n", None),
        (b"", None),
    ],
)
def test_spdx_tags_are_read_from_a_header(text, expected):
    assert tagged_license(text) == expected


def test_tags_are_read_only_from_the_first_lines():
    tag = b"# SPDX-License-Identifier: MIT\n"
    assert tagged_license(b"#\n" * 29 + tag) == "MIT"
    assert tagged_license(b"#\n" * 30 + tag) is None
    assert tagged_license(b"#" * 5000 + b"\n" + tag) is None


def test_tag_truncated_by_the_limit_is_ignored():
    tag = b"# SPDX-License-Identifier: GPL-2.0-or-later\n"
    for filler in range(4040, 4100):
        assert tagged_license(b"#" * filler + b"\n" + tag) in {None, "GPL-2.0-or-later"}


@given(st.binary(), st.binary())
def test_any_bytes_give_an_expression_or_none(before, after):
    found = tagged_license(before + b"SPDX-License-Identifier: " + after)
    assert found in {None, NOASSERTION} or canonical_expression(found) == found


# Names


@pytest.mark.parametrize(
    "name",
    [
        "LICENSE",
        "LICENCE",
        "license",
        "COPYING",
        "UNLICENSE",
        "LICENSE.txt",
        "LICENSE.md",
        "License.rst",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "MIT-LICENSE",
        "MIT-LICENSE.txt",
        "COPYING.LESSER",
        "COPYING.LIB",
        "COPYING3",
        "LICENSE_APACHE",
        "LICENSE.APACHE2",
        "LICENSE-APACHE-2.0.txt",
        "LICENSE-2.0.txt",
        "BSD-3-Clause-LICENSE",
        "COPYING.GPLv3",
        "LICENSE-COMMERCIAL.md",
        "LICENSE-CODE",
    ],
)
def test_license_files_are_recognized_by_name(name):
    assert is_license_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "license.py",
        "licenses.py",
        "licenses.txt",
        "LICENSE.json",
        "license-header.txt",
        "license_test.go",
        "LICENSE.third-party",
        "MIT.txt",
        "relicense.md",
        "copying.c",
        "COPYRIGHT",
        "README.md",
        "README-LICENSE.md",
        "logo.png.license",
        ".license.swp",
        "_",
        ".",
        "-",
        "a",
        "",
    ],
)
def test_other_names_are_not_license_files(name):
    assert not is_license_name(name)


# Folders


def test_license_of_the_nearest_folder_applies():
    folders = folder_licenses({"LICENSE": MIT, "lib/COPYING": GPL3, "lib/deep/er/LICENSE": APACHE})
    assert folders.of("a.py") == License("MIT", "LICENSE")
    assert folders.of("src/b/c.py") == License("MIT", "LICENSE")
    assert folders.of("lib/a.c") == License("GPL-3.0", "lib/COPYING")
    assert folders.of("lib/deep/a.c") == License("GPL-3.0", "lib/COPYING")
    assert folders.of("lib/deep/er/a.c") == License("Apache-2.0", "lib/deep/er/LICENSE")
    assert folders.of("library/a.c") == License("MIT", "LICENSE")


@pytest.mark.parametrize("unknown", [None, "", "Ask us first."])
def test_unknown_license_is_not_overruled_by_a_folder_above(unknown):
    folders = folder_licenses({"LICENSE": MIT, "vendor/x/LICENSE": unknown})
    assert folders.of("vendor/x/src/a.c") == License(NOASSERTION, "vendor/x/LICENSE")
    assert folders.of("vendor/a.c") == License("MIT", "LICENSE")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, License(NOASSERTION, None)),
        ({"sub/LICENSE": MIT}, License(NOASSERTION, None)),
        ({"LICENSE.md": MIT, "LICENSE": MIT}, License("MIT", "LICENSE")),
        ({"LICENSE-MIT": MIT, "LICENSE-APACHE": APACHE}, License(NOASSERTION, "LICENSE-APACHE, LICENSE-MIT")),
        ({"LICENSE": MIT, "LICENSE.python": "Of another part."}, License("MIT", "LICENSE")),
        ({"LICENSE": MIT, "license.rst": "A page about it."}, License("MIT", "LICENSE")),
        ({"LICENSE": MIT, "COPYING": "Something else."}, License(NOASSERTION, "COPYING, LICENSE")),
        ({"LICENSE": MIT, "LICENSE-COMMERCIAL": "Pay."}, License(NOASSERTION, "LICENSE, LICENSE-COMMERCIAL")),
        ({"COPYING": GPL3, "COPYING.LESSER": LGPL3}, License("LGPL-3.0", "COPYING.LESSER")),
        ({"LICENSE.GPL": GPL3, "LICENSE.LGPL": LGPL3}, License(NOASSERTION, "LICENSE.GPL, LICENSE.LGPL")),
        ({"COPYING": GPL3, "COPYING.LESSER": TEXTS["LGPL-2.1"]}, License(NOASSERTION, "COPYING, COPYING.LESSER")),
    ],
)
def test_license_files_in_one_folder_are_combined(files, expected):
    assert folder_licenses(files).of("a.py") == expected


def test_header_overrides_the_folder():
    folders = folder_licenses({"LICENSE": MIT})
    assert license_of("a.py", "ISC", None, folders) == License("ISC", "header")
    assert license_of("a.py", None, None, folders) == License("MIT", "LICENSE")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            b"# This program is free software under the terms of the GNU General\n# Public License version 2.\n",
            NOASSERTION,
        ),
        (b"/* Licensed under the Apache License, Version 2.0 */\n", NOASSERTION),
        (b"// PROPRIETARY AND CONFIDENTIAL\n", NOASSERTION),
        (b"# Public domain\n", "MIT"),
        (b"", "MIT"),
    ],
)
def test_header_that_contradicts_the_folder_gives_noassertion(header, expected):
    folders = folder_licenses({"LICENSE": MIT})
    assert license_of("a.py", None, named_license(header), folders).spdx == expected
    apache = folder_licenses({"LICENSE": APACHE})
    assert license_of("a.py", None, named_license(b"# Licensed under the Apache License"), apache).spdx == "Apache-2.0"


@pytest.mark.timeout(20)
def test_blank_lines_and_brackets_take_bounded_time():
    for piece in ("\n", "( ", "(\n", " \n", "a. "):
        assert identify_license("x" + piece * 40_000 + "y") is None


@pytest.mark.parametrize(
    "notice",
    [
        "Copyright (c) 2020 ACME. Companies excluded.",
        "Copyright (c) 2020 ACME. Free for students, others pay.",
        "Copyright (c) 2020 ACME. Military application banned.",
        "(c) ACME - distribution to third parties is a crime",
    ],
)
def test_notice_with_a_condition_is_not_recognized(notice):
    assert identify_license(re.sub(r"Copyright .*", notice, MIT)) is None
    assert identify_license(re.sub(r"Copyright .*", "Copyright (c) 2007 Free Software Foundation, Inc.", MIT)) == "MIT"


@pytest.mark.parametrize("name", ["LICENSE-ACME.txt", "LICENSE_ACME", "LICENSE.html", "LICENSE.rtf"])
def test_custom_license_is_found_by_its_name(name):
    assert is_license_name(name)
    found = folder_licenses({"LICENSE": MIT, f"sub/{name}": "Ask."}).of("sub/a.py")
    assert found == License(NOASSERTION, f"sub/{name}")


def test_every_id_in_the_table_is_spdx_and_every_digest_has_one_id():
    assert [canonical_expression(spdx) for spdx in TERMS_DIGESTS] == list(TERMS_DIGESTS)
    digests = list(itertools.chain.from_iterable(TERMS_DIGESTS.values()))
    assert len(set(digests)) == len(digests)


# The allow list


@pytest.mark.parametrize(
    ("listed", "spdx", "allowed"),
    [
        (["MIT"], "MIT", True),
        (["mit , apache-2.0"], "Apache-2.0", True),
        (["MIT"], "ISC", False),
        (["MIT"], NOASSERTION, False),
        (["MIT", "noassertion"], NOASSERTION, True),
        (["NOASSERTION"], "MIT", False),
        (["MIT"], "MIT OR GPL-3.0", True),
        (["MIT"], "MIT AND GPL-3.0", False),
        (["MIT", "ISC"], "MIT AND (GPL-3.0 OR ISC)", True),
        (["MIT"], "GPL-3.0 AND ISC OR MIT", True),
        (["MIT"], "MIT AND ISC OR MIT AND GPL-3.0", False),
        (["GPL-2.0"], "GPL-2.0-only", True),
        (["GPL-2.0-only"], "GPL-2.0", True),
        (["GPL-2.0"], "GPL-2.0+", True),
        (["GPL-2.0-only"], "GPL-2.0-or-later", True),
        (["GPL-2.0+"], "GPL-2.0-or-later", True),
        (["GPL-2.0-or-later"], "GPL-2.0", False),
        (["GPL-2.0"], "GPL-3.0", False),
        (["GPL-2.0"], "GPL-2.0-only WITH Classpath-exception-2.0", True),
        (["GPL-2.0 WITH Classpath-exception-2.0"], "GPL-2.0-or-later WITH Classpath-exception-2.0", True),
        (["GPL-2.0 WITH Classpath-exception-2.0"], "GPL-2.0", False),
        (["GPL-2.0 WITH Classpath-exception-2.0"], "GPL-2.0 WITH Linux-syscall-note", False),
        (["LicenseRef-Ours"], "LicenseRef-ours", True),
        (["MIT"], "MIT OR", False),
        (["MIT"], "MIT OR NOASSERTION", False),
        (["MIT"], "", False),
        ([], "MIT", False),
    ],
)
def test_allow_list_allows_compatible_ids(listed, spdx, allowed):
    assert AllowList.of(listed).allows(spdx) is allowed


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("Apache2.0", "Try Apache-2.0."),
        ("GPL3", "Try GPL-3.0."),
        ("bsd", "Try BSD-2-Clause or BSD-3-Clause."),
        ("MIT,qwertyuiop", "'qwertyuiop' is not an SPDX id. Ids such as MIT or Apache-2.0 are listed at"),
        ("MIT OR ISC", "takes ids"),
        ("(MIT)", "takes ids"),
        ("(" * 300, "is not an SPDX id"),
    ],
)
def test_invalid_id_is_rejected_with_a_suggestion(item, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        AllowList.of([item])


IDS = ["MIT", "ISC", "Zlib", "MPL-2.0"]


def expression_and_truth(rng, depth):
    """Return a random expression, and a function that evaluates the expression for a set of allowed ids."""
    if depth == 0 or rng.random() < 0.2:
        spdx = rng.choice(IDS)
        return spdx, lambda allowed: spdx in allowed
    parts = [expression_and_truth(rng, depth - 1) for _ in range(rng.randint(2, 3))]
    operator, decide = rng.choice([(" AND ", all), (" OR ", any)])
    text = operator.join(f"({text})" if " " in text or rng.random() < 0.1 else text for text, _ in parts)
    return text, lambda allowed: decide([truth(allowed) for _, truth in parts])


@given(st.integers(0, 10**9), st.sets(st.sampled_from(IDS)))
def test_allow_list_equals_direct_evaluation(seed, allowed):
    text, truth = expression_and_truth(random.Random(seed), 4)
    if canonical_expression(text) is not None:  # None if the expression is too long
        assert AllowList.of(sorted(allowed)).allows(text) is truth(allowed)


@given(st.lists(st.sampled_from([*IDS, "AND", "OR"]), max_size=9), st.sets(st.sampled_from(IDS)))
def test_and_binds_tighter_than_or(tokens, allowed):
    text = " ".join(tokens)
    if canonical_expression(text) is not None:
        python = " ".join(token.lower() if token in {"AND", "OR"} else str(token in allowed) for token in tokens)
        assert AllowList.of(sorted(allowed)).allows(text) is eval(python)


@given(st.text())
def test_any_text_can_be_checked(text):
    assert AllowList.of(["MIT"]).allows(text) in {True, False}
    assert is_license_name(text) in {True, False}


HEADER_WORDS = [
    *(b"GNU", b"general", b"Lesser", b"Public", b"license", b"licenses", b"Apache", b"MIT", b"or", b"under the"),
    *(b"confidential", b"and", b"proprietary", b"commons", b"clause", b"x", b" ", b"\n# ", b" * ", b", ", b"\xc3\xa9"),
    b"\nSPDX-License-Identifier: ISC\n",
]


@given(st.lists(st.lists(st.sampled_from(HEADER_WORDS), max_size=12).map(b"".join), max_size=5))
def test_headers_in_a_batch_equal_single_headers(texts):
    found = header_licenses(texts)
    assert [one.tagged for one in found] == list(map(tagged_license, texts))
    assert [one.named for one in found] == list(map(reference_family, texts)) == list(map(named_license, texts))


def reference_family(text: bytes) -> str | None:
    words = re.sub(rb"[^a-z]+", b" ", text.lower())
    family = next((family for phrase, family in FAMILIES.items() if phrase in words), None)
    return "Apache OR MIT" if family == "Apache" and APACHE_OR_MIT.search(words) else family


def test_nul_is_read_as_a_space():
    assert named_license(b"GNU\0General Public License\0\0GNU Lesser") == "GPL"
