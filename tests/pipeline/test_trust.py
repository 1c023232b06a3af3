"""End-to-end tests of leakage, duplicates, secrets, rules and licenses. Slow, obvious code measures the leakage."""

import json
import os
import random
import shutil
from array import array

import pytest
from identify.vendor.licenses import LICENSES

from gristmill import (
    Config,
    ConfigError,
    DuplicatesConfig,
    InputError,
    LicensesConfig,
    RulesConfig,
    RunConfig,
    ScanConfig,
    SecretsConfig,
    SplitConfig,
    build,
    open_dataset,
)
from gristmill.core.records import Split
from gristmill.planning.explain import explain_file, explanation_text
from support.source_trees import git, write_tree

SPAN = 50
WORDS = [f"word{number}" for number in range(4000)]


def make(source, out, **sections):
    return build(Config(sources=[str(source)], out=str(out), **sections))


def table(folder):
    return {row["path"]: row for row in map(json.loads, (folder / "files.jsonl").read_bytes().splitlines())}


def window_contents(folder, split):
    """Return the ids of each window of a split, without special tokens. Windows may overlap."""
    return [row["input_ids"][1:-1] for row in open_dataset(folder)[split]]


def spans_of(ids):
    """Return all runs of 50 consecutive ids, as bytes."""
    content, size = array("I", ids).tobytes(), array("I").itemsize
    return [content[at * size : (at + SPAN) * size] for at in range(len(ids) - SPAN + 1)]


def leaked_share(folder, split):
    """Return the share of the tokens of a split that are in a leaked 50-gram.

    A leaked 50-gram also occurs in train and has at least 8 distinct ids.
    """
    in_train = {span for ids in window_contents(folder, "train") for span in spans_of(ids)}
    total = leaked = 0
    for ids in window_contents(folder, split):
        shared = set()
        for at, span in enumerate(spans_of(ids)):
            if span in in_train and len(set(ids[at : at + SPAN])) >= 8:
                shared.update(range(at, at + SPAN))
        total += len(ids)
        leaked += len(shared)
    return leaked / total


def prose(rng, count):
    return "".join(rng.choice(WORDS) + rng.choice([" ", " ", "\n", " = ", "("]) for _ in range(count))


@pytest.fixture(scope="module")
def leaky(tmp_path_factory):
    """Two hundred files, many of which share passages of 10 to 200 words."""
    rng = random.Random(11)
    passages = [prose(rng, rng.randrange(10, 200)) for _ in range(30)]
    files = {}
    for number in range(200):
        parts = [prose(rng, rng.randrange(20, 300)) for _ in range(3)]
        parts += rng.sample(passages, rng.randrange(0, 3))
        rng.shuffle(parts)
        files[f"{number % 7}/{number}.py"] = "\n".join(parts)
    return write_tree(tmp_path_factory.mktemp("leaky") / "repo", files)


def test_default_build_removes_leakage(leaky, tmp_path):
    make(leaky, tmp_path / "open", split=SplitConfig(decontaminate="off"))
    assert min(leaked_share(tmp_path / "open", split) for split in ("validation", "test")) > 0.02
    manifest = make(leaky, tmp_path / "clean")
    assert [leaked_share(tmp_path / "clean", split) for split in ("validation", "test")] == [0, 0]
    facts = manifest.decontamination
    assert facts.tokens_cut[Split.TRAIN] == 0
    for split in (Split.VALIDATION, Split.TEST):
        rows = [row for row in table(tmp_path / "clean").values() if row["split"] == split and row["status"] == "kept"]
        assert facts.tokens_cut[split] == sum(row["cut_tokens"] for row in rows) > 0
        assert facts.tokens_before[split] == sum(row["tokens"] for row in rows)
        for row in rows:
            cut = sum(end - start for start, end, *_ in row["cuts"])
            assert (
                cut <= row["cut_tokens"] <= cut + 31 * (1 + len(row["cuts"]))
            )  # short spans between cuts are also removed


@pytest.mark.parametrize("mode", ["drop", "train"])
def test_other_decontamination_modes_remove_leakage(leaky, tmp_path, mode):
    manifest = make(leaky, tmp_path / "out", split=SplitConfig(decontaminate=mode))
    assert [leaked_share(tmp_path / "out", split) for split in ("validation", "test")] == [0, 0]
    is_train_cut = manifest.decontamination.tokens_cut[Split.TRAIN] > 0
    assert is_train_cut == (mode == "train")
    assert (manifest.decontamination.tokens_cut[Split.TEST] > 0) == (mode == "drop")


