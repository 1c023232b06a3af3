"""Encode the batches of a worker in the GPU process.

The CPU encodes until the GPU process is ready. After the first failure, the worker uses only the CPU.
"""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.cuda.exchange import (
    MAX_MESSAGE_BYTES,
    MAX_REASON_CHARACTERS,
    Address,
    Columns,
    Done,
    GaveUp,
    Mapped,
    Memory,
    Request,
    ToClient,
    create_memory,
    describe_error,
    id_type_for,
    map_memory,
    num_bytes_for,
    open_connection,
    send,
    view_columns,
)
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.tokenizer import AnyText, Encoded, EncodedTexts, Offsets, Tokenizer, all_to_utf8

MAX_BATCH_BYTES = 64 << 20
"""Maximum size of a batch for the GPU. Its shared memory can be six times as large.

Only batches with large files exceed this size. The CPU encodes them.
"""


class _RequestError(Exception):
    """The GPU process reported an error, sent an invalid answer, or did not answer in time."""


class ServedTokenizer:
    """Tokenizer protocol over the GPU process, with a CPU engine as fallback."""

    def __init__(self, cpu: FastTokenizer, address: Address) -> None:
        self._cpu, self._address = cpu, address
        self.engine = cpu.engine  # the ids are equal, and the dataset must not depend on the device
        self.vocab_size = cpu.vocab_size
        self.decodes_exactly = cpu.decodes_exactly
        self.encode = cpu.encode
        self.decode = cpu.decode
        self._server: _ServerConnection | None = None
        self._has_given_up = False

    @property
    def definition(self) -> Definition:
        return self._cpu.definition

    @property
    def is_connected(self) -> bool:
        """True if the GPU process is ready. Connects to the process if needed, without blocking."""
        if self._server is None and not self._has_given_up:
            try:
                self._server = _ServerConnection.open(self._address, self.vocab_size)
            except OSError:
                self._has_given_up = True
        return self._server is not None

    def encode_many(self, texts: Sequence[AnyText], *, with_starts: bool = False) -> list[Encoded]:
        return self.encode_all(all_to_utf8(texts, self.definition.name), with_starts=with_starts).split()

    def encode_all(self, texts: Sequence[bytes], *, with_starts: bool = False) -> EncodedTexts:
        checked = all_to_utf8(texts, self.definition.name)
        answer = self._encode_on_gpu(checked) if checked and sum(map(len, checked)) <= MAX_BATCH_BYTES else None
        if answer is None:
            return self._cpu.encode_all(checked, with_starts=with_starts)
        return self._cpu.annotate(*answer, checked, with_starts=with_starts)

    def _encode_on_gpu(self, texts: Sequence[bytes]) -> tuple[npt.NDArray[Any], Offsets] | None:
        """Return the ids of all texts and the offset of each text's ids, or None if the GPU is not available."""
        if not self.is_connected or self._server is None:
            return None
        try:
            return self._server.encode(texts)
        except (OSError, EOFError, MemoryError, ValueError, msgspec.MsgspecError, _RequestError) as error:
            self._server.close(str(error) if isinstance(error, _RequestError) else describe_error(error))
            self._server, self._has_given_up = None, True
            return None


class _ServerConnection:
    """Connection to the GPU process, with shared memory that grows with the batches."""

    def __init__(self, connection: Connection, address: Address, vocab_size: int) -> None:
        self._connection, self._seconds = connection, address.answer_seconds
        self._vocab_size, self._id_type = vocab_size, id_type_for(vocab_size)
        self._memory: Memory = np.zeros(0, np.uint8)

    @classmethod
    def open(cls, address: Address, vocab_size: int) -> "_ServerConnection | None":
        """Connect without waiting. Return None if no process listens yet.

        Raise OSError if the connection fails or the GPU process belongs to a different user.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            connected.settimeout(address.answer_seconds)
            try:
                connected.connect(address.name)
            except ConnectionRefusedError:
                return None
            return cls(open_connection(connected), address, vocab_size)

    def encode(self, texts: Sequence[bytes]) -> tuple[npt.NDArray[Any], Offsets]:
        joined = b"".join(texts)
        request = Request(len(texts), len(joined))
        columns = self._columns(request)
        columns.text[:] = np.frombuffer(joined, np.uint8)
        columns.offsets[:] = np.cumsum([0, *map(len, texts)])
        self._request(request)
        edges = columns.id_offsets.astype(np.int64)  # a copy, because the next batch reuses the memory
        ids = columns.ids[: edges[-1]].copy()
        self._check_answer(edges, ids)
        return ids, edges

    def _columns(self, request: Request) -> Columns:
        num_bytes = num_bytes_for(request, self._id_type)
        if num_bytes > len(self._memory):
            self._grow(num_bytes + num_bytes // 4)
        return view_columns(self._memory, request, self._id_type)

    def _grow(self, num_bytes: int) -> None:
        descriptor, size = create_memory(num_bytes)
        try:
            send(self._connection, Mapped(size, np.dtype(self._id_type).itemsize))
            reduction.send_handle(self._connection, descriptor, None)  # the process id matters only on Windows
            self._memory = map_memory(descriptor, size)
        finally:
            os.close(descriptor)

    def _request(self, request: Request) -> None:
        send(self._connection, request)
        if not self._connection.poll(self._seconds):
            raise _RequestError(f"the GPU process did not answer within {self._seconds:g} s")
        answer = msgspec.msgpack.decode(self._connection.recv_bytes(MAX_MESSAGE_BYTES), type=ToClient)
        if not isinstance(answer, Done):
            raise _RequestError(answer.reason)

    def _check_answer(self, id_offsets: npt.NDArray[np.int64], ids: npt.NDArray[Any]) -> None:
        """Raise _RequestError if the answer is invalid. Without this check, the build would fail in a later step."""
        is_in_order = id_offsets[0] == 0 and bool((np.diff(id_offsets) >= 0).all())
        if not is_in_order or len(ids) != id_offsets[-1] or (len(ids) and int(ids.max()) >= self._vocab_size):
            raise _RequestError("the GPU process sent invalid ids or offsets")

    def close(self, reason: str) -> None:
        """Report the reason and disconnect. The memory is not reused, because a late answer may overwrite it."""
        with suppress(OSError):
            send(self._connection, GaveUp(reason[:MAX_REASON_CHARACTERS]))
        self._connection.close()


def with_gpu_server(tokenizer: Tokenizer, address: Address) -> Tokenizer:
    """Return a tokenizer that uses the GPU process, or the given tokenizer if the GPU does not support it.

    Each process has its own connection. A forked process does not use the connection of its parent.
    """
    if not isinstance(tokenizer, FastTokenizer):
        return tokenizer
    key = (os.getpid(), address)
    if key not in _tokenizers:
        _tokenizers.clear()
        _tokenizers[key] = ServedTokenizer(tokenizer, address)
    return _tokenizers[key]


def drop_connection() -> None:
    """Drop the connection and its memory, for a process that continues after a build."""
    _tokenizers.clear()


_tokenizers: dict[tuple[int, Address], ServedTokenizer] = {}
