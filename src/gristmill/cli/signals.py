"""Delay Ctrl-C during imports: an interrupt while a C extension loads would crash the interpreter."""

import importlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def delay_signals(module: str) -> Iterator[None]:
    """Hold SIGINT and SIGTERM while `module` is imported and the block runs."""
    held = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        importlib.import_module(module)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)
