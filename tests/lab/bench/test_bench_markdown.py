"""Output of the bench command, and the page and chart that it writes."""

import json
import os
import xml.etree.ElementTree as ET

import pytest

import gristmill
from gristmill.cli import main
from gristmill.core.errors import OutputError
from gristmill.lab.bench import bench as benching
from gristmill.lab.bench.bench_markdown import HEADING, Page
from gristmill.lab.bench.bench_result import PHASES
from support.environment import without_privileges


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "code"
    root.mkdir()
    for number in range(12):
        lines = "\n".join(f"def f{number}_{line}(x):\n    return x * {line * number + line}" for line in range(80))
        (root / f"m{number}.py").write_text(f"{lines}\n")
    return root


@pytest.fixture(autouse=True)
def count_the_first_run(monkeypatch):
    """Treat the first run, which also measures memory, as a long run, so that bench runs each method only once."""
    monkeypatch.setattr(benching, "LONG_RUN_SECONDS", 0.0)


def run(capsys, *arguments):
    code = main.run(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_command_prints_json_and_writes_page_chart_and_datasets(source, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    only = ["--only", "original", "--only", "gristmill", "--only", "floor"]
    code, text, _ = run(capsys, "bench", str(source), *only, "--keep", "kept", "--expand-to", "100", "--json")
    assert code == 0
    output = json.loads(text)
    expected_keys = {
        "name",
        "seconds",
        "phases",
        "peak_mb",
        "bytes",
        "windows",
        "distinct",
        "redundancy",
        "padding",
        "l50",
    }
    assert all(expected_keys <= set(method) for method in output["methods"])
    assert [method["name"] for method in output["methods"]] == ["original", "gristmill", "floor"]
    assert all(set(method["phases"]) == set(PHASES) for method in output["methods"])
    original, gristmill_method, floor = output["methods"]
    assert original["windows"] == 100
    assert original["l50"] > 0
    assert gristmill_method["l50"] == 0
    assert gristmill_method["tokens_lost"] == floor["tokens_lost"] == 0
    assert floor["scale"] == 1
    assert output["machine"]["cores"] >= 1
    page = (tmp_path / "bench.md").read_text()
    assert page.startswith(HEADING)
    assert "bench.svg" in page
    assert str(tmp_path) not in page.replace(str(source), "")  # the source is the only local path in the page
    ET.fromstring((tmp_path / "bench.svg").read_text())
    for name in ("original", "gristmill", "floor"):
        dataset = gristmill.open_dataset(tmp_path / "kept" / name)
        assert sum(map(len, dataset.values())) == next(m["windows"] for m in output["methods"] if m["name"] == name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.md", "bench.svg", "code", "kept"]


def test_command_prints_tables_creates_the_folder_and_replaces_an_earlier_page(source, tmp_path, capsys):
    page = tmp_path / "new" / "er" / "b.md"
    words = ("bench", str(source), "--only", "floor", "--out", str(page))
    code, text, _ = run(capsys, *words)
    assert code == 0
    for word in ("floor", "seconds", "windows", "tokenize", "page"):
        assert word in text
    first = page.read_text()
    assert run(capsys, *words, "-q")[0] == 0
    assert page.read_text() != first
    assert sorted(path.name for path in page.parent.iterdir()) == ["b.md", "b.svg"]


def test_page_creates_no_folder_before_it_is_written(tmp_path):
    Page(str(tmp_path / "none" / "b.md"))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["b.md", "b.svg"])
def test_file_of_the_user_is_not_overwritten(source, tmp_path, capsys, name):
    (tmp_path / name).write_text("mine")
    code, _, error = run(capsys, "bench", str(source), "--only", "floor", "--out", str(tmp_path / "b.md"))
    assert code == 3
    assert name in error
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("path", ["a file/new/b.md", "b.svg"])
def test_impossible_page_path_is_refused_immediately(tmp_path, path):
    (tmp_path / "a file").touch()
    with pytest.raises(OutputError, match="--out"):
        Page(str(tmp_path / path))


def test_page_in_a_read_only_folder_is_refused_immediately(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    with without_privileges(may_read=True), pytest.raises(OutputError, match="cannot write into"):
        Page(str(closed / "new" / "b.md"))


def test_unknown_method_gets_a_suggestion(source, capsys):
    code, _, error = run(capsys, "bench", str(source), "--only", "grismill")
    assert code == 2
    assert "Did you mean 'gristmill'?" in error


def test_missing_extra_prints_the_install_command(source, tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "psutil", None)
    code, _, error = run(capsys, "bench", str(source), "--out", str(tmp_path / "b.md"))
    assert code == 2
    assert "pip install 'gristmill[bench]'" in error


@pytest.mark.parametrize("path", ["", ".", "~nosuchuser/x.md"])
def test_page_without_a_name_is_refused(path):
    with pytest.raises(OutputError, match="--out"):
        Page(path)


def test_unusual_names_are_linked_and_other_files_are_kept(source, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unusual = os.fsdecode(b"caf\xe9 100%")
    others = [tmp_path / f"{unusual}{ending}.part" for ending in (".md", ".svg")]
    for other in others:
        other.write_text("mine")
    assert run(capsys, "bench", "--only", "floor", "--out", f"{unusual}.md", "-q", "--", str(source))[0] == 0
    assert {other.read_text() for other in others} == {"mine"}
    assert "](caf%E9%20100%25.svg)" in (tmp_path / f"{unusual}.md").read_text()


def test_chart_of_the_user_is_not_overwritten(tmp_path):
    (tmp_path / "b.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    with pytest.raises(OutputError, match="not written by a benchmark"):
        Page(str(tmp_path / "b.md"))


def test_single_file_is_a_source(source, tmp_path, capsys):
    code, text, _ = run(
        capsys, "bench", str(source / "m1.py"), "--only", "original", "--out", str(tmp_path / "b.md"), "--json"
    )
    assert code == 0
    assert json.loads(text)["corpus"]["files"] == 1
    assert json.loads(text)["methods"][0]["windows"] > 0
