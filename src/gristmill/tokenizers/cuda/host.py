"""In the parent of a build: starts the process that owns the card, and asks it at the end what it did.

It starts before the workers do and loads beside the scan. The parent needs no thread for it, so that workers can still
be forked, and waits for it nowhere: what the card is not ready for, the CPU does.
"""

import os
import pickle
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gristmill.config.settings import RunConfig
from gristmill.core.manifest import GpuFacts
from gristmill.tokenizers.cuda.availability import require_cuda
from gristmill.tokenizers.cuda.client import forget_served
from gristmill.tokenizers.cuda.exchange import MAX_REASON_CHARACTERS, Address
from gristmill.tokenizers.cuda.server import END, Encoder, Job, MakeEncoder
from gristmill.tokenizers.cuda.serving import NoServer
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer


# The card's own encoder, as the process that owns the card is given it.


class CardEncoder:
    def __init__(self, tokenizer: "CudaTokenizer") -> None:
        self._tokenizer = tokenizer

    def encode(
        self, text: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int64], int]:
        batch = self._tokenizer.encode_joined(text, offsets)
        out[: len(batch.ids)] = batch.ids
        return batch.offsets, batch.num_on_cpu

    def register(self, memory: npt.NDArray[np.uint8]) -> None:
        self._tokenizer.pin(memory)

    def unregister(self, memory: npt.NDArray[np.uint8]) -> None:
        self._tokenizer.unpin(memory)


def card_encoder(folder: Path) -> Encoder:
    """For the tokenizer in that folder."""
    from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer  # noqa: PLC0415 - slow to import, and only where it is used

    return CardEncoder(CudaTokenizer.load(Definition.read(folder)))


SECONDS_TO_END = 5.0
MAX_SECONDS_TO_ANSWER = 30.0
"""A batch of a MiB takes the card milliseconds: who waits longer, behind all other workers, waits in vain."""
SHARE_OF_TASK_SECONDS = 0.25
"""For an answer: a worker must be done on the CPU before it counts as hung itself."""
START = "import sys; sys.path[:] = {path!r}; from gristmill.tokenizers.cuda.server import main; main({descriptor})"
"""Not by multiprocessing's spawn: that would run a script without a main guard a second time."""


class Server:
    """The process that owns the card, seen from the build."""

    def __init__(self, make_encoder: partial[Encoder], address: Address) -> None:
        """OSError where the system has no room for it."""
        self.address: Address | None = address
        self._facts: GpuFacts | None = None
        self._started_at = time.monotonic()
        job = Job(os.getpid(), address.name, pickle.dumps(make_encoder))
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close
        near, far = socket.socketpair()
        self._control = Connection(near.detach())
        try:
            self._process = _started(far.fileno(), self._output)
        except BaseException:
            self._control.close()
            self._output.close()
            raise
        finally:
            far.close()
        with suppress(OSError):  # it died: that is told at the end
            self._control.send(job)

    def end(self) -> GpuFacts:
        """Ends it, if it has not ended: what it did, and what went wrong."""
        if self._facts is None:
            try:
                self._facts = self._asked()
            finally:
                self.close()
        return self._facts

    def _asked(self) -> GpuFacts:
        if not self._control.poll(0):
            seconds = time.monotonic() - self._started_at
            return GpuFacts(trouble=f"it was not ready when step 1 was over, after {seconds:.1f} s")
        try:
            first = self._control.recv()
            if isinstance(first, GpuFacts):  # it refused, or could not load
                return first
            self._control.send(END)
            if not self._control.poll(SECONDS_TO_END):
                return GpuFacts(trouble="its process no longer answers")
            facts = self._control.recv()
        except (EOFError, OSError):
            return GpuFacts(trouble=self._last_words())
        assert isinstance(facts, GpuFacts)
        return facts

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):  # its line is gone a moment before itself
            self._process.wait(SECONDS_TO_END)
        self._output.seek(0)
        lines = self._output.read().decode("utf-8", "replace").strip().splitlines()
        said = f": {lines[-1][:MAX_REASON_CHARACTERS]}" if lines else ""
        return f"its process died (exit code {self._process.returncode}){said}"

    def close(self) -> None:
        """Whatever it is at."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # in the driver's hands: it goes when that lets it
            self._process.wait(SECONDS_TO_END)
        self._control.close()
        self._output.close()
        forget_served()


def started_server(
    run: RunConfig, tokenizer: Tokenizer, folder: Path, make_encoder: MakeEncoder | None = None
) -> Server | NoServer:
    if make_encoder is None:
        require_cuda()
    if not isinstance(tokenizer, FastTokenizer):
        return NoServer(GpuFacts(trouble=f"the tokenizer {tokenizer.definition.name!r} runs on the CPU alone"))
    seconds = min(MAX_SECONDS_TO_ANSWER, SHARE_OF_TASK_SECONDS * run.task_seconds)
    try:
        return Server(partial(make_encoder or card_encoder, folder), Address.new(seconds))
    except OSError as error:
        return NoServer(GpuFacts(trouble=f"its process cannot be started: {error.strerror or error}"))


def _started(descriptor: int, output: IO[bytes]) -> "subprocess.Popen[bytes]":
    code = START.format(path=sys.path, descriptor=descriptor)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(descriptor,)
    )
