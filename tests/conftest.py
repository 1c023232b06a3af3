"""Shared fixtures: small source trees, a reproducible corpus, the bundled tokenizer and a browser."""

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
from support.environment import disable_tqdm_monitor, release_memory, set_up_environment, stop_library_threads
from support.made_code import made_library
from support.source_trees import ROOT, MakeTree, write_tree

if TYPE_CHECKING:
    from playwright.sync_api import Browser

set_up_environment()
disable_tqdm_monitor()
# Tests must not fail on slow machines, so Hypothesis limits neither the time of a test nor of generating examples.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["support.s3_server"]


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty home directory: tests see no settings of git, Ray, AWS or the Hub, and leave nothing in the user's home."""
    folder = tmp_path_factory.mktemp("home")
    os.environ["HOME"] = str(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _small_process() -> Iterator[None]:
    """Free memory after each module, because builds fork workers and a fork of a large process is slow."""
    yield
    stop_library_threads()
    release_memory()


@pytest.fixture
def tree(tmp_path: Path) -> MakeTree:
    return lambda files: write_tree(tmp_path / "repo", files)


@pytest.fixture(scope="session")
def own_files() -> list[Path]:
    """Python files of this project, for tests that work with any code. These files change with each commit."""
    root = ROOT
    return [
        path for folder in ("src", "tests", "tools", "benchmarks") for path in sorted((root / folder).rglob("*.py"))
    ]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 300 files of many sizes, with the same content on every machine. Tests must not change the files."""
    return write_tree(tmp_path_factory.mktemp("corpus") / "stdlib", made_library())


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> tuple[Path, Manifest]:
    """Folder and manifest of a build of the corpus with default settings. Tests must not change the dataset."""
    out = tmp_path_factory.mktemp("built") / "dataset"
    return out, build(Config(sources=[str(corpus)], out=str(out)))


@pytest.fixture(scope="session")
def codebert() -> Tokenizer:
    return load_tokenizer("codebert")


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """A browser for one module. Playwright runs a thread, and builds cannot fork workers while another thread runs."""
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
"""Test files and functions that are slow, as listed in tests/slow.txt."""
SLOW_FIXTURES = {"chromium", "cluster", "moto"}
"""Fixtures that start a browser, Ray or S3. Tests that use them are slow."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """If only quick tests run, do not load files in which all tests are slow or need PyTorch."""
    is_skipped = config.option.markexpr == "not slow" and _path_in_tests(collection_path) in {*SLOW, *NEED_TORCH}
    return is_skipped or None


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        file = _path_in_tests(item.path)
        if SLOW & {file, f"{file}::{item.originalname}"} or SLOW_FIXTURES & set(item.fixturenames):
            item.add_marker("slow")
    items.sort(key=_sort_key)


def _sort_key(item: pytest.Function) -> int:
    """Return a sort key that puts tests with Ray and PyTorch first, so that one pytest-xdist process runs all of them.

    Otherwise, each process would start a Ray cluster, and PyTorch would slow down forks in all of them. An idle process
    takes tests from the end of another process's queue, so the first tests remain in the first process.
    """
    return 0 if "cluster" in item.fixturenames else 1 if _path_in_tests(item.path) in NEED_TORCH else 2


def _path_in_tests(path: Path) -> str:
    return Path(os.path.relpath(path, ROOT / "tests")).as_posix()


def pytest_collection_finish() -> None:
    """Exempt all objects loaded so far from garbage collection, in this process and in forked workers."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> list[str]:
    return [f"SKIPPED because PyTorch is not installed: {name}" for name in collect_ignore]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test if it needs a GPU or a browser that is missing. For other tests, load neither CUDA nor Playwright."""
    if item.get_closest_marker("gpu") is not None:
        try:
            require_cuda()
        except (DeviceError, MissingExtraError) as error:
            pytest.skip(str(error))
    if "chromium" in item.fixturenames:
        from support.browser import chromium_path

        if chromium_path() is None:  # the reason contains the test name, so that the summary lists each skipped test
            pytest.skip(f"SKIPPED because neither Chromium nor Chrome is installed: {item.name}")
