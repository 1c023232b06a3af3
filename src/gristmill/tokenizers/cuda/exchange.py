"""Define the protocol between a worker and the GPU process: messages over a socket, and data in shared memory.

Layout of a request in shared memory:

    concatenated texts | offsets (int64) | space for ids (uint16 or uint32) | id offsets (int64)

The worker sends a Request for each batch, and the GPU process answers with Done or Failed. Before the first request,
and whenever a request needs more memory, the worker sends Mapped with the descriptor of new shared memory.
"""

import mmap
import os
import secrets
import socket
import struct
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

MESSAGE_SECONDS = 5.0
"""Time limit for sending or receiving one message of a few bytes, so that a stalled peer does not block others."""
MAX_MESSAGE_BYTES = 1 << 16
MAX_REASON_CHARACTERS = 1000
WORD_BYTES = 8
"""Alignment of the four columns, in bytes."""
MIB = 1 << 20

Memory = npt.NDArray[np.uint8]
IdType = type[np.uint16] | type[np.uint32]


class Address(NamedTuple):
    """Address of the GPU process."""

    name: str
    """Name of the socket. It is in Linux's abstract namespace, so no file remains and no path can be too long."""
    answer_seconds: float
    """Time after which a worker stops waiting for an answer and uses the CPU."""

    @classmethod
    def new(cls, answer_seconds: float) -> "Address":
        return cls(f"\0gristmill-{secrets.token_hex(16)}", answer_seconds)


class Mapped(msgspec.Struct, frozen=True, tag=True):
    """Announce new shared memory for the next requests. The file descriptor follows the message."""

    num_bytes: int
    id_bytes: int


class Request(msgspec.Struct, frozen=True, tag=True):
    """Ask for the ids of the texts in shared memory."""

    num_documents: int
    num_text_bytes: int


class GaveUp(msgspec.Struct, frozen=True, tag=True):
    """Report that a worker continues without the GPU."""

    reason: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """Report that the ids are in shared memory."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Report that a request failed."""

    reason: str


ToServer = Mapped | Request | GaveUp
ToClient = Done | Failed


class Columns(NamedTuple):
    """Views of a request's data in shared memory."""

    text: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    """Start of each document in the text, followed by the end of the last document."""
    ids: npt.NDArray[Any]
    id_offsets: npt.NDArray[np.int64]


def view_columns(memory: Memory, request: Request, id_type: IdType) -> Columns:
    """Return views of a request's data. Raise ValueError if the memory is too small."""
    sizes = _column_bytes(request, np.dtype(id_type).itemsize)
    if min(request.num_documents, request.num_text_bytes) < 0 or sum(sizes) > len(memory):
        raise ValueError(f"a request of {sum(sizes)} bytes does not fit into {len(memory)} bytes of shared memory")
    text, offsets, ids, id_offsets = np.split(memory[: sum(sizes)], np.cumsum(sizes)[:-1])
    return Columns(text[: request.num_text_bytes], offsets.view(np.int64), ids.view(id_type), id_offsets.view(np.int64))


def num_bytes_for(request: Request, id_type: IdType) -> int:
    """Return the size of the shared memory that a request needs."""
    return sum(_column_bytes(request, np.dtype(id_type).itemsize))


def _column_bytes(request: Request, id_bytes: int) -> tuple[int, int, int, int]:
    """Return the size of each column in bytes.

    Each token covers at least one byte, except for one token that a tokenizer may add before each document. The number
    of ids is therefore at most the number of bytes plus the number of documents.
    """
    offsets = WORD_BYTES * (request.num_documents + 1)
    num_ids = request.num_text_bytes + request.num_documents
    return _round_up_to_words(request.num_text_bytes), offsets, _round_up_to_words(num_ids * id_bytes), offsets


def _round_up_to_words(num_bytes: int) -> int:
    return -(-num_bytes // WORD_BYTES) * WORD_BYTES


def create_memory(num_bytes: int) -> tuple[int, int]:
    """Create an anonymous file in memory, and return its descriptor and size.

    All pages are allocated here, so that a lack of memory raises OSError. Otherwise, a later write to the memory would
    end the process with a signal.
    """
    descriptor = os.memfd_create("gristmill", os.MFD_CLOEXEC)
    size = -(-num_bytes // MIB) * MIB
    try:
        os.posix_fallocate(descriptor, 0, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, size


def map_memory(descriptor: int, num_bytes: int) -> Memory:
    """Map a file in memory. The file remains mapped as long as the array or a view of the array exists."""
    return np.frombuffer(mmap.mmap(descriptor, num_bytes), np.uint8)


def id_type_for(vocab_size: int) -> IdType:
    """Return the smallest type that holds all ids."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def open_connection(connected: socket.socket) -> Connection:
    """Convert a socket to a Connection with time limits.

    Raise PermissionError if the process at the other end belongs to a different user. This is possible, because any
    user can bind the name of the socket.
    """
    _, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if user != os.geteuid():
        raise PermissionError(f"the process at the other end belongs to user {user}, not to user {os.geteuid()}")
    connected.settimeout(None)
    limit = struct.pack("ll", int(MESSAGE_SECONDS), 0)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, limit)
    return Connection(connected.detach())


def send(connection: Connection, message: ToServer | ToClient) -> None:
    connection.send_bytes(msgspec.msgpack.encode(message))


def describe_error(error: BaseException) -> str:
    """Describe an error in one line, such as `MemoryError` or `ValueError: too large`."""
    text = (str(error).strip().splitlines() or [""])[0][:MAX_REASON_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
