"""A command does not block if a file that other users may have created is a FIFO."""

import os
import re
import shutil
import stat

import pytest

from gristmill import Config, OutputConfig, WindowConfig, build
from gristmill.cli import main
from gristmill.config.settings import ScanConfig
from gristmill.core.errors import GristmillError
from gristmill.core.output_formats import FORMATS
from gristmill.sources import git as git_commands
from gristmill.sources.trees import scan
from support.builds import files_table
from support.source_trees import git, write_tree

pytestmark = pytest.mark.timeout(120)

CRASH = GristmillError.exit_code
CODE = "".join(f"def function_{number}(x):\n    return x * {number * 7}\n" for number in range(40))
SOURCES = {f"m{number}.py": CODE.replace("function", f"f{number}") for number in range(6)}
SOURCE_NAMES = (
    *("manifest.json", "files.jsonl", ".gitignore", ".ignore", ".gitattributes", ".gitmodules", "LICENSE", "COPYING"),
    *("LICENSE.md", "NOTICE", "README.md", "Cargo.toml", "package.json", "pyproject.toml", "setup.py", "go.mod"),
    *("notebook.ipynb", "rows.jsonl", "rows.parquet", "a.py", "tokenizer.json", "rules.toml", "gristmill.toml"),
)
GIT_NAMES = (
    *("HEAD", "index", "config", "config.worktree", "packed-refs", "info/exclude", "info/attributes", "commondir"),
    *("gitdir", "objects/info/alternates", "refs/heads/main", "refs/heads/master", "info/sparse-checkout", "shallow"),
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return write_tree(tmp_path_factory.mktemp("sources") / "repo", SOURCES)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, sources):
    out = tmp_path_factory.mktemp("dataset") / "dataset"
    output = OutputConfig(formats=list(FORMATS))
    build(Config(sources=[str(sources)], out=str(out), output=output, window=WindowConfig(length=64, overlap=8)))
    return out


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(git_commands, "SECONDS_UNTIL_FIFO_SEARCH", 0.1)


