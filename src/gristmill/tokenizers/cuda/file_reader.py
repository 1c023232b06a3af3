"""Read files into pinned memory with a few processes, ahead of the GPU.

Threads do not help, because a thread that opens and reads a small file mostly holds the interpreter lock. The processes
read into memory that the GPU accesses directly, so no further copy is needed.
"""

import marshal
import mmap
import os
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.errors import InputError
from gristmill.tokenizers.cuda import reader_process
from gristmill.tokenizers.cuda.engine import NUM_SLOTS, Text
from gristmill.tokenizers.cuda.gpu import Gpu

BUFFER_BYTES = 8 << 20
FILES_PER_TASK = 192
MAX_PROCESSES = 8


class FileTooLargeError(Exception):
    """A file is larger than a buffer."""


class _Task(NamedTuple):
    """Files that a process reads into one buffer."""

    process: "subprocess.Popen[bytes]"
    buffer: int
    """Index of the buffer."""
    paths: list[bytes]


class FileReader:
    """Processes that read files into pinned buffers. The processes remain for the next call."""

    def __init__(self, gpu: Gpu, chunk_bytes: int, num_cores: int) -> None:
        num_processes = min(MAX_PROCESSES, max(1, num_cores - 1))
        self._num_buffers = NUM_SLOTS + num_processes + 1
        self._buffer_bytes = min(BUFFER_BYTES, chunk_bytes)
        num_bytes = self._num_buffers * self._buffer_bytes
        descriptor = os.memfd_create("gristmill")
        try:
            os.ftruncate(descriptor, num_bytes)
            self._memory: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(descriptor, num_bytes), np.uint8)
            gpu.pin(self._memory)
            self._processes: list[subprocess.Popen[bytes]] = []
            self.close = weakref.finalize(self, _stop, self._processes, gpu, self._memory)
            """Stop the processes and unpin the memory. Also called on garbage collection and at exit."""
            self._processes += (_start_process(descriptor, num_bytes) for _ in range(num_processes))
        finally:
            os.close(descriptor)

    def texts(self, paths: Sequence[bytes], sizes: list[int]) -> Iterator[Text]:
        """Yield the content of the files in the order of `paths`, and append the size of each file to `sizes`.

        Each yielded text contains several files. Raise FileTooLargeError for a file larger than a buffer, and
        InputError for a file that cannot be read. When the engine requests the next text, it has finished reading all
        earlier texts except the last NUM_SLOTS - 1.
        """
        pending = deque(list(paths[at : at + FILES_PER_TASK]) for at in range(0, len(paths), FILES_PER_TASK))
        free_buffers, idle_processes = deque(range(self._num_buffers)), deque(self._processes)
        in_flight: deque[_Task] = deque()
        in_use: deque[int] = deque()
        try:
            while pending or in_flight:
                while pending and idle_processes and free_buffers:
                    in_flight.append(
                        self._send_task(_Task(idle_processes.popleft(), free_buffers.popleft(), pending.popleft()))
                    )
                task = in_flight.popleft()
                sizes_read, error = self._receive_answer(task)
                remaining = task.paths[len(sizes_read) :]
                if error is not None:
                    idle_processes.append(task.process)
                    raise InputError(f"cannot read {os.fsdecode(remaining[0])!r}: {error}.")
                if remaining and not sizes_read:
                    idle_processes.append(task.process)
                    raise FileTooLargeError(remaining[0])
                if remaining:  # a buffer is always free: there are more buffers than processes and slots together
                    in_flight.appendleft(self._send_task(_Task(task.process, free_buffers.popleft(), remaining)))
                else:
                    idle_processes.append(task.process)
                sizes += sizes_read
                yield self._text(task.buffer, sizes_read)
                in_use.append(task.buffer)
                if len(in_use) == NUM_SLOTS:
                    free_buffers.append(in_use.popleft())
        finally:
            for task in in_flight:  # discard pending answers, so that the next call does not receive them
                with suppress(InputError):
                    self._receive_answer(task)

    def _send_task(self, task: _Task) -> _Task:
        begin = task.buffer * self._buffer_bytes
        assert task.process.stdin is not None
        with suppress(BrokenPipeError):  # the process died, which _receive_answer reports
            reader_process.send(task.process.stdin, (begin, begin + self._buffer_bytes, task.paths))
        return task

    def _receive_answer(self, task: _Task) -> reader_process.Answer:
        assert task.process.stdout is not None
        message = reader_process.receive(task.process.stdout)
        if message is None:
            raise InputError(
                f"the process reading {os.fsdecode(task.paths[0])!r} died (exit code {task.process.wait()})."
            )
        answer: reader_process.Answer = marshal.loads(message)  # noqa: S302 - from a child process
        return answer

    def _text(self, buffer: int, sizes: list[int]) -> Text:
        edges = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        begin = buffer * self._buffer_bytes
        return Text(self._memory[begin : begin + int(edges[-1])], edges[:-1])


def _stop(processes: "list[subprocess.Popen[bytes]]", gpu: Gpu, memory: npt.NDArray[np.uint8]) -> None:
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):  # flushing an unread message fails
                    stream.close()
    with suppress(Exception):  # at exit, the driver may already be unloaded
        gpu.unpin(memory)


def _start_process(descriptor: int, num_bytes: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-I", "-S", str(reader_process.__file__), str(descriptor), str(num_bytes)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(descriptor,))
