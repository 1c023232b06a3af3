import os
import shutil
from collections.abc import Callable

import pytest

from support.cuda_on_cpu.card_on_cpu import CardOnCpu, compiled


@pytest.fixture(scope="session")
def make_card(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[tuple[str, ...]], CardOnCpu]:
    """A card for these compile options. Its library is compiled once for all workers, and kept for the next run."""
    if shutil.which("g++") is None:
        pytest.skip("the kernels are compiled with g++, which is not there")
    if pytestconfig.pluginmanager.hasplugin("cacheprovider"):
        folder = pytestconfig.cache.mkdir("kernels")
    else:
        own = tmp_path_factory.getbasetemp()
        folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return lambda options: CardOnCpu(compiled(folder, options))
