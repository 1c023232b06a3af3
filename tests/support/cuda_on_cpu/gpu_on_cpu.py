"""A Gpu whose kernels run on the CPU, with cuda_on_cpu.h. Every call returns only after its operation is done."""

import ctypes
import fcntl
import hashlib
import os
import subprocess
import time
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import numpy as np

from support.source_trees import ROOT

HERE = Path(__file__).parent
KERNELS = ROOT / "src/gristmill/tokenizers/cuda/kernels"
COMPILE = ("g++", "-O2", "-g", "-std=c++17", "-shared", "-fPIC", "-fno-strict-aliasing", f"-I{KERNELS}")
SOURCES = {".cpp", ".cu", ".cuh", ".h"}
ALIGNMENT = 256
STRUCTURES = ("Engine", "Chunk", "Result", "Counters", "TableState", "Entry")


def compiled(folder: Path, options: tuple[str, ...]) -> Path:
    """Return the library of kernels. Compile it only if the sources, options or compiler have changed."""
    command = [*COMPILE, *options]
    library = folder / f"kernels-{_digest(*command)}.so"
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            unfinished = library.with_suffix(".unfinished")
            subprocess.run([*command, "-o", str(unfinished), str(HERE / "all_on_cpu.cpp")], check=True)
            os.replace(unfinished, library)
    return library


@cache
def _digest(*command: str) -> str:
    version = subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout
    sources = sorted(path for folder in (KERNELS, HERE) for path in folder.iterdir() if path.suffix in SOURCES)
    contents = [" ".join(command).encode(), version, *(path.read_bytes() for path in sources)]
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:16]


class GpuOnCpu:
    name = "the CPU"
    num_processors = 1

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.launch.argtypes = [ctypes.c_char_p, *[ctypes.c_uint] * 2, *[ctypes.c_uint64] * 2]
        self._memory = []
        self._pinned = set()

    def structure_sizes(self):
        sizes = (ctypes.c_uint * len(STRUCTURES))()
        self._library.sizes(sizes)
        return dict(zip(STRUCTURES, sizes, strict=True))

    def allocate(self, num_bytes):
        memory = np.zeros(num_bytes + ALIGNMENT, np.uint8)
        self._memory.append(memory)
        return -(-memory.ctypes.data // ALIGNMENT) * ALIGNMENT

    def free(self):
        self._memory.clear()

    def in_use(self):
        return nullcontext()

    def pinned(self, num_bytes):
        memory = np.zeros(num_bytes, np.uint8)
        self.pin(memory)
        return memory

    def is_pinned(self, array):
        return array.ctypes.data in self._pinned

    def pin(self, array):
        self._pinned.add(array.ctypes.data)

    def unpin(self, array):
        self._pinned.remove(array.ctypes.data)

    def array(self, num_items, kind):
        return np.full(num_items, ~kind.type(0))

    def array_of(self, array):
        return array.copy()

    def address_of(self, array):
        return array.ctypes.data

    def copy_in(self, address, array, stream):
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def copy_out(self, array, address, stream):
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def copy_inside(self, to_address, from_address, num_bytes, stream):
        ctypes.memmove(to_address, from_address, num_bytes)

    def zero(self, address, num_bytes, stream):
        ctypes.memset(address, 0, num_bytes)

    def launch(self, kernel, num_blocks, num_threads, engine, chunk):
        assert self._library.launch(kernel.encode(), num_blocks, num_threads, engine, chunk) == 0

    def launch_all(self, stages, engine, chunk):
        for stage in stages:
            for branch in stage:
                for launch in branch:
                    self.launch(*launch, engine, chunk)

    def record(self, stream):
        return True

    def hold(self, stream, event):
        assert event

    def wait(self, event):
        assert event

    def mark(self, stream):
        return time.perf_counter()

    def seconds_between(self, first, last):
        return last - first

    def copy_seconds(self, num_bytes_in, num_bytes_out):
        return dict.fromkeys(("in", "out", "both"), 0.0)
