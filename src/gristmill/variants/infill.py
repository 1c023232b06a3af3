"""Fill in the middle: a document is rewritten piece by piece, so that the middle of each piece comes last.

    PSM   <prefix> a <suffix> c <middle> b <end>
    SPM   <prefix> <suffix> c <middle> a b <end>        (Bavarian et al. 2022)

variants/middles.py chooses the middle. Cuts are between characters, not between tokens, as an editor's cursor is, and
each part is encoded by itself, as an editor sends it. A piece is as long as a window takes, so no window has half of a
rewriting. Decoded, the parts are the piece, byte for byte.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gristmill.core.records import FimForm, FimWindow, MiddleKind, WhyPlain
from gristmill.core.seeded_random import Dice
from gristmill.variants.middles import Nodes, Shares, choose_middle
from gristmill.windows.cut import Indices

NUM_SENTINELS = 3
MIN_PIECE_TOKENS = 8
"""Shorter pieces have no middle worth guessing. They stay as they are."""
ROOM = 4
"""Tokens that cutting between characters usually costs at most: a token that is cut in two becomes two or three."""
MAX_TRIES = 4
"""Attempts to find a middle with few enough tokens and, in rows with text, an edge that is no token's inside."""

Ids = npt.NDArray[Any]
NO_IDS = np.zeros(0, np.uint32)


class Infilled(NamedTuple):
    """One window of a rewritten document."""

    window: FimWindow
    ids: Ids
    text: bytes
    """The text that encodes to these ids: the parts in this order, sentinels spelled out."""


class Sentinel(NamedTuple):
    id: int
    spelled: bytes


class NotGivenBackError(ValueError):
    """The tokenizer does not give a part of the text back as it was."""


