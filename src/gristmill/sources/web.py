"""Read files from web servers (http:// and https://): their size, their state, and their bytes from a given offset.

This module uses only the standard library. A source may be any server on the internet. Therefore:

- A body is read in blocks, never all at once.
- If a server ignores ranges, the file is read from the beginning.
- A redirect from a public address to a private address is refused, because a server could otherwise make gristmill
  read data that only this machine can reach.
"""

import base64
import ipaddress
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPMessage, HTTPResponse, HTTPSConnection
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from gristmill.core.errors import InputError
from gristmill.core.names import printable

BLOCK_BYTES = 1 << 20
MIN_PROGRESS_BYTES = 64 << 10
"""A read fails if fewer bytes than this arrive within its timeout."""
PARTIAL = 206
UNQUOTED_CHARACTERS = "%/:=&?~#+!$,;'@()*[]"
STATE_HEADERS = ("ETag", "Last-Modified")


class Body(NamedTuple):
    """Body of a response."""

    start: int
    """Offset of the first block in the file: the requested offset, or 0 if the server ignored the range."""
    blocks: Iterator[bytes]


class WebFiles:
    """File system for web servers, with the fsspec methods that module `remote` calls, and `open_body`."""

    async_impl = False

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds

    def info(self, address: str) -> dict[str, Any]:
        """Return the size and the state headers. Use GET if HEAD is refused or reports no size or size 0."""
        try:
            facts = self._request_info(address, "HEAD")
        except HTTPError:
            facts = None
        return facts if facts is not None and facts["size"] else self._request_info(address, "GET")

    def _request_info(self, address: str, method: str) -> dict[str, Any]:
        with _open_response(address, method, self._timeout_seconds) as response:
            size = response.headers.get("Content-Length", "")
            facts = {name: response.headers.get(name) for name in STATE_HEADERS}
            return {"type": "file", "size": int(size) if size.isdecimal() else None, **facts}

    @contextmanager
    def open_body(self, address: str, start: int, size: int) -> Iterator[Body]:
        """Request the bytes of a file from the offset `start` to its end. `size` is the expected size of the file."""
        with _open_response(address, "GET", self._timeout_seconds, start) as response:
            if response.status == PARTIAL:
                _require_range(response.headers.get("Content-Range", ""), start, size)
            yield Body(start if response.status == PARTIAL else 0, _blocks(response, self._timeout_seconds))


def _blocks(response: HTTPResponse, timeout_seconds: float) -> Iterator[bytes]:
    num_bytes, started_at = 0, time.monotonic()
    while block := response.read1(BLOCK_BYTES):
        yield block
        num_bytes += len(block)
        if num_bytes >= MIN_PROGRESS_BYTES:
            num_bytes, started_at = 0, time.monotonic()
        elif time.monotonic() - started_at > timeout_seconds:
            raise TimeoutError


def _require_range(content_range: str, start: int, size: int) -> None:
    if not content_range.startswith(f"bytes {start}-") or not content_range.endswith((f"/{size}", "/*")):
        raise OSError(
            f"requested the bytes {start} to {size - 1} of the file, but the server sent the range "
            f"{printable(content_range)!r}"
        )


@contextmanager
def _open_response(address: str, method: str, timeout_seconds: float, start: int = 0) -> Iterator[HTTPResponse]:
    guard = _Guard()
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        UnknownHandler(),
        _GuardedHttpHandler(guard),
        _GuardedHttpsHandler(guard),
        _RedirectHandler(),
        HTTPDefaultErrorHandler(),
        HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    try:
        with closing(opener.open(_request(address, method, start), timeout=timeout_seconds)) as response:
            yield response
    except HTTPError as error:
        error.close()
        raise
    except URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else error from None


def _request(address: str, method: str, start: int) -> Request:
    """Return a request. A login in the address becomes a header, because the requested URL must not contain it."""
    parts = urlsplit(address)
    login, _, host = parts.netloc.rpartition("@")
    path, query = (quote(part, safe=UNQUOTED_CHARACTERS) for part in (parts.path, parts.query))
    request = Request(urlunsplit((parts.scheme, host, path, query, "")), method=method)  # noqa: S310 - http and https
    request.add_header("User-Agent", "gristmill")
    request.add_header("Accept-Encoding", "identity")  # sizes and ranges must apply to the file itself
    if login:
        encoded = base64.b64encode(unquote(login).encode()).decode()
        request.add_header("Authorization", f"Basic {encoded}")
    if start:
        request.add_header("Range", f"bytes={start}-")
    return request


class _RedirectHandler(HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - the signature of urllib
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None:
            request.method = req.get_method()  # urllib would replace HEAD with GET
            if (request.type, request.host) != (req.type, req.host):
                request.remove_header("Authorization")
        return request


class _Guard:
    """Guard against connections to private addresses if the first connection of a request went to a public address.

    The address of the open connection is checked, not the host name: a second lookup could give a different address.
    """

    def __init__(self) -> None:
        self._allows_private: bool | None = None

    def check(self, connection: HTTPConnection) -> None:
        """Close the connection and raise InputError if its address is not allowed."""
        is_private = _is_private(connection.sock.getpeername()[0])
        if self._allows_private is None:
            self._allows_private = is_private
        elif is_private and not self._allows_private:
            connection.close()
            host = printable(connection.host)
            raise InputError(
                f"the source redirects to {host!r}, an address of this machine or its local network. If this is "
                "intended, use that address as the source."
            )

    def allow_proxy(self) -> None:
        """Allow a connection through a proxy, because the proxy decides which hosts can be reached.

        Later direct connections are still checked.
        """
        self._allows_private = bool(self._allows_private)


def _is_private(address: str) -> bool:
    """Return True unless the IP address is public.

    `::ffff:127.0.0.1` is as private as 127.0.0.1, and `fe80::1%eth0` is link-local on one interface.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return not (getattr(parsed, "ipv4_mapped", None) or parsed).is_global


class _GuardedConnection(HTTPConnection):
    """Connection that the guard checks as soon as it is open."""

    def __init__(self, *arguments: Any, guard: _Guard, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._guard = guard

    def connect(self) -> None:
        super().connect()
        self._guard.check(self)


class _GuardedSecureConnection(_GuardedConnection, HTTPSConnection):
    """Checked connection over TLS."""


class _GuardedHttpHandler(HTTPHandler):
    def __init__(self, guard: _Guard) -> None:
        super().__init__()
        self._guard = guard

    def http_open(self, req: Request) -> HTTPResponse:
        if req.has_proxy():
            self._guard.allow_proxy()
            return self.do_open(HTTPConnection, req)
        return self.do_open(partial(_GuardedConnection, guard=self._guard), req)


class _GuardedHttpsHandler(HTTPSHandler):
    def __init__(self, guard: _Guard) -> None:
        super().__init__()
        self._guard = guard

    def https_open(self, req: Request) -> HTTPResponse:
        if req.has_proxy() or getattr(req, "_tunnel_host", None):
            self._guard.allow_proxy()
            return self.do_open(HTTPSConnection, req)
        return self.do_open(partial(_GuardedSecureConnection, guard=self._guard), req)