def test_cutting_keeps_more_tokens_than_dropping(leaky, tmp_path):
    cut = make(leaky, tmp_path / "cut").decontamination.tokens_cut
    drop = make(leaky, tmp_path / "drop", split=SplitConfig(decontaminate="drop")).decontamination.tokens_cut
    assert cut[Split.VALIDATION] < drop[Split.VALIDATION]


@pytest.mark.parametrize("mode", ["cut", "drop", "train"])
def test_bytes_do_not_depend_on_workers_batches_runs_or_partitions(leaky, tmp_path, monkeypatch, mode):
    from gristmill.splits import span_join

    expected = None
    for workers, batch_files, tokens in ((1, 1000, 1 << 20), (2, 3, 20_000), (3, 50, 70_000)):
        monkeypatch.setattr(span_join, "RUN_TOKENS", tokens)
        monkeypatch.setattr(span_join, "PARTITION_SPANS", tokens // 20)
        out = tmp_path / f"{workers}"
        make(leaky, out, split=SplitConfig(decontaminate=mode), run=RunConfig(workers=workers, batch_files=batch_files))
        found = {path.name: path.read_bytes() for path in out.iterdir() if path.name != "manifest.json"}
        expected = expected or found
        assert found == expected


def test_cutting_most_of_a_split_gives_a_warning_with_files(tmp_path):
    rng = random.Random(3)
    shared = [prose(rng, 150) for _ in range(12)]
    files = {}
    for number in range(60):
        files[f"{number}.py"] = "\n".join([*rng.sample(shared, 6), prose(rng, 60)])
    manifest = make(write_tree(tmp_path / "repo", files), tmp_path / "out")
    (warning,) = [text for text in manifest.warnings if "validation's tokens were cut" in text]
    assert "repo/" in warning


def test_benchmark_texts_are_cut_from_train(leaky, tmp_path):
    rng = random.Random(20)
    problem, solution = prose(rng, 60), prose(rng, 80)
    repo = shutil.copytree(leaky, tmp_path / "repo")
    for number in range(40):
        write_tree(repo, {f"copy{number}.py": prose(rng, 100) + "\n" + problem + solution + "\n" + prose(rng, 100)})
    benchmark = tmp_path / "bench.jsonl"
    rows = [
        {"task": 1, "prompt": problem, "solution": solution, "tests": ["assert f(1)", "assert f(2)"]},
        {"x": "short"},
    ]
    benchmark.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"duplicates": DuplicatesConfig(near="keep")}
    make(repo, tmp_path / "before", split=SplitConfig(decontaminate="off"), **settings)
    manifest = make(
        repo, tmp_path / "out", split=SplitConfig(decontaminate="off", against=[str(benchmark)]), **settings
    )
    tokenizer = open_dataset(tmp_path / "out").tokenizer
    ids = tokenizer.encode((problem + solution).encode()).ids.tolist()
    benchmark_spans = {tuple(ids[at : at + SPAN]) for at in range(len(ids) - SPAN + 1)}

    def contains_benchmark(folder, split):
        return any(
            tuple(window[at : at + SPAN]) in benchmark_spans
            for window in window_contents(folder, split)
            for at in range(len(window) - SPAN + 1)
        )

    assert contains_benchmark(tmp_path / "before", "train")
    assert not contains_benchmark(tmp_path / "out", "train")
    (facts,) = manifest.decontamination.against
    assert (facts.name, facts.texts, facts.texts_too_short) == ("bench.jsonl", 2, 1)
    assert facts.tokens_cut > 0
    cuts = [cut for row in table(tmp_path / "out").values() for cut in row["cuts"]]
    assert {cut[2] for cut in cuts} <= {"bench.jsonl/#0", "bench.jsonl/#1"}


def test_dropped_near_duplicates_name_the_kept_file_and_similarity(tmp_path):
    rng = random.Random(5)
    base = prose(rng, 300)
    files = {f"other{number}.py": prose(rng, 200) for number in range(20)}
    files |= {"a.py": base, "b.py": base + "\nmore = 1\n", "c.py": base + prose(rng, 10)}
    repo = write_tree(tmp_path / "repo", files)
    manifest = make(repo, tmp_path / "drop")
    rows = table(tmp_path / "drop")
    for path in ("b.py", "c.py"):
        assert (rows[path]["reason"], rows[path]["twin"]) == ("near_duplicate", "repo/a.py")
        assert 0.7 <= rows[path]["similarity"] < 1
        assert rows[path]["split"] == rows["a.py"]["split"]
    assert manifest.near_duplicates.dropped == 2
    make(repo, tmp_path / "group", duplicates=DuplicatesConfig(near="group"))
    grouped = table(tmp_path / "group")
    assert {grouped[path]["group"] for path in ("a.py", "b.py", "c.py")} == {"repo/a.py"}
    assert len({grouped[path]["split"] for path in ("a.py", "b.py", "c.py")}) == 1
    make(repo, tmp_path / "keep", duplicates=DuplicatesConfig(near="keep"))
    assert {table(tmp_path / "keep")[path]["group"] for path in ("a.py", "b.py")} == {"repo/a.py", "repo/b.py"}


