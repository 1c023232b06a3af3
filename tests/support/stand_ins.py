"""What stands in for the card behind the process that owns one: the CPU's engine, and ways in which a card can fail."""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from gristmill.core.errors import NotOnGpuError
from gristmill.tokenizers.tokenizer import tokenizer_in

FAILS_AT = 3
"""Which request it fails at: some have been answered by then."""
LARGE = 20_000
"""Documents of so many bytes count as done by the CPU."""


class CpuEncoder:
    def __init__(self, folder, marks):
        self._tokenizer = tokenizer_in(folder)
        self._num_asked = 0
        self._marks = marks
        (marks / "pid").write_text(str(os.getpid()))

    def encode(self, text, offsets, out):
        self._num_asked += 1
        if self._num_asked >= FAILS_AT:
            self._fail()
        edges = offsets.tolist()
        documents = [text[start:end].tobytes() for start, end in pairwise(edges)]
        ids = [self._tokenizer.encode(document).ids for document in documents]
        id_offsets = np.cumsum([0, *map(len, ids)])
        out[: id_offsets[-1]] = np.concatenate(ids)
        return id_offsets, sum(len(document) >= LARGE for document in documents)

    def _fail(self):
        pass


class Pinning(CpuEncoder):
    """Notes the memory that it is told of."""

    def register(self, memory):
        with (self._marks / "memory").open("a") as stream:
            stream.write(f"+{len(memory)}\n")

    def unregister(self, memory):
        with (self._marks / "memory").open("a") as stream:
            stream.write(f"-{len(memory)}\n")


class Dying(CpuEncoder):
    def _fail(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Failing(CpuEncoder):
    def _fail(self):
        raise RuntimeError("an illegal memory access was encountered\nmore of it")


class Hanging(CpuEncoder):
    def _fail(self):
        time.sleep(600)


class Wrong(CpuEncoder):
    def encode(self, text, offsets, out):
        id_offsets, num_on_cpu = super().encode(text, offsets, out)
        out[: id_offsets[-1]] = 65_535
        return id_offsets, num_on_cpu


def never_ready(marks: Path, folder: Path):
    (marks / "pid").write_text(str(os.getpid()))
    time.sleep(600)


def refusing(marks: Path, folder: Path):
    (marks / "pid").write_text(str(os.getpid()))
    raise NotOnGpuError("this tokenizer has rules of its own")


def broken(marks: Path, folder: Path):
    (marks / "pid").write_text(str(os.getpid()))
    os.write(2, b"libnvrtc.so.12: cannot open\n")
    os._exit(3)


def made(kind: type[CpuEncoder], marks: Path, folder: Path) -> CpuEncoder:
    return kind(folder, marks)
