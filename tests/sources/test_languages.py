import pytest
from identify import extensions

from gristmill.core.errors import ConfigError
from gristmill.sources.languages import check_languages, known_languages, language_of


@pytest.mark.parametrize(
    ("path", "first_line", "language"),
    [
        ("a.py", b"", "python"),
        ("a.rs", b"", "rust"),
        ("a.h", b"", "c"),
        ("a.hpp", b"", "c++"),
        ("a.tsx", b"", "tsx"),
        ("Makefile", b"", "makefile"),
        ("Dockerfile.dev", b"", "dockerfile"),
        ("Cargo.toml", b"", "toml"),
        ("nb.ipynb", b"", "jupyter"),
        ("run", b"#!/usr/bin/env python3\nx", "python"),
        ("run", b"#!/bin/bash -e\nx", "shell"),
        ("run", b"#!/usr/bin/env -S node --x\n", "javascript"),
        ("a.bash", b"", "shell"),
        ("README", b"hello", "text"),
        ("x.unknown", b"", "text"),
        ("odd", b"#!\n", "text"),
        ("odd", b"#!/bin/\xff\n", "text"),
        ("settings.cfg", b"", "text"),
        ("app.ts", b"export const x: number = 1\n", "typescript"),
        ("app.ts", b"<TS>cast;\n", "typescript"),
        ("app.ts", b"", "typescript"),
        ("app_de.ts", b'<?xml version="1.0"?>\n<!DOCTYPE TS>\n<TS version="2.1">', "xml"),
        ("app_de.TS", b"<!DOCTYPE TS><TS>\n<context>", "xml"),
        ("app_de.ts", b'\n<!-- one --><!-- two -->\n<TS language="de">', "xml"),
        ("app_de.ts", b"<TS>\n<context>", "xml"),
        ("long.ts", b"<!---->" * 5000, "typescript"),
        ("long.ts", b"<!--" * 50_000, "typescript"),
    ],
)
def test_language_from_name_or_first_line(path, first_line, language):
    assert language_of(path, first_line) == language


def test_every_text_suffix_of_identify_has_a_known_language():
    for suffix, tags in extensions.EXTENSIONS.items():
        if "binary" not in tags:
            assert language_of(f"a.{suffix}", b"") in known_languages()


def test_unknown_language_is_refused_with_a_suggestion():
    check_languages(["python", "c++"])
    with pytest.raises(ConfigError, match="Did you mean 'python'"):
        check_languages(["pyton"])
    with pytest.raises(ConfigError, match="Known: "):
        check_languages(["klingon-zzz"])
