"""Fixtures shared by tests, such as source trees, a corpus and the bundled tokenizer, and the selection of slow tests."""

import gc
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from gristmill import Config, Manifest, MissingExtraError, build, load_tokenizer
from gristmill.core.errors import DeviceError
from gristmill.tokenizers.cuda.availability import require_cuda
from gristmill.tokenizers.tokenizer import Tokenizer
from support.made_code import made_library
from support.source_trees import ROOT, MakeTree, write_tree
from support.surroundings import end_lasting_threads, give_memory_back, settle, start_no_monitor

if TYPE_CHECKING:
    from playwright.sync_api import Browser

settle()
start_no_monitor()
# Tests must not fail on a slow machine, so neither an example nor its generation has a time limit.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["support.s3_server"]


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Use an empty home directory: no settings of git, Ray, AWS or the Hub apply, and the user's home does not change."""
    folder = tmp_path_factory.mktemp("home")
    os.environ["HOME"] = str(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _small_process() -> Iterator[None]:
    """Release memory after each module. Builds fork workers, and a fork takes longer the more memory the process holds."""
    yield
    end_lasting_threads()
    give_memory_back()


@pytest.fixture
def tree(tmp_path: Path) -> MakeTree:
    return lambda files: write_tree(tmp_path / "repo", files)


@pytest.fixture(scope="session")
def own_files() -> list[Path]:
    """Python files of this project, as code that people wrote.

    They change with each commit, so use them only for assertions that hold for any code.
    """
    root = ROOT
    return [
        path for folder in ("src", "tests", "tools", "benchmarks") for path in sorted((root / folder).rglob("*.py"))
    ]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 300 files of many sizes, the same on every machine. Tests must not change them."""
    return write_tree(tmp_path_factory.mktemp("corpus") / "stdlib", made_library())


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> tuple[Path, Manifest]:
    """The corpus built with default settings. Tests must not change the dataset."""
    out = tmp_path_factory.mktemp("built") / "dataset"
    return out, build(Config(sources=[str(corpus)], out=str(out)))


@pytest.fixture(scope="session")
def codebert() -> Tokenizer:
    return load_tokenizer("codebert")


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """Start a browser for one module only: it runs a thread, and builds do not fork workers beside a thread."""
    from support.browser import launched

    with launched() as browser:
        yield browser


NEED_TORCH = [
    "lab/comparison/test_compare.py",
    "dataset/test_torch_windows.py",
    "dataset/test_masking.py",
    "lab/training/test_train.py",
]
collect_ignore = [] if find_spec("torch") else NEED_TORCH
SLOW = {line for line in (ROOT / "tests/slow.txt").read_text().splitlines() if not line.startswith("#")}
"""Slow test files and functions."""
SLOW_FIXTURES = {"chromium", "cluster", "moto"}
"""Fixtures that start a browser, Ray or an S3 server."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files in which every test is slow if slow tests are deselected."""
    is_ignored = config.option.markexpr == "not slow" and _below_tests(collection_path) in {*SLOW, *NEED_TORCH}
    return is_ignored or None


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        file = _below_tests(item.path)
        if SLOW & {file, f"{file}::{item.originalname}"} or SLOW_FIXTURES & set(item.fixturenames):
            item.add_marker("slow")
    items.sort(key=_sort_key)


def _sort_key(item: pytest.Function) -> int:
    """Put tests with Ray and PyTorch first, so that a single process runs them.

    Each process would start its own Ray cluster, and PyTorch slows down forks. An idle process takes tests from the end
    of another's queue, so the first tests remain with the first process.
    """
    return 0 if "cluster" in item.fixturenames else 1 if _below_tests(item.path) in NEED_TORCH else 2


def _below_tests(path: Path) -> str:
    return Path(os.path.relpath(path, ROOT / "tests")).as_posix()


def pytest_collection_finish() -> None:
    """Exclude everything that is loaded by now from garbage collection, here and in forked workers."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> list[str]:
    return [f"SKIPPED, as PyTorch is not installed: {name}" for name in collect_ignore]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests whose GPU or browser is missing. Other tests load neither."""
    if item.get_closest_marker("gpu") is not None:
        try:
            require_cuda()
        except (DeviceError, MissingExtraError) as error:
            pytest.skip(str(error))
    if "chromium" in item.fixturenames:
        from support.browser import chromium_path

        if chromium_path() is None:  # the test name shows in the report which tests did not run
            pytest.skip(f"SKIPPED, as Chromium or Chrome is not installed: {item.name}")
