"""What a request asks for, within bounds: anything else is refused in a line."""

from collections.abc import Collection
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
