"""Implement the Gpu protocol (gpu.py) with cupy.

NVRTC compiles the kernels at run time, and cupy caches the compiled kernels on disk.
"""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import resources
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
from cupy.cuda import runtime

from gristmill.tokenizers.cuda.gpu import COMPUTE, COPY_IN, COPY_OUT, NUM_STREAMS, Array, DType, Launch, Stage

KERNELS = (
    "begin_chunk",
    "word_starts",
    "look_up_words",
    "look_up_long_words",
    "merge_words",
    "merge_windows",
    "join_windows",
    "apply_exceptions",
    "emit",
    "end_chunk",
)
INCLUDE = re.compile(r'#include "(.+)"')
PINNED_MEMORY_TYPE = 1
"""Type of page-locked host memory in the CUDA runtime API."""


class CupyGpu:
    """The current GPU."""

    def __init__(self, options: tuple[str, ...], *, architecture: str | None = None) -> None:
        """Open the GPU and compile the kernels. Set `architecture`, such as "80", to compile for an older GPU."""
        self._device = cupy.cuda.Device()
        properties = runtime.getDeviceProperties(self._device.id)
        self.name: str = properties["name"].decode()
        self.num_processors: int = properties["multiProcessorCount"]
        self._streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(NUM_STREAMS)]
        self._side_streams = [cupy.cuda.Stream(non_blocking=True)]
        self._memory: list[Any] = []
        self._graphs: dict[tuple[int, int], Any] = {}
        self._kernels = _compile_kernels(options, architecture)

    def allocate(self, num_bytes: int) -> int:
        try:
            memory = cupy.cuda.Memory(num_bytes)  # not from cupy's pool: the tokenizer holds this memory until `free`
        except (cupy.cuda.memory.OutOfMemoryError, runtime.CUDARuntimeError):
            raise MemoryError(f"{self.name} has less than {num_bytes:,} bytes of free memory") from None
        runtime.memset(memory.ptr, 0, num_bytes)
        self._memory.append(memory)
        return int(memory.ptr)

    def in_use(self) -> AbstractContextManager[Any]:
        device: AbstractContextManager[Any] = cupy.cuda.Device(self._device.id)
        return device

    def free(self) -> None:
        for stream in self._streams:
            stream.synchronize()
        self._graphs.clear()
        self._memory.clear()

    def pinned(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """Allocate from cupy's pool. The memory returns to the pool when the array is freed."""
        try:
            memory = cupy.cuda.alloc_pinned_memory(max(num_bytes, 1))
        except (cupy.cuda.memory.OutOfMemoryError, runtime.CUDARuntimeError):
            raise MemoryError(f"{num_bytes:,} bytes of memory cannot be pinned for {self.name}") from None
        return np.frombuffer(memory, np.uint8, num_bytes)

    def is_pinned(self, array: Array) -> bool:
        return not array.nbytes or runtime.pointerGetAttributes(array.ctypes.data).type == PINNED_MEMORY_TYPE

    def pin(self, array: Array) -> None:
        runtime.hostRegister(array.ctypes.data, array.nbytes, 0)

    def unpin(self, array: Array) -> None:
        runtime.hostUnregister(array.ctypes.data)

    def copy_in(self, address: int, array: Array, stream: int) -> None:
        self._copy(address, array.ctypes.data, array.nbytes, runtime.memcpyHostToDevice, stream)

    def copy_out(self, array: Array, address: int, stream: int) -> None:
        self._copy(array.ctypes.data, address, array.nbytes, runtime.memcpyDeviceToHost, stream)

    def copy_inside(self, to_address: int, from_address: int, num_bytes: int, stream: int) -> None:
        self._copy(to_address, from_address, num_bytes, runtime.memcpyDeviceToDevice, stream)

    def array(self, num_items: int, dtype: DType) -> Any:
        # cupy may return memory that cupy's stream is still reading, so COPY_OUT must wait for cupy's stream.
        array = cupy.empty(num_items, dtype)
        self._streams[COPY_OUT].wait_event(cupy.cuda.get_current_stream().record())
        return array

    def array_of(self, array: Array) -> Any:
        return cupy.asarray(array)

    def address_of(self, array: Any) -> int:
        return int(array.data.ptr)

    def _copy(self, to_address: int, from_address: int, num_bytes: int, direction: int, stream: int) -> None:
        if num_bytes:
            runtime.memcpyAsync(to_address, from_address, num_bytes, direction, self._streams[stream].ptr)

    def zero(self, address: int, num_bytes: int, stream: int) -> None:
        runtime.memsetAsync(address, 0, num_bytes, self._streams[stream].ptr)

    def launch(self, kernel: str, num_blocks: int, num_threads: int, engine: int, chunk: int) -> None:
        self._launch(Launch(kernel, num_blocks, num_threads), engine, chunk, self._streams[COMPUTE])

    def _launch(self, launch: Launch, engine: int, chunk: int, stream: Any) -> None:
        kernel, num_blocks, num_threads = launch
        self._kernels[kernel]((num_blocks,), (num_threads,), (engine, chunk), 0, stream)

    def launch_all(self, stages: Sequence[Stage], engine: int, chunk: int) -> None:
        """Launch one CUDA graph, captured in the first call.

        With separate launches, the GPU would be idle between the kernels.
        """
        stream = self._streams[COMPUTE]
        if (engine, chunk) not in self._graphs:
            stream.begin_capture()
            for stage in stages:
                self._launch_stage(stage, engine, chunk)
            self._graphs[engine, chunk] = stream.end_capture()
        self._graphs[engine, chunk].launch(stream)

    def _launch_stage(self, stage: Stage, engine: int, chunk: int) -> None:
        streams = [self._streams[COMPUTE], *self._side_streams][: len(stage)]
        started = self.record(COMPUTE)
        for stream, branch in zip(streams, stage, strict=True):
            if stream is not streams[0]:
                stream.wait_event(started)
            for launch in branch:
                self._launch(launch, engine, chunk, stream)
        for stream in streams[1:]:
            streams[0].wait_event(stream.record(cupy.cuda.Event(disable_timing=True)))

    def record(self, stream: int) -> Any:
        event = cupy.cuda.Event(disable_timing=True)
        event.record(self._streams[stream])
        return event

    def hold(self, stream: int, event: Any) -> None:
        self._streams[stream].wait_event(event)

    def wait(self, event: Any) -> None:
        event.synchronize()

    def mark(self, stream: int) -> Any:
        event = cupy.cuda.Event()
        event.record(self._streams[stream])
        return event

    def seconds_between(self, first: Any, last: Any) -> float:
        last.synchronize()
        return float(cupy.cuda.get_elapsed_time(first, last)) / 1e3

    def copy_seconds(self, num_bytes_in: int, num_bytes_out: int) -> dict[str, float]:
        size = max(num_bytes_in, num_bytes_out)
        gpu_memory, host_memory = cupy.cuda.Memory(2 * size), self.pinned(2 * size)
        streams = {"in": [COPY_IN], "out": [COPY_OUT], "both": [COPY_IN, COPY_OUT]}
        seconds = {}
        for name, active in streams.items():
            for _ in range(2):  # the first run is a warm-up
                first = {stream: self.mark(stream) for stream in active}
                if COPY_IN in active:
                    self.copy_in(gpu_memory.ptr, host_memory[:num_bytes_in], COPY_IN)
                if COPY_OUT in active:
                    self.copy_out(host_memory[size : size + num_bytes_out], gpu_memory.ptr + size, COPY_OUT)
                last = {stream: self.mark(stream) for stream in active}
                seconds[name] = max(self.seconds_between(first[stream], last[stream]) for stream in active)
        return seconds


def kernel_source() -> str:
    """Return the source of all kernels with their includes inlined.

    cupy caches compiled kernels by their source text, so it would not notice a change in an included file.
    """
    seen: set[str] = set()

    def inline_includes(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = resources.files(__package__).joinpath("kernels", name).read_text("utf-8").replace("#pragma once", "")
        return INCLUDE.sub(lambda found: inline_includes(found[1]), text)

    return inline_includes("all.cu")


def _compile_kernels(options: tuple[str, ...], architecture: str | None) -> dict[str, Any]:
    code, all_options = kernel_source(), ("--std=c++17", *options)
    if architecture is not None:
        return _load_kernels(_compile_for(architecture, code, all_options))
    module = cupy.RawModule(code=code, options=all_options)
    return {kernel: module.get_function(kernel).kernel for kernel in KERNELS}


def _compile_for(architecture: str, code: str, options: tuple[str, ...]) -> bytes:
    """Compile the kernels to PTX for an architecture. The driver translates the PTX for the actual GPU."""
    from cupy.cuda import nvrtc  # noqa: PLC0415 - rarely used

    program = nvrtc.createProgram(code, "kernels.cu", (), ())
    nvrtc.compileProgram(program, (*options, f"-arch=compute_{architecture}"))
    compiled = nvrtc.getPTX(program)
    return compiled if isinstance(compiled, bytes) else str(compiled).encode()


def _load_kernels(compiled: bytes) -> dict[str, Any]:
    module = cupy.cuda.function.Module()
    module.load(compiled)
    return {kernel: module.get_function(kernel) for kernel in KERNELS}
