"""Test the requirements of `--device cuda` with compiled stand-ins for the NVIDIA driver."""

import shutil
import subprocess

import pytest

from gristmill.core.errors import DeviceError
from gristmill.tokenizers.cuda import availability

DRIVER = """
#include <string.h>
int cuInit(unsigned flags) {{ return {error}; }}
int cuDeviceGetCount(int* count) {{ *count = {count}; return 0; }}
int cuDeviceGet(int* card, int ordinal) {{ *card = ordinal + 40; return 0; }}
int cuDeviceGetName(char* name, int size, int card) {{ strncpy(name, "Stand-in 9000", size); return card != 40; }}
int cuDeviceGetAttribute(int* value, int which, int card) {{
    *value = which == 75 ? {major} : which == 76 ? {minor} : -1;
    return card != 40;
}}
int cuDriverGetVersion(int* version) {{ *version = {version}; return 0; }}
"""


@pytest.fixture
def with_driver(tmp_path, monkeypatch):
    if shutil.which("gcc") is None:
        pytest.skip("compiling the driver needs gcc")
    monkeypatch.setattr(availability, "find_spec", lambda name: name)
    monkeypatch.setattr(availability, "_is_installed", {"cupy-cuda13x"}.__contains__)

    def make(**answers):
        code = DRIVER.format(**{"error": 0, "count": 1, "major": 9, "minor": 0, "version": 13020} | answers)
        (tmp_path / "driver.c").write_text(code)
        library = tmp_path / "libcuda.so.1"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "driver.c"], check=True)
        monkeypatch.setattr(availability, "DRIVER", str(library))

    return make


@pytest.mark.parametrize(("major", "minor"), [(8, 0), (8, 9), (9, 0), (12, 1)])
def test_gpus_from_ampere_on_are_accepted(with_driver, major, minor):
    with_driver(major=major, minor=minor)
    availability.require_cuda()


@pytest.mark.parametrize(("major", "minor"), [(7, 5), (7, 0), (6, 1)])
def test_an_older_gpu_is_rejected_by_name(with_driver, major, minor):
    with_driver(major=major, minor=minor)
    message = (
        rf"^Stand-in 9000 has compute capability {major}\.{minor}, but 8\.0 \(Ampere\) or higher is required\. Leave"
    )
    with pytest.raises(DeviceError, match=message):
        availability.require_cuda()


def test_a_driver_without_gpus_is_an_error(with_driver):
    with_driver(count=0)
    with pytest.raises(DeviceError, match=r"^--device cuda needs a GPU: the NVIDIA driver reports no GPU\. Leave"):
        availability.require_cuda()


def test_a_failing_driver_is_an_error(with_driver):
    with_driver(error=100)
    with pytest.raises(
        DeviceError, match=r"^--device cuda needs a GPU: the NVIDIA driver failed with error 100\. Leave"
    ):
        availability.require_cuda()


def test_a_cupy_package_for_a_newer_driver_is_an_error(with_driver, monkeypatch):
    with_driver(version=12080)
    with pytest.raises(DeviceError, match=r"^cupy-cuda13x is installed, .* CUDA 12\. .* install 'cupy-cuda12x\[ctk\]'"):
        availability.require_cuda()
    monkeypatch.setattr(availability, "_is_installed", {"cupy-cuda12x"}.__contains__)
    availability.require_cuda()


def test_installed_packages_are_found_without_import():
    assert availability._is_installed("numpy")
    assert not availability._is_installed("cupy-cuda99x")
