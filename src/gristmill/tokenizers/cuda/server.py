"""The process that owns the card, and encodes for all workers of a build.

16 workers with a CUDA context each would spend more on these (half a second of CPU apiece) than tokenizing takes.
One request is done after the other, by one thread; it ends when it is told to, and with its parent.
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
    columns_of,
    connection_of,
    first_line,
    mapped,
    send,
)

READY = "ready"
END = "end"
SECONDS_BETWEEN_LOOKS = 1.0
"""At whether the parent is still there."""
MAX_WAITING_WORKERS = 1024
"""To be let in: as many as a build may have."""
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG"""


class Encoder(Protocol):
    """The card, or what stands in for it.

    It may have `register(memory)` and `unregister(memory)`, for memory that requests come in: to pin it.
    """

    def encode(
        self, text: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.int64], int]:
        """Ids of all documents, one after the other, into `out`.

        -> Where those of each begin and those of the last end; and how many of the documents the CPU had to do.
        """
        ...


MakeEncoder = Callable[[Path], Encoder]
"""From the folder that the tokenizer lies in. It is pickled: a function at the top of a module, or a partial of one."""


class Job(NamedTuple):
    """What the parent says first."""

    parent: int
    name: str
    """Of the socket."""
    make_encoder: bytes
    """A callable without arguments, pickled."""


def main(descriptor: int) -> None:
    """In a process of its own; the descriptor is the parent's line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides
    with suppress(OSError, EOFError), Connection(descriptor) as parent:
        job = parent.recv()
        _end_with(job.parent)
        try:
            encoder = pickle.loads(job.make_encoder)()  # noqa: S301 - from the process that started this one
            with _listening(job.name) as listener:
                parent.send(READY)
                facts = Service(encoder, listener, job.parent).serve_until_told(parent)
        except GristmillError as error:
            facts = GpuFacts(trouble=str(error))
        except Exception as error:  # noqa: BLE001 - the CPU serves, and the build says why
            facts = GpuFacts(trouble=first_line(error))
        parent.send(facts)


def _end_with(parent: int) -> None:
    """Whatever it is at: a parent that is killed outright leaves nothing behind."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before
        os._exit(1)


def _listening(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(name)
    listener.listen(MAX_WAITING_WORKERS)
    listener.setblocking(False)
    return listener


class _Client:
    """A worker, seen from here."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.memory: Memory | None = None
        self.id_type: IdType = np.uint32


class Service:
    def __init__(self, encoder: Encoder, listener: socket.socket, parent: int) -> None:
        self._encoder, self._listener, self._parent = encoder, listener, parent
        self._clients: dict[Connection, _Client] = {}
        self._num_documents = self._num_on_cpu = self._num_bytes = 0
        self._seconds_busy = 0.0
        self._ready_at = time.monotonic()
        self._trouble: str | None = None

    def serve_until_told(self, parent: Connection) -> GpuFacts:
        while os.getppid() == self._parent:
            ready = wait([parent, self._listener, *self._clients], SECONDS_BETWEEN_LOOKS)
            if parent in ready:
                break
            if self._listener in ready:
                self._let_in()
            for connection in self._clients.keys() & ready:
                self._attend(self._clients[connection])
        for client in list(self._clients.values()):
            self._let_go(client)
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

    def _let_in(self) -> None:
        with suppress(OSError):  # gone again, or somebody else
            connection = connection_of(self._listener.accept()[0])
            self._clients[connection] = _Client(connection)

    def _attend(self, client: _Client) -> None:
        """A worker that died, or that stopped in the middle of a message, is let go."""
        try:
            message = msgspec.msgpack.decode(client.connection.recv_bytes(MAX_MESSAGE_BYTES), type=ToServer)
            if isinstance(message, Mapped):
                self._take_memory(client, message)
            elif isinstance(message, Request):
                send(client.connection, self._answer_to(client, message))
            else:
                self._note(message)
        except Exception:  # noqa: BLE001 - whatever it has sent, others go on being served
            self._let_go(client)

    def _note(self, message: GaveUp) -> None:
        self._trouble = self._trouble or message.reason

    def _take_memory(self, client: _Client, message: Mapped) -> None:
        self._forget_memory(client)
        descriptor = reduction.recv_handle(client.connection)
        try:
            client.memory = mapped(descriptor, message.num_bytes)
        finally:
            os.close(descriptor)
        client.id_type = np.uint16 if message.id_bytes == np.dtype(np.uint16).itemsize else np.uint32
        self._hook("register", client.memory)

    def _answer_to(self, client: _Client, request: Request) -> Done | Failed:
        """Whatever goes wrong, the worker is told, and others go on being served."""
        started_at = time.monotonic()
        try:
            self._encode(client, request)
        except Exception as error:  # noqa: BLE001 - the worker has a CPU
            self._trouble = self._trouble or first_line(error)
            return Failed(first_line(error))
        finally:
            self._seconds_busy += time.monotonic() - started_at
        return Done()

    def _encode(self, client: _Client, request: Request) -> None:
        if client.memory is None:
            raise ValueError("a request before there was memory for it")
        columns = columns_of(client.memory, request, client.id_type)
        id_offsets, num_on_cpu = self._encoder.encode(columns.text, columns.offsets, columns.ids)
        columns.id_offsets[:] = id_offsets
        self._num_documents += request.num_documents
        self._num_bytes += request.num_text_bytes
        self._num_on_cpu += num_on_cpu

    def _let_go(self, client: _Client) -> None:
        self._forget_memory(client)
        del self._clients[client.connection]
        client.connection.close()

    def _forget_memory(self, client: _Client) -> None:
        if client.memory is not None:
            self._hook("unregister", client.memory)
            client.memory = None

    def _hook(self, name: str, memory: Memory) -> None:
        """Memory that cannot be pinned is only slower."""
        hook = getattr(self._encoder, name, None)
        if hook is not None:
            with suppress(Exception):
                hook(memory)