def make_fifo(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def exit_codes(capsys, *commands):
    """Run the commands and return their exit codes. A command may report an error, but must not hang or crash."""
    found = [main.run([*map(str, command)]) for command in commands]
    output = capsys.readouterr()
    assert CRASH not in found, output.err
    return found


DATASET_NAMES = (
    *("manifest.json", "files.jsonl", "tokenizer.json", "tokenizer_config.json", "README.md", "croissant.json"),
    *("check.json", "train.jsonl", *(name for name in FORMATS if name != "jsonl")),
)


@pytest.mark.parametrize("name", DATASET_NAMES)
def test_fifo_in_a_dataset_blocks_no_command(dataset, sources, tmp_path, name, capsys):
    """`name` is a file or a format. The files of a format are replaced by FIFOs one at a time."""
    matches = [one for one in dataset.rglob("*") if one.is_file() and one.relative_to(dataset).as_posix() == name]
    format_files = [one for one in (dataset / name).rglob("*") if one.is_file()] if name in FORMATS else []
    format_files = [one for one in format_files if not re.search("validation|test", str(one.relative_to(dataset)))]
    assert matches or format_files or name == "check.json"
    relative = [one.relative_to(dataset) for one in matches or format_files] or [name]
    for number, one in enumerate(relative):
        copy = shutil.copytree(dataset, tmp_path / f"d{number}", copy_function=os.link)
        make_fifo(copy / one)
        out = tmp_path / f"out{number}"
        format_commands = [("check", copy), ("export", copy, "--format", "bin")] if format_files else []
        all_commands = [
            ("check", copy, "--workers", 1),
            ("show", copy),
            ("show", copy, "--row", "validation:0"),
            ("explain", copy, "m1.py"),
            ("diff", copy, dataset),
            ("diff", dataset, copy),
            ("report", copy, "--out", f"{out}.html"),
            ("push", copy, "someone/name"),
            ("plan", sources, "--splits", copy, "--workers", 1),
            ("plan", sources, "--tokenizer", copy, "--workers", 1),
            ("build", sources, "--out", f"{out}-splits", "--splits", copy, "--workers", 1),
            ("build", copy, "--out", f"{out}-source", "--workers", 1),
            ("tokenizer", "show", copy, "--tokenizer", "codebert"),
            ("tokenizer", "train", copy, "--out", f"{out}-vocabulary", "--vocab-size", 300),
            ("export", copy, "--format", "npy"),
            ("clean", copy),
        ]
        exit_codes(capsys, *(format_commands or all_commands))


@pytest.mark.parametrize("is_repository", [False, True])
def test_fifos_in_a_source_block_no_command(sources, tmp_path, is_repository, capsys):
    """The source contains many FIFOs at once. A command that opens one of them would hang."""
    root = shutil.copytree(sources, tmp_path / "repo")
    if is_repository:
        git(root, "init", "-q")
        git(root, "add", ".")
    for folder in (root, root / "inner"):
        for name in SOURCE_NAMES:
            make_fifo(folder / name)
    plan, built = exit_codes(
        capsys, ("plan", root, "--workers", 1), ("build", root, "--out", tmp_path / "out", "--workers", 1)
    )
    assert plan == built == 0
    rows = files_table(tmp_path / "out")
    assert {path for path, row in rows.items() if row["status"] == "kept"} == set(SOURCES)
    dropped = {path for path, row in rows.items() if row.get("reason") == "not_a_file"}
    assert dropped >= {"LICENSE", "inner/a.py"} or is_repository  # git does not list FIFOs
    single_file_plans = [("plan", root / name, "--workers", 1) for name in SOURCE_NAMES]
    assert set(exit_codes(capsys, *single_file_plans)) == {3}


@pytest.mark.parametrize("name", GIT_NAMES)
def test_fifo_among_git_files_does_not_block_the_scan(sources, tmp_path, name):
    """Scan the repository itself, then inside a plain folder, then inside the work tree of a different repository."""
    root = shutil.copytree(sources, tmp_path / "repo")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-qm", "c")
    make_fifo(root / ".git" / name)
    outer = write_tree(tmp_path / "outer", {"a.py": CODE})
    shutil.copytree(root, outer / "inner", copy_function=copy_or_make_fifo)
    for is_repository in (False, True):
        if is_repository:
            git(outer, "init", "-q")
        assert [file.path for file in scan([str(root)], ScanConfig()).files] == sorted(SOURCES)
        found = scan([str(outer)], ScanConfig())
        assert {file.path for file in found.files} == {"a.py", *(f"inner/{one}" for one in SOURCES)}


@pytest.mark.parametrize("key", ["include.path", "core.excludesFile"])
def test_fifo_in_the_git_configuration_is_reported(sources, tmp_path, key):
    root = shutil.copytree(sources, tmp_path / "repo")
    git(root, "init", "-q")
    make_fifo(tmp_path / "fifo")
    git(root, "config", key, str(tmp_path / "fifo"))
    found = scan([str(root)], ScanConfig())
    assert [file.path for file in found.files] == sorted(SOURCES)
    assert "it is a FIFO" in found.warnings[0]


def copy_or_make_fifo(source, target):
    if stat.S_ISFIFO(os.stat(source).st_mode):
        os.mkfifo(target)
    else:
        shutil.copy(source, target)


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "tokenizer", "special_tokens_map.json"],
)
def test_fifo_in_a_tokenizer_folder_blocks_no_command(dataset, sources, tmp_path, name, capsys):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for one in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(dataset / one, folder)
    if name in {"vocab.json", "merges.txt"}:
        write_tree(folder, {"vocab.json": "{}", "merges.txt": ""})
        (folder / "tokenizer.json").unlink()
    make_fifo(folder / name)
    exit_codes(
        capsys,
        ("plan", sources, "--tokenizer", folder, "--workers", 1),
        ("plan", sources, "--tokenizer", folder / name, "--workers", 1),
        ("tokenizer", "show", sources, "--tokenizer", folder),
    )


def test_fifo_on_the_command_line_is_refused(sources, tmp_path, capsys):
    fifo = tmp_path / "fifo.jsonl"
    make_fifo(fifo)
    make_fifo(tmp_path / "fifo.parquet")
    refused = exit_codes(
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
