"""The command: what it prints, and the page it leaves."""

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
from support.surroundings import without_privileges


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "code"
    root.mkdir()
    for number in range(12):
        lines = "\n".join(f"def f{number}_{line}(x):\n    return x * {line * number + line}" for line in range(80))
        (root / f"m{number}.py").write_text(f"{lines}\n")
    return root


@pytest.fixture(autouse=True)
def once(monkeypatch):
    """A method's first run, which is watched, counts as a long one: no second is timed."""
    monkeypatch.setattr(benching, "LONG_RUN_SECONDS", 0.0)


def run(capsys, *arguments):
    code = main.run(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_prints_json_and_leaves_page_chart_and_datasets(source, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    only = ["--only", "original", "--only", "gristmill", "--only", "floor"]
    code, text, _ = run(capsys, "bench", str(source), *only, "--keep", "kept", "--expand-to", "100", "--json")
    assert code == 0
    told = json.loads(text)
    wanted = {"name", "seconds", "phases", "peak_mb", "bytes", "windows", "distinct", "redundancy", "padding", "l50"}
    assert all(wanted <= set(method) for method in told["methods"])
    assert [method["name"] for method in told["methods"]] == ["original", "gristmill", "floor"]
    assert all(set(method["phases"]) == set(PHASES) for method in told["methods"])
    original, ours, floor = told["methods"]
    assert original["windows"] == 100
    assert original["l50"] > 0
    assert ours["l50"] == 0
    assert ours["tokens_lost"] == floor["tokens_lost"] == 0
    assert floor["scale"] == 1
    assert told["machine"]["cores"] >= 1
    page = (tmp_path / "bench.md").read_text()
    assert page.startswith(HEADING)
    assert "bench.svg" in page
    assert str(tmp_path) not in page.replace(str(source), "")  # what was typed, and no other path of this machine
    ET.fromstring((tmp_path / "bench.svg").read_text())
    for name in ("original", "gristmill", "floor"):
        dataset = gristmill.open_dataset(tmp_path / "kept" / name)
        assert sum(map(len, dataset.values())) == next(m["windows"] for m in told["methods"] if m["name"] == name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.md", "bench.svg", "code", "kept"]


def test_the_command_prints_tables_makes_a_folder_for_its_page_and_replaces_an_earlier_one(source, tmp_path, capsys):
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


def test_no_folder_is_made_before_there_is_a_page(tmp_path):
    Page(str(tmp_path / "none" / "b.md"))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("name", ["b.md", "b.svg"])
def test_somebody_elses_file_is_not_overwritten(source, tmp_path, capsys, name):
    (tmp_path / name).write_text("mine")
    code, _, error = run(capsys, "bench", str(source), "--only", "floor", "--out", str(tmp_path / "b.md"))
    assert code == 3
    assert name in error
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("path", ["a file/new/b.md", "b.svg"])
def test_a_page_that_cannot_be_is_refused_at_once(tmp_path, path):
    (tmp_path / "a file").touch()
    with pytest.raises(OutputError, match="--out"):
        Page(str(tmp_path / path))


def test_a_page_in_a_closed_folder_is_refused_at_once(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    with without_privileges(may_read=True), pytest.raises(OutputError, match="cannot write into"):
        Page(str(closed / "new" / "b.md"))


def test_an_unknown_method_is_named(source, capsys):
    code, _, error = run(capsys, "bench", str(source), "--only", "grismill")
    assert code == 2
    assert "Did you mean 'gristmill'?" in error


def test_a_missing_extra_gives_the_install_line(source, tmp_path, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "psutil", None)
    code, _, error = run(capsys, "bench", str(source), "--out", str(tmp_path / "b.md"))
    assert code == 2
    assert "pip install 'gristmill[bench]'" in error


@pytest.mark.parametrize("path", ["", ".", "~nosuchuser/x.md"])
def test_a_page_without_a_name_is_refused(path):
    with pytest.raises(OutputError, match="--out"):
        Page(path)


def test_odd_names_are_linked_and_leave_others_alone(source, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = os.fsdecode(b"caf\xe9 100%")
    others = [tmp_path / f"{odd}{ending}.part" for ending in (".md", ".svg")]
    for other in others:
        other.write_text("mine")
    assert run(capsys, "bench", "--only", "floor", "--out", f"{odd}.md", "-q", "--", str(source))[0] == 0
    assert {other.read_text() for other in others} == {"mine"}
    assert "](caf%E9%20100%25.svg)" in (tmp_path / f"{odd}.md").read_text()


def test_a_chart_that_is_somebodys_stays(tmp_path):
    (tmp_path / "b.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    with pytest.raises(OutputError, match="no benchmark's"):
        Page(str(tmp_path / "b.md"))


def test_one_file_is_a_source_too(source, tmp_path, capsys):
    code, text, _ = run(
        capsys, "bench", str(source / "m1.py"), "--only", "original", "--out", str(tmp_path / "b.md"), "--json"
    )
    assert code == 0
    assert json.loads(text)["corpus"]["files"] == 1
    assert json.loads(text)["methods"][0]["windows"] > 0
