"""HTTP client for the rewrite endpoint: send one request and read its answer before one deadline.

Data is sent to the given URL only: redirects are not followed and proxies are not used. Each request opens a new
connection, whose cost is negligible because a model takes seconds to answer.
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
"""Limit that keeps a server from filling the memory. A model writes far less."""
CONNECT_SECONDS = 10.0
"""Timeout for each address of the host, because the deadline does not limit connecting."""
POLL_SECONDS = 0.2
"""Maximum wait on a socket before checking whether to stop."""

RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
TEXT_STATUSES = frozenset({400, 413, 422})
"""Statuses that servers return if the text is too long for the model."""
KEY_STATUSES = frozenset({401, 403})


class Fault(StrEnum):
    """Kind of failure, which decides what to do next."""

    TRANSIENT = "passing"
    """A retry may succeed."""
    PERMANENT = "lasting"
    """A retry fails, with any text."""
    TEXT_SPECIFIC = "of_this_text"
    """A retry with the same text fails. Another text may succeed."""


class NoAnswerError(Exception):
    """The server gave no usable answer. Callers handle it, so users never see it.

    The reason quotes nothing from the server, which might repeat the text or the key.
    """

    def __init__(self, fault: Fault, reason: str, retry_after: str | None = None) -> None:
        super().__init__(reason)
        self.fault = fault
        self.reason = reason
        self.retry_after = retry_after
        """Value of the Retry-After header."""


class StoppedError(Exception):
    """The caller set the stop event and no longer waits for the answer."""


class Request(NamedTuple):
    """One request, with the time limit for its answer."""

    url: str
    headers: Mapping[str, str]
    body: bytes | None
    """Content to send by POST. None for a GET request."""
    timeout_seconds: float
    """Time limit for the complete exchange, from the first byte sent to the last byte received."""
    key_variable: str
    """Environment variable with the key. Errors name it if the server refuses the key."""


def send_request(request: Request, stop: threading.Event) -> bytes:
    """Send the request and return the complete body of the answer. Raise NoAnswerError if there is none."""
    address = urlsplit(request.url)
    deadline = _Deadline(request.timeout_seconds, stop)
    try:
        deadline.next_wait()
        with closing(_connect(address, request.timeout_seconds)) as connection, closing(connection.sock) as connected:
            connection.sock = cast("Any", _BoundedSocket(connected, deadline))
            connection.request("GET" if request.body is None else "POST", address.path, request.body, request.headers)
            return _read_body(connection.getresponse(), request.key_variable)
    except TimeoutError:
        raise NoAnswerError(Fault.TRANSIENT, f"no complete answer within {request.timeout_seconds:g} seconds") from None
    except OSError as error:
        raise NoAnswerError(Fault.TRANSIENT, _describe(error)) from None
    except HTTPException as error:
        reason = "the answer is incomplete" if isinstance(error, IncompleteRead) else "the answer is not HTTP"
        raise NoAnswerError(Fault.TRANSIENT, reason) from None


def _connect(address: SplitResult, timeout_seconds: float) -> HTTPConnection:
    connection_class = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connect_seconds = min(CONNECT_SECONDS, timeout_seconds)
    connection = connection_class(address.hostname or "", address.port, timeout=connect_seconds)
    try:
        connection.connect()
    except TimeoutError:
        connection.close()
        raise NoAnswerError(Fault.TRANSIENT, f"no connection within {connect_seconds:g} seconds") from None
    except OSError:
        connection.close()
        raise
    return connection


def _read_body(response: HTTPResponse, key_variable: str) -> bytes:
    if response.status != HTTPStatus.OK:
        raise _refusal(response, key_variable)
    body = response.read(MAX_BODY_BYTES + 1)
    if len(body) > MAX_BODY_BYTES:
        raise NoAnswerError(Fault.PERMANENT, f"an answer of more than {MAX_BODY_BYTES >> 20} MiB")
    if response.length:  # read() with a limit does not report an incomplete body
        raise IncompleteRead(b"", response.length)
    return body


def _refusal(response: HTTPResponse, key_variable: str) -> NoAnswerError:
    status = response.status
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        reason = f"HTTP {status} is a redirect, which is not followed: set the URL that it leads to"
        return NoAnswerError(Fault.PERMANENT, reason)
    reason = f"HTTP {status} {responses.get(status, '')}".rstrip()
    if status in KEY_STATUSES:
        reason += f": check the key in ${key_variable}"
    if status == HTTPStatus.NOT_FOUND:
        reason += ": check the URL and the model's name"
    if status in RETRYABLE_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return NoAnswerError(Fault.TRANSIENT, reason, response.getheader("Retry-After"))
    return NoAnswerError(Fault.TEXT_SPECIFIC if status in TEXT_STATUSES else Fault.PERMANENT, reason)


def _describe(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}): set SSL_CERT_FILE to the trusted ones"
    if isinstance(error, ssl.SSLError):
        return "no TLS connection: try http:// instead"
    if isinstance(error, gaierror):
        return "no such host"
    if isinstance(error, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return "the server closed the connection"
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
        return min(left, POLL_SECONDS)


class _BoundedSocket:
    """Socket with one deadline, for http.client. A socket's own timeout starts again with each byte received."""

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
        """Do nothing. http.client calls this before the body is read, and `send_request` closes the socket."""


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
