"""Requests come first: what is done in the background waits while one is answered."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS_TO_WAIT = 0.05
"""At most, each time: someone who searches without a pause is not to keep the index from being made."""


class Precedence:
    def __init__(self) -> None:
        self._num_requests = 0
        self._lock = threading.Lock()
        self._is_idle = threading.Event()
        self._is_idle.set()

    @contextmanager
    def request(self) -> Iterator[None]:
        with self._lock:
            self._num_requests += 1
            self._is_idle.clear()
        try:
            yield
        finally:
            with self._lock:
                self._num_requests -= 1
                if not self._num_requests:
                    self._is_idle.set()

    def give_way(self) -> None:
        """Called often by what can wait."""
        self._is_idle.wait(SECONDS_TO_WAIT)