def test_merging_earlier_groups_moves_files_and_lists_them(tmp_path):
    rng = random.Random(6)
    files = {f"{number:02d}.py": prose(rng, 150) for number in range(40)}
    repo = write_tree(tmp_path / "repo", files)
    make(repo, tmp_path / "out")
    before = {path: row["split"] for path, row in table(tmp_path / "out").items()}
    in_train = next(path for path, split in before.items() if split == "train")
    in_test = next(path for path, split in before.items() if split == "test")
    write_tree(repo, {in_test: files[in_train] + "\nchanged = 1\n"})
    manifest = make(repo, tmp_path / "out", duplicates=DuplicatesConfig(near="group"))
    row = table(tmp_path / "out")[in_test]
    assert (row["split"], row["moved_from"]) == ("train", "test")
    assert manifest.previous_splits.num_files_moved == 1
    assert any(f"repo/{in_test} from test" in warning for warning in manifest.warnings)


def test_split_by_directory_or_repo_keeps_files_together(leaky, tmp_path):
    make(leaky, tmp_path / "out", split=SplitConfig(by="directory", shares="60/20/20"))
    rows = [row for row in table(tmp_path / "out").values() if row["status"] == "kept"]
    assert len({(row["path"].partition("/")[0], row["split"]) for row in rows}) == 7
    manifest = make(leaky, tmp_path / "whole", split=SplitConfig(by="repo"))
    assert manifest.splits[Split.TRAIN].share == 1
    assert any("validation is empty" in warning for warning in manifest.warnings)


def canary():
    return "gh" + "p_" + "".join(random.Random(8).choices("ABCDEFGHJKabcdefghjk0123456789", k=36))


