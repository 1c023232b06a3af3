"""Every command prints singular nouns for a count of one."""

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill import Progress, open_dataset
from gristmill.cli import main
from gristmill.core.names import counted, counted_units
from gristmill.views.notebook import manifest_html
from support.builds import called, files_table
from support.source_trees import write_tree

NOUNS = [
    "files",
    "windows",
    "rows",
    "tokens",
    "ids",
    "lines",
    "bytes",
    "columns",
    "groups",
    "documents",
    "sources",
    "texts",
    "clusters",
    "stretches",
    "steps",
    "epochs",
    "passes",
    "processes",
    "batches",
    "pieces",
    "parts",
    "variants",
    "languages",
    "licenses",
    "seeds",
    "others",
    "checks",
    "times",
    "cores",
    "runs",
    "tasks",
    "spans",
    "datasets",
    "folders",
    "sequences",
    "merges",
]
ONE_OF_MANY = re.compile(
    rf"(?<![\d.,/:–-])\b1 (?:more |other |small |train |validation |test |special )?(?:{'|'.join(NOUNS)})\b"
)
"""Matches `1 files`, but not `0.1 files` or `21 files`."""


def wrong_plurals(text):
    return sorted(set(ONE_OF_MANY.findall(re.sub(r"<[^>]*>", " ", text))))


@given(st.integers(0, 10_000), st.sampled_from(["file", "other license"]))
def test_counts_agree_with_their_noun(num, noun):
    assert counted(num, noun) == f"{num:,} {noun}{'s' if num != 1 else ''}"
    assert counted(str(num), "pass", "passes") == f"{num} {'pass' if num == 1 else 'passes'}"


def test_units_of_progress_agree_with_their_count():
    assert [counted_units(1, unit) for unit in ("files", "batches")] == ["1 file", "1 batch"]
    assert counted_units(2, "batches") == "2 batches"


def test_progress_log_uses_the_singular(monkeypatch):
    clock = iter(range(0, 1000, 7))
    monkeypatch.setattr("gristmill.core.progress.time.perf_counter", lambda: next(clock))
    stream = io.StringIO()
    progress = Progress(quiet=False, stream=stream)
    with progress.phase("prepare", total=1) as step:
        step.advance(1)
    with progress.phase("tasks", unit="batches") as step:
        step.advance(1)
    assert "prepare: 1 of 1 file, " in stream.getvalue()
    assert "tasks: 1 batch in " in stream.getvalue()
    assert not wrong_plurals(stream.getvalue())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Folder with a dataset of one file and one window, and the printed output of two builds."""
    folder = tmp_path_factory.mktemp("one")
    source = write_tree(folder / "repo", {"a.py": "value = compute(1)\n"})
    built = called("build", source, "--out", folder / "out", "--split", "100/0/0", "--report", "--max-windows", 1)
    assert built.returncode == 0, built.stderr
    again = called("build", source, "--out", folder / "out", "--split", "100/0/0")
    assert [len(rows) for rows in open_dataset(folder / "out").values()] == [1, 0, 0]
    return folder, built.stdout + built.stderr + again.stdout + again.stderr


COMMANDS = {
    "build": (),
    "packed": ("build", "repo", "--out", "packed", "--split", "100/0/0", "--pack", "best-fit"),
    "target": ("build", "repo", "--out", "target", "--split", "100/0/0", "--target-windows", 1),
    "zstd": ("build", "repo", "--out", "zstd", "--split", "100/0/0", "--compress", "zstd", "--workers", 1),
    "variants": ("build", "repo", "--out", "varied", "--split", "100/0/0", "--variants", "noise=1"),
    "nothing": ("build", "empty", "--out", "none"),
    "check": ("check", "out"),
    "explain": ("explain", "out", "a.py"),
    "explain row": ("explain", "out", "--row", "train:0"),
    "no row": ("explain", "out", "--row", "train:9"),
    "show": ("show", "out"),
    "plan": ("plan", "repo", "--split", "100/0/0", "--epochs", 1, "--sequences", 1),
    "diff": ("diff", "out", "out"),
    "report": ("report", "out", "--out", "r.html"),
    "export": ("export", "out", "--format", "npy"),
    "prepare": ("prepare", "repo", "--out", "steps", "--split", "100/0/0", "--shard", "1/1"),
    "decide": ("decide", "repo", "--out", "steps", "--split", "100/0/0"),
    "shape": ("shape", "repo", "--out", "steps", "--split", "100/0/0", "--shard", "1/1"),
    "finish": ("finish", "repo", "--out", "steps", "--split", "100/0/0"),
    "tokenizer": ("tokenizer", "show", "repo", "--split", "100/0/0", "--tokenizer", "codebert"),
    "bench": ("bench", "repo", "--only", "original", "--only", "floor", "--out", "b.md"),
}


STEPS = ("prepare", "decide", "shape", "finish")


@pytest.mark.parametrize("name", COMMANDS)
def test_command_uses_the_singular(name, dataset, monkeypatch, capsys):
    folder, built = dataset
    monkeypatch.chdir(folder)
    write_tree(folder / "empty", {"e.py": ""})
    output = built
    for earlier_step in (
        STEPS[: STEPS.index(name)] if name in STEPS else ()
    ):  # the tests of earlier steps may run in a different process
        assert main.run([str(word) for word in COMMANDS[earlier_step]]) == 0
    capsys.readouterr()
    if name != "build":
        code = main.run([str(word) for word in COMMANDS[name]])
        output = "".join(capsys.readouterr())
        assert (code == 0) is (name not in {"nothing", "no row"}), output
    assert output.strip()
    assert not wrong_plurals(output)
    if name in {"report", "bench"}:
        page = {"report": "r.html", "bench": "b.md"}[name]
        assert not wrong_plurals((folder / page).read_text(encoding="utf-8"))


def test_pages_and_cards_use_the_singular(dataset):
    out = dataset[0] / "out"
    for name in ("README.md", "croissant.json"):
        text = (out / name).read_text(encoding="utf-8")
        assert "1 file" in text
        assert not wrong_plurals(text)
    assert not wrong_plurals(manifest_html(open_dataset(out).manifest))
    assert not wrong_plurals(repr(open_dataset(out)["train"]))
    assert not wrong_plurals(json.dumps(files_table(out)))
