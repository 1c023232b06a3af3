import os
import shutil
from collections.abc import Callable

import pytest

from support.cuda_on_cpu.gpu_on_cpu import GpuOnCpu, compiled


@pytest.fixture(scope="session")
def make_gpu(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[tuple[str, ...]], GpuOnCpu]:
    """Return a function that simulates a GPU for given compile options.

    The kernels are compiled once for all pytest workers, and cached for the next run.
    """
    if shutil.which("g++") is None:
        pytest.skip("compiling the kernels needs g++")
    if pytestconfig.pluginmanager.hasplugin("cacheprovider"):
        folder = pytestconfig.cache.mkdir("kernels")
    else:
        own = tmp_path_factory.getbasetemp()
        folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    return lambda options: GpuOnCpu(compiled(folder, options))
