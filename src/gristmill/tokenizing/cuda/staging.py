"""Text that lies anywhere in memory -> pinned memory, ahead of the card.

From memory that is not pinned, the driver would copy it itself before it goes over the wire, and make us wait.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizing.cuda.card import Card
from gristmill.tokenizing.cuda.chunking import Span
from gristmill.tokenizing.cuda.engine import NUM_SLOTS, Text

NUM_THREADS = 4
NUM_AHEAD = 4
"""Buffers that are being filled, beside those that the card has not read yet."""

Fill = Callable[[npt.NDArray[np.uint8], Span], Text]


class Staging:
    """Buffers of one chunk each, used in turn.

    When the engine asks for the next, it has read all but the last NUM_SLOTS - 1.
    """

    def __init__(self, card: Card, chunk_bytes: int) -> None:
        self._buffers = [card.pinned(chunk_bytes) for _ in range(NUM_SLOTS + NUM_AHEAD)]

    def filled(self, spans: Iterable[Span], fill: Fill) -> Iterator[Text]:
        """Each when it is asked for, while the card is at those before it."""
        for number, span in enumerate(spans):
            yield fill(self._buffers[number % len(self._buffers)], span)

    def filled_ahead(self, spans: Iterable[Span], fill: Fill) -> Iterator[Text]:
        """By a few threads: for what is copied in large pieces."""
        under_way: deque[Future[Text]] = deque()
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            for number, span in enumerate(spans):
                under_way.append(threads.submit(fill, self._buffers[number % len(self._buffers)], span))
                if len(under_way) == NUM_AHEAD:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()


class Joined(NamedTuple):
    """Documents that lie one behind the other, but not in pinned memory."""

    text: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def fill(self, buffer: npt.NDArray[np.uint8], span: Span) -> Text:
        edges = self.offsets[span.first : span.end + 1]
        num_bytes = int(edges[-1] - edges[0])
        buffer[:num_bytes] = self.text[edges[0] : edges[-1]]
        return Text(buffer[:num_bytes], edges[:-1] - edges[0])


class Listed(NamedTuple):
    """Documents by themselves, of which none is larger than a chunk."""

    texts: list[bytes]
    offsets: npt.NDArray[np.int64]

    def fill(self, buffer: npt.NDArray[np.uint8], span: Span) -> Text:
        # By one thread: several would hand the interpreter to and fro for each document.
        starts, memory, at = self.offsets[span.first : span.end] - self.offsets[span.first], buffer.data, 0
        for text in self.texts[span.first : span.end]:
            end = at + len(text)
            memory[at:end] = text
            at = end
        return Text(buffer[:at], starts)
