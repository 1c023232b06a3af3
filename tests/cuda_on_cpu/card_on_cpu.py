"""A Card whose kernels run on this machine's CPU: see cuda_on_cpu.h. Everything happens at once, in order."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "src/gristmill/tokenizing/cuda/kernels"


def compiled(folder: Path, options: tuple[str, ...]) -> Path:
    library = folder / ("kernels" + "".join(options).replace("=", "") + ".so")
    if not library.exists():
        command = [
            "g++",
            "-O2",
            "-g",
            "-std=c++17",
            "-shared",
            "-fPIC",
            "-fno-strict-aliasing",
            f"-I{KERNELS}",
            *options,
        ]
        subprocess.run([*command, "-o", str(library), str(HERE / "all_on_cpu.cpp")], check=True)
    return library


class CardOnCpu:
    name = "the CPU"
    num_processors = 1

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.launch.argtypes = [
            ctypes.c_char_p,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.c_uint64,
            ctypes.c_uint64,
        ]
        self._memory = []

    def allocate(self, num_bytes):
        memory = np.zeros(num_bytes + 256, np.uint8)
        self._memory.append(memory)
        return -(-memory.ctypes.data // 256) * 256

    def free(self):
        self._memory.clear()

    def pinned(self, num_bytes):
        return np.zeros(num_bytes, np.uint8)

    def copy_in(self, address, array, stream):
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def copy_out(self, array, address, stream):
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def zero(self, address, num_bytes, stream):
        ctypes.memset(address, 0, num_bytes)

    def launch(self, kernel, num_blocks, num_threads, engine, chunk):
        assert self._library.launch(kernel.encode(), num_blocks, num_threads, engine, chunk) == 0

    def launch_all(self, launches, engine, chunk):
        for launch in launches:
            self.launch(*launch, engine, chunk)

    def record(self, stream):
        return True

    def hold(self, stream, event):
        pass

    def wait(self, event):
        pass
