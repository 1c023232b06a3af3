"""Ctrl-C in the middle of loading a C extension would crash the interpreter: it waits until that is done."""

import importlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_held(module: str) -> Iterator[None]:
    """While this one is imported, and for what stands in the block."""
    held = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        importlib.import_module(module)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)
