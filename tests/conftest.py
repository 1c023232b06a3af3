"""What several tests build on: small source trees, a corpus that is the same everywhere, the bundled tokenizer."""

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
# A slow machine is no fault: neither one example nor making them has a time to be done in.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

pytest_plugins = ["support.s3_server"]


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty one: no settings of git, Ray, AWS or the Hub, and nothing is left in the user's."""
    folder = tmp_path_factory.mktemp("home")
    os.environ["HOME"] = str(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _small_process() -> Iterator[None]:
    """The more memory a process holds, the longer each fork of it takes, and builds fork workers."""
    yield
    end_lasting_threads()
    give_memory_back()


@pytest.fixture
def tree(tmp_path: Path) -> MakeTree:
    return lambda files: write_tree(tmp_path / "repo", files)


@pytest.fixture(scope="session")
def own_files() -> list[Path]:
    """Python that people wrote: this project's. For what holds for any code, as it changes with each commit."""
    root = ROOT
    return [
        path for folder in ("src", "tests", "tools", "benchmarks") for path in sorted((root / folder).rglob("*.py"))
    ]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 300 files of many sizes, the same everywhere; only to be read."""
    return write_tree(tmp_path_factory.mktemp("corpus") / "stdlib", made_library())


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> tuple[Path, Manifest]:
    """The corpus with default settings: for tests that only look."""
    out = tmp_path_factory.mktemp("built") / "dataset"
    return out, build(Config(sources=[str(corpus)], out=str(out)))


@pytest.fixture(scope="session")
def codebert() -> Tokenizer:
    return load_tokenizer("codebert")


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """A browser for the module alone: while it runs there is a thread, beside which builds cannot fork their workers."""
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
"""Files and functions that take long."""
SLOW_FIXTURES = {"chromium", "cluster", "moto"}
"""A browser, Ray, S3."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whole files are not even loaded where no slow test is wanted."""
    is_left_out = config.option.markexpr == "not slow" and _below_tests(collection_path) in {*SLOW, *NEED_TORCH}
    return is_left_out or None


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        file = _below_tests(item.path)
        if SLOW & {file, f"{file}::{item.originalname}"} or SLOW_FIXTURES & set(item.fixturenames):
            item.add_marker("slow")
    items.sort(key=_place_in_order)


def _place_in_order(item: pytest.Function) -> int:
    """Put Ray and PyTorch first, so that one process runs them: each starts its own cluster, and PyTorch slows forks down.

    An idle process takes tests from the end of another's queue, so the first tests stay with the first process.
    """
    return 0 if "cluster" in item.fixturenames else 1 if _below_tests(item.path) in NEED_TORCH else 2


def _below_tests(path: Path) -> str:
    return Path(os.path.relpath(path, ROOT / "tests")).as_posix()


def pytest_collection_finish() -> None:
    """What is loaded by now is no garbage: the collector need not look through it, here and in forked workers."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> list[str]:
    return [f"LEFT OUT, as PyTorch is not installed: {name}" for name in collect_ignore]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Asked only where a test wants a card or a browser: others load neither."""
    if item.get_closest_marker("gpu") is not None:
        try:
            require_cuda()
        except (DeviceError, MissingExtraError) as error:
            pytest.skip(str(error))
    if "chromium" in item.fixturenames:
        from support.browser import chromium_path

        if chromium_path() is None:  # each by its name, so that it is plain what was not tried
            pytest.skip(f"LEFT OUT, as there is no Chromium or Chrome here: {item.name}")
