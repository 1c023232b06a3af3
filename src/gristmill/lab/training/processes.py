"""Several processes in one training (torchrun): what they decide, they decide together, and the first one writes.

By itself a process decides at once.
"""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

import torch
import torch.distributed
from accelerate import PartialState

from gristmill.dataset.torch_split import place_of


class Together:
    def __init__(self, device: torch.device) -> None:
        """Connects them, before anything is written."""
        self.rank, self.world_size = place_of()
        self.device = device
        if self.world_size > 1:
            self.device = torch.device(PartialState(cpu=device.type == "cpu").device)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        if self.world_size > 1:
            torch.distributed.barrier()

    def any(self, is_so: bool) -> bool:
        """Whether it is so for one of them."""
        return self._summed(float(is_so)) > 0

    def of_first(self, is_so: bool) -> bool:
        """What the first one says: rounding may let others see it another way."""
        return self._summed(float(is_so and self.is_first)) > 0

    def mean(self, value: float) -> float:
        return self._summed(value) / self.world_size

    def mean_count(self, count: int) -> torch.Tensor:
        """Return the mean of all counts, whose sum counts as at least 1. It stays on the device, without a sync."""
        found = torch.tensor(float(count), device=self.device)
        if self.world_size > 1:
            torch.distributed.all_reduce(found)
        return found.clamp(min=1) / self.world_size

    def _summed(self, value: float) -> float:
        if self.world_size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return float(total)


def is_first_process() -> bool:
    return place_of().rank == 0


def local_rank() -> int:
    """Which of this machine's GPUs is this process's."""
    return int(os.environ.get("LOCAL_RANK", "0"))


# Ctrl-C and a scheduler's polite end: the step under way is finished and kept. A second one ends at once.
# A signal that was ignored before stays ignored, as SIGINT is in the background jobs of a script.


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
