"""Several processes in one training (torchrun): what they decide, they decide together, and the first one writes.

By itself a process decides at once.
"""

import os

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
