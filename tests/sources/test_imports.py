"""Tests that imports are found and resolved to files of the same repository, with a small tree for each language."""

import pytest

from gristmill.sources.imports import IMPORT_LANGUAGES, MAX_IMPORTS, Import, RepoFiles, find_imports
from gristmill.sources.languages import language_of

PYTHON = {
    "setup.py": "from setuptools import setup\n",
    "src/shop/__init__.py": "from .cart import Cart\nfrom . import prices\n",
    "src/shop/cart.py": "import json\nfrom shop.prices import (\n    price,  # of one (1)\n    TAX as VAT,\n)\n",
    "src/shop/prices.py": "import shop.tax.rates as rates, os\n",
    "src/shop/tax/__init__.py": "",
    "src/shop/tax/rates.py": "from ..json import loads\nfrom ... import nothing\nRATE = 7\n",
    "src/shop/json.py": "def loads(): pass\n",
    "tests/test_cart.py": "from shop import cart, \\\n    prices\nimport helpers; import shop.json\n",
    "tests/helpers.py": "",
}
GO = {
    "go.mod": "// a comment\nmodule example.org/shop/v2\n\ngo 1.21\n",
    "main.go": 'package main\n\nimport (\n\t"fmt" // (prints)\n\tp "example.org/shop/v2/prices"\n\t_ "example.org/shop/v2"\n)\n',
    "prices/list.go": 'package prices\nimport "example.org/shop/v2/internal/tax"\n',
    "prices/list_test.go": 'package prices\nimport "testing"\n',
    "prices/sum.go": "package prices\n",
    "internal/tax/tax.go": 'package tax\nimport . "errors"\nimport "github.com/other/prices"\n',
    "errors/errors.go": "package errors\n",
}
RUST = {
    "src/lib.rs": "pub mod cart;\nmod prices;\npub(crate) use crate::cart::{Cart, item::{self, Item}};\n",
    "src/cart/mod.rs": "mod item;\nuse super::prices::Price as P;\nuse self::item::Item;\n",
    "src/cart/item.rs": "use super::super::prices;\nuse crate::{prices::Price, cart}; // both\n",
    "src/prices.rs": "use std::fmt;\nuse crate::Shop;\n",
}
TYPESCRIPT = {
    "src/index.ts": 'export * from "./cart";\nimport "./styles.css";\nimport x from "react";\n',
    "src/cart/index.tsx": "import {\n  Price,\n} from '../prices.js';\nconst lazy = () => import(`./no`);\n",
    "src/prices.ts": 'const tax = require( "./tax" );\nimport("../../outside");\n',
    "src/tax.mjs": "export default 7;\n",
    "src/styles.css": "a { b: c }\n",
}
JAVA = {
    "src/main/java/org/shop/Cart.java": "package org.shop;\nimport org.shop.prices.*;\nimport java.util.List;\n",
    "src/main/java/org/shop/prices/Price.java": "package org.shop.prices;\nimport static org.shop.Tax.RATE ;\n",
    "src/main/java/org/shop/Tax.java": "package org.shop;\n",
    "src/test/java/org/shop/CartTest.java": "import org.shop.Cart.Item;\n",
}
C = {
    "src/main.c": '#include <stdio.h>\n#include "cart.h"\n  # include "shop/prices.h"\n',
    "src/cart.c": '#include "cart.h"\n#include "../include/shop/prices.h"\n#include "../../out.h"\n',
    "src/cart.h": '#include "tax.hpp"\n#include "twice.h"\n',
    "include/shop/prices.h": "int price;\n",
    "lib/tax.hpp": "",
    "a/twice.h": "",
    "b/twice.h": "",
}
EXPECTED = {
    "python": (
        PYTHON,
        {
            "src/shop/__init__.py": ["src/shop/cart.py", "src/shop/prices.py"],
            "src/shop/cart.py": ["src/shop/prices.py"],
            "src/shop/prices.py": ["src/shop/tax/rates.py"],
            "src/shop/tax/rates.py": ["src/shop/json.py"],
            "tests/test_cart.py": ["src/shop/cart.py", "src/shop/prices.py", "tests/helpers.py"],
        },
    ),
    "go": (GO, {"main.go": ["prices/list.go", "prices/sum.go"], "prices/list.go": ["internal/tax/tax.go"]}),
    "rust": (
        RUST,
        {
            "src/lib.rs": ["src/cart/item.rs", "src/cart/mod.rs", "src/prices.rs"],
            "src/cart/mod.rs": ["src/cart/item.rs", "src/prices.rs"],
            "src/cart/item.rs": ["src/cart/mod.rs", "src/prices.rs"],
        },
    ),
    "typescript": (
        TYPESCRIPT,
        {
            "src/index.ts": ["src/cart/index.tsx", "src/styles.css"],
            "src/cart/index.tsx": ["src/prices.ts"],
            "src/prices.ts": ["src/tax.mjs"],
        },
    ),
    "java": (
        JAVA,
        {
            "src/main/java/org/shop/Cart.java": ["src/main/java/org/shop/prices/Price.java"],
            "src/main/java/org/shop/prices/Price.java": ["src/main/java/org/shop/Tax.java"],
            "src/test/java/org/shop/CartTest.java": ["src/main/java/org/shop/Cart.java"],
        },
    ),
    "c": (
        C,
        {
            "src/main.c": ["include/shop/prices.h", "src/cart.h"],
            "src/cart.c": ["include/shop/prices.h", "src/cart.h"],
            "src/cart.h": ["lib/tax.hpp"],
        },
    ),
}


