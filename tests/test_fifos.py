"""A FIFO in the place of any file that others may have put there holds up no command."""

import os
import shutil

import pytest

from conftest import git, write_tree
from gristmill import Config, OutputConfig, WindowConfig, build, cli
from gristmill.errors import GristmillError

pytestmark = pytest.mark.timeout(120)

FORMATS = ("jsonl", "parquet", "arrow", "npy", "bin", "megatron", "mds", "litdata")
OUR_FAULT = GristmillError.exit_code
CODE = "".join(f"def function_{number}(x):\n    return x * {number * 7}\n" for number in range(40))
SOURCES = {f"m{number}.py": CODE.replace("function", f"f{number}") for number in range(6)}
AT_SOURCES = (
    *("manifest.json", "files.jsonl", ".gitignore", ".ignore", ".gitattributes", ".gitmodules", "LICENSE", "COPYING"),
    *("LICENSE.md", "NOTICE", "README.md", "Cargo.toml", "package.json", "pyproject.toml", "setup.py", "go.mod"),
    *("notebook.ipynb", "rows.jsonl", "rows.parquet", "a.py", "tokenizer.json", "rules.toml", "gristmill.toml"),
)
AT_GIT = (
    *("HEAD", "index", "config", "config.worktree", "packed-refs", "info/exclude", "info/attributes", "commondir"),
    *("gitdir", "objects/info/alternates", "refs/heads/main", "refs/heads/master", "info/sparse-checkout", "shallow"),
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return write_tree(tmp_path_factory.mktemp("sources") / "repo", SOURCES)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, sources):
    out = tmp_path_factory.mktemp("dataset") / "dataset"
    output = OutputConfig(formats=FORMATS)
    build(Config(sources=[str(sources)], out=str(out), output=output, window=WindowConfig(length=64, overlap=8)))
    return out


@pytest.fixture(autouse=True)
def nothing_outside(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


def make_fifo(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def codes(capsys, *commands):
    """Each command's exit code. It may refuse, as it should; a hang or a fault of ours is none."""
    found = [cli.run([*map(str, command)]) for command in commands]
    said = capsys.readouterr()
    assert OUR_FAULT not in found, said.err
    return found


AT_DATASET = (
    *("manifest.json", "files.jsonl", "tokenizer.json", "tokenizer_config.json", "README.md", "croissant.json"),
    *("check.json", "train.jsonl", "parquet", "arrow", "npy", "bin", "megatron", "mds", "litdata"),
)


@pytest.mark.parametrize("name", AT_DATASET)
def test_in_a_dataset(dataset, sources, tmp_path, name, capsys):
    """`name`: a file, or a format, each of whose files is one in turn."""
    own = [one for one in dataset.rglob("*") if one.is_file() and one.relative_to(dataset).as_posix() == name]
    of_format = [one for one in (dataset / name).rglob("*") if one.is_file()] if name in FORMATS else []
    assert own or of_format or name == "check.json"
    relative = [one.relative_to(dataset) for one in own or of_format] or [name]
    for number, one in enumerate(relative):
        there = shutil.copytree(dataset, tmp_path / f"d{number}", copy_function=os.link)
        make_fifo(there / one)
        out = tmp_path / f"out{number}"
        formats = [("check", there), ("export", there, "--format", "bin")] if of_format else []
        others = [
            ("check", there, "--workers", 1),
            ("show", there),
            ("show", there, "--row", "validation:0"),
            ("explain", there, "m1.py"),
            ("diff", there, dataset),
            ("diff", dataset, there),
            ("report", there, "--out", f"{out}.html"),
            ("push", there, "someone/name"),
            ("plan", sources, "--splits", there, "--workers", 1),
            ("plan", sources, "--tokenizer", there, "--workers", 1),
            ("build", sources, "--out", f"{out}-splits", "--splits", there, "--workers", 1),
            ("build", there, "--out", f"{out}-source", "--workers", 1),
            ("tokenizer", "show", there, "--tokenizer", "codebert"),
            ("tokenizer", "train", there, "--out", f"{out}-vocabulary", "--vocab-size", 300),
            ("export", there, "--format", "npy"),
            ("clean", there),
        ]
        codes(capsys, *(formats or others))


@pytest.mark.parametrize("is_repository", [False, True])
def test_in_a_source(sources, tmp_path, is_repository, capsys):
    for name in AT_SOURCES:
        root = shutil.copytree(sources, tmp_path / name)
        if is_repository:
            git(root, "init", "-q")
            git(root, "add", ".")
        make_fifo(root / name)
        found = codes(
            capsys,
            ("plan", root, "--workers", 1),
            ("build", root, "--out", f"{root}-out", "--workers", 1),
            ("build", root / name, "--out", f"{root}-alone", "--workers", 1),
        )
        assert found == [0, 0, 3], name


@pytest.mark.parametrize("name", AT_GIT)
def test_among_gits_own_files(sources, tmp_path, name, capsys):
    root = shutil.copytree(sources, tmp_path / "repo")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "c")
    make_fifo(root / ".git" / name)
    assert codes(capsys, ("build", root, "--out", tmp_path / "out", "--workers", 1)) == [0]
    nested = write_tree(tmp_path / "around", {"a.py": CODE})
    shutil.move(root, nested / "inner")
    assert codes(capsys, ("build", nested, "--out", tmp_path / "out-nested", "--workers", 1)) == [0]
    assert len((tmp_path / "out-nested/files.jsonl").read_bytes().splitlines()) == 1 + len(SOURCES)


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "tokenizer", "special_tokens_map.json"],
)
def test_in_a_tokenizer(dataset, sources, tmp_path, name, capsys):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for one in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(dataset / one, folder)
    if name in {"vocab.json", "merges.txt"}:
        write_tree(folder, {"vocab.json": "{}", "merges.txt": ""})
        (folder / "tokenizer.json").unlink()
    make_fifo(folder / name)
    codes(
        capsys,
        ("plan", sources, "--tokenizer", folder, "--workers", 1),
        ("plan", sources, "--tokenizer", folder / name, "--workers", 1),
        ("tokenizer", "show", sources, "--tokenizer", folder),
    )


def test_named_on_the_command_line(sources, tmp_path, capsys):
    fifo = tmp_path / "fifo.jsonl"
    make_fifo(fifo)
    make_fifo(tmp_path / "fifo.parquet")
    refused = codes(
        capsys,
        ("plan", sources, "--config", fifo),
        ("plan", sources, "--against", fifo),
        ("plan", sources, "--against", tmp_path / "fifo.parquet"),
        ("plan", sources, "--splits", fifo),
        ("plan", sources, "--tokenizer", fifo),
        ("plan", fifo),
        ("plan", tmp_path / "fifo.parquet"),
        ("report", fifo),
    )
    assert 0 not in refused
