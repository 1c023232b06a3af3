"""Check the requirements of `--device cuda` before any work starts."""

import ctypes
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from typing import NamedTuple

from gristmill.core.errors import DeviceError, MissingExtraError

DRIVER = "libcuda.so.1"
MIN_CAPABILITY = (8, 0)
"""Compute capability of Ampere. The merge kernels use __reduce_min_sync, an instruction that older GPUs do not have."""
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
"""Attributes in the CUDA driver API for the major and the minor version of the compute capability."""
MAX_NAME_BYTES = 256
PACKAGES_BY_CUDA = {13: "cupy-cuda13x", 12: "cupy-cuda12x"}
USE_CPU = "Leave out --device cuda: the CPU gives the same ids."


class _Gpu(NamedTuple):
    name: str
    capability: tuple[int, int]
    driver_cuda: int
    """Latest major version of CUDA that the driver supports."""


class _NoGpuError(Exception):
    pass


def require_cuda() -> None:
    """Raise DeviceError or MissingExtraError if this machine cannot encode on a GPU.

    Query the driver directly, because importing cupy takes 0.5 s or more.
    """
    if sys.platform != "linux":
        raise DeviceError(f"--device cuda needs Linux, but this system is {sys.platform}. {USE_CPU}")
    if find_spec("cupy") is None:
        raise MissingExtraError(
            "--device cuda needs the cupy package: pip install 'gristmill[gpu]' "
            "(with a driver for CUDA 12: pip install 'cupy-cuda12x[ctk]')"
        )
    try:
        gpu = _first_gpu()
    except _NoGpuError as error:
        raise DeviceError(f"--device cuda needs a GPU: {error}. {USE_CPU}") from None
    _check_capability(gpu)
    _check_package(gpu)


def _check_capability(gpu: _Gpu) -> None:
    if gpu.capability < MIN_CAPABILITY:
        found, minimum = (".".join(map(str, version)) for version in (gpu.capability, MIN_CAPABILITY))
        raise DeviceError(
            f"{gpu.name} has compute capability {found}, but {minimum} (Ampere) or higher is required. {USE_CPU}"
        )


def _check_package(gpu: _Gpu) -> None:
    """Raise DeviceError if cupy is built for a newer CUDA than the driver supports. Builds for an older CUDA work."""
    newer = next((package for cuda, package in PACKAGES_BY_CUDA.items() if cuda > gpu.driver_cuda), None)
    older = PACKAGES_BY_CUDA.get(gpu.driver_cuda)
    if newer is not None and older is not None and _is_installed(newer) and not _is_installed(older):
        raise DeviceError(
            f"{newer} is installed, but the driver of {gpu.name} supports only CUDA {gpu.driver_cuda}. "
            f"Update the driver, or: pip uninstall {newer}; pip install '{older}[ctk]'"
        )


def _is_installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _first_gpu() -> _Gpu:
    """Query the driver for the first GPU. cupy uses the same GPU."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        raise _NoGpuError(f"the NVIDIA driver is not installed ({DRIVER})") from None
    _call(driver.cuInit, 0)
    if not _query_int(driver.cuDeviceGetCount):
        raise _NoGpuError("the NVIDIA driver reports no GPU")
    gpu, name = _query_int(driver.cuDeviceGet, 0), ctypes.create_string_buffer(MAX_NAME_BYTES)
    _call(driver.cuDeviceGetName, name, MAX_NAME_BYTES, gpu)
    major = _query_int(driver.cuDeviceGetAttribute, CAPABILITY_MAJOR, gpu)
    minor = _query_int(driver.cuDeviceGetAttribute, CAPABILITY_MINOR, gpu)
    return _Gpu(
        name.value.decode(), (major, minor), _query_int(driver.cuDriverGetVersion) // 1000
    )  # 13020 for CUDA 13.2


def _query_int(function: Callable[..., int], *arguments: int) -> int:
    number = ctypes.c_int()
    _call(function, ctypes.byref(number), *arguments)
    return number.value


def _call(function: Callable[..., int], *arguments: object) -> None:
    code = function(*arguments)
    if code:
        raise _NoGpuError(f"the NVIDIA driver failed with error {code}")
