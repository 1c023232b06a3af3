"""Rows of fill in the middle, put together again: prefix, middle and suffix are a piece of their file."""

from collections.abc import Iterator

import numpy as np

from gristmill.checks.runs import ROW, START, Run, Stretch
from gristmill.checks.spelling import Spelling
from gristmill.checks.tokens import Ids
from gristmill.tokenizers.tokenizer import Tokenizer, tokenizer_for

SLACK_BYTES = 8
"""Tokens that share a character may spell more or fewer bytes apart than together."""
SHOWN_BYTES = 20


def wrong_pieces(
    run: Run, file: Run | None, spelling: Spelling, sentinels: tuple[int, int, int]
) -> Iterator[tuple[int, str]]:
    """The row and what is wrong with it, for each that is no piece of its file where it says it is."""
    tokenizer = spelling.tokenizer
    goes_on = tokenizer_for(tokenizer.definition.continuing)
    found: _Spelled | None = None
    for index, one in enumerate(run.stretches):
        row = int(run.windows[index, ROW])
        piece = _rejoined(one.ids, sentinels, goes_on)
        if piece is None:
            continue  # its sentinels are wrong, which `variants` says
        start = int(run.windows[index, START])
        stretch = next((own for own in file.stretches if own.start <= start < own.end), None) if file else None
        if stretch is None:
            continue  # that part of the file is not shown
        if found is None or found.stretch is not stretch:
            found = _Spelled(stretch, tokenizer, goes_on)
        what = found.compared(piece, start)
        if what is not None:
            yield row, what


def _rejoined(ids: Ids, sentinels: tuple[int, int, int], tokenizer: Tokenizer) -> bytes | None:
    """`<prefix> a <suffix> c <middle> b` or `<prefix> <suffix> c <middle> a b` -> `a b c`"""
    prefix, middle, suffix = sentinels
    places = [np.flatnonzero(ids == one).tolist() for one in (prefix, suffix, middle)]
    if [len(one) for one in places] != [1, 1, 1] or places[0] != [0] or places[1] > places[2]:
        return None
    at, to = places[1][0], places[2][0]
    return b"".join(map(tokenizer.decode, (ids[1:at], ids[to + 1 :], ids[at + 1 : to])))


class _Spelled:
    """The text of a stretch of a file, and how far its rows have been found in it."""

    def __init__(self, stretch: Stretch, tokenizer: Tokenizer, goes_on: Tokenizer) -> None:
        self.stretch, self._decode = stretch, goes_on.decode
        self._text = (goes_on if stretch.start else tokenizer).decode(stretch.ids)
        self._token, self._byte = stretch.start, 0

    def compared(self, piece: bytes, start: int) -> str | None:
        """Say what is wrong with a piece. Quick if pieces come in the order of their places."""
        base = self.stretch.start
        if start < self._token:
            self._token, self._byte = base, 0
        about = self._byte + len(self._decode(self.stretch.ids[self._token - base : start - base]))
        at = self._text.find(piece, max(about - SLACK_BYTES, 0), about + SLACK_BYTES + len(piece))
        if at < 0 and about + len(piece) > len(self._text) - SLACK_BYTES:
            at = self._cut_short(piece, about)
        if at < 0:
            shown, there = piece[:SHOWN_BYTES], self._text[about : about + SHOWN_BYTES]
            return f"put together it is {shown!r} …, and its file has {there!r} … at token {start}"
        self._token, self._byte = start, at
        return None

    def _cut_short(self, piece: bytes, about: int) -> int:
        """Find a piece that goes on beyond what the rows show of the file; -1: it is not there."""
        for at in range(max(about - SLACK_BYTES, 0), min(about + SLACK_BYTES, len(self._text)) + 1):
            rest = self._text[at : len(self._text) - SLACK_BYTES]
            if len(rest) < len(piece) and piece.startswith(rest):
                return at
        return -1
