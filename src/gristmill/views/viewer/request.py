"""A request: what it may ask for, within bounds, and who may ask.

The browser of the one who started it may ask, and no page of anybody else's. The address alone keeps nobody out:
pages on the web can have a browser ask 127.0.0.1, under a name of theirs if they like (DNS rebinding), and other
users of the machine can ask as well. So the name must be ours, the browser must say that no other site asks, and a
key must be known, which is in the first address and then in a cookie.
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
CHOICES_LISTED = 10
LONGEST_NUMBER = 15
"""Digits: what JavaScript keeps exactly, and no dataset has as many rows."""


class RefusedError(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def bad_request(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, message)


def not_found(message: str) -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, message)


class Query:
    """The fields of an address. An empty one is none, as a form sends it."""

    def __init__(self, query: str) -> None:
        try:
            self._fields = dict(parse_qsl(query, max_num_fields=MAX_FIELDS, errors="replace"))
        except ValueError:
            raise bad_request(f"an address has at most {MAX_FIELDS} fields.") from None
        for name, text in self._fields.items():
            if len(text) > MAX_TEXT:
                raise bad_request(f"{_shown(name)} has more than {MAX_TEXT} characters.")

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
            there = f" There are {', '.join(choices)}." if len(choices) <= CHOICES_LISTED else ""
            raise bad_request(f"there is no {name} {_shown(found)}.{there}")
        return found

    def number(self, name: str, default: int | None = None, most: int | None = None) -> int:
        found = self.text(name)
        if found is None and default is not None:
            return default
        number = whole_number(found or "")
        if number is None:
            raise bad_request(f"{name} is a whole number, not {_shown(found or '')}.")
        return number if most is None else min(number, most)


def whole_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER else None


def _shown(text: str) -> str:
    return repr(printable(text[:40]))


HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?", re.IGNORECASE)
"""Any port: people forward them."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Of every answer."""
OWN_SITE = frozenset({"same-origin", "none"})


class Guard:
    def __init__(self, key: str) -> None:
        self._key = key.encode()
        # Cookies are shared by all ports: by its name, each viewer finds its own.
        self._name = f"gristmill-{hashlib.sha256(self._key).hexdigest()[:12]}"
        self._tickets: set[str] = set()

    @property
    def cookie(self) -> str:
        return f"{self._name}={self._key.decode()}; Path=/; HttpOnly; SameSite=Lax"

    def ticket(self) -> str:
        """Lets in once: what a browser is started with, all users can read in the list of processes."""
        ticket = secrets.token_urlsafe()
        self._tickets.add(ticket)
        return ticket

    def lets_in(self, text: str) -> bool:
        if text in self._tickets:
            self._tickets.remove(text)
            return True
        return self._is_key(text)

    def _is_key(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._key)

    def has_cookie(self, headers: Message) -> bool:
        # By hand: http.cookies gives up at the first that it does not like, and other pages here set what they will.
        pairs = (pair.partition("=") for sent in headers.get_all("Cookie", []) for pair in sent.split(";"))
        return any(name.strip() == self._name and self._is_key(value.strip()) for name, _, value in pairs)


def require_own(headers: Message) -> None:
    """Asked under our own name, and by no other site; to open a page from a link elsewhere is fine."""
    hosts = headers.get_all("Host", [])
    if len(hosts) != 1 or not HOST.fullmatch(hosts[0].strip()):
        raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, "this answers to 127.0.0.1 and localhost only.")
    is_page = (headers.get("Sec-Fetch-Mode"), headers.get("Sec-Fetch-Dest")) == ("navigate", "document")
    if headers.get("Sec-Fetch-Site", "none") not in OWN_SITE and not is_page:
        raise RefusedError(HTTPStatus.FORBIDDEN, "another site asks for this.")
