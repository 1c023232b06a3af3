"""Who may ask: the browser of the one who started it, and no page of anybody else's.

The address alone keeps nobody out: pages on the web can have a browser ask 127.0.0.1, under a name of theirs if they
like (DNS rebinding), and other users of the machine can ask as well. So the name must be ours, the browser must say
that no other site asks, and a key must be known, which is in the first address and then in a cookie.
"""

import hashlib
import hmac
import re
import secrets
from email.message import Message
from http import HTTPStatus

from gristmill.views.viewer.query import RefusedError

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
