"""Encoders that replace the GPU in the server process. They encode on the CPU, and most of them fail on purpose."""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from gristmill.core.errors import NotOnGpuError
from gristmill.tokenizers.tokenizer import tokenizer_in

FAILING_REQUEST = 3
"""Number of the first request that fails, counted from 1. Earlier requests are answered."""
LARGE = 20_000
"""Documents of at least this many bytes are reported as encoded on the CPU."""


class CpuEncoder:
    """Encoder that uses the CPU. It writes its process id to a file in the folder `notes`."""

    def __init__(self, folder, notes):
        self._tokenizer = tokenizer_in(folder)
        self._num_requests = 0
        self._notes = notes
        (notes / "pid").write_text(str(os.getpid()))

    def encode(self, text, offsets, out):
        self._num_requests += 1
        if self._num_requests >= FAILING_REQUEST:
            self._fail()
        edges = offsets.tolist()
        documents = [text[start:end].tobytes() for start, end in pairwise(edges)]
        ids = [self._tokenizer.encode(document).ids for document in documents]
        id_offsets = np.cumsum([0, *map(len, ids)])
        out[: id_offsets[-1]] = np.concatenate(ids)
        return id_offsets, sum(len(document) >= LARGE for document in documents)

    def _fail(self):
        pass


class PinningEncoder(CpuEncoder):
    """Encoder that records the sizes of memory that is registered and unregistered."""

    def register(self, memory):
        with (self._notes / "memory").open("a") as stream:
            stream.write(f"+{len(memory)}\n")

    def unregister(self, memory):
        with (self._notes / "memory").open("a") as stream:
            stream.write(f"-{len(memory)}\n")


class DyingEncoder(CpuEncoder):
    def _fail(self):
        os.kill(os.getpid(), signal.SIGKILL)


class FailingEncoder(CpuEncoder):
    def _fail(self):
        raise RuntimeError("an illegal memory access was encountered\nmore of it")


class HangingEncoder(CpuEncoder):
    def _fail(self):
        time.sleep(600)


class WrongEncoder(CpuEncoder):
    def encode(self, text, offsets, out):
        id_offsets, num_on_cpu = super().encode(text, offsets, out)
        out[: id_offsets[-1]] = 65_535
        return id_offsets, num_on_cpu


def never_ready(notes: Path, folder: Path):
    (notes / "pid").write_text(str(os.getpid()))
    time.sleep(600)


def refusing(notes: Path, folder: Path):
    (notes / "pid").write_text(str(os.getpid()))
    raise NotOnGpuError("this tokenizer has its own rules")


def broken(notes: Path, folder: Path):
    (notes / "pid").write_text(str(os.getpid()))
    os.write(2, b"libnvrtc.so.12: cannot open\n")
    os._exit(3)


def make(kind: type[CpuEncoder], notes: Path, folder: Path) -> CpuEncoder:
    return kind(folder, notes)
