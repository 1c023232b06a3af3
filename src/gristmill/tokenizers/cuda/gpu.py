"""Define the GPU operations that the engine uses: allocation, copies, kernel launches and synchronization.

Work is queued in streams and runs asynchronously. One stream copies text to the GPU, one runs kernels, and one copies
ids back. An event marks a point in a stream. Another stream or the caller can wait for the event.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
DType = np.dtype[Any]
COPY_IN, COMPUTE, COPY_OUT = 0, 1, 2
NUM_STREAMS = 3


class Launch(NamedTuple):
    """A kernel with the size of its grid."""

    kernel: str
    num_blocks: int
    num_threads: int


Stage = Sequence[Sequence[Launch]]
"""Branches that may run concurrently. The launches within a branch run one after another."""


class Gpu(Protocol):
    """Operations of a GPU. Tests implement this protocol on the CPU."""

    name: str
    num_processors: int

    def allocate(self, num_bytes: int) -> int:
        """Return the address of new zeroed GPU memory. Raise MemoryError if too little memory is free."""
        ...

    def free(self) -> None:
        """Free all memory that `allocate` returned."""
        ...

    def in_use(self) -> AbstractContextManager[Any]:
        """Return a context in which this GPU is the current GPU of the calling thread."""
        ...

    def pinned(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """Return new page-locked host memory, which the GPU can access directly. Raise MemoryError on failure."""
        ...

    def is_pinned(self, array: Array) -> bool: ...

    def pin(self, array: Array) -> None:
        """Page-lock existing host memory until `unpin`."""
        ...

    def unpin(self, array: Array) -> None: ...

    def array(self, num_items: int, dtype: DType) -> Any:
        """Return a new uninitialized array in GPU memory. The stream COPY_OUT may write to the array."""
        ...

    def array_of(self, array: Array) -> Any:
        """Return a copy of a host array in GPU memory."""
        ...

    def address_of(self, array: Any) -> int:
        """Return the address of an array in GPU memory."""
        ...

    def copy_in(self, address: int, array: Array, stream: int) -> None: ...

    def copy_out(self, array: Array, address: int, stream: int) -> None: ...

    def copy_inside(self, to_address: int, from_address: int, num_bytes: int, stream: int) -> None: ...

    def zero(self, address: int, num_bytes: int, stream: int) -> None: ...

    def launch(self, kernel: str, num_blocks: int, num_threads: int, engine: int, chunk: int) -> None: ...

    def launch_all(self, stages: Sequence[Stage], engine: int, chunk: int) -> None:
        """Queue all stages, one after another. Calls with the same engine and chunk must pass the same stages."""
        ...

    def record(self, stream: int) -> Any:
        """Return an event that occurs when all work queued in the stream so far is complete."""
        ...

    def hold(self, stream: int, event: Any) -> None:
        """Make the stream wait for an event before it continues."""
        ...

    def wait(self, event: Any) -> None:
        """Block the caller until an event has occurred."""
        ...

    def mark(self, stream: int) -> Any:
        """Return an event like `record`, but with a timestamp."""
        ...

    def seconds_between(self, first: Any, last: Any) -> float:
        """Return the seconds between two events that `mark` returned."""
        ...

    def copy_seconds(self, num_bytes_in: int, num_bytes_out: int) -> dict[str, float]:
        """Measure the duration of copies to the GPU (`in`), from the GPU (`out`), and in both directions (`both`)."""
        ...
