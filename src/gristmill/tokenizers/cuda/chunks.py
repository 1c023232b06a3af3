"""Group documents into chunks that the GPU processes at once, and copy the text of each chunk into pinned memory.

A chunk holds complete documents. A document larger than a chunk is cut into pieces after a line feed between two
visible ASCII characters. In every supported pattern, a word ends with such a line feed: GPT-2's pattern splits "a⏎b"
into a|⏎|b, and cl100k's pattern splits "}⏎b" into }⏎|b. The words before the cut are therefore the same as in the
complete text. NFC does not compose characters across the cut, because the character after the cut is ASCII. If there is
no position for a cut, the CPU encodes the rest of the document.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.tokenizers.cuda.engine import NUM_SLOTS, Text
from gristmill.tokenizers.cuda.gpu import Gpu

Offsets = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
LINE_FEED = 0x0A


class Pieces(NamedTuple):
    """Documents, and parts of large documents. Together, the pieces cover the complete text."""

    offsets: Offsets
    """Start of each piece, followed by the end of the last piece."""
    first_pieces: Offsets
    """Index of each document's first piece, followed by the number of pieces."""
    too_long: npt.NDArray[np.bool_]
    """True for each piece that is longer than a chunk. The CPU encodes these pieces."""


class PieceRange(NamedTuple):
    """Range of pieces that form one chunk."""

    first: int
    end: int


def cut_into_pieces(text: Bytes, offsets: Offsets, chunk_bytes: int) -> Pieces:
    """Cut documents that are larger than a chunk. Document n is `text[offsets[n] : offsets[n + 1]]`."""
    sizes = offsets[1:] - offsets[:-1]
    if sizes.max(initial=0) <= chunk_bytes:  # a fast path, because the GPU is idle until this function returns
        return Pieces(offsets, np.arange(len(offsets)), np.zeros(len(sizes), bool))
    large = np.flatnonzero(sizes > chunk_bytes)
    cuts = [
        np.array(list(_cut_positions(text, int(offsets[at]), int(offsets[at + 1]), chunk_bytes)), np.int64)
        for at in large
    ]
    num_cuts = np.zeros(len(offsets), np.int64)
    num_cuts[large + 1] = [len(positions) for positions in cuts]
    edges = np.insert(offsets, np.repeat(large + 1, num_cuts[large + 1]), np.concatenate(cuts))
    return Pieces(edges, np.arange(len(offsets)) + np.cumsum(num_cuts), np.diff(edges) > chunk_bytes)


def _cut_positions(text: Bytes, begin: int, end: int, chunk_bytes: int) -> Iterator[int]:
    while end - begin > chunk_bytes:
        position = _last_safe_cut(text[begin : begin + chunk_bytes + 1])
        if position is None:
            return
        begin += position
        yield begin


def _last_safe_cut(text: Bytes) -> int | None:
    line_feeds = np.flatnonzero(text[1:-1] == LINE_FEED) + 1
    safe = line_feeds[_is_visible(text[line_feeds - 1]) & _is_visible(text[line_feeds + 1])]
    return int(safe[-1]) + 1 if len(safe) else None


def _is_visible(characters: Bytes) -> npt.NDArray[np.bool_]:
    return (characters > ord(" ")) & (characters < 0x7F)  # noqa: PLR2004 - DEL, which follows the visible characters


def group_into_chunks(pieces: Pieces, chunk_bytes: int, max_documents: int) -> Iterator[PieceRange]:
    """Put as many consecutive pieces as possible into each chunk. Leave out pieces that are too long."""
    offsets, num_pieces = pieces.offsets, len(pieces.offsets) - 1
    stops = [*np.flatnonzero(pieces.too_long).tolist(), num_pieces]
    first = 0
    for stop in stops:
        while first < stop:
            fitting = int(np.searchsorted(offsets, offsets[first] + chunk_bytes, "right")) - 1
            end = min(stop, fitting, first + max_documents)
            yield PieceRange(first, end)
            first = end
        first = stop + 1


NUM_THREADS = 4
NUM_AHEAD = 4
"""Number of buffers that are filled while the GPU still reads earlier buffers."""

Fill = Callable[[npt.NDArray[np.uint8], PieceRange], Text]
"""Function that copies the text of some pieces into a buffer, and returns the text in the buffer."""


class StagingBuffers:
    """Pinned buffers of one chunk each, used in turn.

    When the engine requests the next text, it has finished reading all earlier texts except the last NUM_SLOTS - 1.
    """

    def __init__(self, gpu: Gpu, chunk_bytes: int) -> None:
        self._buffers = [gpu.pinned(chunk_bytes) for _ in range(NUM_SLOTS + NUM_AHEAD)]

    def fill_each(self, spans: Iterable[PieceRange], fill: Fill) -> Iterator[Text]:
        """Fill one buffer for each request, while the GPU processes the texts of earlier requests."""
        for number, span in enumerate(spans):
            yield fill(self._buffers[number % len(self._buffers)], span)

    def fill_ahead(self, spans: Iterable[PieceRange], fill: Fill) -> Iterator[Text]:
        """Fill buffers before they are requested, with a few threads.

        Used for concatenated documents. One copy fills a buffer, and does not hold the interpreter lock.
        """
        in_flight: deque[Future[Text]] = deque()
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            for number, span in enumerate(spans):
                in_flight.append(threads.submit(fill, self._buffers[number % len(self._buffers)], span))
                if len(in_flight) == NUM_AHEAD:
                    yield in_flight.popleft().result()
            while in_flight:
                yield in_flight.popleft().result()


class JoinedDocuments(NamedTuple):
    """Concatenated documents in memory that is not pinned."""

    text: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def fill(self, buffer: npt.NDArray[np.uint8], span: PieceRange) -> Text:
        edges = self.offsets[span.first : span.end + 1]
        num_bytes = int(edges[-1] - edges[0])
        buffer[:num_bytes] = self.text[edges[0] : edges[-1]]
        return Text(buffer[:num_bytes], edges[:-1] - edges[0])


class DocumentList(NamedTuple):
    """Separate documents, none larger than a chunk."""

    texts: list[bytes]
    offsets: npt.NDArray[np.int64]

    def fill(self, buffer: npt.NDArray[np.uint8], span: PieceRange) -> Text:
        # One thread is enough: several threads would compete for the interpreter lock at each document.
        starts, memory, at = self.offsets[span.first : span.end] - self.offsets[span.first], buffer.data, 0
        for text in self.texts[span.first : span.end]:
            end = at + len(text)
            memory[at:end] = text
            at = end
        return Text(buffer[:at], starts)