class Infiller(NamedTuple):
    """`encode` and `decode` take a part that goes on after other tokens: no blank is put before it."""

    encode: Callable[[bytes], Ids]
    decode: Callable[[Ids], bytes]
    decode_first: Callable[[Ids], bytes]
    """Decode the beginning of a text."""
    prefix: Sentinel
    middle: Sentinel
    suffix: Sentinel
    num_content: int
    """Tokens that a window takes."""
    shares: Shares
    spm_share: float
    max_middle_tokens: int
    end: Sentinel | None = None
    """Token behind each middle, if the window's own ids have it."""
    with_text: bool = False
    """Rows have a text, which must encode to their ids. If the tokenizer would join the end of the prefix with the
    beginning of the middle, another middle is tried. If that fails, the row is PSM, with a sentinel between the two."""

    def infill(self, document: "InfillText", dice: Dice) -> list[Infilled] | WhyPlain:
        """Rewrite a document, or return the reason why it stays as it is.

        Only its last window may be without a middle: a document must not end before its end.
        """
        made: list[Infilled] = []
        start = 0
        try:
            while start < document.num_tokens:
                made.append(self._window(document, start, dice))
                start = made[-1].window.end
        except NotGivenBackError:
            return WhyPlain.TEXT_NOT_GIVEN_BACK
        are_rewritten = [one.window.form is not None for one in made]
        return made if any(are_rewritten) and all(are_rewritten[:-1]) else WhyPlain.NO_MIDDLE

    def _window(self, document: "InfillText", start: int, dice: Dice) -> Infilled:
        """Make the window that begins with this token, as long as it can be."""
        num_special = NUM_SENTINELS + (self.end is not None)
        end = document.end_before(start, start + self.num_content - num_special - ROOM)
        # So that the last window has a middle.
        if 0 < document.num_tokens - end < MIN_PIECE_TOKENS < (end - start) // 2:
            end = document.end_before(start, end - MIN_PIECE_TOKENS)
        while end - start >= MIN_PIECE_TOKENS:
            cut = self._cut(document, start, end, dice)
            if cut is None:
                break
            ids = np.concatenate([part.ids for part in cut.parts])
            if len(ids) <= self.num_content:
                window = FimWindow(start, end, len(ids), cut.form, cut.kind, cut.num_middle_tokens)
                return Infilled(window, ids, b"".join(part.text for part in cut.parts))
            end = document.end_before(start, end - (len(ids) - self.num_content))
        return self._plain(document, start)

    def _plain(self, document: "InfillText", start: int) -> Infilled:
        """Leave a piece as it is: it is too short, or has no middle."""
        end = document.end_before(start, start + self.num_content)
        ids, text = document.ids[start:end], document.text[document.starts[start] : document.starts[end]]
        if (self.decode if start else self.decode_first)(ids) != text:
            raise NotGivenBackError(text[:20])
        return Infilled(FimWindow(start, end, end - start), ids, text)

    def _cut(self, document: "InfillText", start: int, end: int, dice: Dice) -> "_Cut | None":
        """Cut a piece in three. None if it has no middle."""
        first, last = int(document.starts[start]), int(document.starts[end])
        form = FimForm.SPM if dice.fraction() < self.spm_share else FimForm.PSM
        max_bytes = (last - first) * self.max_middle_tokens // (end - start)
        fitting: _Cut | None = None
        for _ in range(MAX_TRIES):
            middle = choose_middle(document.text, (first, last), document.nodes, self.shares, max_bytes, dice)
            if middle is None:
                return fitting
            edges = (first, middle.start, middle.end, last)
            before, between, behind = (self._part(document.text[at:to]) for at, to in pairwise(edges))
            if len(between.ids) > self.max_middle_tokens:
                max_bytes = (middle.end - middle.start) * self.max_middle_tokens // len(between.ids)
                continue
            is_joined = form is FimForm.SPM and self.with_text and self._are_joined(before, between)
            made = FimForm.PSM if is_joined else form
            fitting = _Cut(made, middle.kind, len(between.ids), self._ordered(before, between, behind, made))
            if not is_joined:
                return fitting
        return fitting

    def _part(self, text: bytes) -> "_Part":
        ids = self.encode(text) if text else NO_IDS
        if text and self.decode(ids) != text:
            raise NotGivenBackError(text[:20])
        return _Part(ids, text)

    def _ordered(self, before: "_Part", between: "_Part", behind: "_Part", form: FimForm) -> tuple["_Part", ...]:
        prefix, middle, suffix = (_spelled(one) for one in (self.prefix, self.middle, self.suffix))
        end = () if self.end is None else (_spelled(self.end),)
        if form is FimForm.SPM:
            return (prefix, suffix, behind, middle, before, between, *end)
        return (prefix, before, suffix, behind, middle, between, *end)

    def _are_joined(self, before: "_Part", between: "_Part") -> bool:
        together = self.encode(before.text + between.text)
        return not np.array_equal(together, np.concatenate((before.ids, between.ids)))


class InfillText(NamedTuple):
    """A document that is rewritten."""

    text: bytes
    ids: Ids
    starts: Indices
    """The byte at which each token begins, and the length."""
    nodes: Nodes | None
    """Nodes of its syntax tree; None if its language has no grammar."""

    @property
    def num_tokens(self) -> int:
        return len(self.starts) - 1

    def end_before(self, start: int, end: int) -> int:
        """The last place up to `end`, and behind `start`, at which a token begins with a character."""
        end = min(end, self.num_tokens)
        for place in range(end, start, -1):
            at = int(self.starts[place])
            if at == len(self.text) or self.text[at] & 0xC0 != 0x80:  # noqa: PLR2004 - a byte that continues a character
                return place
        return max(end, start + 1)


class _Part(NamedTuple):
    ids: Ids
    text: bytes


class _Cut(NamedTuple):
    form: FimForm
    kind: MiddleKind
    num_middle_tokens: int
    parts: tuple[_Part, ...]
    """In the order of the row, sentinels among them."""


def _spelled(sentinel: Sentinel) -> _Part:
    return _Part(np.array([sentinel.id], np.uint32), sentinel.spelled)
