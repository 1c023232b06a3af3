"""Validation of requests: the fields of a query string, and the permission to send a request.

Only the browser of the user who started the viewer may send requests. Listening on 127.0.0.1 is not enough. A web page
can make a browser send requests to 127.0.0.1, even under its own host name (DNS rebinding), and other users of the
machine can connect too. So the host name must be 127.0.0.1 or localhost, and a request that the browser reports as
coming from another site is refused, unless it is a link to a page. Also, the request must have a key: the first request
in its URL, later requests in a cookie.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from email.message import Message
from http import HTTPStatus
from urllib.parse import parse_qsl

from gristmill.core.names import printable

MAX_FIELDS = 20
MAX_TEXT = 1000
MAX_LISTED_CHOICES = 10
MAX_DIGITS = 15
"""JavaScript represents numbers with up to 15 digits exactly, and no dataset has that many rows."""


class RefusedError(Exception):
    """Raised to answer a request with an error status."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def bad_request(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, message)


def not_found(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, message)


class Query:
    """The fields of a query string. An empty field, as sent by a form, is treated as missing."""

    def __init__(self, query: str) -> None:
        try:
            self._fields = dict(parse_qsl(query, max_num_fields=MAX_FIELDS, errors="replace"))
        except ValueError:
            raise bad_request(f"the URL has more than {MAX_FIELDS} fields.") from None
        for name, text in self._fields.items():
            if len(text) > MAX_TEXT:
                raise bad_request(f"{_quoted(name)} has more than {MAX_TEXT} characters.")

    def text(self, name: str) -> str | None:
        return self._fields.get(name)

    def required(self, name: str) -> str:
        found = self.text(name)
        if found is None:
            raise bad_request(f"{name} is missing.")
        return found

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        found = self.text(name)
        if found is not None and found not in choices:
            hint = f" Choose from {', '.join(choices)}." if len(choices) <= MAX_LISTED_CHOICES else ""
            raise bad_request(f"unknown {name} {_quoted(found)}.{hint}")
        return found

    def number(self, name: str, default: int | None = None, maximum: int | None = None) -> int:
        """Return a whole number. A number above `maximum` becomes `maximum`."""
        found = self.text(name)
        if found is None and default is not None:
            return default
        number = parse_number(found or "")
        if number is None:
            raise bad_request(
                f"{name} must be a whole number of up to {MAX_DIGITS} digits, got {_quoted(found or '')}."
            )
        return number if maximum is None else min(number, maximum)


def parse_number(text: str) -> int | None:
    """Return the number that a text of up to MAX_DIGITS decimal digits represents, or None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def _quoted(text: str) -> str:
    return repr(printable(text[:40]))


HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?", re.IGNORECASE)
"""Allowed host names. Any port is allowed, because ports may be forwarded."""
RESPONSE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response."""
ALLOWED_SITES = frozenset({"same-origin", "none"})


class Guard:
    """Checks the key in the URL or in the cookie of a request."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        # Browsers share cookies between ports, so each viewer has its own cookie name.
        self._name = f"gristmill-{hashlib.sha256(self._key).hexdigest()[:12]}"
        self._tickets: set[str] = set()

    @property
    def cookie(self) -> str:
        return f"{self._name}={self._key.decode()}; Path=/; HttpOnly; SameSite=Lax"

    def issue_ticket(self) -> str:
        """Return a one-time key for the URL with which the browser is started.

        Other users of the machine can read this URL in the list of processes.
        """
        ticket = secrets.token_urlsafe()
        self._tickets.add(ticket)
        return ticket

    def accepts(self, text: str) -> bool:
        """Return True for the key or a ticket. An accepted ticket becomes invalid."""
        if text in self._tickets:
            self._tickets.remove(text)
            return True
        return self._is_key(text)

    def _is_key(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._key)

    def has_cookie(self, headers: Message) -> bool:
        # http.cookies stops at the first malformed cookie, and other local pages may set malformed cookies.
        pairs = (pair.partition("=") for header in headers.get_all("Cookie", []) for pair in header.split(";"))
        return any(name.strip() == self._name and self._is_key(value.strip()) for name, _, value in pairs)


def require_same_origin(headers: Message) -> None:
    """Refuse requests for other host names and from other sites. Links from other sites to a page are allowed."""
    hosts = headers.get_all("Host", [])
    if len(hosts) != 1 or not HOST.fullmatch(hosts[0].strip()):
        raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, "the host name must be 127.0.0.1 or localhost.")
    is_page = (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == ("navigate", "document")
    if headers.get("Sec-Fetch-Site", "none") not in ALLOWED_SITES and not is_page:
        raise RefusedError(HTTPStatus.FORBIDDEN, "requests from other sites are not allowed.")