def imported_files(tree):
    """Return the files that each file of a tree imports. Files without imports are left out."""
    paths = sorted(tree)
    languages = {path: language_of(path, tree[path].encode()) for path in paths}
    imports = {path: find_imports(tree[path].encode(), languages[path]) for path in paths}
    files = RepoFiles(paths)
    for number, path in enumerate(paths):
        if languages[path] == "go-mod":
            files.add_go_module(number, imports[path])
    found = {path: files.imported_by(number, languages[path], imports[path]) for number, path in enumerate(paths)}
    return {path: [paths[number] for number in numbers] for path, numbers in found.items() if numbers}


@pytest.mark.parametrize("language", EXPECTED)
def test_imports_resolve_to_files_of_the_repository(language):
    tree, expected = EXPECTED[language]
    assert imported_files(tree) == expected


@pytest.mark.parametrize("language", EXPECTED)
def test_crlf_line_ends_do_not_change_the_imports(language):
    tree, expected = EXPECTED[language]
    assert imported_files({path: text.replace("\n", "\r\n") for path, text in tree.items()}) == expected


def test_go_package_without_go_mod_is_found_by_path_suffix():
    tree = {path: text for path, text in GO.items() if path != "go.mod"}
    assert imported_files(tree)["main.go"] == ["prices/list.go", "prices/sum.go"]
    assert "internal/tax/tax.go" not in imported_files(GO)
    assert imported_files(tree)["internal/tax/tax.go"] == ["prices/list.go", "prices/sum.go"]


def test_nearest_package_root_takes_precedence():
    tree = {
        f"{root}/{path}": "" for root in ("a", "b/src") for path in ("shop/__init__.py", "shop/cart.py", "tests/t.py")
    }
    tree |= {f"{root}/tests/t.py": "import shop.cart\n" for root in ("a", "b")} | {"c/d.py": "import shop.cart\n"}
    found = imported_files(tree)
    assert found["a/tests/t.py"] == ["a/shop/cart.py"]
    assert found["b/tests/t.py"] == ["b/src/shop/cart.py"]
    assert found["c/d.py"] == ["a/shop/cart.py"]


def test_unsupported_language_has_no_imports():
    assert find_imports(b"import a\n", "cobol") == []


def test_number_of_imports_is_limited():
    text = b"".join(b"import m%d\n" % number for number in range(MAX_IMPORTS + 9))
    assert find_imports(text, "python") == [Import(f"m{number}") for number in range(MAX_IMPORTS)]
    tree = {f"p/f{number}.go": "package p\n" for number in range(MAX_IMPORTS + 9)}
    tree |= {"go.mod": "module m\n", "main.go": 'import "m/p"\n'}
    assert len(imported_files(tree)["main.go"]) == MAX_IMPORTS


HOSTILE = (
    b"from a import (",
    b"import (",
    b"use crate::{",
    b"use a::{{",
    b"import",
    b" \t",
    b'#include "',
    b"require(",
)


@pytest.mark.parametrize("language", sorted(IMPORT_LANGUAGES))
@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_is_read_in_linear_time(language, piece):
    """Read a million bytes on one line, and on many lines. In quadratic time, find_imports() would not finish."""
    for end in (b"", b"\n"):
        find_imports((piece + end) * (1_000_000 // len(piece + end)), language)
