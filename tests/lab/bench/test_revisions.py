"""Tests of benchmarks/speed.py, cores.py and revisions.py, and of the corpus archive that gather.py packs."""

import importlib
import subprocess
import sys
import tarfile

import pytest

from gristmill import load_tokenizer
from support.made_code import made_library
from support.source_trees import ROOT, write_tree

BOTH_TREES = ["--before-tree", str(ROOT), "--after-tree", str(ROOT)]


@pytest.fixture(scope="module")
def few_files(tmp_path_factory):
    library = made_library()
    return write_tree(tmp_path_factory.mktemp("few") / "library", {name: library[name] for name in list(library)[:15]})


@pytest.fixture
def import_script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def run_benchmark(name, corpus, *options):
    command = [sys.executable, str(ROOT / "benchmarks" / name), *options, "--corpus", str(corpus), "--runs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_speed_prints_a_line_with_a_ratio_for_every_part(few_files, tmp_path):
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_bytes(load_tokenizer().definition.json)
    page = run_benchmark("speed.py", few_files, *BOTH_TREES, "--tokenizer-file", str(tokenizer))
    assert "The corpus: 15 files" in page
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    units = [unit for _, unit, *_ in rows[2:]]
    assert units.count("CPU s") == units.count("wall s") == 8
    assert units.count("MB") == 1
    assert units.count("CPU") == units.count("wall") == 2
    assert all(float(number.replace(",", "")) > 0 for row in rows[2:] for number in row[2:])


def test_cores_compares_workers_and_formats_of_two_revisions(few_files):
    """Compare HEAD with itself, or the current tree with itself if git cannot read HEAD."""
    has_head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=False).returncode == 0
    page = run_benchmark("cores.py", few_files, *(["HEAD", "HEAD"] if has_head else BOTH_TREES))
    assert page.count("\n## ") == 4
    assert all(f"\n| {start} |" in page for start in (1, "jsonl", "bin", "parquet", "shape", "total", "together"))


def test_different_output_bytes_are_refused(import_script):
    refuse_different = import_script("revisions").refuse_different
    refuse_different("a build", {"train.jsonl": "1"}, {"train.jsonl": "1"})
    with pytest.raises(SystemExit, match=r"a build: train.jsonl differs between the two datasets"):
        refuse_different("a build", {"files.jsonl": "0", "train.jsonl": "1"}, {"files.jsonl": "0", "train.jsonl": "2"})
    with pytest.raises(SystemExit, match=r"a build: test.jsonl differs between the two datasets"):
        refuse_different("a build", {"train.jsonl": "1"}, {"train.jsonl": "1", "test.jsonl": "2"})
    with pytest.raises(SystemExit, match="no data files"):
        refuse_different("a build", {}, {})


def test_packed_corpus_is_a_reproducible_sample(import_script, tmp_path, monkeypatch):
    gather = import_script("gather")
    monkeypatch.setattr(gather, "PACKED_FILES", 5)
    files = {f"one-1/vendor/{number}.c": f"int x = {number};\n" for number in range(7)}
    write_tree(
        tmp_path / "all", {**files, "one-1/large.c": "x" * 64_001, "one-1/odd.o": b"\0", "two-1/.git": "gitdir: x"}
    )
    archives = [tmp_path / "first.tar.xz", tmp_path / "second.tar.xz"]
    for archive in archives:
        assert gather.pack(tmp_path / "all", ["one-1", "two-1"], archive).files == 5
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as tar:
        packed = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    assert len(packed) == 5
    for name, content in packed.items():
        assert content.decode() == files[name.replace("/code/", "/vendor/")]
