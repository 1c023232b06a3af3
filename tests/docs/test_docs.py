"""Generated pages match the code, and the options, links, files and modules that pages name exist."""

import re
import subprocess
import sys
import tomllib

import pytest

from gristmill import TrainConfig
from gristmill.config.config import load_config
from gristmill.config.options import all_options
from gristmill.publish.gates import OVERRIDES
from support.source_trees import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/trainers").glob("*.md"))]


def test_reference_is_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/write_reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def known_options():
    known = {option.flag for option in all_options()}
    known |= {"--config", "--quiet", "--json", "--help", "--version", "--source", "--row"}
    known |= {"--batch-size", "--budget-tokens", "--epochs", "--sequences", "--sample"}
    known |= {"--runs", "--only", "--expand-to", "--keep", "--tokenizers", "--device"}
    known |= {"--shard", "--against-clean", "--all"}
    known |= {"--upload", "--private", "--public", "--revision", "--message", *OVERRIDES.values()}
    known |= {"--" + name.replace("_", "-") for name in TrainConfig.__struct_fields__}
    known |= {"--resume", "--test", "--seeds", "--budget", "--no-early-stop", "--min-test-tokens"}
    known |= {"--size", "--pattern", "--template"}
    known |= {"--for", "--report", "--open", "--port", "--no-browser", "--ids", "--no-color"}
    return known


def options_in(page):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_in_pages_exist(page):
    foreign = {"--exclude-standard", "--bare", "--measure"}
    foreign |= {"--nproc-per-node", "--logdir"}
    foreign |= {"--head", "--address", "--num-cpus"}  # ray start
    foreign |= {"--module"}  # torchtitan
    foreign |= {"--train-data-path", "--valid-data-path", "--test-data-path", "--tokenizer-type", "--tokenizer-model"}
    foreign |= {"--seq-length", "--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss"}  # Megatron-LM
    foreign |= {
        "--parsable",
        "--chdir",
        "--cpus-per-task",
        "--mem",
        "--job-name",
        "--array",
        "--dependency",
        "--wrap",
    }
    assert options_in(page) <= known_options() | foreign


def test_every_option_is_on_a_page_and_every_build_option_in_the_reference():
    everywhere = set().union(*map(options_in, PAGES))
    assert known_options() - {"--help", "--version"} <= everywhere
    assert {option.flag for option in all_options()} <= options_in(ROOT / "docs/reference.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_benchmark_files_named_in_pages_exist(page):
    for name in re.findall(r"benchmarks/[\w.]+\.(?:md|py)", page.read_text()):
        assert (ROOT / name).is_file(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_in_pages_have_targets(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_toml_in_pages_is_a_valid_configuration(tmp_path):
    blocks = re.findall(r"```toml\n(.*?)```", "\n".join(page.read_text() for page in PAGES), re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "gristmill.toml").write_text(block)
        assert load_config({}, tmp_path / "gristmill.toml").out


PACKAGE = ROOT / "src/gristmill"


def test_architecture_page_lists_every_package_in_layer_order():
    page = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(named) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = (contract["layers"] for contract in contracts if contract["id"] == "layers")
    rank = {name: number for number, row in enumerate(reversed(layers)) for name in row.split(" | ")}
    assert [rank[name] for name in named] == sorted(rank[name] for name in named)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_modules_named_in_pages_exist(page):
    for name in re.findall(r"`([a-z_]+/[\w/]+\.(?:py|toml))`", page.read_text()):
        assert (PACKAGE / name).is_file() or (ROOT / name).is_file(), name


def test_names_in_the_contributing_guide_exist():
    """Names that are only examples contain an ellipsis or start with acme."""
    files = [
        ROOT / "Makefile",
        *(path for folder in ("src", "tests", "tools") for path in (ROOT / folder).rglob("*.py")),
    ]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text())} | {path.stem for path in files}
    quoted = re.findall(r"`([^`\n]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    names = {name for text in quoted if "…" not in text for name in re.findall(r"[A-Za-z]\w*_\w+|\b_\w+", text)}
    assert {name for name in names if not name.startswith("acme_")} <= words
