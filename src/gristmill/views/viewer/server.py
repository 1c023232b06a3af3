"""HTTP on 127.0.0.1: GET only, pages from a fixed table, data by name and number. No path of a request is opened."""

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
from gristmill.views.viewer.api import ANSWERS
from gristmill.views.viewer.filters import index_failed
from gristmill.views.viewer.opened import Opened
from gristmill.views.viewer.request import (
    HEADERS,
    MAX_FIELDS,
    Guard,
    Query,
    RefusedError,
    bad_request,
    not_found,
    require_own,
)
from gristmill.views.viewer.viewed_rows import NotIndexedError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PAGE = re.compile(r"/(|file|dropped|row/(train|validation|test)/[0-9]{1,15})")
"""Addresses that one page answers: what it shows is its own affair."""
INDEX_PAGE = "index.html"
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
JSON, PLAIN = "application/json", "text/plain"
MAX_ADDRESS = 8192
SECONDS_OF_SILENCE = 60
"""A request must be here whole so soon after the answer before it; a client may also take as long to read on."""
MAX_CONNECTIONS = 64
"""Each has a thread. A browser opens six."""
KEY = "key"
API = "/api/"


class Reply(NamedTuple):
    status: HTTPStatus
    kind: str
    body: bytes
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


NO_ENTRY = Reply(
    HTTPStatus.FORBIDDEN, PLAIN, b"This page is guarded by a key. Open the address that gristmill view has printed.\n"
)


TOO_MANY = (
    f"HTTP/1.1 {HTTPStatus.SERVICE_UNAVAILABLE:d} {HTTPStatus.SERVICE_UNAVAILABLE.phrase}\r\n"
    "Content-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
).encode()


NOTHING_HERE = Reply(HTTPStatus.NOT_FOUND, PLAIN, b"There is nothing at this address. All windows are at /\n")


def assets() -> dict[str, Reply]:
    """Every file that belongs to the page, by its address."""
    folder = files("gristmill.views.viewer") / "assets"
    before = {".css": page_variables().encode()}
    try:
        return {
            f"/{entry.name}": Reply(HTTPStatus.OK, TYPES[suffix], before.get(suffix, b"") + entry.read_bytes())
            for entry in folder.iterdir()
            if (suffix := entry.name[entry.name.rfind(".") :]) in TYPES
        }
    except OSError as error:
        raise InputError(
            f"cannot read {str(error.filename or folder)!r}, a part of gristmill: {error.strerror or error}. "
            "Install gristmill again, where this user may read it."
        ) from None


class ViewServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    seconds_of_silence: float = SECONDS_OF_SILENCE

    def __init__(self, port: int, opened: Opened, guard: Guard, assets: dict[str, Reply]) -> None:
        self.opened, self.guard, self.assets = opened, guard, assets
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, or refuse it while as many as may be are open."""
        if not self._room.acquire(blocking=False):
            with suppress(OSError):
                request.setblocking(False)
                request.send(TOO_MANY)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A client that goes away is no fault; anything else is ours."""
        if not isinstance(sys.exception(), OSError):
            traceback.print_exc()

    def server_bind(self) -> None:
        """Without asking a name server who we are, as the parent does."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def reply(self, target: str, headers: Any) -> Reply:
        """To a GET."""
        require_own(headers)
        address = _address(target)
        is_page = PAGE.fullmatch(address.path) is not None
        fields = _fields(address.query) if is_page else []
        if keys := [text for name, text in fields if name == KEY]:
            return self._let_in(address.path, fields) if all(map(self.guard.lets_in, keys)) else NO_ENTRY
        if not self.guard.has_cookie(headers):
            return NO_ENTRY
        if is_page:
            return self.assets[f"/{INDEX_PAGE}"]
        if address.path in self.assets:
            return self.assets[address.path]
        if not address.path.startswith(API):
            return NOTHING_HERE
        return self._answer(address.path.removeprefix(API), address.query)

    def _let_in(self, path: str, fields: list[tuple[str, str]]) -> Reply:
        """On to the same page, without the key in its address."""
        rest = urlencode([field for field in fields if field[0] != KEY])
        location = f"{path}?{rest}" if rest else path
        return Reply(HTTPStatus.SEE_OTHER, PLAIN, b"", {"Location": location, "Set-Cookie": self.guard.cookie})

    def _answer(self, name: str, query: str) -> Reply:
        answer = ANSWERS.get(name)
        if answer is None:
            raise not_found("there is nothing at this address.")
        viewed = self.opened.now()
        try:
            found = answer(viewed, Query(query))
        except NotIndexedError:
            if viewed.index.failure is not None:
                raise index_failed(viewed.index.failure) from None
            return _json(HTTPStatus.ACCEPTED, {"index": viewed.index.progress})
        return _json(HTTPStatus.OK, found)


class _Reading(socket.SocketIO):
    """What a client sends, up to a deadline: one that sends a byte now and then does not keep its thread for ever."""

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
    wbufsize = -1  # head and body leave together
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reading = _Reading(self.connection)
        self.rfile = io.BufferedReader(self._reading)

    def handle_one_request(self) -> None:
        self._reading.deadline = time.monotonic() + self.server.seconds_of_silence
        super().handle_one_request()

    def do_GET(self) -> None:
        self._send(self._reply())

    do_HEAD = do_GET  # noqa: N815 - as the parent calls it

    def _reply(self) -> Reply:
        try:
            self._require_no_body()
            if len(self.path) > MAX_ADDRESS:
                raise RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, f"an address has at most {MAX_ADDRESS} characters.")
            with self.server.opened.precedence.request():
                return self.server.reply(self.path, self.headers)
        except RefusedError as refused:
            return _error(refused.status, str(refused))
        except InputError as error:
            return _error(HTTPStatus.NOT_FOUND, str(error))
        except GristmillError as error:
            return _error(HTTPStatus.CONFLICT, str(error))
        except Exception:  # noqa: BLE001 - the next request is answered all the same
            traceback.print_exc()
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a fault in gristmill; its terminal tells more.")

    def _require_no_body(self) -> None:
        """Nobody reads one: it would be taken for the next request."""
        if "Transfer-Encoding" in self.headers or self.headers.get("Content-Length", "0").strip() != "0":
            self.close_connection = True
            raise bad_request("there is nothing to send here.")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """For what is no request, or a method that there is not: whatever follows it is not read."""
        self.close_connection = True
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._send(_error(status, f"{status.phrase}."))

    def _send(self, reply: Reply) -> None:
        self.connection.settimeout(self.server.seconds_of_silence)
        self.send_response(reply.status)
        self.send_header("Content-Type", f"{reply.kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(reply.body)))
        for name, value in {**HEADERS, **reply.headers}.items():
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
        """Nothing: people look at the terminal for what matters."""


def _address(target: str) -> SplitResult:
    try:
        return urlsplit(target)
    except ValueError:
        raise bad_request("this is no address.") from None


def _fields(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, max_num_fields=MAX_FIELDS, errors="replace")
    except ValueError:
        return []


def _json(status: HTTPStatus, answer: Any) -> Reply:
    return Reply(status, JSON, msgspec.json.encode(answer))


def _error(status: HTTPStatus, message: str) -> Reply:
    return _json(status, {"error": message})
