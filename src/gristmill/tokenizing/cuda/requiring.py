"""Is there what `--device cuda` needs? Said before any work is done."""

import ctypes
import sys
from importlib.util import find_spec

from gristmill.errors import DeviceError, MissingExtraError


def require_cuda() -> None:
    """Asks for the package without importing it (0.5 s and more), and the driver itself for a card."""
    if sys.platform != "linux":
        raise DeviceError(
            f"--device cuda needs Linux, this is {sys.platform}. Leave it out: the CPU gives the same ids."
        )
    if find_spec("cupy") is None:
        raise MissingExtraError("--device cuda needs the cupy package: pip install 'gristmill[gpu]'")
    lack = _lack_of_a_card()
    if lack is not None:
        raise DeviceError(f"there is no GPU: {lack}. Leave out --device cuda: the CPU gives the same ids.")


def _lack_of_a_card() -> str | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "NVIDIA's driver is not installed (libcuda.so.1)"
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return f"NVIDIA's driver shows none (error {code})"
    return None if count.value else "NVIDIA's driver shows none"
