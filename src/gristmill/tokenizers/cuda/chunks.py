"""Documents one behind the other -> chunks that the card takes at once.

A chunk holds whole documents. One that is larger than a chunk is cut into pieces where no word can cross: behind a
line feed between two visible ASCII characters, whatever the pattern. ("a⏎b" is a|⏎|b to GPT-2's, and "}⏎b" is }⏎|b to
cl100k's; the piece on the left ends the same way as the whole goes on. And NFC joins no ASCII to what is before it.)
Where there is no such place, the CPU does the rest of the document.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.cuda.card import Card
from gristmill.tokenizers.cuda.engine import NUM_SLOTS, Text

Offsets = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
LINE_FEED = 0x0A


class Pieces(NamedTuple):
    """All of the text: what the card does, and what it cannot."""

    offsets: Offsets
    """Where each piece begins, and where the last ends."""
    first_pieces: Offsets
    """Of each document, and one behind the last."""
    too_long: npt.NDArray[np.bool_]
    """For each piece: longer than a chunk."""


class Span(NamedTuple):
    """Pieces that go to the card together."""

    first: int
    end: int


def pieces_of(text: Bytes, offsets: Offsets, chunk_bytes: int) -> Pieces:
    sizes = offsets[1:] - offsets[:-1]
    if sizes.max(initial=0) <= chunk_bytes:  # nothing waits longer than for this: the card has nothing to do yet
        return Pieces(offsets, np.arange(len(offsets)), np.zeros(len(sizes), bool))
    large = np.flatnonzero(sizes > chunk_bytes)
    cuts = [np.array(list(_cuts(text, int(offsets[at]), int(offsets[at + 1]), chunk_bytes)), np.int64) for at in large]
    num_cuts = np.zeros(len(offsets), np.int64)
    num_cuts[large + 1] = [len(places) for places in cuts]
    edges = np.insert(offsets, np.repeat(large + 1, num_cuts[large + 1]), np.concatenate(cuts))
    return Pieces(edges, np.arange(len(offsets)) + np.cumsum(num_cuts), np.diff(edges) > chunk_bytes)


def _cuts(text: Bytes, begin: int, end: int, chunk_bytes: int) -> Iterator[int]:
    while end - begin > chunk_bytes:
        place = _last_safe_cut(text[begin : begin + chunk_bytes + 1])
        if place is None:
            return
        begin += place
        yield begin


def _last_safe_cut(text: Bytes) -> int | None:
    line_feeds = np.flatnonzero(text[1:-1] == LINE_FEED) + 1
    safe = line_feeds[_is_visible(text[line_feeds - 1]) & _is_visible(text[line_feeds + 1])]
    return int(safe[-1]) + 1 if len(safe) else None


def _is_visible(characters: Bytes) -> npt.NDArray[np.bool_]:
    return (characters > ord(" ")) & (characters < 0x7F)  # noqa: PLR2004 - the last visible one in ASCII


def spans_of(pieces: Pieces, chunk_bytes: int, max_documents: int) -> Iterator[Span]:
    """As many neighbours as fit, in order. Pieces that are too long are left out."""
    offsets, num_pieces = pieces.offsets, len(pieces.offsets) - 1
    stops = [*np.flatnonzero(pieces.too_long).tolist(), num_pieces]
    first = 0
    for stop in stops:
        while first < stop:
            fitting = int(np.searchsorted(offsets, offsets[first] + chunk_bytes, "right")) - 1
            end = min(stop, fitting, first + max_documents)
            yield Span(first, end)
            first = end
        first = stop + 1


# Text that lies anywhere in memory -> pinned memory, ahead of the card.

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
