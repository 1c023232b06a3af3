import json
import os

import pytest

from gristmill.config.settings import ScanConfig
from gristmill.core.records import DropReason
from gristmill.sources.path_filter import DEFAULT_EXCLUDES, PathFilter
from support.builds import files_table, make
from support.source_trees import write_tree


def drop_reason(path, *, is_tracked=False, **config):
    exclusion = PathFilter(ScanConfig(**config)).check_file(path, is_tracked=is_tracked, folders_checked=False)
    return exclusion and exclusion.reason


@pytest.mark.parametrize(
    "path",
    ["node_modules/x/index.js", "web/node_modules/a.js", "build/gen.py", "Cargo.lock", "a/package-lock.json", "logo.PNG",
     "data.tar.gz", "model.safetensors", "x.pyc", "pkg.egg-info/PKG-INFO", "lib/site-packages/a.py", "icon.svg"],
)  # fmt: skip
def test_default_excludes_are_dropped(path):
    assert drop_reason(path) is DropReason.EXCLUDED
    assert drop_reason(path, default_excludes=False) is None


@pytest.mark.parametrize(
    "path", ["src/a.py", "builder/a.py", "outlook.py", "png", ".png", "lock.py", "target.rs", "a.lock.md"]
)
def test_source_files_are_kept(path):
    assert drop_reason(path) is None


def test_tracked_files_are_kept_in_build_but_not_in_node_modules():
    assert drop_reason("tools/build/make.py", is_tracked=True) is None
    assert drop_reason("node_modules/a.js", is_tracked=True) is DropReason.EXCLUDED


def test_detail_names_the_default_exclude():
    exclusion = PathFilter(ScanConfig()).check_file("web/node_modules/a.js", is_tracked=False, folders_checked=False)
    assert exclusion.detail == "installed dependencies: node_modules/"


def test_user_patterns_exclude_additional_files():
    assert drop_reason("tests/test_a.py", exclude=["tests/"]) is DropReason.EXCLUDED_BY_USER
    assert drop_reason("src/tests/test_a.py", exclude=["/tests/"]) is None


def test_negated_pattern_restores_a_default_exclude():
    assert drop_reason("dist/a.js", exclude=["!dist/"]) is None
    assert drop_reason("logo.svg", exclude=["!*.svg"]) is None
    assert PathFilter(ScanConfig(exclude=["!dist/"])).check_folder("dist") is None
    assert PathFilter(ScanConfig()).check_folder("dist").reason is DropReason.EXCLUDED


def test_only_included_paths_are_kept():
    assert drop_reason("src/a.py", include=["*.py"]) is None
    assert drop_reason("src/a.rs", include=["*.py"]) is DropReason.NOT_INCLUDED
    assert drop_reason("node_modules/a.py", include=["*.py"]) is DropReason.EXCLUDED


def test_default_excludes_have_no_repeated_entries():
    for field in ("folders", "names", "suffixes"):
        entries = [entry for exclude in DEFAULT_EXCLUDES for entry in getattr(exclude, field)]
        assert len(entries) == len(set(entries))
        assert field != "suffixes" or all(entry == entry.lower() for entry in entries)


@pytest.mark.parametrize("path", ["locale/de/app.po", "app.pot", "de.xlf", "de.XLIFF", "lib/l10n/app_de.arb"])
def test_translations_have_a_separate_drop_reason_and_can_be_restored(path):
    assert drop_reason(path) is DropReason.TRANSLATION
    assert drop_reason(path, is_tracked=True) is DropReason.TRANSLATION
    assert drop_reason(path, default_excludes=False) is None
    assert drop_reason(path, exclude=[f"!*.{path.rpartition('.')[2]}"]) is None


QT = '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE TS>\n<TS version="2.1" language="de">\n' + "".join(
    f"<context><name>Main{number}</name><message><source>Open</source><translation>Offen {number}</translation></message>"
    "</context>\n"
    for number in range(9)
)
TYPESCRIPT = "".join(f"export function f{number}(x: number): number {{ return x + {number} }}\n" for number in range(9))


def set_old_times(folder):
    """Set old file times, so that the next build recognizes unchanged files by their time. Return the folder."""
    for path in folder.rglob("*.*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return folder


@pytest.mark.parametrize("is_table", [False, True])
def test_qt_translation_with_suffix_ts_is_dropped(tmp_path, is_table):
    files = {"app.ts": TYPESCRIPT, "i18n/app_de.ts": QT, "po/de.po": 'msgid "Open"\nmsgstr "Offen"\n' * 9}
    if is_table:
        rows = "".join(json.dumps({"path": path, "content": text}) + "\n" for path, text in files.items())
        source = set_old_times(write_tree(tmp_path / "repo", {"rows.jsonl": rows})) / "rows.jsonl"
    else:
        source = set_old_times(write_tree(tmp_path / "repo", files))
    out = tmp_path / "out"

    def reasons(**scan):
        make(source, out, scan=ScanConfig(**scan))
        return {path: row["reason"] for path, row in files_table(out).items()}

    by_default = {"app.ts": None, "i18n/app_de.ts": "translation", "po/de.po": "translation"}
    assert reasons() == by_default
    assert files_table(out)["i18n/app_de.ts"]["detail"] == "translations: .ts file of Qt Linguist"
    assert reasons(exclude=["!*_de.ts"]) == by_default | {"i18n/app_de.ts": None}
    assert {path: files_table(out)[path]["language"] for path in ("app.ts", "i18n/app_de.ts")} == {
        "app.ts": "typescript",
        "i18n/app_de.ts": "xml",
    }
    assert reasons(default_excludes=False) == dict.fromkeys(files)
    assert reasons() == by_default


def test_translation_given_as_single_file_is_kept(tmp_path):
    source = write_tree(tmp_path / "repo", {"app_de.ts": QT})
    make(source / "app_de.ts", tmp_path / "out")
    assert files_table(tmp_path / "out")["app_de.ts"]["status"] == "kept"
