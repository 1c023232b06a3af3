"""What a worker and the process that owns the card have between them: a socket, and memory that both see.

A request in that memory:

    texts, joined | offsets (int64) | room for ids (uint16 or uint32) | id offsets (int64)

Over the socket go a few bytes that say so: Mapped (with the memory's descriptor) once, then Request -> Done or Failed.
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

SECONDS_FOR_MESSAGE = 5.0
"""To send or read a message that is under way, a few bytes: one that stops in the middle holds up nobody."""
MAX_MESSAGE_BYTES = 1 << 16
MAX_REASON_CHARACTERS = 1000
WORD_BYTES = 8
"""All four columns begin at multiples of this."""
MIB = 1 << 20

Memory = npt.NDArray[np.uint8]
IdType = type[np.uint16] | type[np.uint32]


class Address(NamedTuple):
    """Where the process that owns the card is asked."""

    name: str
    """In Linux's abstract namespace: there is no file that could stay behind, or whose path could be too long."""
    seconds_to_answer: float
    """After which a worker does without."""

    @classmethod
    def new(cls, seconds_to_answer: float) -> "Address":
        return cls(f"\0gristmill-{secrets.token_hex(16)}", seconds_to_answer)


class Mapped(msgspec.Struct, frozen=True, tag=True):
    """From now on requests lie in this memory; its descriptor follows."""

    num_bytes: int
    id_bytes: int


class Request(msgspec.Struct, frozen=True, tag=True):
    num_documents: int
    num_text_bytes: int


class GaveUp(msgspec.Struct, frozen=True, tag=True):
    """A worker goes on without the card."""

    reason: str


class Done(msgspec.Struct, frozen=True, tag=True):
    pass


class Failed(msgspec.Struct, frozen=True, tag=True):
    reason: str


ToServer = Mapped | Request | GaveUp
ToClient = Done | Failed


class Columns(NamedTuple):
    """A request, as arrays over the memory."""

    text: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    """Where each document begins in the text, and where the last one ends."""
    ids: npt.NDArray[Any]
    id_offsets: npt.NDArray[np.int64]


def columns_of(memory: Memory, request: Request, id_type: IdType) -> Columns:
    """ValueError where the memory is too small for it."""
    sizes = _column_bytes(request, np.dtype(id_type).itemsize)
    if min(request.num_documents, request.num_text_bytes) < 0 or sum(sizes) > len(memory):
        raise ValueError(f"{request} does not fit into {len(memory)} bytes")
    text, offsets, ids, id_offsets = np.split(memory[: sum(sizes)], np.cumsum(sizes)[:-1])
    return Columns(text[: request.num_text_bytes], offsets.view(np.int64), ids.view(id_type), id_offsets.view(np.int64))


def num_bytes_for(request: Request, id_type: IdType) -> int:
    return sum(_column_bytes(request, np.dtype(id_type).itemsize))


def _column_bytes(request: Request, id_bytes: int) -> tuple[int, int, int, int]:
    """A token has a byte at least, but for one that a tokenizer may put in front of each document."""
    offsets = WORD_BYTES * (request.num_documents + 1)
    num_ids = request.num_text_bytes + request.num_documents
    return _whole_words(request.num_text_bytes), offsets, _whole_words(num_ids * id_bytes), offsets


def _whole_words(num_bytes: int) -> int:
    return -(-num_bytes // WORD_BYTES) * WORD_BYTES


def new_memory(num_bytes: int) -> tuple[int, int]:
    """The descriptor of a file without a name, and its size.

    Its pages are taken now: a machine that has none left says so here, by an OSError, and not by a signal in the middle
    of a copy.
    """
    descriptor = os.memfd_create("gristmill", os.MFD_CLOEXEC)
    size = -(-num_bytes // MIB) * MIB
    try:
        os.posix_fallocate(descriptor, 0, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, size


def mapped(descriptor: int, num_bytes: int) -> Memory:
    """It stays mapped for as long as the array, or one over it, is held."""
    return np.frombuffer(mmap.mmap(descriptor, num_bytes), np.uint8)


def id_type_for(vocab_size: int) -> IdType:
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def connection_of(connected: socket.socket) -> Connection:
    """One that never waits for long. PermissionError if another user is at its far end: the name is free for all."""
    _, user, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if user != os.geteuid():
        raise PermissionError(f"user {user} is at the other end, this is {os.geteuid()}")
    connected.settimeout(None)
    limit = struct.pack("ll", int(SECONDS_FOR_MESSAGE), 0)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, limit)
    return Connection(connected.detach())


def send(connection: Connection, message: ToServer | ToClient) -> None:
    connection.send_bytes(msgspec.msgpack.encode(message))


def first_line(error: BaseException) -> str:
    """`MemoryError`, or `ValueError: too large`"""
    text = (str(error).strip().splitlines() or [""])[0][:MAX_REASON_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
