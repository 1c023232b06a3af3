import pytest

from gristmill.intake.excluding import DEFAULT_EXCLUDES, PathFilter
from gristmill.records import DropReason
from gristmill.sections import ScanConfig


def reason(path, *, is_tracked=False, **config):
    verdict = PathFilter(ScanConfig(**config)).judge_file(path, is_tracked=is_tracked, folders_judged=False)
    return verdict and verdict.reason


@pytest.mark.parametrize(
    "path",
    ["node_modules/x/index.js", "web/node_modules/a.js", "build/gen.py", "Cargo.lock", "a/package-lock.json", "logo.PNG",
     "data.tar.gz", "model.safetensors", "x.pyc", "pkg.egg-info/PKG-INFO", "lib/site-packages/a.py", "icon.svg"],
)  # fmt: skip
def test_what_is_never_source_is_left_out(path):
    assert reason(path) is DropReason.EXCLUDED
    assert reason(path, default_excludes=False) is None


@pytest.mark.parametrize(
    "path", ["src/a.py", "builder/a.py", "outlook.py", "png", ".png", "lock.py", "target.rs", "a.lock.md"]
)
def test_source_is_kept(path):
    assert reason(path) is None


def test_files_that_git_tracks_are_source_even_in_build_but_never_in_node_modules():
    assert reason("tools/build/make.py", is_tracked=True) is None
    assert reason("node_modules/a.js", is_tracked=True) is DropReason.EXCLUDED


def test_the_detail_names_the_line_of_the_table():
    verdict = PathFilter(ScanConfig()).judge_file("web/node_modules/a.js", is_tracked=False, folders_judged=False)
    assert verdict.detail == "installed dependencies: node_modules/"


def test_user_patterns_leave_out_more():
    assert reason("tests/test_a.py", exclude=["tests/"]) is DropReason.EXCLUDED_BY_USER
    assert reason("src/tests/test_a.py", exclude=["/tests/"]) is None


def test_a_negated_pattern_brings_back():
    assert reason("dist/a.js", exclude=["!dist/"]) is None
    assert reason("logo.svg", exclude=["!*.svg"]) is None
    assert PathFilter(ScanConfig(exclude=["!dist/"])).judge_folder("dist") is None
    assert PathFilter(ScanConfig()).judge_folder("dist").reason is DropReason.EXCLUDED


def test_with_includes_only_those():
    assert reason("src/a.py", include=["*.py"]) is None
    assert reason("src/a.rs", include=["*.py"]) is DropReason.NOT_INCLUDED
    assert reason("node_modules/a.py", include=["*.py"]) is DropReason.EXCLUDED


def test_no_entry_of_the_table_stands_twice():
    for field in ("folders", "names", "suffixes"):
        entries = [entry for exclude in DEFAULT_EXCLUDES for entry in getattr(exclude, field)]
        assert len(entries) == len(set(entries))
        assert field != "suffixes" or all(entry == entry.lower() for entry in entries)
