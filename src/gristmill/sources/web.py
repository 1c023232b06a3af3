"""Files behind http:// and https://: their size and state, and their bytes from a given place on.

This needs no more than the standard library, and a source may be any server in the world. So bytes come in blocks and
never all at once, a server that ignores ranges is read from the beginning, and a redirect may not lead from a public
address to a private one: that would make gristmill read what only this machine can reach.
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
LEAST_BYTES = 64 << 10
"""So many must come within the seconds a read may take, or it is given up."""
PARTIAL = 206
QUOTED_ALREADY = "%/:=&?~#+!$,;'@()*[]"
FACTS = ("ETag", "Last-Modified")


class Body(NamedTuple):
    start: int
    """Offset of the first block in the file: the one asked for, or 0."""
    blocks: Iterator[bytes]


class WebFiles:
    """The part of a file system's interface that `remote` uses, for web servers."""

    async_impl = False

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def info(self, address: str) -> dict[str, Any]:
        """Size and state; asked for with GET where a server refuses HEAD or gives no size, or 0, then."""
        try:
            facts = self._facts(address, "HEAD")
        except HTTPError:
            facts = None
        return facts if facts is not None and facts["size"] else self._facts(address, "GET")

    def _facts(self, address: str, method: str) -> dict[str, Any]:
        with _answer(address, method, self._seconds) as answer:
            size = answer.headers.get("Content-Length", "")
            facts = {name: answer.headers.get(name) for name in FACTS}
            return {"type": "file", "size": int(size) if size.isdecimal() else None, **facts}

    @contextmanager
    def body(self, address: str, start: int, size: int) -> Iterator[Body]:
        with _answer(address, "GET", self._seconds, start) as answer:
            if answer.status == PARTIAL:
                _refuse_other_range(answer.headers.get("Content-Range", ""), start, size)
            yield Body(start if answer.status == PARTIAL else 0, _blocks(answer, self._seconds))


def _blocks(answer: HTTPResponse, seconds: float) -> Iterator[bytes]:
    num_bytes, began = 0, time.monotonic()
    while block := answer.read1(BLOCK_BYTES):
        yield block
        num_bytes += len(block)
        if num_bytes >= LEAST_BYTES:
            num_bytes, began = 0, time.monotonic()
        elif time.monotonic() - began > seconds:
            raise TimeoutError


def _refuse_other_range(said: str, start: int, size: int) -> None:
    if not said.startswith(f"bytes {start}-") or not said.endswith((f"/{size}", "/*")):
        raise OSError(f"bytes from {start} of {size} were asked for, and the server sent {printable(said)!r}")


@contextmanager
def _answer(address: str, method: str, seconds: float, start: int = 0) -> Iterator[HTTPResponse]:
    guard = _Guard()
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        UnknownHandler(),
        _Http(guard),
        _Https(guard),
        _Redirects(),
        HTTPDefaultErrorHandler(),
        HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    try:
        with closing(opener.open(_request(address, method, start), timeout=seconds)) as answer:
            yield answer
    except HTTPError as error:
        error.close()
        raise
    except URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else error from None


def _request(address: str, method: str, start: int) -> Request:
    """A login in the address becomes a header: it is no part of what a server is asked for."""
    parts = urlsplit(address)
    login, _, host = parts.netloc.rpartition("@")
    path, query = (quote(part, safe=QUOTED_ALREADY) for part in (parts.path, parts.query))
    request = Request(urlunsplit((parts.scheme, host, path, query, "")), method=method)  # noqa: S310 - http and https
    request.add_header("User-Agent", "gristmill")
    request.add_header("Accept-Encoding", "identity")  # sizes and ranges are those of the file itself
    if login:
        packed = base64.b64encode(unquote(login).encode()).decode()
        request.add_header("Authorization", f"Basic {packed}")
    if start:
        request.add_header("Range", f"bytes={start}-")
    return request


class _Redirects(HTTPRedirectHandler):
    def redirect_request(  # noqa: PLR0917 - urllib's
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None:
            request.method = req.get_method()  # urllib would ask for the body where HEAD was meant
            if (request.type, request.host) != (req.type, req.host):
                request.remove_header("Authorization")
        return request


class _Guard:
    """Compares each connection of a request with the first: from a public server none may go to a private one.

    It looks at the address that was connected to, not at what a name stands for: a second look-up might differ.
    """

    def __init__(self) -> None:
        self._may_be_private: bool | None = None

    def admit(self, connection: HTTPConnection) -> None:
        is_private = _is_private(connection.sock.getpeername()[0])
        if self._may_be_private is None:
            self._may_be_private = is_private
        elif is_private and not self._may_be_private:
            connection.close()
            host = printable(connection.host)
            raise InputError(
                f"the source redirects to {host!r}, an address of this machine or its network. If that is meant, name "
                "that address as the source."
            )

    def connected_by_proxy(self) -> None:
        """Skip the check: the proxy decides which hosts it reaches. Direct connections are still checked."""
        self._may_be_private = bool(self._may_be_private)


def _is_private(address: str) -> bool:
    """`::ffff:127.0.0.1` is as private as 127.0.0.1, and `fe80::1%eth0` is link-local on one interface."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return not (getattr(parsed, "ipv4_mapped", None) or parsed).is_global


class _Connection(HTTPConnection):
    def __init__(self, *arguments: Any, guard: _Guard, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._guard = guard

    def connect(self) -> None:
        super().connect()
        self._guard.admit(self)


class _SecureConnection(_Connection, HTTPSConnection):
    """The same over TLS."""


class _Http(HTTPHandler):
    def __init__(self, guard: _Guard) -> None:
        super().__init__()
        self._guard = guard

    def http_open(self, req: Request) -> HTTPResponse:
        if req.has_proxy():
            self._guard.connected_by_proxy()
            return self.do_open(HTTPConnection, req)
        return self.do_open(partial(_Connection, guard=self._guard), req)


class _Https(HTTPSHandler):
    def __init__(self, guard: _Guard) -> None:
        super().__init__()
        self._guard = guard

    def https_open(self, req: Request) -> HTTPResponse:
        if req.has_proxy() or getattr(req, "_tunnel_host", None):
            self._guard.connected_by_proxy()
            return self.do_open(HTTPSConnection, req)
        return self.do_open(partial(_SecureConnection, guard=self._guard), req)
