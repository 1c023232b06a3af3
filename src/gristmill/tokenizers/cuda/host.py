"""Start the GPU process from the main process of a build, and collect its statistics at the end.

The GPU process starts before the workers and loads the tokenizer while the build scans the sources. The main process
needs no thread for the GPU process, so workers can still be forked. A build never waits for the GPU process to be
ready. Until then, the CPU encodes.
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
from gristmill.tokenizers.cuda.client import drop_connection
from gristmill.tokenizers.cuda.exchange import MAX_REASON_CHARACTERS, Address
from gristmill.tokenizers.cuda.server import END, Encoder, Job, MakeEncoder
from gristmill.tokenizers.cuda.serving import NoServer
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer


class GpuEncoder:
    """Encoder for the GPU process, with a tokenizer on a GPU."""

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


def gpu_encoder(folder: Path) -> Encoder:
    """Load the tokenizer in a folder on the GPU."""
    from gristmill.tokenizers.cuda.cuda_tokenizer import CudaTokenizer  # noqa: PLC0415 - slow, and often not needed

    return GpuEncoder(CudaTokenizer.load(Definition.read(folder)))


SHUTDOWN_SECONDS = 5.0
MAX_ANSWER_SECONDS = 30.0
"""Maximum wait for an answer. The GPU encodes 1 MiB in milliseconds, so requests from all workers take far less."""
ANSWER_SHARE_OF_TASK_SECONDS = 0.25
"""Share of a task's time limit that a worker waits for an answer. The rest is for encoding on the CPU."""
CODE = "import sys; sys.path[:] = {path!r}; from gristmill.tokenizers.cuda.server import main; main({descriptor})"
"""Code of the GPU process. multiprocessing's spawn would run the user's script again if it has no main guard."""


class Server:
    """Handle of the GPU process in the main process of a build."""

    def __init__(self, make_encoder: partial[Encoder], address: Address) -> None:
        """Start the GPU process. Raise OSError if the system cannot start it."""
        self.address: Address | None = address
        self._facts: GpuFacts | None = None
        self._started_at = time.monotonic()
        job = Job(os.getpid(), address.name, pickle.dumps(make_encoder))
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close
        parent_end, child_end = socket.socketpair()
        self._control = Connection(parent_end.detach())
        try:
            self._process = _start_process(child_end.fileno(), self._output)
        except BaseException:
            self._control.close()
            self._output.close()
            raise
        finally:
            child_end.close()
        with suppress(OSError):  # the process died, which end() reports
            self._control.send(job)

    def end(self) -> GpuFacts:
        """End the GPU process if it still runs, and return its statistics and the first problem."""
        if self._facts is None:
            try:
                self._facts = self._collect_facts()
            finally:
                self.close()
        return self._facts

    def _collect_facts(self) -> GpuFacts:
        if not self._control.poll(0):
            seconds = time.monotonic() - self._started_at
            return GpuFacts(trouble=f"the GPU process was not ready at the end of step 1, after {seconds:.1f} s")
        try:
            first = self._control.recv()
            if isinstance(first, GpuFacts):  # the GPU process could not load the tokenizer
                return first
            self._control.send(END)
            if not self._control.poll(SHUTDOWN_SECONDS):
                return GpuFacts(trouble="the GPU process no longer answers")
            facts = self._control.recv()
        except (EOFError, OSError):
            return GpuFacts(trouble=self._describe_death())
        assert isinstance(facts, GpuFacts)
        return facts

    def _describe_death(self) -> str:
        with suppress(subprocess.TimeoutExpired):  # the connection closes shortly before the process exits
            self._process.wait(SHUTDOWN_SECONDS)
        self._output.seek(0)
        lines = self._output.read().decode("utf-8", "replace").strip().splitlines()
        last_line = f": {lines[-1][:MAX_REASON_CHARACTERS]}" if lines else ""
        return f"the GPU process died (exit code {self._process.returncode}){last_line}"

    def close(self) -> None:
        """Kill the GPU process, even if it is busy."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # a process that is blocked in the driver exits later
            self._process.wait(SHUTDOWN_SECONDS)
        self._control.close()
        self._output.close()
        drop_connection()


def start_server(
    run: RunConfig, tokenizer: Tokenizer, folder: Path, make_encoder: MakeEncoder | None = None
) -> Server | NoServer:
    """Start the GPU process. If the tokenizer or the system does not allow this, return a NoServer with the reason."""
    if make_encoder is None:
        require_cuda()
    if not isinstance(tokenizer, FastTokenizer):
        return NoServer(GpuFacts(trouble=f"the tokenizer {tokenizer.definition.name!r} is supported only on the CPU"))
    seconds = min(MAX_ANSWER_SECONDS, ANSWER_SHARE_OF_TASK_SECONDS * run.task_seconds)
    try:
        return Server(partial(make_encoder or gpu_encoder, folder), Address.new(seconds))
    except OSError as error:
        return NoServer(GpuFacts(trouble=f"the GPU process cannot be started: {error.strerror or error}"))


def _start_process(descriptor: int, output: IO[bytes]) -> "subprocess.Popen[bytes]":
    code = CODE.format(path=sys.path, descriptor=descriptor)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(descriptor,)
    )
