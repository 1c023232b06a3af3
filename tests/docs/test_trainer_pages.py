"""Each trainer has a page with the configuration and the output of an export."""

import re
from importlib.metadata import distribution, distributions

import pytest

from gristmill import Config, SplitConfig, WindowConfig, build, open_dataset
from gristmill.publish.export_for import render_command, render_snippet
from gristmill.publish.trainers import TRAINERS
from support.library_readers import READERS
from support.source_trees import ROOT, write_tree

FOLDER = ROOT / "docs/trainers"


@pytest.fixture(scope="module")
def manifest_of(tmp_path_factory):
    """Return a function that builds a dataset with a given window length and returns its manifest."""
    folder = tmp_path_factory.mktemp("manifests")
    files = {f"part{number}.py": f"value_{number} = {number}\n" * 20 for number in range(12)}
    source = str(write_tree(folder / "repo", files))

    def build_manifest(length):
        out = folder / str(length)
        window = WindowConfig(length=length, pack="none")
        build(Config(sources=[source], out=str(out), window=window, split=SplitConfig(shares="40/30/30")))
        return open_dataset(out).manifest

    return build_manifest


def page_of(name):
    return (FOLDER / f"{name}.md").read_text()


def test_pages_match_the_table_of_trainers():
    assert {path.stem for path in FOLDER.glob("*.md")} == {*TRAINERS, "README"}
    index = (FOLDER / "README.md").read_text()
    rows = re.findall(
        r"^\| \[[\w -]+\]\((\w+)\.md\) \| `--for (\w+)` \| ([^|]+) \| `([^|]+)` \| ([^|]+) \|$", index, re.MULTILINE
    )
    assert [(name, option, kind, text) for name, option, kind, _, text in rows] == [
        (name, name, trainer.input_kind.value, trainer.description) for name, trainer in TRAINERS.items()
    ]
    for name, _, _, options, _ in rows:
        assert f" {options}" in page_of(name)


@pytest.mark.parametrize("name", TRAINERS)
def test_page_shows_the_snippet_and_the_output(manifest_of, name):
    trainer, page = TRAINERS[name], page_of(name)
    [out] = re.findall(rf"^\$ gristmill export dataset --for {name}(?: --out (\S+))?$", page, re.MULTILINE)
    folder = out or f"dataset-{name}"
    length = int((re.findall(r"--window (\d+)", page) or ["512"])[0])
    snippet = render_snippet(trainer, manifest_of(length), folder)
    assert re.search(rf"^## {re.escape(trainer.snippet_name)}\n\n```\w+\n{re.escape(snippet)}```$", page, re.MULTILINE)
    assert f": {trainer.description}\nconfig   {folder}/{trainer.snippet_name}\n" in page
    assert f"\ntrain    {render_command(trainer, folder)}\npage     docs/trainers/{name}.md\n" in page
    assert trainer.page == f"docs/trainers/{name}.md"


def test_pages_name_the_tested_versions():
    if not READERS.is_dir():
        pytest.skip("the libraries in readers.txt are not installed; make test installs them")
    readers = {package.name.lower(): package.version for package in distributions(path=[str(READERS)])}
    packages = {
        "trl": "TRL",
        "axolotl": "axolotl",
        "litgpt": "LitGPT",
        "megatron": "Megatron-Core",
        "torchtitan": "torchtitan",
    }
    for name, display_name in packages.items():
        if version := readers.get("megatron-core" if name == "megatron" else name):
            assert f"{display_name} {version}" in page_of(name)
    for name in ("trl", "transformers"):
        assert f"transformers {distribution('transformers').version}" in page_of(name)
