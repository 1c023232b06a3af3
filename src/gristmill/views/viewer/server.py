"""The HTTP server on 127.0.0.1. It answers GET and HEAD only.

Pages come from a fixed table, and data is looked up by name and number. No request path is used as a file path.
"""

import http.server
import io
import re
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import msgspec

from gristmill.core.errors import GristmillError, InputError
from gristmill.views.theme import page_variables
from gristmill.views.viewer.api import ENDPOINTS
from gristmill.views.viewer.current_dataset import CurrentDataset
from gristmill.views.viewer.filters import index_error
from gristmill.views.viewer.request import (
    MAX_FIELDS,
    RESPONSE_HEADERS,
    Guard,
    Query,
    RefusedError,
    bad_request,
    not_found,
    require_same_origin,
)
from gristmill.views.viewer.viewer_dataset import NotIndexedError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PAGE = re.compile(r"/(|file|dropped|row/(train|validation|test)/[0-9]{1,15})")
"""Paths of web pages. All return index.html, whose script selects the page to display."""
INDEX_PAGE = "index.html"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
JSON, PLAIN = "application/json", "text/plain"
MAX_URL_LENGTH = 8192
TIMEOUT_SECONDS = 60
"""Time limit for receiving a complete request after the previous response, and for each write of a response."""
MAX_CONNECTIONS = 64
"""Each connection has a thread. A browser opens up to six connections."""
KEY = "key"
API = "/api/"


