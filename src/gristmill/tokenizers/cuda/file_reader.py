"""Files -> pinned memory, by a few processes, ahead of the card.

Threads do not help here: opening and reading a small file is mostly work that holds the interpreter. Processes read
into memory that the card reads by itself, so nothing is copied in between.
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
from gristmill.tokenizers.cuda.card import Card
from gristmill.tokenizers.cuda.engine import NUM_SLOTS, Text

BUFFER_BYTES = 8 << 20
FILES_AT_ONCE = 192
MAX_PROCESSES = 8


class FileTooLargeError(Exception):
    pass


class _Task(NamedTuple):
    process: "subprocess.Popen[bytes]"
    buffer: int
    paths: list[bytes]


class FileReader:
    """Its processes and memory stay, for the next call."""

    def __init__(self, card: Card, chunk_bytes: int, num_cores: int) -> None:
        num_processes = min(MAX_PROCESSES, max(1, num_cores - 1))
        self._num_buffers = NUM_SLOTS + num_processes + 1
        self._buffer_bytes = min(BUFFER_BYTES, chunk_bytes)
        num_bytes = self._num_buffers * self._buffer_bytes
        descriptor = os.memfd_create("gristmill")
        try:
            os.ftruncate(descriptor, num_bytes)
            self._memory: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(descriptor, num_bytes), np.uint8)
            card.pin(self._memory)
            self._processes: list[subprocess.Popen[bytes]] = []
            self.close = weakref.finalize(self, _end, self._processes, card, self._memory)
            """Also when nobody has it any more, and at Python's end."""
            self._processes += (_started(descriptor, num_bytes) for _ in range(num_processes))
        finally:
            os.close(descriptor)

    def texts(self, paths: Sequence[bytes], sizes: list[int]) -> Iterator[Text]:
        """In order; `sizes` gets each file's. FileTooLargeError for one that is larger than a buffer.

        When the engine asks for the next text, it has read all but the last NUM_SLOTS - 1.
        """
        left = deque(list(paths[at : at + FILES_AT_ONCE]) for at in range(0, len(paths), FILES_AT_ONCE))
        free, idle = deque(range(self._num_buffers)), deque(self._processes)
        under_way: deque[_Task] = deque()
        in_use: deque[int] = deque()
        try:
            while left or under_way:
                while left and idle and free:
                    under_way.append(self._give(_Task(idle.popleft(), free.popleft(), left.popleft())))
                task = under_way.popleft()
                found, trouble = self._answer(task)
                rest = task.paths[len(found) :]
                if trouble is not None:
                    idle.append(task.process)
                    raise InputError(f"cannot read {os.fsdecode(rest[0])!r}: {trouble}.")
                if rest and not found:
                    idle.append(task.process)
                    raise FileTooLargeError(rest[0])
                if rest:  # there is always a buffer for it: there are more than processes and slots together
                    under_way.appendleft(self._give(_Task(task.process, free.popleft(), rest)))
                else:
                    idle.append(task.process)
                sizes += found
                yield self._text(task.buffer, found)
                in_use.append(task.buffer)
                if len(in_use) == NUM_SLOTS:
                    free.append(in_use.popleft())
        finally:
            for task in under_way:  # what was asked for is taken, so that nobody gets it the next time
                with suppress(InputError):
                    self._answer(task)

    def _give(self, task: _Task) -> _Task:
        begin = task.buffer * self._buffer_bytes
        assert task.process.stdin is not None
        with suppress(BrokenPipeError):  # it died, which its answer tells
            reader_process.send(task.process.stdin, (begin, begin + self._buffer_bytes, task.paths))
        return task

    def _answer(self, task: _Task) -> reader_process.Answer:
        assert task.process.stdout is not None
        message = reader_process.receive(task.process.stdout)
        if message is None:
            raise InputError(
                f"the process that read {os.fsdecode(task.paths[0])!r} died (exit code {task.process.wait()})."
            )
        answer: reader_process.Answer = marshal.loads(message)  # noqa: S302 - from a process of ours
        return answer

    def _text(self, buffer: int, sizes: list[int]) -> Text:
        edges = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        begin = buffer * self._buffer_bytes
        return Text(self._memory[begin : begin + int(edges[-1])], edges[:-1])


def _end(processes: "list[subprocess.Popen[bytes]]", card: Card, memory: npt.NDArray[np.uint8]) -> None:
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):  # a message that it did not read any more
                    stream.close()
    with suppress(Exception):  # at Python's end the driver may be gone already
        card.unpin(memory)


def _started(descriptor: int, num_bytes: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-I", "-S", str(reader_process.__file__), str(descriptor), str(num_bytes)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(descriptor,))
