"""Is there what `--device cuda` needs? Said before any work is done."""

import ctypes
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from typing import NamedTuple

from gristmill.core.errors import DeviceError, MissingExtraError

DRIVER = "libcuda.so.1"
OLDEST_CAPABILITY = (8, 0)
"""Ampere: the first whose warps find the smallest of 32 numbers by one instruction, as merging does in every round."""
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
"""What the driver calls these attributes of a card."""
MAX_NAME_BYTES = 256
PACKAGES_BY_CUDA = {13: "cupy-cuda13x", 12: "cupy-cuda12x"}
OTHERWISE = "Leave out --device cuda: the CPU gives the same ids."


class _Card(NamedTuple):
    name: str
    capability: tuple[int, int]
    driver_cuda: int
    """The major version of CUDA that the driver can run, at most."""


class _NoCardError(Exception):
    pass


def require_cuda() -> None:
    """Asks for the package without importing it (0.5 s and more), and the driver itself for a card."""
    if sys.platform != "linux":
        raise DeviceError(f"--device cuda needs Linux, this is {sys.platform}. {OTHERWISE}")
    if find_spec("cupy") is None:
        raise MissingExtraError(
            "--device cuda needs the cupy package: pip install 'gristmill[gpu]' "
            "(with a driver for CUDA 12: pip install 'cupy-cuda12x[ctk]')"
        )
    try:
        card = _first_card()
    except _NoCardError as error:
        raise DeviceError(f"there is no GPU: {error}. {OTHERWISE}") from None
    _check_capability(card)
    _check_package(card)


def _check_capability(card: _Card) -> None:
    if card.capability < OLDEST_CAPABILITY:
        own, oldest = (".".join(map(str, version)) for version in (card.capability, OLDEST_CAPABILITY))
        raise DeviceError(
            f"{card.name} has compute capability {own}, and {oldest} (Ampere) is the least that can. {OTHERWISE}"
        )


def _check_package(card: _Card) -> None:
    """CUDA 13's libraries do not run on a driver for CUDA 12; the other way round they do."""
    newer = next((package for cuda, package in PACKAGES_BY_CUDA.items() if cuda > card.driver_cuda), None)
    older = PACKAGES_BY_CUDA.get(card.driver_cuda)
    if newer is not None and older is not None and _is_installed(newer) and not _is_installed(older):
        raise DeviceError(
            f"{newer} is installed, and the driver of {card.name} is for CUDA {card.driver_cuda}. "
            f"Update the driver, or: pip uninstall {newer}; pip install '{older}[ctk]'"
        )


def _is_installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _first_card() -> _Card:
    """The one that cupy takes."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        raise _NoCardError(f"NVIDIA's driver is not installed ({DRIVER})") from None
    _call(driver.cuInit, 0)
    if not _number(driver.cuDeviceGetCount):
        raise _NoCardError("NVIDIA's driver shows none")
    card, name = _number(driver.cuDeviceGet, 0), ctypes.create_string_buffer(MAX_NAME_BYTES)
    _call(driver.cuDeviceGetName, name, MAX_NAME_BYTES, card)
    major = _number(driver.cuDeviceGetAttribute, CAPABILITY_MAJOR, card)
    minor = _number(driver.cuDeviceGetAttribute, CAPABILITY_MINOR, card)
    return _Card(name.value.decode(), (major, minor), _number(driver.cuDriverGetVersion) // 1000)  # 13020: CUDA 13.2


def _number(function: Callable[..., int], *arguments: int) -> int:
    number = ctypes.c_int()
    _call(function, ctypes.byref(number), *arguments)
    return number.value


def _call(function: Callable[..., int], *arguments: object) -> None:
    code = function(*arguments)
    if code:
        raise _NoCardError(f"NVIDIA's driver shows none (error {code})")