class Reply(NamedTuple):
    """An HTTP response."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


KEY_REQUIRED = Reply(
    HTTPStatus.FORBIDDEN, PLAIN, b"This page requires a key. Open the address that gristmill view printed.\n"
)


TOO_MANY_CONNECTIONS = (
    f"HTTP/1.1 {HTTPStatus.SERVICE_UNAVAILABLE:d} {HTTPStatus.SERVICE_UNAVAILABLE.phrase}\r\n"
    "Content-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
).encode()


NO_SUCH_PAGE = Reply(HTTPStatus.NOT_FOUND, PLAIN, b"There is no page at this address. The list of windows is at /\n")


def load_assets() -> dict[str, Reply]:
    """Read the files of the web page, keyed by URL path. The variables of the theme are added to the style sheet."""
    folder = files("gristmill.views.viewer") / "assets"
    prefixes = {".css": page_variables().encode()}
    try:
        return {
            f"/{entry.name}": Reply(HTTPStatus.OK, TYPES[suffix], prefixes.get(suffix, b"") + entry.read_bytes())
            for entry in folder.iterdir()
            if (suffix := entry.name[entry.name.rfind(".") :]) in TYPES
        }
    except OSError as error:
        raise InputError(
            f"cannot read {str(error.filename or folder)!r}, a part of gristmill: {error.strerror or error}. "
            "Install gristmill again so that the current user can read this file."
        ) from None


class ViewServer(http.server.ThreadingHTTPServer):
    """The server of a viewer, with one thread per connection."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    timeout_seconds: float = TIMEOUT_SECONDS

    def __init__(self, port: int, current: CurrentDataset, guard: Guard, assets: dict[str, Reply]) -> None:
        self.current, self.guard, self.assets = current, guard, assets
        self._connection_slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, or refuse the connection if too many are open."""
        if not self._connection_slots.acquire(blocking=False):
            with suppress(OSError):
                request.setblocking(False)
                request.send(TOO_MANY_CONNECTIONS)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started
            self._connection_slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connection_slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Print a traceback, unless the client closed the connection."""
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()

    def server_bind(self) -> None:
        """Bind without the reverse DNS lookup of the parent class."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def reply(self, target: str, headers: Any) -> Reply:
        """Return the response to a GET request."""
        require_same_origin(headers)
        url = _parse_url(target)
        is_page = PAGE.fullmatch(url.path) is not None
        fields = _fields(url.query) if is_page else []
        if keys := [text for name, text in fields if name == KEY]:
            is_allowed = all(map(self.guard.accepts, keys))
            return self._redirect(url.path, fields) if is_allowed else KEY_REQUIRED
        if not self.guard.has_cookie(headers):
            return KEY_REQUIRED
        if is_page:
            return self.assets[f"/{INDEX_PAGE}"]
        if url.path in self.assets:
            return self.assets[url.path]
        if not url.path.startswith(API):
            return NO_SUCH_PAGE
        return self._answer(url.path.removeprefix(API), url.query)

    def _redirect(self, path: str, fields: list[tuple[str, str]]) -> Reply:
        """Set the cookie and redirect to the same page, without the key in the URL."""
        rest = urlencode([field for field in fields if field[0] != KEY])
        location = f"{path}?{rest}" if rest else path
        return Reply(HTTPStatus.SEE_OTHER, PLAIN, b"", {"Location": location, "Set-Cookie": self.guard.cookie})

    def _answer(self, name: str, query: str) -> Reply:
        endpoint = ENDPOINTS.get(name)
        if endpoint is None:
            raise not_found("there is no API endpoint at this address.")
        loaded = self.current.get()
        try:
            answer = endpoint(loaded, Query(query))
        except NotIndexedError:
            if loaded.index.failure is not None:
                raise index_error(loaded.index.failure) from None
            return _json(HTTPStatus.ACCEPTED, {"index": loaded.index.progress})
        return _json(HTTPStatus.OK, answer)


class _DeadlineReader(socket.SocketIO):
    """Reads from a client until a deadline, so that a client that sends byte by byte cannot occupy a thread forever."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection, "r")
        self._connection = connection
        self.deadline = 0.0

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        self._connection.settimeout(max(self.deadline - time.monotonic(), 0.001))
        return super().readinto(buffer)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: ViewServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # send head and body together
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reader = _DeadlineReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        self._reader.deadline = time.monotonic() + self.server.timeout_seconds
        super().handle_one_request()

    def do_GET(self) -> None:
        self._send(self._reply())

    do_HEAD = do_GET  # noqa: N815 - the parent class calls this name

    def _reply(self) -> Reply:
        try:
            self._require_no_body()
            if len(self.path) > MAX_URL_LENGTH:
                raise RefusedError(
                    HTTPStatus.REQUEST_URI_TOO_LONG, f"the URL has more than {MAX_URL_LENGTH} characters."
                )
            with self.server.current.priority.request():
                return self.server.reply(self.path, self.headers)
        except RefusedError as refused:
            return _error(refused.status, str(refused))
        except InputError as error:
            return _error(HTTPStatus.NOT_FOUND, str(error))
        except GristmillError as error:
            return _error(HTTPStatus.CONFLICT, str(error))
        except Exception:  # noqa: BLE001 - the server must answer the next request
            traceback.print_exc()
            return _error(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "internal error in gristmill. See the terminal in which the viewer runs.",
            )

    def _require_no_body(self) -> None:
        """Refuse a request with a body. The body is never read, so it would be parsed as the next request."""
        if "Transfer-Encoding" in self.headers or self.headers.get("Content-Length", "0").strip() != "0":
            self.close_connection = True
            raise bad_request("requests must not have a body.")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer a malformed request or an unsupported method, and close the connection."""
        self.close_connection = True
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._send(_error(status, f"{status.phrase}."))

    def _send(self, reply: Reply) -> None:
        self.connection.settimeout(self.server.timeout_seconds)
        self.send_response(reply.status)
        self.send_header("Content-Type", f"{reply.content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(reply.body)))
        for name, value in {**RESPONSE_HEADERS, **reply.headers}.items():
            self.send_header(name, value)
        if reply.status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def version_string(self) -> str:
        return "gristmill"

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Log nothing, so that the terminal has only messages that matter."""


def _parse_url(target: str) -> SplitResult:
    try:
        return urlsplit(target)
    except ValueError:
        raise bad_request("the request URL is invalid.") from None


def _fields(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, max_num_fields=MAX_FIELDS, errors="replace")
    except ValueError:
        return []


def _json(status: HTTPStatus, answer: Any) -> Reply:
    return Reply(status, JSON, msgspec.json.encode(answer))


def _error(status: HTTPStatus, message: str) -> Reply:
    return _json(status, {"error": message})
