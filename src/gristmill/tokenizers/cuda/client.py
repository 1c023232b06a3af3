"""In a worker: the CPU's tokenizer, whose batches the card encodes as long as it can.

Until the card is ready, and from the first thing that goes wrong on, it is the CPU's tokenizer and nothing else.
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
    columns_of,
    connection_of,
    first_line,
    id_type_for,
    mapped,
    new_memory,
    num_bytes_for,
    send,
)
from gristmill.tokenizers.definition import Definition
from gristmill.tokenizers.gigatoken import FastTokenizer
from gristmill.tokenizers.tokenizer import AnyText, Encoded, EncodedTexts, Offsets, Tokenizer, utf8_of_each

LARGEST_BYTES = 64 << 20
"""Of one batch. A larger one, a single file then, would take up to five times its size for memory between the two."""


class _NotServedError(Exception):
    """The card's process says that it cannot, or says nothing."""


class ServedTokenizer:
    def __init__(self, cpu: FastTokenizer, address: Address) -> None:
        self._cpu, self._address = cpu, address
        self.engine = cpu.engine  # the ids are equal, and a dataset must not tell
        self.vocab_size = cpu.vocab_size
        self.gives_text_back = cpu.gives_text_back
        self.encode = cpu.encode
        self.decode = cpu.decode
        self._line: _Line | None = None
        self._has_given_up = False

    @property
    def definition(self) -> Definition:
        return self._cpu.definition

    @property
    def is_served(self) -> bool:
        """Whether the card is ready; to ask takes no time."""
        if self._line is None and not self._has_given_up:
            try:
                self._line = _Line.open(self._address, self.vocab_size)
            except OSError:
                self._has_given_up = True
        return self._line is not None

    def encode_many(self, texts: Sequence[AnyText], *, with_starts: bool = False) -> list[Encoded]:
        return self.encode_all(utf8_of_each(texts, self.definition.name), with_starts=with_starts).each()

    def encode_all(self, texts: Sequence[bytes], *, with_starts: bool = False) -> EncodedTexts:
        checked = utf8_of_each(texts, self.definition.name)
        answer = self._ids(checked) if checked and sum(map(len, checked)) <= LARGEST_BYTES else None
        if answer is None:
            return self._cpu.encode_all(checked, with_starts=with_starts)
        return self._cpu.understood(*answer, checked, with_starts=with_starts)

    def _ids(self, texts: Sequence[bytes]) -> tuple[npt.NDArray[Any], Offsets] | None:
        """All ids, and where each text's begin; None where the card is not ready, or not any more."""
        if not self.is_served or self._line is None:
            return None
        try:
            return self._line.ids_of(texts)
        except (OSError, EOFError, MemoryError, ValueError, msgspec.MsgspecError, _NotServedError) as error:
            self._line.close(str(error) if isinstance(error, _NotServedError) else first_line(error))
            self._line, self._has_given_up = None, True
            return None


class _Line:
    """To the card's process: a connection, and memory that grows with the batches."""

    def __init__(self, connection: Connection, address: Address, vocab_size: int) -> None:
        self._connection, self._seconds = connection, address.seconds_to_answer
        self._vocab_size, self._id_type = vocab_size, id_type_for(vocab_size)
        self._memory: Memory = np.zeros(0, np.uint8)

    @classmethod
    def open(cls, address: Address, vocab_size: int) -> "_Line | None":
        """None where nobody listens, which is at once clear; OSError where whoever does is not to be talked to."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            connected.settimeout(address.seconds_to_answer)
            try:
                connected.connect(address.name)
            except ConnectionRefusedError:
                return None
            return cls(connection_of(connected), address, vocab_size)

    def ids_of(self, texts: Sequence[bytes]) -> tuple[npt.NDArray[Any], Offsets]:
        joined = b"".join(texts)
        request = Request(len(texts), len(joined))
        columns = self._columns(request)
        columns.text[:] = np.frombuffer(joined, np.uint8)
        columns.offsets[:] = np.cumsum([0, *map(len, texts)])
        self._ask(request)
        edges = columns.id_offsets.astype(np.int64)  # the memory is for the next batch
        ids = columns.ids[: edges[-1]].copy()
        self._refuse_nonsense(edges, ids)
        return ids, edges

    def _columns(self, request: Request) -> Columns:
        num_bytes = num_bytes_for(request, self._id_type)
        if num_bytes > len(self._memory):
            self._grow(num_bytes + num_bytes // 4)
        return columns_of(self._memory, request, self._id_type)

    def _grow(self, num_bytes: int) -> None:
        descriptor, size = new_memory(num_bytes)
        try:
            send(self._connection, Mapped(size, np.dtype(self._id_type).itemsize))
            reduction.send_handle(self._connection, descriptor, None)  # the last word matters on Windows alone
            self._memory = mapped(descriptor, size)
        finally:
            os.close(descriptor)

    def _ask(self, request: Request) -> None:
        send(self._connection, request)
        if not self._connection.poll(self._seconds):
            raise _NotServedError(f"no answer within {self._seconds:g} s")
        answer = msgspec.msgpack.decode(self._connection.recv_bytes(MAX_MESSAGE_BYTES), type=ToClient)
        if not isinstance(answer, Done):
            raise _NotServedError(answer.reason)

    def _refuse_nonsense(self, id_offsets: npt.NDArray[np.int64], ids: npt.NDArray[Any]) -> None:
        """What no tokenizer gives would end a build further on; here it costs a look and the CPU helps."""
        is_in_order = id_offsets[0] == 0 and bool((np.diff(id_offsets) >= 0).all())
        if not is_in_order or len(ids) != id_offsets[-1] or (len(ids) and int(ids.max()) >= self._vocab_size):
            raise _NotServedError("its answer makes no sense")

    def close(self, reason: str) -> None:
        """Whoever has not answered in time may still write into the memory: it is not used again."""
        with suppress(OSError):
            send(self._connection, GaveUp(reason[:MAX_REASON_CHARACTERS]))
        self._connection.close()


def served(tokenizer: Tokenizer, address: Address) -> Tokenizer:
    """One for each process: what a fork has copied is its parent's line, and not used."""
    if not isinstance(tokenizer, FastTokenizer):
        return tokenizer
    key = (os.getpid(), address)
    if key not in _served:
        _served.clear()
        _served[key] = ServedTokenizer(tokenizer, address)
    return _served[key]


def forget_served() -> None:
    """In a process that goes on after a build: the line and its memory are given back."""
    _served.clear()


_served: dict[tuple[int, Address], ServedTokenizer] = {}
