"""What the engine asks of a card: memory, copies, launches, and the order in which they happen.

Work is put into streams and goes on by itself. One stream brings text in, one computes, one takes ids out; an event
marks how far a stream has come, for another stream or for us to wait for.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Kind = np.dtype[Any]
COPY_IN, COMPUTE, COPY_OUT = 0, 1, 2
NUM_STREAMS = 3


class Launch(NamedTuple):
    kernel: str
    num_blocks: int
    num_threads: int


Stage = Sequence[Sequence[Launch]]
"""Branches that go on beside each other, each with its launches in turn."""


class Card(Protocol):
    name: str
    num_processors: int

    def allocate(self, num_bytes: int) -> int:
        """The address of so many zeros. MemoryError if there is no room."""
        ...

    def free(self) -> None:
        """All that was allocated."""
        ...

    def in_use(self) -> AbstractContextManager[Any]:
        """What a thread does inside is done on this card: each thread has one that it uses otherwise."""
        ...

    def pinned(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """Memory of the machine that the card reads and writes by itself. MemoryError if there is no room."""
        ...

    def is_pinned(self, array: Array) -> bool: ...

    def pin(self, array: Array) -> None:
        """Memory that is there already, until `unpin`."""
        ...

    def unpin(self, array: Array) -> None: ...

    def array(self, num_items: int, kind: Kind) -> Any:
        """In the card's memory, for whoever calls; COPY_OUT may write it."""
        ...

    def array_of(self, array: Array) -> Any:
        """A copy in the card's memory."""
        ...

    def address_of(self, array: Any) -> int:
        """Of one that lies there."""
        ...

    def copy_in(self, address: int, array: Array, stream: int) -> None: ...

    def copy_out(self, array: Array, address: int, stream: int) -> None: ...

    def copy_inside(self, to_address: int, from_address: int, num_bytes: int, stream: int) -> None: ...

    def zero(self, address: int, num_bytes: int, stream: int) -> None: ...

    def launch(self, kernel: str, num_blocks: int, num_threads: int, engine: int, chunk: int) -> None: ...

    def launch_all(self, stages: Sequence[Stage], engine: int, chunk: int) -> None:
        """One after the other; for the same engine and chunk always the same."""
        ...

    def record(self, stream: int) -> Any:
        """An event: all that the stream has been given up to now."""
        ...

    def hold(self, stream: int, event: Any) -> None:
        """The stream goes on only after the event."""
        ...

    def wait(self, event: Any) -> None: ...

    def mark(self, stream: int) -> Any:
        """An event that knows when it happened."""
        ...

    def seconds_between(self, first: Any, last: Any) -> float: ...

    def wire_seconds(self, num_bytes_in: int, num_bytes_out: int) -> dict[str, float]:
        """What the copies alone take: in, out, and both at once."""
        ...
