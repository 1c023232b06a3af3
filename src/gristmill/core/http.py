"""Bytes to the endpoint -> the bytes that it answers, under one deadline, or why there are none.

Nothing goes anywhere else: no redirect is followed, no proxy asked. One connection per request: a model takes
seconds to answer, so connecting anew is of no account.
"""

import io
import os
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from enum import StrEnum
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead, responses
from socket import gaierror, socket
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_BODY_BYTES = 8 << 20
"""Far more than a model writes: a server must not fill our memory."""
CONNECT_SECONDS = 10.0
"""For each address that the host's name has: connecting is all that the deadline cannot end."""
LOOK_UP_SECONDS = 0.2
"""How long a thread waits on a socket before it looks whether it should stop."""

RETRIED = frozenset({408, 409, 425, 429})
OF_THIS_TEXT = frozenset({400, 413, 422})
"""What servers answer to a text that is too long for the model."""
OVER_THE_KEY = frozenset({401, 403})


class Fault(StrEnum):
    """Why there is no answer, as far as it decides what to do next."""

    PASSING = "passing"
    """Another try may do."""
    LASTING = "lasting"
    """It would be the same again, for any text."""
    OF_THIS_TEXT = "of_this_text"
    """It would be the same again, for this one."""


class NoAnswerError(Exception):
    """For this room alone. The reason has nothing in it that a server wrote: it might repeat the text or the key."""

    def __init__(self, fault: Fault, reason: str, retry_after: str | None = None) -> None:
        super().__init__(reason)
        self.fault = fault
        self.reason = reason
        self.retry_after = retry_after
        """The header, as it came."""


class StoppedError(Exception):
    """Nobody waits for the answer any more."""


class Request(NamedTuple):
    """One request, and how long its answer may take."""

    url: str
    headers: Mapping[str, str]
    body: bytes | None
    """What is sent by POST. None: a GET."""
    timeout_seconds: float
    """For all of it, from the first byte to the last."""
    key_variable: str
    """The environment variable with the key, to name it where the server refuses the key."""


def exchange(request: Request, stop: threading.Event) -> bytes:
    """The body of the answer, which is whole. Raises NoAnswerError."""
    address = urlsplit(request.url)
    deadline = _Deadline(request.timeout_seconds, stop)
    try:
        deadline.next_wait()
        with closing(_connected(address, request.timeout_seconds)) as connection, closing(connection.sock) as connected:
            connection.sock = cast("Any", _BoundedSocket(connected, deadline))
            connection.request("GET" if request.body is None else "POST", address.path, request.body, request.headers)
            return _whole_body(connection.getresponse(), request.key_variable)
    except TimeoutError:
        raise NoAnswerError(Fault.PASSING, f"no whole answer within {request.timeout_seconds:g} seconds") from None
    except OSError as error:
        raise NoAnswerError(Fault.PASSING, _in_our_words(error)) from None
    except HTTPException as error:
        reason = "the answer broke off" if isinstance(error, IncompleteRead) else "what came back is no HTTP"
        raise NoAnswerError(Fault.PASSING, reason) from None


def _connected(address: SplitResult, timeout_seconds: float) -> HTTPConnection:
    kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connect_seconds = min(CONNECT_SECONDS, timeout_seconds)
    connection = kind(address.hostname or "", address.port, timeout=connect_seconds)
    try:
        connection.connect()
    except TimeoutError:
        connection.close()
        raise NoAnswerError(Fault.PASSING, f"no connection within {connect_seconds:g} seconds") from None
    except OSError:
        connection.close()
        raise
    return connection


def _whole_body(response: HTTPResponse, key_variable: str) -> bytes:
    if response.status != HTTPStatus.OK:
        raise _refused_by(response, key_variable)
    body = response.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise NoAnswerError(Fault.LASTING, f"an answer of more than {MAX_BODY_BYTES >> 20} MiB")
    if response.length:  # read() with a limit does not tell
        raise IncompleteRead(b"", response.length)
    return body


def _refused_by(response: HTTPResponse, key_variable: str) -> NoAnswerError:
    status = response.status
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        said = f"HTTP {status}, a redirect, which is not followed: set the URL that it leads to"
        return NoAnswerError(Fault.LASTING, said)
    said = f"HTTP {status} {responses.get(status, '')}".rstrip()
    if status in OVER_THE_KEY:
        said += f": check the key in ${key_variable}"
    if status == HTTPStatus.NOT_FOUND:
        said += ": check the URL, and the model's name"
    if status in RETRIED or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return NoAnswerError(Fault.PASSING, said, response.getheader("Retry-After"))
    return NoAnswerError(Fault.OF_THIS_TEXT if status in OF_THIS_TEXT else Fault.LASTING, said)


def _in_our_words(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}): SSL_CERT_FILE names those that are"
    if isinstance(error, ssl.SSLError):
        return "no TLS connection: is it http:// instead?"
    if isinstance(error, gaierror):
        return "no such host"
    if isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return "it closed the connection"
    return os.strerror(error.errno).lower() if error.errno else "the connection failed"


class _Deadline:
    def __init__(self, seconds: float, stop: threading.Event) -> None:
        self._ends_at = time.monotonic() + seconds
        self._stop = stop

    def next_wait(self) -> float:
        left = self._ends_at - time.monotonic()
        if self._stop.is_set():
            raise StoppedError
        if left <= 0:
            raise TimeoutError
        return min(left, LOOK_UP_SECONDS)


class _BoundedSocket:
    """What http.client asks of a socket. A socket's own timeout begins anew with each byte that drips in."""

    def __init__(self, connected: socket, deadline: _Deadline) -> None:
        self._connected = connected
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self._connected.settimeout(self._deadline.next_wait())
            with suppress(TimeoutError):
                left = left[self._connected.send(left) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self._connected, self._deadline))

    def close(self) -> None:
        """Called before the body is read; whoever connected closes."""


class _BoundedReader(io.RawIOBase):
    def __init__(self, connected: socket, deadline: _Deadline) -> None:
        self._connected = connected
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        while True:
            self._connected.settimeout(self._deadline.next_wait())
            with suppress(TimeoutError):
                return self._connected.recv_into(buffer)
