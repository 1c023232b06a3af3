"""HTTP client for the rewrite endpoint: send a request and read the complete answer before a deadline.

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
"""Maximum size of an answer, so that a server cannot fill the memory. A model writes far less."""
CONNECT_SECONDS = 10.0
"""Maximum time to connect to one address of the host. The deadline is not checked while connecting."""
POLL_SECONDS = 0.2
"""Maximum time to wait on a socket before the deadline and the stop event are checked again."""

RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
TEXT_STATUSES = frozenset({400, 413, 422})
"""Statuses that servers return if the text is too long for the model."""
KEY_STATUSES = frozenset({401, 403})


class Fault(StrEnum):
    """Kind of failure. The kind decides whether the caller sends the request again."""

    TRANSIENT = "passing"
    """A retry may succeed."""
    PERMANENT = "lasting"
    """A retry would fail with any text."""
    TEXT_SPECIFIC = "of_this_text"
    """A retry with the same text would fail. A different text may succeed."""


class NoAnswerError(Exception):
    """The server gave no usable answer. Callers catch this error, and may show its `reason` to the user.

    `reason` quotes nothing from the server, because an answer might repeat the text or the key.
    """

    def __init__(self, fault: Fault, reason: str, retry_after: str | None = None) -> None:
        super().__init__(reason)
        self.fault = fault
        self.reason = reason
        self.retry_after = retry_after
        """Value of the Retry-After header. None if the answer has none, or if there is no answer."""


class StoppedError(Exception):
    """The caller set the stop event and no longer waits for the answer."""


class Request(NamedTuple):
    """One request, with the time limit for its answer."""

    url: str
    headers: Mapping[str, str]
    body: bytes | None
    """Content to send by POST. None for a GET request."""
    timeout_seconds: float
    """Time limit for the complete exchange, from connecting to the last byte received."""
    key_variable: str
    """Name of the environment variable with the key, for the message if the server refuses the key."""


def send_request(request: Request, stop: threading.Event) -> bytes:
    """Send the request and return the complete body of the answer. Raise NoAnswerError if there is no usable answer."""
    address = urlsplit(request.url)
    deadline = _Deadline(request.timeout_seconds, stop)
    try:
        deadline.next_wait()
        with (
            closing(_connect(address, request.timeout_seconds)) as connection,
            closing(connection.sock) as plain_socket,
        ):
            connection.sock = cast("Any", _BoundedSocket(plain_socket, deadline))
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
        raise NoAnswerError(Fault.PERMANENT, f"the answer is larger than {MAX_BODY_BYTES >> 20} MiB")
    if response.length:  # read() with a limit does not report an incomplete body
        raise IncompleteRead(b"", response.length)
    return body


def _refusal(response: HTTPResponse, key_variable: str) -> NoAnswerError:
    status = response.status
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        reason = f"HTTP {status} is a redirect, and redirects are not followed: set the URL that the redirect leads to"
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
        return (
            f"the server's certificate is not trusted ({error.verify_message}): set SSL_CERT_FILE to a file of trusted "
            "certificates"
        )
    if isinstance(error, ssl.SSLError):
        return "the TLS connection failed: if the server does not use TLS, write http:// instead of https://"
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
        seconds_left = self._ends_at - time.monotonic()
        if self._stop.is_set():
            raise StoppedError
        if seconds_left <= 0:
            raise TimeoutError
        return min(seconds_left, POLL_SECONDS)


class _BoundedSocket:
    """Socket for http.client with one deadline for all calls. The timeout of a plain socket restarts with each byte."""

    def __init__(self, plain_socket: socket, deadline: _Deadline) -> None:
        self._socket = plain_socket
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        unsent = memoryview(data)
        while unsent:
            self._socket.settimeout(self._deadline.next_wait())
            with suppress(TimeoutError):
                unsent = unsent[self._socket.send(unsent) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self._socket, self._deadline))

    def close(self) -> None:
        """Do nothing. http.client calls this method before the body is read, and `send_request` closes the socket."""


class _BoundedReader(io.RawIOBase):
    def __init__(self, plain_socket: socket, deadline: _Deadline) -> None:
        self._socket = plain_socket
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        while True:
            self._socket.settimeout(self._deadline.next_wait())
            with suppress(TimeoutError):
                return self._socket.recv_into(buffer)
