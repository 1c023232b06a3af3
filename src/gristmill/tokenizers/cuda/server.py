"""Run the GPU process, which encodes for all workers of a build.

Only this process has a CUDA context. Creating a context takes 0.5 s of CPU time: if each of 16 workers had its own
context, creating the contexts would take longer than encoding. One thread handles one request at a time. The process
ends on request or when its parent dies.
"""

import ctypes
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.core.errors import GristmillError
from gristmill.core.manifest import GpuFacts
from gristmill.tokenizers.cuda.exchange import (
    MAX_MESSAGE_BYTES,
    Done,
    Failed,
    GaveUp,
    IdType,
    Mapped,
    Memory,
    Request,
    ToServer,
    describe_error,
    map_memory,
    open_connection,
    send,
    view_columns,
)

READY = "ready"
END = "end"
POLL_SECONDS = 1.0
"""Interval for checking that the parent still runs."""
MAX_PENDING_CONNECTIONS = 1024
"""Length of the listen queue: the maximum number of workers in a build."""
PR_SET_PDEATHSIG = 1
"""Option of prctl: send a signal to this process when its parent dies."""


class Encoder(Protocol):
    """A GPU, or a replacement in tests.

    The optional methods `register(memory)` and `unregister(memory)` pin and unpin shared memory.
    """

    def encode(
        self, text: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int64], int]:
        """Write the concatenated ids of all documents to `out`.

        Return two values: the offset of each document's ids, followed by the number of ids; and the number of
        documents that the CPU encoded.
        """
        ...


MakeEncoder = Callable[[Path], Encoder]
"""Module-level function, or a partial of one, that loads an encoder for the tokenizer in a folder. It is pickled."""


class Job(NamedTuple):
    """First message from the parent process."""

    parent: int
    """Process id of the parent."""
    name: str
    """Name of the socket to listen on."""
    make_encoder: bytes
    """Pickled callable without arguments."""


def main(descriptor: int) -> None:
    """Run the GPU process. `descriptor` is the socket that is connected to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, which reaches all processes
    with suppress(OSError, EOFError), Connection(descriptor) as parent:
        job = parent.recv()
        _die_with_parent(job.parent)
        try:
            encoder = pickle.loads(job.make_encoder)()  # noqa: S301 - from the parent process
            with _listen(job.name) as listener:
                parent.send(READY)
                facts = Service(encoder, listener, job.parent).serve(parent)
        except GristmillError as error:
            facts = GpuFacts(trouble=str(error).removesuffix("."))  # the build adds the full stop
        except Exception as error:  # noqa: BLE001 - the CPU takes over, and the build reports the reason
            facts = GpuFacts(trouble=describe_error(error))
        parent.send(facts)


def _die_with_parent(parent: int) -> None:
    """Make Linux kill this process when its parent dies, even if the parent is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the call
        os._exit(1)


def _listen(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(name)
    listener.listen(MAX_PENDING_CONNECTIONS)
    listener.setblocking(False)
    return listener


class _Client:
    """Connection and shared memory of one worker."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.memory: Memory | None = None
        self.id_type: IdType = np.uint32


class Service:
    """Service that encodes the requests of all workers."""

    def __init__(self, encoder: Encoder, listener: socket.socket, parent: int) -> None:
        self._encoder, self._listener, self._parent = encoder, listener, parent
        self._clients: dict[Connection, _Client] = {}
        self._num_documents = self._num_on_cpu = self._num_bytes = 0
        self._seconds_busy = 0.0
        self._ready_at = time.monotonic()
        self._trouble: str | None = None

    def serve(self, parent: Connection) -> GpuFacts:
        """Handle requests until the parent sends a message or dies, and return the statistics."""
        while os.getppid() == self._parent:
            ready = wait([parent, self._listener, *self._clients], POLL_SECONDS)
            if parent in ready:
                break
            if self._listener in ready:
                self._accept()
            for connection in self._clients.keys() & ready:
                self._handle(self._clients[connection])
        for client in list(self._clients.values()):
            self._disconnect(client)
        return self._facts()

    def _facts(self) -> GpuFacts:
        return GpuFacts(
            documents=self._num_documents,
            documents_on_cpu=self._num_on_cpu,
            bytes=self._num_bytes,
            seconds_busy=round(self._seconds_busy, 3),
            seconds_ready=round(time.monotonic() - self._ready_at, 3),
            trouble=self._trouble,
        )

    def _accept(self) -> None:
        with suppress(OSError):  # the worker has disconnected, or belongs to a different user
            connection = open_connection(self._listener.accept()[0])
            self._clients[connection] = _Client(connection)

    def _handle(self, client: _Client) -> None:
        """Handle one message. Disconnect the worker if it died or sent an invalid message."""
        try:
            message = msgspec.msgpack.decode(client.connection.recv_bytes(MAX_MESSAGE_BYTES), type=ToServer)
            if isinstance(message, Mapped):
                self._map_memory(client, message)
            elif isinstance(message, Request):
                send(client.connection, self._answer(client, message))
            else:
                self._record_trouble(message)
        except Exception:  # noqa: BLE001 - an invalid message must not affect other workers
            self._disconnect(client)

    def _record_trouble(self, message: GaveUp) -> None:
        self._trouble = self._trouble or message.reason

    def _map_memory(self, client: _Client, message: Mapped) -> None:
        self._unmap_memory(client)
        descriptor = reduction.recv_handle(client.connection)
        try:
            client.memory = map_memory(descriptor, message.num_bytes)
        finally:
            os.close(descriptor)
        client.id_type = np.uint16 if message.id_bytes == np.dtype(np.uint16).itemsize else np.uint32
        self._call_hook("register", client.memory)

    def _answer(self, client: _Client, request: Request) -> Done | Failed:
        """Encode a request and return the answer. On any error, return the error as the answer."""
        started_at = time.monotonic()
        try:
            self._encode(client, request)
        except Exception as error:  # noqa: BLE001 - the worker encodes on the CPU instead
            self._trouble = self._trouble or describe_error(error)
            return Failed(describe_error(error))
        finally:
            self._seconds_busy += time.monotonic() - started_at
        return Done()

    def _encode(self, client: _Client, request: Request) -> None:
        if client.memory is None:
            raise ValueError("the worker sent a request before its shared memory")
        columns = view_columns(client.memory, request, client.id_type)
        id_offsets, num_on_cpu = self._encoder.encode(columns.text, columns.offsets, columns.ids)
        columns.id_offsets[:] = id_offsets
        self._num_documents += request.num_documents
        self._num_bytes += request.num_text_bytes
        self._num_on_cpu += num_on_cpu

    def _disconnect(self, client: _Client) -> None:
        self._unmap_memory(client)
        del self._clients[client.connection]
        client.connection.close()

    def _unmap_memory(self, client: _Client) -> None:
        if client.memory is not None:
            self._call_hook("unregister", client.memory)
            client.memory = None

    def _call_hook(self, name: str, memory: Memory) -> None:
        """Call an optional method of the encoder. Errors are ignored, because unpinned memory is only slower."""
        hook = getattr(self._encoder, name, None)
        if hook is not None:
            with suppress(Exception):
                hook(memory)
