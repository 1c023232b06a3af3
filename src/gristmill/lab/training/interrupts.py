"""Ctrl-C and a scheduler's polite end: the step under way is finished and kept. A second one ends at once.

A signal that was ignored before stays ignored, as SIGINT is in the background jobs of a script.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    def __init__(self, tell: Callable[[str], None] = lambda _: None) -> None:
        self._tell, self.is_wanted = tell, False
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._earlier = {number: signal.signal(number, self._ask) for number in heeded}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def _ask(self, _: int, __: FrameType | None) -> None:
        if self.is_wanted:
            raise KeyboardInterrupt
        self.is_wanted = True
        self._tell("stopping after this step; once more to stop at once")
