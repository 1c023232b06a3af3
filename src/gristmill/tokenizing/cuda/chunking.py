"""Documents one behind the other -> chunks that the card takes at once.

A chunk holds whole documents. One that is larger than a chunk is cut into pieces where no word can cross: behind a
line feed between two visible ASCII characters, whatever the pattern. ("a⏎b" is a|⏎|b to GPT-2's, and "}⏎b" is }⏎|b to
cl100k's; the piece on the left ends the same way as the whole goes on. And NFC joins no ASCII to what is before it.)
Where there is no such place, the CPU does the rest of the document.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
