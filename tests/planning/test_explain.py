"""explain() describes a file, line or row of a dataset: rules, license, duplicates, secrets, cuts and windows."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill import Config, DatasetError, InputError, SplitConfig, VariantsConfig, build, explain, open_dataset
from gristmill.planning.explain import explain_row, explanation_json, explanation_text
from support.builds import called
from support.source_trees import git, write_tree

COMMAND = str(Path(sys.executable).with_name("gristmill"))


def prose(rng, count):
    return "".join(rng.choice("abcdefgh") * rng.randrange(1, 9) + rng.choice(" \n=(+") for _ in range(count))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Forty files with a shared passage, and files for duplicates, secrets, licenses, rules and excluded folders."""
    rng = random.Random(2)
    token = "gh" + "p_" + "".join(rng.choices("ABCDEFGHJKabcdefghjk0123456789", k=36))
    shared = prose(rng, 120)
    files = {f"src/{number:02d}.py": prose(rng, 400) + "\n" + shared + "\n" + prose(rng, 300) for number in range(40)}
    files |= {
        "src/twin.py": files["src/00.py"] + "\nx = 1\n",
        "secret.py": f'import os\nTOKEN = "{token}"\n',
        "header.py": "# SPDX-License-Identifier: ISC\nx = 1\n",
        "gen_pb2.py": "x = 1\n",
        "node_modules/lib/index.js": "var x = 1\n",
    }
    root = tmp_path_factory.mktemp("explain")
    repo = write_tree(root / "repo", files)
    build(Config(sources=[str(repo)], out=str(root / "out")))
    return root / "out"


def rows(dataset):
    return [json.loads(line) for line in (dataset / "files.jsonl").read_bytes().splitlines()]


def test_explanation_of_a_kept_file_has_rules_license_and_windows(dataset):
    found = explain(dataset, "repo/header.py")
    assert found.file.license == "ISC"
    assert {result.rule for result in found.rules} >= {"generated", "longest_line", "alphabetic"}
    assert not any(result.is_defect for result in found.rules)
    text = explanation_text(found)
    assert "kept in train" in text or "kept in validation" in text or "kept in test" in text
    assert "ISC, from header" in text
    assert "longest_line             30  at most 5000   ok" in text


def test_explanation_of_a_dropped_file_names_the_failed_rule(dataset):
    text = explanation_text(explain(dataset, "gen_pb2.py"))
    assert "dropped as generated" in text
    assert "FAILED" in text
    assert "windows" not in text


def test_near_duplicates_name_each_other(dataset):
    kept = explain(dataset, "src/00.py")
    assert [name for name, _ in kept.duplicates] == ["repo/src/twin.py"]
    dropped = explain(dataset, "twin.py")
    assert dropped.file.twin == "repo/src/00.py"
    assert 0.7 <= dropped.file.similarity < 1
    assert "repo/src/00.py" in explanation_text(dropped)


def test_secret_is_listed_by_kind_and_line_only(dataset):
    text = explanation_text(explain(dataset, "secret.py:2"))
    assert "line 2: github-token was redacted" in text
    assert "line 2:" not in explanation_text(explain(dataset, "secret.py:1"))


def test_line_is_traced_to_its_windows_and_cuts(dataset):
    row = next(row for row in rows(dataset) if row["cuts"])
    start, end, shared_with, first, last = row["cuts"][0]
    found = explain(dataset, f"{row['path']}:{first}")
    assert f"lines {first} to {last}" in explanation_text(found)
    assert shared_with in explanation_text(found)
    windows = [window for window in open_dataset(dataset)[row["split"]] if window["path"] == row["path"]]
    expected = [window["start"] for window in windows if window["lines"][0] <= first <= window["lines"][1]]
    assert [location.start for location in found.windows] == expected != []
    all_lines = explain(dataset, row["path"])
    assert [location.start for location in all_lines.windows] == [window["start"] for window in windows]
    for location, window in zip(all_lines.windows, windows, strict=True):
        split, _, number = location.row.partition(":")
        assert open_dataset(dataset)[split][int(number)] == window
    assert end > start


def test_line_is_not_searched_in_variants_with_other_line_numbers(tmp_path):
    code = "".join(
        f"# comment {n}\ndef function_{n}(value):\n    result = value + {n}\n    return result\n" for n in range(9)
    )
    repo = write_tree(tmp_path / "repo", {"a.py": code})
    variants, split = VariantsConfig(rates={"comments": 1, "noise": 1}), SplitConfig(shares="100/0/0")
    build(Config(sources=[str(repo)], out=str(tmp_path / "out"), variants=variants, split=split))
    found = explain(tmp_path / "out", "a.py:2")
    assert [one.variant for one in found.windows] == [None, "noise"]
    assert "2 of 2 windows contain line 2" in explanation_text(found)
    assert "not searched: variants with other line numbers (comments)" in explanation_text(found)
    assert {one.variant for one in explain(tmp_path / "out", "a.py").windows} == {None, "comments", "noise"}


def test_row_is_traced_to_its_file(dataset):
    found = explain_row(dataset, "train", 7)
    window = open_dataset(dataset)["train"][7]
    assert (found.file.repo, found.file.path) == (window["repo"], window["path"])
    assert [location.row for location in found.windows] == ["train:7"]
    assert list(found.windows[0].lines) == window["lines"]


