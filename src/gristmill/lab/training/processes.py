"""Several processes in one training run (torchrun). They decide together, and the first process writes the files.

This module also handles the signals that stop a training run.
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

from gristmill.dataset.torch_split import process_rank


class ProcessGroup:
    """The processes of a training run, seen from one of them. A single process does not communicate."""

    def __init__(self, device: torch.device) -> None:
        """Connect the processes."""
        self.rank, self.world_size = process_rank()
        self.device = device
        if self.world_size > 1:
            self.device = torch.device(PartialState(cpu=device.type == "cpu").device)

    @property
    def is_first(self) -> bool:
        """True in the process that writes files and logs."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes have called this method."""
        if self.world_size > 1:
            torch.distributed.barrier()

    def any(self, value: bool) -> bool:
        """Return True if the value is true in any process."""
        return self._sum_over_processes(float(value)) > 0

    def first_decides(self, value: bool) -> bool:
        """Return the value of the first process. Rounding may give the other processes a different value."""
        return self._sum_over_processes(float(value and self.is_first)) > 0

    def mean(self, value: float) -> float:
        return self._sum_over_processes(value) / self.world_size

    def mean_count(self, count: int) -> torch.Tensor:
        """Return the mean count over the processes, without waiting for the device.

        If all counts are 0, the sum is set to 1, because callers divide by the mean.
        """
        total = torch.tensor(float(count), device=self.device)
        if self.world_size > 1:
            torch.distributed.all_reduce(total)
        return total.clamp(min=1) / self.world_size

    def _sum_over_processes(self, value: float) -> float:
        if self.world_size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return float(total)


def is_first_process() -> bool:
    return process_rank().rank == 0


def local_rank() -> int:
    """Return the index, from 0, of the GPU on this machine that this process uses."""
    return int(os.environ.get("LOCAL_RANK", "0"))


# After Ctrl-C or a scheduler's SIGTERM, the current step is finished and saved. After a second signal, the run stops at
# once. A signal that is already ignored remains ignored, such as SIGINT in the background jobs of a script.


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """Context manager that catches the first stop signal, so that the training run can save its current step."""

    def __init__(self, log: Callable[[str], None] = lambda _: None) -> None:
        self._log, self.is_requested = log, False
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._earlier = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def _handle(self, _: int, __: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
        self._log("stopping after this step. Press Ctrl-C again to stop at once.")