def test_secret_is_redacted_in_all_output_files(tmp_path):
    value = canary()
    source = f'import os\n\nTOKEN = "{value}"\nprint(TOKEN)\n' + "x = 1\n" * 30
    repo = write_tree(tmp_path / "repo", {"a.py": source, "b.py": "y = 2\n" * 40})
    manifest = make(repo, tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        assert value.encode() not in path.read_bytes()
    row = table(tmp_path / "out")["a.py"]
    (redaction,) = row["redactions"]
    assert (redaction["kind"], redaction["line"]) == ("github-token", 3)
    assert source[redaction["start"] : redaction["end"]] == value
    assert len(redaction["hash"]) == 4
    assert manifest.counts.redactions == {"github-token": 1}
    tokenizer = open_dataset(tmp_path / "out").tokenizer
    text = b"".join(
        tokenizer.decode(window["input_ids"][1:-1])
        for split in open_dataset(tmp_path / "out").values()
        for window in split
        if window["path"] == "a.py"
    ).decode()
    assert text == source.replace(value, "<SECRET:github-token>")


def test_digests_of_redacted_files_do_not_confirm_a_guessed_secret(tmp_path):
    import hashlib

    source = f'TOKEN = "{canary()}"\n'
    repo = write_tree(tmp_path / "repo", {"a.py": source})
    make(repo, tmp_path / "out")
    manifest = (tmp_path / "out/manifest.json").read_text()
    assert hashlib.sha256(source.encode()).hexdigest() not in (tmp_path / "out/files.jsonl").read_text() + manifest
    make(repo, tmp_path / "salted", secrets=SecretsConfig(salt="a"))
    one, other = (table(tmp_path / out)["a.py"]["redactions"][0]["hash"] for out in ("out", "salted"))
    assert one != other
    assert "salt" not in json.loads((tmp_path / "salted/manifest.json").read_text())["settings"]["secrets"]


def test_files_with_secrets_can_be_dropped_or_kept(tmp_path):
    source = f'TOKEN = "{canary()}"\n'
    repo = write_tree(tmp_path / "repo", {"a.py": source, "b.py": "y = 2\n"})
    make(repo, tmp_path / "drop", secrets=SecretsConfig(action="drop"))
    row = table(tmp_path / "drop")["a.py"]
    assert (row["reason"], row["detail"], row["sha256"]) == ("holds_secret", "github-token in line 1", None)
    make(repo, tmp_path / "keep", secrets=SecretsConfig(action="keep"))
    assert table(tmp_path / "keep")["a.py"]["redactions"] == []


def test_rules_drop_files_with_reason_and_value_and_can_be_disabled(tmp_path):
    repo = write_tree(
        tmp_path / "repo",
        {
            "a.py": "x = 1\n" * 20,
            "api_pb2.py": "# Generated by the protocol buffer compiler.  DO NOT EDIT!\nx = 1\n",
            "third_party/lib.py": "y = 2\n" * 9,
            "wide.py": "z = [" + "1 + " * 2000 + "1]\n",
        },
    )
    make(repo, tmp_path / "out")
    rows = table(tmp_path / "out")
    assert {path: row["reason"] for path, row in rows.items()} == {
        "a.py": None,
        "api_pb2.py": "generated",
        "third_party/lib.py": "vendored",
        "wide.py": "one_line",
    }
    assert rows["wide.py"]["detail"] == "one line of 8007 bytes, limit 2000"
    assert rows["a.py"]["measures"]["longest_line"] == 5
    rules = RulesConfig(
        generated=False,
        vendored=False,
        languages={"python": dict.fromkeys(("one_line", "mean_line", "longest_line"), 9000)},
    )
    manifest = make(repo, tmp_path / "open", rules=rules)
    assert manifest.counts.kept == 4 - 1  # the wide file has too few letters
    assert table(tmp_path / "open")["wide.py"]["reason"] == "too_little_alphabetic"


def test_notebooks_are_converted_to_their_cells(tmp_path):
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "words"]},
        {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": "x = 1\n", "outputs": [{"text": "OUT"}]},
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    repo = write_tree(tmp_path / "repo", {"n.ipynb": json.dumps(notebook), "bad.ipynb": "{", "a.py": "y = 2\n"})
    make(repo, tmp_path / "out")
    rows = table(tmp_path / "out")
    assert rows["bad.ipynb"]["reason"] == "bad_notebook"
    dataset = open_dataset(tmp_path / "out")
    (window,) = [row for split in dataset.values() for row in split if row["path"] == "n.ipynb"]
    text = dataset.tokenizer.decode(window["input_ids"][1:-1]).decode()
    assert "# # Title" in text
    assert "x = 1" in text
    assert "OUT" not in text
    make(repo, tmp_path / "raw", scan=ScanConfig(notebooks="raw"))
    assert table(tmp_path / "raw")["n.ipynb"]["bytes"] == len(json.dumps(notebook))
    assert table(tmp_path / "raw")["bad.ipynb"]["status"] == "kept"


MIT = (
    "MIT License\n\nCopyright (c) 2020 Somebody\n\nPermission is hereby granted, free of charge, to any person obtaining "
    'a copy of this software and associated documentation files (the "Software"), to deal in the Software without '
    "restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, "
    "and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the "
    "following conditions:\n\nThe above copyright notice and this permission notice shall be included in all copies or "
    'substantial portions of the Software.\n\nTHE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR '
    "IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND "
    "NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER "
    "LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE "
    "SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.\n"
)


def test_licenses_are_found_inherited_and_filtered(tmp_path):
    repo = write_tree(
        tmp_path / "repo",
        {
            "LICENSE": MIT,
            "a.py": "x = 1\n" * 9,
            "b.py": "# SPDX-License-Identifier: Apache-2.0\ny = 1\n",
            "lib/COPYING": "All rights reserved. Ask first.\n",
            "lib/c.py": "z = 1\n" * 5,
            "d.py": "# SPDX-License-Identifier: Ours\nw = 1\n",
        },
    )
    manifest = make(repo, tmp_path / "out", scan=ScanConfig(include=["*.py"]))
    rows = table(tmp_path / "out")
    found = {path: (row["license"], row["license_from"]) for path, row in rows.items() if row["status"] == "kept"}
    assert found == {
        "a.py": ("MIT", "LICENSE"),
        "b.py": ("Apache-2.0", "header"),
        "lib/c.py": ("NOASSERTION", "lib/COPYING"),
        "d.py": ("NOASSERTION", "header"),
    }
    assert manifest.counts.licenses == {"NOASSERTION": 2, "Apache-2.0": 1, "MIT": 1}
    make(repo, tmp_path / "mit", scan=ScanConfig(include=["*.py"]), licenses=LicensesConfig(allow=["mit"]))
    rows = table(tmp_path / "mit")
    assert [path for path, row in rows.items() if row["status"] == "kept"] == ["a.py"]
    assert rows["b.py"]["reason"] == "license_not_allowed"
    assert rows["b.py"]["detail"] == "Apache-2.0, according to the first lines of the file"
    with pytest.raises(InputError, match="license_not_allowed"):
        make(repo, tmp_path / "none", licenses=LicensesConfig(allow=["ISC"]))
    with pytest.raises(ConfigError, match="BSD"):
        make(repo, tmp_path / "none", licenses=LicensesConfig(allow=["BSD"]))


def test_license_file_applies_to_single_files_and_is_not_read_through_a_symlink(tmp_path):
    repo = write_tree(tmp_path / "repo", {"LICENSE": MIT, "a.py": "x = 1\n"})
    make(repo / "a.py", tmp_path / "out")
    assert table(tmp_path / "out")["a.py"]["license"] == "MIT"
    (repo / "LICENSE").rename(tmp_path / "elsewhere")
    (repo / "LICENSE").symlink_to(tmp_path / "elsewhere")
    make(repo, tmp_path / "linked")
    assert table(tmp_path / "linked")["a.py"]["license"] == "NOASSERTION"


def test_license_is_found_in_a_git_work_tree(tmp_path):
    repo = write_tree(tmp_path / "repo", {"LICENSE": MIT, "src/a.py": "x = 1\n"})
    git(repo, "init", "-q")
    git(repo, "add", ".")
    make(repo, tmp_path / "out", scan=ScanConfig(include=["*.py"]))
    assert table(tmp_path / "out")["src/a.py"]["license_from"] == "LICENSE"


APACHE = dict(LICENSES)["Apache-2.0"]
CARGO = '[package]\nname = "a"\nlicense = "MIT OR Apache-2.0"\n'


def test_package_manifest_turns_two_license_files_into_a_choice(tmp_path):
    repo = write_tree(
        tmp_path / "repo",
        {
            "LICENSE-MIT": MIT,
            "LICENSE-APACHE": APACHE,
            "Cargo.toml": CARGO,
            "src/lib.rs": "fn a() {}\n" * 9,
            "src/own.rs": "// SPDX-License-Identifier: ISC\nfn b() {}\n",
        },
    )
    only = ScanConfig(include=["*.rs"])
    manifest = make(repo, tmp_path / "out", scan=only, licenses=LicensesConfig(allow=["MIT"]))
    rows = table(tmp_path / "out")
    assert (rows["src/lib.rs"]["license"], rows["src/lib.rs"]["license_from"]) == ("MIT OR Apache-2.0", "Cargo.toml")
    assert rows["src/own.rs"]["detail"] == "ISC, according to the first lines of the file"
    assert manifest.counts.licenses == {"MIT OR Apache-2.0": 1}
    assert not any("license" in warning for warning in manifest.warnings)
    write_tree(repo, {"Cargo.toml": CARGO.replace("MIT OR", "ISC OR")})
    manifest = make(repo, tmp_path / "out", scan=only)
    row = table(tmp_path / "out")["src/lib.rs"]
    conflict = "Cargo.toml (ISC OR Apache-2.0) against LICENSE-MIT (MIT)"
    assert (row["license"], row["license_from"]) == ("NOASSERTION", conflict)
    assert sum(conflict in warning for warning in manifest.warnings) == 1
    assert f"NOASSERTION: no license could be determined from {conflict}" in explanation_text(
        explain_file(tmp_path / "out", "src/lib.rs")
    )


def test_source_below_the_work_tree_root_inherits_its_license(tmp_path):
    files = {"LICENSE-MIT": MIT, "LICENSE-APACHE": APACHE, "Cargo.toml": CARGO, "src/deep/lib.rs": "fn a() {}\n" * 9}
    repo = write_tree(tmp_path / "repo", files)
    (tmp_path / "LICENSE").write_text(MIT)

    def found(source=repo / "src"):
        make(source, tmp_path / "out")
        (row,) = (row for path, row in table(tmp_path / "out").items() if path.endswith("lib.rs"))
        return row["license"], row["license_from"]

    assert found() == ("NOASSERTION", None)  # the repository is not a work tree yet
    git(repo, "init", "-q")
    git(repo, "add", ".")
    assert found() == ("MIT OR Apache-2.0", "../Cargo.toml")
    assert found(repo / "src/deep") == ("MIT OR Apache-2.0", "../../Cargo.toml")
    assert found(repo / "src/deep/lib.rs") == ("MIT OR Apache-2.0", "../../Cargo.toml")
    # The next build detects changes in folders above its source.
    found()
    (repo / "Cargo.toml").write_text(CARGO.replace("MIT OR Apache-2.0", "ISC"))
    assert found()[0] == "NOASSERTION"
    for name in ("Cargo.toml", "LICENSE-APACHE"):
        (repo / name).unlink()
    assert found() == ("MIT", "../LICENSE-MIT")
    (repo / "LICENSE-MIT").unlink()
    assert found() == ("NOASSERTION", None)  # files outside the work tree are not read
    (repo / "COPYING").symlink_to(tmp_path / "LICENSE")
    (repo / "package.json").write_text(json.dumps({"license": "SEE LICENSE IN ../LICENSE"}))
    os.mkfifo(repo / "LICENSE")
    conflict = "../COPYING, ../LICENSE"
    assert found() == ("NOASSERTION", "../package.json (SEE LICENSE IN ../LICENSE)")
    (repo / "package.json").unlink()
    assert found() == ("NOASSERTION", conflict)
    for name in ("COPYING", "LICENSE"):
        (repo / name).unlink()
    write_tree(repo, {"LICENSE.txt": MIT, "license/notes.txt": "about licences\n"})
    assert found() == ("MIT", "../LICENSE.txt")  # a folder with the name of a license file is ignored


def test_misleading_git_folder_does_not_extend_the_license_search(tmp_path):
    outer = write_tree(tmp_path / "outer", {"LICENSE": MIT, "repo/src/a.py": "x = 1\n" * 9})
    repo = outer / "repo"

    def found():
        make(repo / "src", tmp_path / "out")
        return table(tmp_path / "out")["a.py"]["license"]

    git(repo, "init", "-q")
    for work_tree in (outer, "/", tmp_path):
        git(repo, "config", "core.worktree", str(work_tree))
        assert found() == "NOASSERTION", work_tree
    shutil.rmtree(repo / ".git")
    (outer / ".git").mkdir()  # an empty .git folder is not a repository
    assert found() == "NOASSERTION"
    (outer / ".git").rmdir()
    elsewhere = write_tree(tmp_path / "elsewhere", {"b.py": "y = 1\n"})
    git(elsewhere, "init", "-q")
    (outer / ".git").write_text(f"gitdir: {elsewhere / '.git'}\n")
    assert found() == "NOASSERTION"
    (outer / ".git").unlink()
    git(outer, "init", "-q")
    assert found() == "MIT"
    (outer / ".gitignore").write_text("repo/\n")  # an ignored folder is not part of the work tree
    assert found() == "NOASSERTION"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of files")
def test_git_folder_of_another_owner_does_not_extend_the_license_search(tmp_path):
    outer = write_tree(tmp_path / "outer", {"LICENSE": MIT, "src/a.py": "x = 1\n" * 9})
    git(outer, "init", "-q")
    for owner, expected in ((12345, "NOASSERTION"), (23456, "MIT"), (0, "MIT")):
        os.chown(outer / ".git", owner, owner)
        os.chown(outer / "src", 23456, 23456)
        make(outer / "src", tmp_path / "out")
        assert table(tmp_path / "out")["a.py"]["license"] == expected


def test_near_duplicates_are_found_after_the_license_filter(tmp_path):
    """After the license filter drops files, each remaining file must still have its own signature."""
    rng = random.Random(12)
    base = prose(rng, 200)
    files = {f"{number:02d}.py": prose(rng, 100) for number in range(30)}
    files |= {f"{number:02d}.py": "# SPDX-License-Identifier: MIT\n" + prose(rng, 100) for number in range(0, 30, 2)}
    files |= {
        "31.py": "# SPDX-License-Identifier: MIT\n" + base,
        "32.py": "# SPDX-License-Identifier: MIT\n" + base + "x\n",
    }
    repo = write_tree(tmp_path / "repo", files)
    make(repo, tmp_path / "out", licenses=LicensesConfig(allow=["MIT"]))
    rows = table(tmp_path / "out")
    assert rows["32.py"]["twin"] == "repo/31.py"
    assert sum(row["reason"] == "near_duplicate" for row in rows.values()) == 1
    assert sum(row["status"] == "kept" for row in rows.values()) == 16


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "\n" * 200_000 + "x = 1\n",
        "(" * 300_000 + ")" * 300_000,
        'password = "' * 80_000,
        "eyJ-" * 200_000,
        "-----BEGIN PRIVATE KEY-----" * 30_000,
        "a@" * 400_000,
        "0x00, " * 150_000,
        "A" * 500_000 + "b1" * 200_000,
        "SPDX-License-Identifier: " + "(MIT OR " * 100_000,
        "{" * 500_000,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_hostile_text_does_not_make_a_build_slow_or_fail(tmp_path, text):
    files = dict.fromkeys(("a.py", "b.json", "c.ipynb", "d.html", "LICENSE"), text)
    files |= dict.fromkeys(("Cargo.toml", "package.json", "pyproject.toml"), text)
    files["ok.py"] = "y = 1\n" * 5
    manifest = make(write_tree(tmp_path / "repo", files), tmp_path / "out", secrets=SecretsConfig(emails=True))
    assert manifest.counts.found == 9


def rebuilt_splits(tmp_path, first, second):
    """Build two trees into the same folder, one after the other. Return the files table of each build."""
    repo = write_tree(tmp_path / "repo", first)
    settings = {"split": SplitConfig(shares="40/30/30", decontaminate="off")}
    make(repo, tmp_path / "out", **settings)
    before = table(tmp_path / "out")
    shutil.rmtree(repo)
    make(write_tree(repo, second), tmp_path / "out", **settings)
    return before, table(tmp_path / "out")


@pytest.mark.parametrize("suffix", ["", "\nchanged = 1\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_exact_duplicate_keeps_the_split_of_its_kept_copy(tmp_path, mark, suffix):
    rng = random.Random(3)
    texts = [prose(rng, 60) for _ in range(12)]
    first = {f"b{number:02d}.py": text for number, text in enumerate(texts)}
    first |= {f"z{number:02d}.py": mark + text for number, text in enumerate(texts)}
    second = {f"z{number:02d}.py": mark + text + suffix for number, text in enumerate(texts)}
    before, after = rebuilt_splits(tmp_path, first, second)
    assert {path: row["split"] for path, row in after.items()} == {
        path: before["b" + path[1:]]["split"] for path in second
    }


def test_notebook_with_new_output_and_name_keeps_its_split(tmp_path):
    rng = random.Random(4)

    def notebook(code, output):
        cells = [{"cell_type": "code", "source": code, "outputs": [{"text": output}]}]
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})

    codes = [prose(rng, 60) for _ in range(12)]
    first = {f"a{number:02d}.ipynb": notebook(code, "one") for number, code in enumerate(codes)}
    second = {f"b{number:02d}.ipynb": notebook(code, "two") for number, code in enumerate(codes)}
    before, after = rebuilt_splits(tmp_path, first, second)
    assert [row["split"] for row in after.values()] == [row["split"] for row in before.values()]


def test_dropped_file_that_changes_its_split_is_listed(tmp_path):
    rng = random.Random(5)
    first = {f"{number:02d}.py": prose(rng, 100) for number in range(20)}
    repo = write_tree(tmp_path / "repo", first)
    make(repo, tmp_path / "out", split=SplitConfig(shares="50/25/25"))
    before = table(tmp_path / "out")
    in_train = next(path for path, row in before.items() if row["split"] == "train")
    in_test = next(path for path, row in before.items() if row["split"] == "test" and path > in_train)
    write_tree(repo, {in_train: first[in_test] + "\nmore = 1\n"})
    manifest = make(repo, tmp_path / "out", split=SplitConfig(shares="50/25/25"))
    row = table(tmp_path / "out")[in_test]
    assert (row["reason"], row["split"], row["moved_from"]) == ("near_duplicate", "train", "test")
    assert manifest.previous_splits.num_files_moved == 1
    assert any(f"{in_test} from test" in warning for warning in manifest.warnings)


def test_license_outside_the_source_is_not_read(tmp_path):
    """A crafted git index lists the absolute path of a LICENSE file outside the source."""
    import hashlib

    outside = tmp_path / "LICENSE"
    outside.write_text(MIT)
    name = "x" * len(str(outside))
    repo = write_tree(tmp_path / "repo", {name.replace("/", "x"): "text", "a.py": "x = 1\n"})
    git(repo, "init", "-q")
    git(repo, "add", ".")
    index = (repo / ".git/index").read_bytes()[:-20].replace(name.encode(), str(outside).encode())
    (repo / ".git/index").write_bytes(index + hashlib.sha1(index).digest())
    make(repo, tmp_path / "out")
    rows = table(tmp_path / "out")
    assert rows[str(outside)]["reason"] == "outside_source"
    assert rows["a.py"]["license"] == "NOASSERTION"
    assert rows["a.py"]["license_from"] is None


def test_unknown_language_is_refused_with_a_suggestion(tmp_path):
    repo = write_tree(tmp_path / "repo", {"a.py": "x = 1\n"})
    with pytest.raises(ConfigError, match="Did you mean 'python'"):
        make(repo, tmp_path / "out", rules=RulesConfig(languages={"pyhton": {"longest_line": 1}}))


def test_file_cut_completely_by_a_benchmark_is_counted(tmp_path):
    rng = random.Random(9)
    text = prose(rng, 80)
    files = {f"{number:02d}.py": prose(rng, 90) for number in range(10)}
    repo = write_tree(tmp_path / "repo", {**files, "whole.py": text})
    (tmp_path / "bench.txt").write_text(text)
    shares = SplitConfig(shares="100/0/0", against=[str(tmp_path / "bench.txt")])
    manifest = make(repo, tmp_path / "out", split=shares)
    row = table(tmp_path / "out")["whole.py"]
    assert row["reason"] == "contaminated"
    assert row["cuts"][0][:3] == [0, row["tokens"], "bench.txt/#0"]
    assert manifest.decontamination.against[0].tokens_cut == row["tokens"]


def test_no_digest_is_recorded_for_files_dropped_before_the_secret_scan(tmp_path):
    source = f'// Code generated by x. DO NOT EDIT.\nvar token = "{canary()}"\n'
    repo = write_tree(tmp_path / "repo", {"gen.go": source, "a.py": "x = 1\n"})
    make(repo, tmp_path / "out")
    row = table(tmp_path / "out")["gen.go"]
    assert (row["reason"], row["sha256"], row["text_sha256"]) == ("generated", None, None)


def test_secret_in_a_file_name_is_redacted_in_all_output_files(tmp_path):
    value = canary()
    files = {f"dir-{value}/a.py": "x = 1\n", f"b {value}.py": "y = 2\n", f"{value}.png": "z", "ok.py": "w = 3\n"}
    make(write_tree(tmp_path / "repo", files), tmp_path / "out", scan=ScanConfig(exclude=[f"b {value}.py"]))
    for path in (tmp_path / "out").iterdir():
        assert value not in path.read_text().replace(f'"exclude": [\n        "b {value}.py"', "")
    rows = table(tmp_path / "out")
    assert sum("SECRET" in path for path in rows) == 3
    assert [path for path, row in rows.items() if row["status"] == "kept"] == ["ok.py"]


def test_secret_in_details_and_license_names_is_redacted(tmp_path):
    value = canary()
    files = {
        "gen.py": f"# generated with {value}, do not edit\nx = 1\n",
        f"LICENSE-{value}.txt": "Ask first.",
        "a.py": "y = 2\n",
    }
    make(write_tree(tmp_path / "repo", files), tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        assert value not in path.read_text()
    assert "SECRET" in table(tmp_path / "out")["a.py"]["license_from"]


def test_copy_sorted_before_the_original_gets_the_split_of_the_original(tmp_path):
    rng = random.Random(15)
    first = {f"m{number:02d}.py": prose(rng, 60) for number in range(12)}
    changed = {path: text + "\nedited = 1\n" for path, text in first.items()}
    second = {**changed, **{f"a_{path}": text for path, text in changed.items()}}
    before, after = rebuilt_splits(tmp_path, first, second)
    assert {path: after[f"a_{path}"]["split"] for path in first} == {path: before[path]["split"] for path in first}


def test_licenses_are_found_in_folders_with_unusual_names_and_beside_single_files(tmp_path):
    repo = write_tree(tmp_path / "repo", {"od\\d/LICENSE": MIT, "od\\d/a.py": "x = 1\n", "one.py": "y = 1\n"})
    make(repo, tmp_path / "out", scan=ScanConfig(include=["*.py"]))
    assert table(tmp_path / "out")["od\\\\d/a.py"]["license"] == "MIT"
    (repo / os.fsdecode(b"LICENSE-\xe9.txt")).write_text("Ask.")
    make(repo / "one.py", tmp_path / "single")
    assert table(tmp_path / "single")["one.py"]["license_from"] == "LICENSE-\\xe9.txt"


def test_error_message_contains_no_secret(tmp_path):
    value = canary()
    repo = write_tree(tmp_path / "repo", {f"{value}.png": "x"})
    with pytest.raises(InputError, match="no usable file in") as error:
        make(repo, tmp_path / "out")
    assert value not in str(error.value)