def test_file_in_an_excluded_folder_is_explained_by_the_folder(dataset):
    found = explain(dataset, "node_modules/lib/index.js")
    assert found.file.path == "node_modules/"
    assert "installed dependencies" in explanation_text(found)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("src/0.py", "Did you mean 'src/[0-3]0.py'"),
        ("nowhere/at/all.rs", "was found when this dataset was built"),
        ("py", "was found when this dataset was built"),
        ("", "was found"),
        ("nowhere/node_modules/x.js", "was found when this dataset was built"),
        ("3000", r"For a row, use --row train:3000\."),
        ("test:12", r"For a row, use --row test:12\."),
        ("header.py:99", "has 2 lines: there is no line 99"),
        ("header.py:0", "there is no line 0"),
        ("header.py:" + "9" * 5000, "was found when this dataset was built"),
    ],
)
def test_unknown_file_gives_a_hint(dataset, path, message):
    with pytest.raises(InputError, match=message):
        explain(dataset, path)


def test_ambiguous_name_lists_the_matches(tmp_path):
    repo = write_tree(tmp_path / "repo", {"a/x.py": "x = 1\n", "b/x.py": "y = 2\n"})
    build(Config(sources=[str(repo)], out=str(tmp_path / "out")))
    with pytest.raises(InputError, match=r"matches 2 files: repo/a/x\.py, repo/b/x\.py"):
        explain(tmp_path / "out", "x.py")
    assert explain(tmp_path / "out", "b/x.py").file.path == "b/x.py"


def test_full_name_takes_precedence_over_the_end_of_a_path(tmp_path):
    one = write_tree(tmp_path / "src", {"a.py": "x = 1\n", "src/a.py": "y = 2\n"})
    other = write_tree(tmp_path / "other", {"src/a.py": "z = 3\n"})
    build(Config(sources=[str(one), str(other)], out=str(tmp_path / "out")))
    found = explain(tmp_path / "out", "src/a.py").file
    assert (found.repo, found.path) == ("src", "a.py")


def test_file_is_found_by_its_printed_and_its_raw_name(tmp_path):
    import os

    repo = write_tree(tmp_path / "repo", {"back\\slash.py": "x = 1\n"})
    (repo / os.fsdecode(b"caf\xe9.py")).write_text("y = 2\n")
    build(Config(sources=[str(repo)], out=str(tmp_path / "out")))
    for name in (r"caf\xe9.py", os.fsdecode(b"caf\xe9.py"), r"back\\slash.py", r"back\slash.py"):
        assert explain(tmp_path / "out", name).file.status == "kept"


@pytest.mark.parametrize("damage", [{"lines": [1]}, {"start": "x"}, {"input_ids": 5}, {"lines": None}])
def test_damaged_row_is_reported(tmp_path, damage):
    repo = write_tree(tmp_path / "repo", {"a.py": "x = 1\n"})
    build(Config(sources=[str(repo)], out=str(tmp_path / "out")))
    row = json.loads((tmp_path / "out/train.jsonl").read_text())
    (tmp_path / "out/train.jsonl").write_text(json.dumps({**row, **damage}, separators=(",", ":")) + "\n")
    with pytest.raises(DatasetError, match=r"train:0 in .* is damaged"):
        explain_row(tmp_path / "out", "train", 0)


def test_commit_is_printed_and_control_characters_are_escaped(tmp_path):
    repo = write_tree(tmp_path / "repo", {"\x1b[31mred.py": "x = 1\n"})
    git(repo, "init", "-q")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "c")
    build(Config(sources=[str(repo)], out=str(tmp_path / "out")))
    text = explanation_text(explain(tmp_path / "out", "\x1b[31mred.py"))
    assert git(repo, "rev-parse", "HEAD").decode().strip() in text
    assert "\x1b" not in text


def test_missing_row_and_damaged_table_are_reported(dataset, tmp_path):
    with pytest.raises(InputError, match="counted from 0"):
        explain_row(dataset, "train", 10**9)
    with pytest.raises(InputError, match="no split 'dev'"):
        explain_row(dataset, "dev", 0)
    build(Config(sources=[str(write_tree(tmp_path / "r", {"a.py": "x = 1\n"}))], out=str(tmp_path / "out")))
    (tmp_path / "out/files.jsonl").write_text("{}\n")
    with pytest.raises(DatasetError, match="damaged"):
        explain(tmp_path / "out", "a.py")


def test_command_line(dataset):
    def run(*arguments):
        return called("explain", dataset, *arguments)

    started = subprocess.run(
        [COMMAND, "explain", str(dataset), "header.py"], capture_output=True, text=True, check=False
    )
    assert started.stdout == run("header.py").stdout
    assert "status   kept" in run("header.py").stdout
    assert json.loads(run("header.py", "--json").stdout)["file"]["license"] == "ISC"
    assert json.loads(run("--json", "header.py").stdout)["file"]["license"] == "ISC"
    assert "row train:0" in run("--row", "train:0").stdout
    assert run().returncode == 2
    assert run("header.py", "--row", "train:0").returncode == 2
    assert "like test:123" in run("--row", "train").stderr
    assert run("none.py").returncode == 3
    assert json.loads(explanation_json(explain(dataset, "header.py")))["line"] is None
